#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "io/checkpoint/index.h"
#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/shard_index.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 100'000'000;

// A link that leads nowhere is there, too: it shall be reported, not passed over.
bool is_there(const fs::path& path) {
  std::error_code error;
  fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (error) {
    fail(ErrorKind::refused, "{}: cannot be examined: {}", printable(path.string()),
         error.message());
  }
  return true;
}

// The first file in `folder` that a download tool has not finished, or empty.
fs::path unfinished_file(const fs::path& folder) {
  constexpr std::array<std::string_view, 5> kEndings{".incomplete", ".part", ".partial", ".aria2",
                                                     ".crdownload"};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::string extension = entry.path().extension().string();
    if (std::find(kEndings.begin(), kEndings.end(), extension) != kEndings.end()) {
      return entry.path();
    }
  }
  return {};
}

// For the end of a sentence that says what is missing.
std::string download_hint(const fs::path& directory) {
  // Where the Hugging Face client keeps what it is about to write into `directory`, and where its
  // cache keeps what a snapshot will link to.
  std::vector<fs::path> folders{directory, directory / ".cache/huggingface/download"};
  std::error_code error;
  fs::path snapshots = fs::canonical(directory, error).parent_path();
  if (snapshots.filename() == "snapshots") folders.push_back(snapshots.parent_path() / "blobs");
  for (const fs::path& folder : folders) {
    if (fs::path file = unfinished_file(folder); !file.empty()) {
      return fmt::format(" (the download is not finished: there is {})",
                         printable(file.filename().string()));
    }
  }
  return "";
}

// A link that leads nowhere, as a cache has before the file arrives, does not count as a file; one
// that cannot be followed at all does, and is left to resolve_inside.
bool is_absent(const fs::path& path) {
  std::error_code error;
  return !fs::exists(path, error) && (!error || error == std::errc::no_such_file_or_directory);
}

CheckpointIndex open_single(const fs::path& directory) {
  fs::path path = directory / kSingleFile;
  if (is_absent(path)) {
    fail(ErrorKind::refused, "{}: is a symbolic link to a file that is not there{}",
         printable(path.string()), download_hint(directory));
  }
  SafetensorsFile file =
      read_safetensors_header(resolve_inside(directory, kSingleFile), std::string(kSingleFile));
  std::vector<CheckpointFile> files{std::move(file.file)};
  return {std::move(files), std::move(file.tensors), {}};
}

void refuse_missing_shards(const fs::path& directory, const ShardIndex& index) {
  std::vector<std::string> missing;
  for (const Shard& shard : index.shards) {
    if (is_absent(directory / shard.file)) missing.push_back(shard.file);
  }
  if (missing.empty()) return;
  fail(ErrorKind::refused, "{}: named by {} but not there ({} of {} files are missing){}",
       printable((directory / missing.front()).string()), kIndexFile, missing.size(),
       index.shards.size(), download_hint(directory));
}

void refuse_absent_tensors(const SafetensorsFile& file, const Shard& shard) {
  std::vector<std::string_view> held;
  for (const StoredTensor& tensor : file.tensors) held.push_back(tensor.name);
  std::sort(held.begin(), held.end());
  std::vector<std::string_view> absent;
  std::set_difference(shard.tensors.begin(), shard.tensors.end(), held.begin(), held.end(),
                      std::back_inserter(absent));
  if (absent.empty()) return;
  std::string more = absent.size() > 1 ? fmt::format(" (nor {} more)", absent.size() - 1) : "";
  fail(ErrorKind::refused, "{}: does not hold tensor {} that {} puts there{}",
       printable(file.file.path.string()), printable(absent.front()), kIndexFile, more);
}

// Moves the tensors that the index puts into this file to `tensors`. Others are ignored: the index
// may say that they lie elsewhere. Returns a warning about them, or an empty string.
std::string take_tensors(SafetensorsFile& file, const Shard& shard, uint32_t number,
                         std::vector<StoredTensor>& tensors) {
  std::vector<std::string> ignored;
  for (StoredTensor& tensor : file.tensors) {
    if (std::binary_search(shard.tensors.begin(), shard.tensors.end(), tensor.name)) {
      tensor.file = number;
      tensors.push_back(std::move(tensor));
    } else {
      ignored.push_back(std::move(tensor.name));
    }
  }
  if (ignored.empty()) return "";
  return fmt::format("{}: ignored, because {} does not put it there: tensor {}{}",
                     printable(shard.file), kIndexFile, printable(ignored.front()),
                     ignored.size() > 1 ? fmt::format(" and {} more", ignored.size() - 1) : "");
}

CheckpointIndex open_sharded(const fs::path& directory) {
  std::string where = printable((directory / kIndexFile).string());
  ShardIndex index =
      parse_shard_index(read_checkpoint_file(directory, kIndexFile, kMaxIndexBytes), where);
  refuse_missing_shards(directory, index);

  std::vector<CheckpointFile> files;
  std::vector<StoredTensor> tensors;
  std::vector<std::string> warnings;
  for (const Shard& shard : index.shards) {
    SafetensorsFile file =
        read_safetensors_header(resolve_inside(directory, shard.file), shard.file);
    refuse_absent_tensors(file, shard);
    std::string warning = take_tensors(file, shard, static_cast<uint32_t>(files.size()), tensors);
    if (!warning.empty()) warnings.push_back(std::move(warning));
    files.push_back(std::move(file.file));
  }
  uint64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) bytes += tensor.bytes;
  if (index.total_size && *index.total_size != bytes) {
    warnings.push_back(fmt::format("{}: total_size is {}, but the tensors have {} bytes", where,
                                   *index.total_size, bytes));
  }
  return {std::move(files), std::move(tensors), std::move(warnings)};
}

}  // namespace

CheckpointIndex open_checkpoint(const fs::path& directory) {
  std::string where = printable(directory.string());
  std::error_code error;
  fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status)) {
    fail(ErrorKind::refused, "{}: {}", where,
         error ? error.message() : std::string("there is no such directory"));
  }
  if (!fs::is_directory(status)) {
    fail(ErrorKind::refused, "{}: is not a directory; give the directory that holds {}", where,
         kSingleFile);
  }
  // A single file is preferred to an index, as transformers does.
  bool single = is_there(directory / kSingleFile);
  if (!single && !is_there(directory / kIndexFile)) {
    fail(ErrorKind::refused, "{}: holds neither {} nor {}{}", where, kSingleFile, kIndexFile,
         download_hint(directory));
  }
  CheckpointIndex checkpoint = single ? open_single(directory) : open_sharded(directory);
  if (checkpoint.tensors().empty()) fail(ErrorKind::refused, "{}: holds no tensors", where);
  return checkpoint;
}

}  // namespace sluice::io
