#include "src/load/output_directory.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/new_file.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "unfinished.json";
constexpr const char* kConfig = "config.json";

// "OUT/" is OUT.
fs::path without_slash(fs::path path) {
  path = path.lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

void sync_directory(const fs::path& path) {
  const io::Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open() || fsync(fd.get()) != 0)
    fail_errno(errno, "{}: cannot be written", io::printable(path.string()));
}

}  // namespace

void write_small_file(const fs::path& path, std::string_view text) {
  io::NewFile file = io::NewFile::create_output(path, text.size());
  file.write(0, std::as_bytes(std::span(text)));
  file.publish();
}

OutputDirectory::OutputDirectory(fs::path directory, std::string request)
    : directory_(without_slash(std::move(directory))),
      part_(directory_),
      request_(std::move(request)) {
  const std::string name = io::printable(directory_.string());
  std::error_code error;
  if (fs::exists(directory_, error) && !(fs::is_directory(directory_) && fs::is_empty(directory_)))
    fail(ErrorKind::usage, "{}: is there; name a new directory", name);
  part_ += ".part";
  fs::create_directories(part_, error);
  lock_ = io::Fd(open(part_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_.is_open())
    fail(ErrorKind::runtime, "{}: cannot be written: {}", name,
         error ? error.message() : errno_text(errno));
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    fail(ErrorKind::refused, "{}: another process is writing it; wait, or give another name", name);
  if (fs::exists(part_ / kState)) {
    const Json state =
        parse_json(io::read_small_file(part_ / kState, 16 * MiB), (part_ / kState).string());
    const JsonFields fields(state, kState);
    if (fields.string_or("request", "") == request_ && fields.has("finished")) {
      finished_ = fields.raw("finished");
      if (finished_.is_object()) return;
    }
  }
  if (!fs::is_empty(part_))
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

void OutputDirectory::publish() {
  std::error_code error;
  fs::remove(part_ / kState, error);
  sync_directory(part_);
  if (std::rename(part_.c_str(), directory_.c_str()) != 0)
    fail_errno(errno, "{}: cannot be written", io::printable(directory_.string()));
  is_published_ = true;
  sync_directory(directory_.has_parent_path() ? directory_.parent_path() : fs::path("."));
}

void copy_other_files(const io::ModelDirectory& from, const OutputDirectory& to,
                      const std::string& config) {
  constexpr std::array kTypes{".json", ".txt", ".jinja", ".model", ".tiktoken", ".py"};
  constexpr auto kReplace = fs::copy_options::overwrite_existing;
  for (const fs::directory_entry& entry : fs::directory_iterator(from.path())) {
    const bool is_text = std::ranges::count(kTypes, entry.path().extension().string()) > 0;
    const bool is_index = entry.path().filename().string().ends_with(".index.json");
    const bool is_config = entry.path().filename() == kConfig;
    if (!entry.is_regular_file() || !is_text || is_index || is_config) continue;
    const std::string name = entry.path().filename().string();
    fs::copy_file(from.resolve(name), to.path() / name, kReplace);
  }
  if (config.empty()) {
    fs::copy_file(from.resolve(kConfig), to.path() / kConfig, kReplace);
  } else {
    write_small_file(to.path() / kConfig, config);
  }
}

}  // namespace sluice
