#include "src/serve/batch/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/lines.h"
#include "src/base/error.h"
#include "src/serve/apis/response_ids.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The bytes of whole lines: what a kill has left of one more follows them.
uint64_t whole_lines(const io::InputFile& file) {
  std::array<char, 1 << 14> piece;
  for (uint64_t end = file.size(); end > 0;) {
    uint64_t length = std::min<uint64_t>(end, piece.size());
    file.read(end - length, std::span(piece).first(length));
    size_t last = std::string_view(piece.data(), length).find_last_of('\n');
    if (last != std::string_view::npos) return end - length + last + 1;
    end -= length;
  }
  return 0;
}

// Returns whether so much could have been left of a response's line.
bool is_beginning(const io::InputFile& file, uint64_t whole) {
  constexpr std::string_view kBegin = R"({"custom_id":)";
  std::string rest(std::min<uint64_t>(kBegin.size(), file.size() - whole), '\0');
  file.read(whole, rest);
  return kBegin.starts_with(rest);
}

uint64_t count_lines(const io::InputFile& file) {
  uint64_t lines = 0;
  for (io::LineReader reader(file, 0); reader.next();) ++lines;
  return lines;
}

// For as long as it is open nobody else's: two processes would answer each request twice.
io::Fd lock_output(const fs::path& path) {
  io::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
  if (!fd.is_open()) fail_errno(errno, "{}: cannot be written", path.string());
  // A file system without locks has none to respect.
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    fail(ErrorKind::refused,
         "{}: is being written by another process; wait for it, or name another output",
         path.string());
  }
  return fd;
}

}  // namespace

BatchOutput::BatchOutput(fs::path path, uint64_t longest_text, Ledger& ledger,
                         const std::stop_token& stop) {
  if (path == "/dev/stdout") path = "-";  // whatever it goes to
  std::error_code error;
  fs::file_type type = path == "-" ? fs::file_type::unknown : fs::status(path, error).type();
  if (type == fs::file_type::regular || type == fs::file_type::not_found) {
    lock_ = lock_output(path);
    read_done(path, longest_text, ledger, stop);
  }
  file_.emplace(std::move(path), stop);
}

void BatchOutput::read_done(const fs::path& path, uint64_t longest_text, Ledger& ledger,
                            const std::stop_token& stop) {
  const io::InputFile file(path, {}, stop);
  size_ = whole_lines(file);
  if (!is_beginning(file, size_))
    fail(ErrorKind::refused, "{}: is something else than the output of a batch", path.string());
  uint64_t lines = count_lines(file);
  done_ = Buffer(ledger, Use::runtime, "ids of responses", lines * sizeof(Digest),
                 Buffer::Touch::lazily);
  read_response_ids(file, size_, longest_text, [&](const Digest& id) {
    check(done_count_ < lines, "more responses than lines");
    ++done_count_;
    done_digests().back() = id;
  });
  std::ranges::sort(done_digests());
  if (ftruncate(lock_.get(), static_cast<off_t>(size_)) != 0)
    fail_errno(errno, "{}: cannot be written", path.string());
}

bool BatchOutput::done(const Digest& id) const {
  return std::ranges::binary_search(done_digests(), id);
}

void BatchOutput::add(const BatchLine& line, int status,
                      const std::function<void(JsonWriter&)>& write_body) {
  JsonWriter json([&](std::string_view piece) {
    file_->write(piece);
    size_ += piece.size();
  });
  json.begin_object();
  json.member("custom_id", line.custom_id);
  json.member("error", nullptr);
  json.member("id", line.id);
  json.key("response");
  json.begin_object();
  json.key("body");
  write_body(json);
  json.member("request_id", line.id);
  json.member("status_code", status);
  json.end_object();
  json.end_object();
  json.flush("\n");
  if (lock_.is_open()) cache_.written(lock_, size_);
}

}  // namespace sluice
