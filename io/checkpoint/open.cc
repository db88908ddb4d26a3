#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/checkpoint/content.h"
#include "io/checkpoint/index.h"
#include "io/checkpoint/join_parts.h"
#include "io/checkpoint/npy.h"
#include "io/checkpoint/places.h"
#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/shard_index.h"
#include "src/base/error.h"
#include "src/base/json.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxIndexBytes = 100'000'000;

using ReadFile = TensorFile (*)(const fs::path&, std::string);

enum class Layout : uint8_t {
  single,  // one file of tensors
  index,   // JSON that says which file has which tensor
  arrays,  // JSON with the names of tensors, each a file beside it
  parts,   // the first of several files, which are numbered from 0
  cut,     // the first of several with parts of every tensor, numbered from 0 (join_parts.h)
};

// The containers that a directory may have, in the order of preference (docs/formats.md): where
// transformers has an order, it is that.
struct Container {
  std::string_view name;
  Layout layout = Layout::single;
  ReadFile read = read_tensor_file;
};
constexpr auto kContainers = std::to_array<Container>({
    {"model.safetensors", Layout::single, read_safetensors_header},
    {"model.safetensors.index.json", Layout::index, read_safetensors_header},
    {"pytorch_model.bin", Layout::single},
    {"pytorch_model.bin.index.json", Layout::index},
    {"model.npz", Layout::single},
    {"np/weight_names.json", Layout::arrays, read_npy},
    {"model-rank-0-part-0.safetensors", Layout::parts, read_safetensors_header},
    {"consolidated.safetensors", Layout::single, read_safetensors_header},
    {"consolidated.safetensors.index.json", Layout::index, read_safetensors_header},
    {"consolidated.00.pth", Layout::cut},
    {"consolidated.00.safetensors", Layout::cut, read_safetensors_header},
});

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

CheckpointIndex with_copies(CheckpointIndex index, std::vector<FileCopy> copies) {
  for (FileCopy& copy : copies) index.add_copy(std::move(copy));
  return index;
}

CheckpointIndex open_single(const Places& places, const std::string& name, ReadFile read) {
  if (places.lack(name)) {
    fail(ErrorKind::refused, "{}: is a symbolic link to a file that is not there{}",
         printable((places.own() / name).string()), download_hint(places.own()));
  }
  std::vector<FileCopy> copies;
  TensorFile file = places.read(name, 0, copies, read);
  std::vector<CheckpointFile> files{std::move(file.file)};
  return with_copies({std::move(files), std::move(file.tensors), {}}, std::move(copies));
}

// Describes what a shard ought to hold, where it is one of several missing files.
AbsentTensors missing_shard(const Places& places, const Shard& shard, size_t missing, size_t all) {
  AbsentTensors absent;
  absent.place = printable((places.own() / shard.file).string());
  absent.hint =
      fmt::format(" ({} of {} files are missing){}", missing, all, download_hint(places.own()));
  absent.names = shard.tensors;
  return absent;
}

// Describes what a shard's file lacks.
AbsentTensors absent_tensors(const Places& places, const CheckpointFile& file,
                             std::vector<std::string> names) {
  return {.place = printable(file.path.string()),
          .file_is_there = true,
          .hint = download_hint(places.own()),
          .names = std::move(names)};
}

// "x (and 2 more)", for a warning.
std::string first_of(const std::set<std::string>& names) {
  std::string more = names.size() > 1 ? fmt::format(" (and {} more)", names.size() - 1) : "";
  return printable(*names.begin()) + more;
}

// The tensors of all shards, each once: from the shard that the index names, or where it names
// none, from the last that has it, as in transformers.
class ShardTensors {
 public:
  explicit ShardTensors(const ShardIndex& index) {
    size_t tensors = 0;
    for (const Shard& shard : index.shards) tensors += shard.tensors.size();
    named_.reserve(tensors);
    all_.reserve(tensors);
    for (const Shard& shard : index.shards)
      for (const std::string& name : shard.tensors) named_.emplace(name, Named{&shard});
  }

  // Takes the tensors of a shard's file, which has this number.
  void add(const Shard& shard, std::vector<StoredTensor> tensors, uint32_t number) {
    for (StoredTensor& tensor : tensors) {
      tensor.file = number;
      auto named = named_.find(tensor.name);
      tensor.listed = named != named_.end();
      if (tensor.listed && named->second.shard != &shard) {
        twice_.insert(tensor.name);
        continue;
      }
      if (tensor.listed) named->second.found = true;
      if (!tensor.listed) {
        auto [at, fresh] = unlisted_.try_emplace(tensor.name, all_.size());
        if (!fresh) {
          twice_.insert(tensor.name);
          all_[at->second] = std::move(tensor);
          continue;
        }
      }
      all_.push_back(std::move(tensor));
    }
  }

