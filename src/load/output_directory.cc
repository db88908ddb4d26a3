#include "src/load/output_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/checkpoint/index.h"
#include "io/new_file.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "unfinished.json";
constexpr const char* kBegunState = "unfinished.json.part";  // until it is whole
constexpr const char* kConfig = "config.json";

// The place that a user names, whatever links lead there; "OUT/" is OUT.
fs::path place_of(const fs::path& named) {
  std::error_code error;
  fs::path place = fs::absolute(named, error);
  if (!error) place = fs::weakly_canonical(place, error);
  if (error)
    fail(ErrorKind::runtime, "{}: cannot be written: {}", io::printable(named.string()),
         error.message());
  return place.has_filename() ? place : place.parent_path();
}

fs::path part_of(fs::path directory) {
  directory += ".part";
  return directory;
}

bool is_empty_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error) && fs::is_empty(path, error) && !error;
}

// Returns whether there is nothing, or the state that a process was about to write at its start.
bool has_no_files(const fs::path& part) {
  return std::ranges::all_of(fs::directory_iterator(part), [](const fs::directory_entry& entry) {
    return entry.path().filename() == kBegunState;
  });
}

bool is_mount_point(const fs::path& path) {
  struct stat own{};
  struct stat above{};
  return stat(path.c_str(), &own) == 0 && stat(path.parent_path().c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

// Returns whether `path` is `directory`, or lies in it.
bool is_within(const fs::path& path, const fs::path& directory) {
  return std::ranges::mismatch(directory, path).in1 == directory.end();
}

// Only a directory of its own can be replaced when all files are written.
void check_place(const fs::path& place, const fs::path& model, const std::string& name) {
  std::error_code error;
  if (fs::is_symlink(place, error))
    fail(ErrorKind::usage, "{}: is a link to nothing; name a new directory", name);
  if (fs::exists(place, error) && !is_empty_directory(place))
    fail(ErrorKind::usage, "{}: is there; name a new directory", name);
  if (place == fs::current_path(error))
    fail(ErrorKind::usage, "{}: is the working directory; name a new directory", name);
  if (is_mount_point(place))
    fail(ErrorKind::usage, "{}: is a mount point; name a new directory in it", name);
  if (is_within(place_of(model), part_of(place)))
    fail(ErrorKind::usage,
         "{}: its files would be written to {}, where the model is; give another "
         "name",
         name, io::printable(part_of(place).string()));
}

// Locks the directory of unfinished files. Another process may have published or removed it between
// open and lock.
io::Fd lock_part(const fs::path& part, const std::string& name) {
  std::error_code error;
  fs::create_directories(part, error);
  io::Fd lock(open(part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.is_open())
    fail(ErrorKind::runtime, "{}: cannot be written: {}", name,
         error ? error.message() : errno_text(errno));
  const bool is_locked = flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  if (!is_locked && errno != EWOULDBLOCK) fail_errno(errno, "{}: cannot be locked", name);
  struct stat opened{};
  struct stat named{};
  const bool is_still = fstat(lock.get(), &opened) == 0 && stat(part.c_str(), &named) == 0 &&
                        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  if (!is_locked || !is_still)
    fail(ErrorKind::refused, "{}: another process is writing it; wait, or give another name", name);
  return lock;
}

void sync_directory(const fs::path& path) {
  const io::Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open() || fsync(fd.get()) != 0)
    fail_errno(errno, "{}: cannot be written", io::printable(path.string()));
}

// The text files of a model; an index of weights is written anew.
bool is_text(const fs::path& path) {
  constexpr std::array kTypes{".json", ".txt", ".jinja", ".model", ".tiktoken", ".py"};
  const std::string name = path.filename().string();
  return std::ranges::count(kTypes, path.extension().string()) > 0 &&
         !name.ends_with(".index.json") && name != kState;
}

// Such as 1_Pooling and additional_chat_templates. One with weights is a model of its own.
bool is_part_of_model(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return entry.is_directory() && !entry.is_symlink() && !name.starts_with('.') &&
         !name.ends_with(".part") && io::container_name(entry.path()).empty();
}

void copy_file(const OtherFile& file, const fs::path& to, std::span<std::byte> block) {
  const io::Fd fd = io::open_resolved(file.source);
  const uint64_t size = io::describe_file(fd, file.source, file.name).size;
  io::NewFile copy = io::NewFile::create_output(to, size);
  for (uint64_t at = 0; at < size; at += block.size()) {
    const std::span<std::byte> part = block.first(std::min<uint64_t>(size - at, block.size()));
    io::read_exactly(fd, file.source, at, {reinterpret_cast<char*>(part.data()), part.size()});
    copy.write(at, part);
  }
  copy.publish();
}

}  // namespace

void write_small_file(const fs::path& path, std::string_view text) {
  io::NewFile file = io::NewFile::create_output(path, text.size());
  file.write(0, std::as_bytes(std::span(text)));
  file.publish();
}

OutputDirectory::OutputDirectory(const fs::path& directory, const fs::path& model,
                                 std::string request)
    : directory_(place_of(directory)), part_(part_of(directory_)), request_(std::move(request)) {
  const std::string name = io::printable(directory.string());
  check_place(directory_, model, name);
  lock_ = lock_part(part_, name);
  if (fs::exists(part_ / kState)) {
    const Json state =
        parse_json(io::read_small_file(part_ / kState, 16 * MiB), (part_ / kState).string());
    const JsonFields fields(state, kState);
    if (fields.string_or("request", "") == request_ && fields.has("finished")) {
      finished_ = fields.raw("finished");
      if (finished_.is_object()) return;
    }
  }
  if (!has_no_files(part_))
    fail(ErrorKind::refused, "{}: another request has left it unfinished; remove it",
         io::printable(part_.string()));
  if (!request_.empty()) save();
}

OutputDirectory::~OutputDirectory() {
  std::error_code error;
  if (!is_published_ && (request_.empty() || finished_.empty())) fs::remove_all(part_, error);
}

std::optional<std::string> OutputDirectory::finished(const std::string& file) const {
  const auto found = finished_.find(file);
  if (found == finished_.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

void OutputDirectory::note_finished(const std::string& file, const std::string& checksum) {
  finished_[file] = checksum;
  save();
}

void OutputDirectory::forget(const std::string& file) {
  finished_.erase(file);
  save();
}

void OutputDirectory::save() const {
  write_small_file(part_ / kState, Json{{"request", request_}, {"finished", finished_}}.dump());
}

// The state goes last: until the directory has its name, another process can go on.
void OutputDirectory::publish() {
  sync_directory(part_);
  if (std::rename(part_.c_str(), directory_.c_str()) != 0)
    fail_errno(errno, "{}: cannot be written", io::printable(directory_.string()));
  is_published_ = true;
  std::error_code error;
  fs::remove(directory_ / kState, error);
  sync_directory(directory_);
  sync_directory(directory_.parent_path());
}

std::vector<OtherFile> other_files(const io::ModelDirectory& model) {
  std::vector<OtherFile> files;
  const auto add = [&](const fs::directory_entry& entry, const fs::path& name) {
    if (entry.is_regular_file() && is_text(name) && name != kConfig)
      files.push_back({name.string(), model.resolve(name.string())});
  };
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(model.path())) {
      const fs::path name = entry.path().filename();
      add(entry, name);
      if (!is_part_of_model(entry)) continue;
      for (const fs::directory_entry& inner : fs::directory_iterator(entry.path()))
        add(inner, name / inner.path().filename());
    }
  } catch (const fs::filesystem_error& e) {
    fail(ErrorKind::runtime, "{}: cannot be read: {}", io::printable(e.path1().string()),
         e.code().message());
  }
  return files;
}

void copy_other_files(std::span<const OtherFile> files, const OutputDirectory& to,
                      std::string_view config, std::span<std::byte> block) {
  for (const OtherFile& file : files) {
    const fs::path path = to.path() / file.name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      fail(ErrorKind::runtime, "{}: cannot be written: {}",
           io::printable(path.parent_path().string()), error.message());
    copy_file(file, path, block);
    sync_directory(path.parent_path());
  }
  write_small_file(to.path() / kConfig, config);
}

}  // namespace sluice
