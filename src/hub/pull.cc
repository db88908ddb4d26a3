#include "src/hub/pull.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "io/file.h"
#include "io/stream.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/base/units.h"
#include "src/hub/http.h"
#include "src/hub/listing.h"
#include "src/hub/retry.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostListing = 64 * MiB;

// Throws for a status that another attempt cannot change.
void refuse_status(int status, const HubName& name, bool has_token) {
  if (status == 401 || status == 403)
    fail(ErrorKind::refused, "{}: the hub refuses it ({}): {}", name.text(), status,
         has_token ? "check HF_TOKEN, and ask for access on the model's page"
                   : "the repository does not exist or needs an account; set HF_TOKEN to a token "
                     "of yours");
  if (status == 404)
    fail(ErrorKind::refused, "{}: the hub has no such repository, revision or file (404)",
         name.text());
  if (status >= 400 && status < 500 && status != 408 && status != 416 && status != 429)
    fail(ErrorKind::refused, "{}: the hub answers with status {}", name.text(), status);
}

HubListing fetch_listing(const PullOptions& o, const std::stop_token& stop) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", o.endpoint,
                                      url_path(o.name.repository()), url_path(o.name.revision));
  for (int tries = 1;; ++tries) {
    std::string text;
    const HttpResult result = http_get({.url = url, .token = o.token},
                                       {.begin = [](const HttpHead&) { return true; },
                                        .take =
                                            [&](std::span<const char> bytes) {
                                              text.append(bytes.data(), bytes.size());
                                              return text.size() <= kMostListing;
                                            }},
                                       stop);
    if (stop.stop_requested()) fail_interrupted();
    if (result.fault.empty() && result.status == 200)
      return parse_listing(parse_json(text, url), url);
    refuse_status(result.status, o.name, o.token.has_value());
    if (tries == kMostTries) fail(ErrorKind::runtime, "{}: {}", url, fault_of(result));
    log::info("{}: {}; trying again", o.name.text(), fault_of(result));
    wait_for(pause_before(tries, result.retry_after), stop);
  }
}

// One file's contents on their way into the cache.
class Blob {
 public:
  // Waits while another process fetches the same.
  Blob(const fs::path& repository, const HubFile& file, const std::stop_token& stop)
      : file_(file), path_(repository / "blobs" / file.hash), stop_(stop) {
    const fs::path locks = repository.parent_path() / ".locks" / repository.filename();
    fs::create_directories(locks);
    lock_ = open(locks / (file.hash + ".lock"), O_RDWR | O_CREAT | O_CLOEXEC);
    while (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail_errno(errno, "{}: cannot be locked", path_.string());
      wait_for(std::chrono::seconds(1), stop);
    }
    if (is_here()) return;
    fd_ = open(part(), O_RDWR | O_CREAT | O_CLOEXEC);
    begin_again(describe(fd_, part()).size);
  }

  bool is_here() const { return fs::exists(path_) && fs::file_size(path_) == file_.bytes; }
  uint64_t bytes() const { return bytes_; }

  // Goes on after the first `kept` bytes, which are read for the digest. Throws where the stop is
  // asked for.
  void begin_again(uint64_t kept) {
    digest_ = std::make_unique<Digest>(file_.kind, file_.bytes);
    bytes_ = kept <= file_.bytes ? kept : 0;
    if (ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0)
      fail_errno(errno, "{}", part().string());
    std::vector<char> buffer(1 * MiB);
    for (uint64_t at = 0; at < bytes_;) {
      if (stop_.stop_requested()) fail_interrupted();
      const std::span<char> piece(buffer.data(), std::min<uint64_t>(buffer.size(), bytes_ - at));
      io::read_exactly(fd_, part(), at, piece);
      digest_->add(piece);
      at += piece.size();
    }
  }

  // false: more than there is to come.
  bool add(std::span<const char> bytes) {
    if (bytes.size() > file_.bytes - bytes_) return false;
    digest_->add(bytes);
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(bytes_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_errno(errno, "{}: cannot be written", part().string());
      bytes = bytes.subspan(static_cast<size_t>(n));
      bytes_ += static_cast<uint64_t>(n);
    }
    return true;
  }