  // Returns the names of a shard that were not added.
  std::vector<std::string> lacked(const Shard& shard) const {
    std::vector<std::string> names;
    std::ranges::copy_if(shard.tensors, std::back_inserter(names),
                         [&](const std::string& name) { return !named_.at(name).found; });
    return names;
  }

  // One sentence about all in which the index and the shards disagree, or an empty one.
  std::string warning(std::string_view index, const std::vector<AbsentTensors>& absent) const {
    std::set<std::string> unlisted, lacked;
    for (const AbsentTensors& tensors : absent)
      lacked.insert(tensors.names.begin(), tensors.names.end());
    for (const auto& [name, at] : unlisted_) unlisted.insert(name);
    std::string faults;
    auto add = [&](const std::set<std::string>& names, std::string_view what) {
      if (!names.empty()) faults += fmt::format("; {} {}", first_of(names), what);
    };
    add(unlisted, "is not listed, but taken");
    add(twice_, "is in several shards");
    add(lacked, "is listed, but not there");
    return faults.empty() ? "" : fmt::format("{} and the shards disagree{}", index, faults);
  }

  std::vector<StoredTensor> take() && { return std::move(all_); }

 private:
  struct Named {
    const Shard* shard = nullptr;
    bool found = false;
  };
  std::unordered_map<std::string_view, Named> named_;  // tensors, as the index says
  std::unordered_map<std::string, size_t> unlisted_;   // tensor that it lacks -> place in all_
  std::vector<StoredTensor> all_;
  std::set<std::string> twice_;
};

CheckpointIndex open_sharded(const Places& places, std::string_view name, ReadFile read) {
  const fs::path& directory = places.own();
  std::string where = printable((directory / name).string());
  ShardIndex index = parse_shard_index(places.directory().read(name, kMaxIndexBytes), where);
  const auto missing = static_cast<size_t>(std::ranges::count_if(
      index.shards, [&](const Shard& shard) { return places.lack(shard.file); }));
  std::vector<CheckpointFile> files;
  ShardTensors found(index);
  std::vector<FileCopy> copies;
  std::vector<AbsentTensors> absent;
  for (const Shard& shard : index.shards) {
    if (places.lack(shard.file)) {
      absent.push_back(missing_shard(places, shard, missing, index.shards.size()));
      continue;
    }
    auto number = static_cast<uint32_t>(files.size());
    TensorFile file = places.read(shard.file, number, copies, read);
    found.add(shard, std::move(file.tensors), number);
    if (std::vector<std::string> lacked = found.lacked(shard); !lacked.empty())
      absent.push_back(absent_tensors(places, file.file, std::move(lacked)));
    files.push_back(std::move(file.file));
  }
  std::vector<std::string> warnings;
  if (std::string warning = found.warning(name, absent); !warning.empty())
    warnings.push_back(warning);
  std::vector<StoredTensor> tensors = std::move(found).take();
  uint64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) bytes += tensor.bytes;
  if (absent.empty() && index.total_size && *index.total_size != bytes) {
    warnings.push_back(fmt::format("{}: total_size is {}, but the tensors have {} bytes", where,
                                   *index.total_size, bytes));
  }
  // An absent tensor is refused when it is needed. An index without any tensor has nothing to
  // check.
  CheckpointIndex checkpoint(std::move(files), std::move(tensors), std::move(warnings));
  for (AbsentTensors& lacked : absent) checkpoint.add_absent(std::move(lacked));
  if (checkpoint.tensors().empty() && !checkpoint.absent().empty())
    checkpoint.refuse_absent(checkpoint.absent().front().names.front());
  return with_copies(std::move(checkpoint), std::move(copies));
}

// Raises the process's limit of open files, which is usually 1024, as far as it may.
void allow_more_files(uint64_t files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, limit.rlim_cur + files);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// vLLM's npcache: a list of names, and a file of that name for each, with or without ".npy".
CheckpointIndex open_arrays(const Places& places, const fs::path& name, ReadFile read) {
  const fs::path& directory = places.own();
  const std::string where = printable((directory / name).string());
  const Json names = parse_json(places.directory().read(name.string(), kMaxIndexBytes), where);
  if (!names.is_array() || !std::ranges::all_of(names, &Json::is_string))
    fail(ErrorKind::refused, "{}: must be a list of the tensors' names", where);
  constexpr size_t kMany = 256;
  if (names.size() > kMany) allow_more_files(names.size());
  std::vector<CheckpointFile> files;
  std::vector<StoredTensor> tensors;
  std::vector<FileCopy> copies;
  for (const Json& each : names) {
    const auto tensor = each.get<std::string>();
    std::string_view fault = path_fault(tensor);
    if (fault.empty() && tensor.find('/') != std::string::npos) fault = "is no name of a file";
    if (!fault.empty())
      fail(ErrorKind::refused, "{}: '{}' {}; refused without opening it", where, printable(tensor),
           fault);
    std::string path = (name.parent_path() / (tensor + ".npy")).string();
    if (places.lack(path)) path = (name.parent_path() / tensor).string();
    if (places.lack(path))
      fail(ErrorKind::refused, "{}: names {}, but there is no such file{}", where,
           printable(tensor), download_hint(directory));
    const auto number = static_cast<uint32_t>(files.size());
    TensorFile file = places.read(path, number, copies, read);
    StoredTensor& array = tensors.emplace_back(std::move(file.tensors.front()));
    array.name = tensor;
    array.file = number;
    files.push_back(std::move(file.file));
  }
  return with_copies({std::move(files), std::move(tensors), {}}, std::move(copies));
}