  // Gives the contents their name; false, and all bytes are gone, where they have another hash.
  bool finish() {
    if (digest_->hex() != file_.hash) {
      begin_again(0);
      return false;
    }
    if (fsync(fd_.get()) != 0) fail_errno(errno, "{}: cannot be written", part().string());
    fs::rename(part(), path_);
    return true;
  }

 private:
  fs::path part() const { return path_.string() + ".incomplete"; }
  static io::Fd open(const fs::path& path, int flags) {
    io::Fd fd(::open(path.c_str(), flags, 0644));
    if (!fd.is_open()) fail_errno(errno, "{}: cannot be created", path.string());
    return fd;
  }
  static io::CheckpointFile describe(const io::Fd& fd, const fs::path& path) {
    return io::describe_file(fd, path, path.filename());
  }

  const HubFile& file_;
  fs::path path_;
  std::stop_token stop_;
  io::Fd lock_, fd_;
  std::unique_ptr<Digest> digest_;
  uint64_t bytes_ = 0;
};

// The transfers of one pull().
class Pull {
 public:
  Pull(const PullOptions& o, HubListing listing, PullProgress& progress,
       const std::stop_token& stop)
      : o_(o),
        commit_(std::move(listing.commit)),
        progress_(progress),
        outside_(stop, [this] { stop_.request_stop(); }),
        repository_(cached_repository(o.cache, o.name)) {
    files_ = files_to_fetch({commit_, std::move(listing.files)}, o.name, o.include, o.exclude);
    std::ranges::stable_sort(files_, std::ranges::greater(), &HubFile::bytes);
  }

  void run() {
    fs::create_directories(repository_ / "blobs");
    check_room();
    {
      std::vector<std::jthread> threads;
      const auto count = std::min<size_t>(static_cast<size_t>(o_.connections), files_.size());
      for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    }
    if (fault_) std::rethrow_exception(fault_);
    for (const HubFile& file : files_) link(file);
    write_ref();
  }
  const std::string& commit() const { return commit_; }

 private:
  void work() {
    try {
      for (size_t i = next_++; i < files_.size() && !stop_.stop_requested(); i = next_++)
        fetch(files_[i]), ++progress_.files_done;
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!fault_) fault_ = std::current_exception();
      stop_.request_stop();
    }
  }

  // Before anything is fetched.
  void check_room() {
    uint64_t missing = 0;
    for (const HubFile& file : files_) {
      progress_.total += file.bytes;
      std::error_code absent;
      const fs::path blob = repository_ / "blobs" / file.hash;
      uint64_t here =
          fs::exists(blob) ? file.bytes : fs::file_size(blob.string() + ".incomplete", absent);
      if (absent) here = 0;
      missing += file.bytes - std::min(here, file.bytes);
    }
    progress_.files_total = static_cast<uint32_t>(files_.size());
    const uint64_t room = fs::space(repository_).available;
    if (missing > 0 && missing + kDiskReserve > room)
      fail(ErrorKind::runtime,
           "{}: needs {} of disk space, but {} has {} left; free some, or set HF_HUB_CACHE",
           o_.name.text(), format_size(missing), o_.cache.string(), format_size(room));
  }

  void fetch(const HubFile& file) {
    Blob blob(repository_, file, stop_.get_token());
    uint64_t counted = blob.is_here() ? file.bytes : blob.bytes();
    progress_.done += counted;
    bool refetched = false;
    for (int tries = 0; !blob.is_here();) {
      const uint64_t before = blob.bytes();
      const HttpResult result = before < file.bytes ? transfer(file, blob) : HttpResult{};
      progress_.done += blob.bytes() - before;  // wraps round where the server began again
      if (stop_.stop_requested()) fail_interrupted();
      if (blob.bytes() == file.bytes) {
        if (blob.finish()) return;
        if (std::exchange(refetched, true))
          fail(ErrorKind::runtime,
               "{}: {} comes with another hash than the hub says, twice; try again later",
               o_.name.text(), file.file);
        progress_.done -= file.bytes;
        continue;
      }
      refuse_status(result.status, o_.name, o_.token.has_value());
      // Nothing is behind what there is: the file is shorter than the listing says.
      if (result.status == 416 && std::exchange(refetched, true))
        fail(ErrorKind::runtime, "{}: {} is shorter than the hub says, twice; try again later",
             o_.name.text(), file.file);
      if (blob.bytes() > before) {  // a connection that brings something is taken up again at once
        tries = 0;
        continue;
      }
      if (++tries > kMostTries)
        fail(ErrorKind::runtime, "{}: {}: {}; run the same command again to continue",
             o_.name.text(), file.file, fault_of(result));
      if (!result.fault.empty() || result.status >= 400)
        log::info("{}: {}; trying again", file.file, fault_of(result));
      wait_for(pause_before(tries, result.retry_after), stop_.get_token());
    }
  }

  HttpResult transfer(const HubFile& file, Blob& blob) {
    const HttpGet get{
        .url = fmt::format("{}/{}/resolve/{}/{}", o_.endpoint, url_path(o_.name.repository()),
                           commit_, url_path(file.file)),
        .token = o_.token,
        .from = blob.bytes()};
    const auto begin = [&](const HttpHead& head) {
      // 200: the whole, which a part of it was asked for.
      if (head.status == 200 && blob.bytes() > 0) blob.begin_again(0);
      if (head.status == 416) blob.begin_again(0);
      return head.status == 206 || head.status == 200;
    };
    return http_get(
        get, {.begin = begin, .take = [&](std::span<const char> bytes) { return blob.add(bytes); }},
        stop_.get_token());
  }

  void link(const HubFile& file) const {
    const fs::path snapshot = repository_ / "snapshots" / commit_;
    const fs::path path = snapshot / file.file;
    fs::create_directories(path.parent_path());
    const fs::path to = (repository_ / "blobs" / file.hash).lexically_relative(path.parent_path());
    if (fs::is_symlink(path) && fs::read_symlink(path) == to) return;
    const fs::path fresh = path.string() + fmt::format(".{}.link", getpid());
    fs::remove(fresh);
    fs::create_symlink(to, fresh);
    fs::rename(fresh, path);
  }

  void write_ref() const {
    if (o_.name.revision == commit_) return;
    const fs::path path = repository_ / "refs" / o_.name.revision;
    fs::create_directories(path.parent_path());
    io::write_whole(path, [&](const auto& put) { put(commit_); }, {});
  }

  const PullOptions& o_;
  std::string commit_;
  PullProgress& progress_;
  std::stop_source stop_;  // before outside_, which uses it
  std::stop_callback<std::function<void()>> outside_;
  fs::path repository_;
  std::vector<HubFile> files_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr fault_;  // the first
};

}  // namespace

std::string hub_endpoint() {
  std::string text(environment("HF_ENDPOINT"));
  if (text.empty()) text = "https://huggingface.co";
  while (text.ends_with('/')) text.pop_back();
  if (!text.starts_with("https://") && !text.starts_with("http://"))
    fail(ErrorKind::usage, "HF_ENDPOINT is {}, but must begin with https:// or http://", text);
  return text;
}

std::optional<std::string> hub_token() {
  constexpr uint64_t kMostBytes = 4096;
  for (const char* variable : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    const std::string_view token = trim(environment(variable));
    if (!token.empty()) return std::string(token);
  }
  const fs::path path = environment_path("HF_TOKEN_PATH"), home = hub_home();
  if (path.empty() && home.empty()) return std::nullopt;
  const fs::path file = path.empty() ? home / "token" : path;
  std::error_code fault;
  if (!fs::is_regular_file(file, fault)) return std::nullopt;
  const std::string text = io::read_small_file(file, kMostBytes);
  const std::string_view token = trim(text);
  return token.empty() ? std::nullopt : std::optional<std::string>(token);
}

CachedModel pull(const PullOptions& options, PullProgress& progress, const std::stop_token& stop) {
  Pull transfers(options, fetch_listing(options, stop), progress, stop);
  transfers.run();
  std::optional<CachedModel> model = find_cached(options.cache, options.name);
  check(model.has_value(), "a model that was fetched is in the cache");
  if (!model->fault.empty()) fail(ErrorKind::refused, "{}", model->fault);
  return std::move(*model);
}

}  // namespace sluice