// Returns whether a trainer leaves such a file beside the weights.
bool is_of_trainer(const std::string& name) {
  constexpr std::string_view kBeginnings[] = {"training_args", "optimizer", "scheduler",
                                              "rng_state",     "scaler",    "trainer_state"};
  return std::ranges::any_of(kBeginnings, [&](auto b) { return name.starts_with(b); });
}

// Files that may have tensors, by their endings: a directory with one of them needs no known name.
std::vector<std::string> other_files(const fs::path& directory) {
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt", ".pth", ".npz"};
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const bool fits = std::ranges::count(kEndings, entry.path().extension().string()) > 0;
    if (fits && !entry.is_directory(error) && !is_of_trainer(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

// Returns whether these are NAME-00001-of-0000N.ENDING and so on, all N of them.
bool are_one_set(const std::vector<std::string>& names) {
  const std::string& first = names.front();
  const std::string of = fmt::format("-of-{:05}", names.size());
  const size_t at = first.find(of);
  constexpr size_t kDigits = 5;
  if (at == std::string::npos || at < kDigits) return false;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string number = fmt::format("{:05}", i + 1);
    if (names[i] != std::string(first).replace(at - kDigits, kDigits, number)) return false;
  }
  return true;
}

// Files without an index, each with tensors of its own.
CheckpointIndex open_set(const Places& places, const std::vector<std::string>& names,
                         ReadFile read) {
  std::vector<CheckpointFile> files;
  std::vector<StoredTensor> tensors;
  std::vector<FileCopy> copies;
  std::set<std::string> known;
  for (const std::string& name : names) {
    const auto number = static_cast<uint32_t>(files.size());
    TensorFile file = places.read(name, number, copies, read);
    for (StoredTensor& tensor : file.tensors) {
      if (!known.insert(tensor.name).second)
        fail(ErrorKind::refused, "{}: {} is in another file of the checkpoint, too",
             printable((places.own() / name).string()), printable(tensor.name));
      tensor.file = number;
      tensors.push_back(std::move(tensor));
    }
    files.push_back(std::move(file.file));
  }
  return with_copies({std::move(files), std::move(tensors), {}}, std::move(copies));
}

constexpr std::string_view kConsolidated = "consolidated";

// Files of Meta: each has a part of every tensor, or tensors of its own.
CheckpointIndex open_cut(const Places& places, const std::vector<std::string>& names,
                         ReadFile read) {
  std::vector<TensorFile> parts;
  std::vector<FileCopy> copies;
  for (const std::string& name : names)
    parts.push_back(places.read(name, static_cast<uint32_t>(parts.size()), copies, read));
  JoinedParts joined = join_parts(std::move(parts));
  return with_copies({std::move(joined.files), std::move(joined.tensors), {}}, std::move(copies));
}

// All files that are numbered as `first` is, "consolidated.00.pth".
std::vector<std::string> numbered_files(const fs::path& directory, std::string_view first) {
  const std::string ending = fs::path(first).extension().string();
  std::vector<std::string> names;
  for (const std::string& name : other_files(directory)) {
    if (name.starts_with(kConsolidated) && name.ends_with(ending)) names.push_back(name);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string expected = fmt::format("consolidated.{:02}{}", i, ending);
    if (names[i] != expected)
      fail(ErrorKind::refused, "{}: is not there, but {} is{}",
           printable((directory / expected).string()), printable(names[i]),
           download_hint(directory));
  }
  return names;
}

CheckpointIndex open_other(const Places& places) {
  const fs::path& directory = places.own();
  const std::vector<std::string> names = other_files(directory);
  if (names.size() == 1) return open_single(places, names.front(), read_tensor_file);
  const bool is_set = names.size() > 1 && are_one_set(names);
  if (is_set && names.front().starts_with(kConsolidated))
    return open_cut(places, names, read_tensor_file);
  if (is_set) return open_set(places, names, read_tensor_file);
  if (names.empty()) {
    fail(ErrorKind::refused, "{}: holds neither {} nor {}, nor another file of weights{}",
         printable(directory.string()), kContainers[0].name, kContainers[1].name,
         download_hint(directory));
  }
  fail(ErrorKind::refused, "{}: holds {} files of weights ({}, {}, ...), and neither {} nor {}",
       printable(directory.string()), names.size(), printable(names[0]), printable(names[1]),
       kContainers[0].name, kContainers[1].name);
}

const Container* find_container(const fs::path& directory) {
  const auto found = std::ranges::find_if(
      kContainers, [&](const Container& c) { return is_there(directory / c.name); });
  return found == kContainers.end() ? nullptr : &*found;
}

constexpr std::string_view kSafetensors = "safetensors", kGguf = "gguf";

std::string part_name(int rank, size_t part, std::string_view type) {
  return fmt::format("model-rank-{}-part-{}.{}", rank, part, type);
}

bool is_cut(const fs::path& directory, std::string_view type) {
  std::error_code error;
  return std::ranges::any_of(fs::directory_iterator(directory, error),
                             [&](const fs::directory_entry& entry) {
                               const std::string name = entry.path().filename().string();
                               return name.starts_with("model-rank-") && name.ends_with(type);
                             });
}

// Refuses files that are cut for another number of ranks; a rank's host may have no others.
void check_ranks(const fs::path& directory, OpeningRank rank, std::string_view type) {
  const auto has_rank = [&](int r) { return is_there(directory / part_name(r, 0, type)); };
  const std::string where = printable(directory.string());
  if (!has_rank(rank.rank))
    fail(ErrorKind::refused, "{}: has no {}; give as many ranks as it is cut for", where,
         part_name(rank.rank, 0, type));
  int ranks = rank.ranks;
  while (has_rank(ranks)) ++ranks;
  if (ranks > rank.ranks)
    fail(ErrorKind::refused, "{}: is cut for {} ranks; give --tensor-parallel-size {}", where,
         ranks, ranks);
}

// vLLM's sharded_state: the parts of one rank.
CheckpointIndex open_parts(const Places& places, OpeningRank rank) {
  check_ranks(places.own(), rank, kSafetensors);
  const auto name = [&](size_t part) { return part_name(rank.rank, part, kSafetensors); };
  std::vector<std::string> names{name(0)};
  while (is_there(places.own() / name(names.size()))) names.push_back(name(names.size()));
  CheckpointIndex index = open_set(places, names, read_safetensors_header);
  index.set_ranks(rank.ranks);
  return index;
}

CheckpointIndex open_container(const Places& places, OpeningRank rank) {
  const Container* container = find_container(places.own());
  if (container == nullptr && is_cut(places.own(), kSafetensors)) return open_parts(places, rank);
  if (container == nullptr) return open_other(places);
  switch (container->layout) {
    case Layout::index:
      return open_sharded(places, container->name, container->read);
    case Layout::arrays:
      return open_arrays(places, container->name, container->read);
    case Layout::parts:
      return open_parts(places, rank);
    case Layout::cut:
      if (places.lack(std::string(container->name))) break;
      return open_cut(places, numbered_files(places.own(), container->name), container->read);
    case Layout::single:
      break;
  }
  return open_single(places, std::string(container->name), container->read);
}

}  // namespace

std::string rank_gguf(const fs::path& directory, OpeningRank rank) {
  if (!is_cut(directory, kGguf)) return {};
  check_ranks(directory, rank, kGguf);
  return part_name(rank.rank, 0, kGguf);
}

std::string container_name(const fs::path& directory) {
  if (const Container* container = find_container(directory)) return std::string(container->name);
  const std::vector<std::string> names = other_files(directory);
  const bool is_known = !names.empty() && std::ranges::all_of(names, [](const std::string& name) {
    return name.starts_with(kConsolidated);
  });
  return is_known ? names.front() : "";
}

CheckpointIndex open_checkpoint(const ModelDirectory& directory, std::span<const fs::path> mirrors,
                                OpeningRank rank) {
  std::string where = printable(directory.path().string());
  std::error_code error;
  fs::file_status status = fs::status(directory.path(), error);
  if (!fs::exists(status)) {
    fail(ErrorKind::refused, "{}: {}", where,
         error ? error.message() : std::string("there is no such directory"));
  }
  if (!fs::is_directory(status)) {
    fail(ErrorKind::refused, "{}: is not a directory; give the directory that holds {}", where,
         kContainers[0].name);
  }
  CheckpointIndex checkpoint = open_container(Places(directory, mirrors), rank);
  if (checkpoint.tensors().empty()) fail(ErrorKind::refused, "{}: holds no tensors", where);
  return checkpoint;
}

}  // namespace sluice::io
