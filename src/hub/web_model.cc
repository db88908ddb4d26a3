#include "src/hub/web_model.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <regex>
#include <span>
#include <utility>

#include "io/checkpoint/shard_index.h"
#include "io/file.h"
#include "io/stream.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/hub/cache.h"
#include "src/hub/digest.h"
#include "src/hub/retry.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecord = ".source.json";
constexpr uint64_t kMostRecordBytes = 16 * MiB;
constexpr uint64_t kMostIndexBytes = 256 * MiB;
constexpr uint64_t kRoomStep =
    64 * MiB;  // after which the disk is asked, for files without a length
constexpr std::array kWebConfigs{"config.json", "params.json"};
// The first that is there has the weights, or names the files that have them.
constexpr std::array kWebWeights{"model.safetensors.index.json",
                                 "model.safetensors",
                                 "pytorch_model.bin.index.json",
                                 "pytorch_model.bin",
                                 "model.npz",
                                 "consolidated.safetensors",
                                 "consolidated.00.pth"};
// Fetched where they are there.
constexpr std::array kWebTexts{"generation_config.json",
                               "tokenizer.json",
                               "tokenizer_config.json",
                               "special_tokens_map.json",
                               "added_tokens.json",
                               "tokenizer.model",
                               "tekken.json",
                               "tiktoken.model",
                               "vocab.json",
                               "merges.txt",
                               "chat_template.jinja",
                               "chat_template.json",
                               "hf_quant_config.json",
                               "quantize_config.json",
                               "quant_config.json"};

bool is_absent(int status) {
  return status == 401 || status == 403 || status == 404 || status == 410;
}

io::Fd open_file(const fs::path& path, int flags) {
  io::Fd fd(::open(path.c_str(), flags, 0644));
  if (!fd.is_open()) fail_errno(errno, "{}: cannot be created", path.string());
  return fd;
}

// Knowledge of the files, kept on disk.
class Record {
 public:
  explicit Record(const fs::path& directory) : path_(directory / kRecord) {
    std::error_code fault;
    if (!fs::is_regular_file(path_, fault)) return;
    try {
      json_ = parse_json(io::read_small_file(path_, kMostRecordBytes), path_.string());
    } catch (const Error&) {  // all is fetched anew
    }
    if (!json_.is_object()) json_ = Json::object();
  }

  bool complete() const { return json_.value("complete", Json()) == true; }
  // Empty: none was ever known.
  std::string address() const {
    const auto found = json_.find("address");
    return found != json_.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
  void set_address(const std::string& address) { json_["address"] = address; }
  // Names the contents of a file that is here, or of its part; empty: nothing does.
  std::string validator(const std::string& file) const {
    const Json files = json_.value("files", Json::object());
    const auto found = files.is_object() ? files.find(file) : files.end();
    return found != files.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
  // The contents of a file are replaced by others from now on.
  void set(const std::string& file, const std::string& validator) {
    if (!json_["files"].is_object()) json_["files"] = Json::object();
    json_["files"][file] = validator;
    json_["complete"] = false;
    write();
  }
  void set_complete() {
    json_["complete"] = true;
    write();
  }

 private:
  void write() const {
    // A server's validators may be any bytes.
    const std::string text = json_.dump(1, ' ', false, Json::error_handler_t::replace);
    io::write_whole(path_, [&](const auto& put) { put(text); }, {});
  }

  fs::path path_;
  Json json_ = Json::object();
};

// A file on its way into the directory.
class Incoming {
 public:
  Incoming(const fs::path& directory, std::string file, Record& record, PullProgress& progress)
      : file_(std::move(file)), path_(directory / file_), record_(record), progress_(progress) {
    fs::create_directories(path_.parent_path());
    fd_ = open_file(part(), O_RDWR | O_CREAT | O_CLOEXEC);
    bytes_ = io::describe_file(fd_, part(), part().filename()).size;
    if (record_.validator(file_).empty() || is_here()) begin_again();
  }
  ~Incoming() {
    if (bytes_ > 0 && !record_.validator(file_).empty()) return;
    std::error_code ignored;
    fs::remove(part(), ignored);
  }
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  uint64_t bytes() const { return bytes_; }
  // The first byte to ask for. Contents without a name cannot be continued.
  uint64_t resume_at() {
    if (record_.validator(file_).empty()) begin_again();
    return bytes_;
  }
  // The server has told that what is here is all, and the same.
  bool unchanged() const { return unchanged_; }

  // Takes the head of an answer; false: what follows is of no use.
  bool begin(const HttpHead& head) {
    const bool same = !head.validator.empty() && head.validator == record_.validator(file_);
    unchanged_ = head.status == 200 && same && is_here();
    if (unchanged_) return false;
    // Other answers say nothing of the contents.
    if (head.status != 200 && head.status != 206 && head.status != 416) return false;
    const bool goes_on = head.status == 206 && same && head.first == bytes_;
    if (!goes_on && bytes_ > 0) begin_again();
    if (!goes_on && head.status != 200) return false;
    if (!goes_on) {
      fs::remove(path_);  // what it has been is not called by the new contents' name
      record_.set(file_, head.validator);
    }
    total_ = head.total;
    const uint64_t counted = total_.value_or(0);
    progress_.total += counted - std::exchange(counted_, counted);
    progress_.done += bytes_ - std::exchange(done_, bytes_);
    check_room();
    return true;
  }

  bool add(std::span<const char> bytes) {
    if (total_ && bytes.size() > *total_ - std::min(*total_, bytes_)) return false;
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(bytes_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_errno(errno, "{}: cannot be written", part().string());
      bytes = bytes.subspan(static_cast<size_t>(n));
      const uint64_t before = std::exchange(bytes_, bytes_ + static_cast<uint64_t>(n));
      if (!total_ && before / kRoomStep != bytes_ / kRoomStep) check_room();
      progress_.done += bytes_ - std::exchange(done_, bytes_);
    }
    return true;
  }

  bool is_whole() const { return !total_ || bytes_ == *total_; }
  void finish() {
    if (fsync(fd_.get()) != 0) fail_errno(errno, "{}: cannot be written", part().string());
    fs::rename(part(), path_);
  }

 private:
  fs::path part() const { return path_.string() + ".incomplete"; }
  bool is_here() const { return fs::exists(path_); }

  void begin_again() {
    if (ftruncate(fd_.get(), 0) != 0) fail_errno(errno, "{}", part().string());
    bytes_ = 0;
  }

  void check_room() const {
    const uint64_t missing = total_ ? *total_ - std::min(*total_, bytes_) : kRoomStep;
    const uint64_t room = fs::space(path_.parent_path()).available;
    if (missing > 0 && missing + kDiskReserve > room)
      fail(ErrorKind::runtime,
           "{}: needs {} of disk space, but {} has {} left; free some, or set XDG_CACHE_HOME",
           file_, format_size(missing), path_.parent_path().string(), format_size(room));
  }

  std::string file_;
  fs::path path_;
  Record& record_;
  PullProgress& progress_;
  io::Fd fd_;
  uint64_t bytes_ = 0, counted_ = 0, done_ = 0;
  std::optional<uint64_t> total_;
  bool unchanged_ = false;
};

// The transfers of one fetch_web_model().
class Fetch {
 public:
  Fetch(const WebAddress& address, PullProgress& progress, const std::stop_token& stop)
      : address_(address), progress_(progress), stop_(stop), directory_(web_cache(address)) {
    fs::create_directories(directory_);
    lock_ = open_file(directory_ / ".lock", O_RDWR | O_CREAT | O_CLOEXEC);
    while (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail_errno(errno, "{}: cannot be locked", directory_.string());
      wait_for(std::chrono::seconds(1), stop_);
    }
    record_.emplace(directory_);
    record_->set_address(address_.text());
  }

  void run() {
    if (!address_.file.empty()) {
      for (const std::string& part : gguf_parts()) need(part);
    } else {
      need_one(kWebConfigs);
      const std::string weights = need_one(kWebWeights);
      if (weights.ends_with(".index.json"))
        for (const io::Shard& shard : shards_of(weights)) need(shard.file);
      for (const char* file : kWebTexts) take(file);
      if (take("modules.json")) take("1_Pooling/config.json");  // of models for embeddings
    }
    record_->set_complete();
  }

 private:
  // The names of all parts of a GGUF model, of which the address names one.
  std::vector<std::string> gguf_parts() const {
    static const std::regex kPart("(.*)-[0-9]{5}-of-([0-9]{5})\\.gguf");
    std::smatch match;
    constexpr size_t kMostName = 255;  // bytes, of a file
    if (address_.file.size() > kMostName || !std::regex_match(address_.file, match, kPart))
      return {address_.file};
    std::vector<std::string> parts;
    for (int i = 1; i <= std::stoi(match[2]); ++i)
      parts.push_back(fmt::format("{}-{:05}-of-{}.gguf", match[1].str(), i, match[2].str()));
    return parts;
  }

  std::vector<io::Shard> shards_of(const std::string& index) const {
    return io::parse_shard_index(io::read_small_file(directory_ / index, kMostIndexBytes),
                                 address_.directory + index)
        .shards;
  }

  void need(const std::string& file) {
    if (fetch(file)) return;
    fail(ErrorKind::refused, "{}{}: the server answers with status {}", address_.directory, file,
         status_);
  }

  // Another one that was there before does not stay.
  std::string need_one(std::span<const char* const> files) {
    for (const char* file : files) {
      if (!fetch(file)) continue;
      for (const char* other : files)
        if (other != file) fs::remove(directory_ / other);
      return file;
    }
    fail(ErrorKind::refused, "{}: the server has none of {} there (the last status is {})",
         address_.text(), fmt::join(files, ", "), status_);
  }

  // A file that the server has no more does not stay. false: there is no such file.
  bool take(const char* file) {
    const bool is_there = fetch(file);
    if (!is_there) fs::remove(directory_ / file);
    return is_there;
  }

  // false: there is no such file.
  bool fetch(const std::string& file) {
    Incoming incoming(directory_, file, *record_, progress_);
    ++progress_.files_total;
    for (int tries = 0;;) {
      const uint64_t before = incoming.bytes();
      const HttpResult result = transfer(file, incoming);
      status_ = result.status;
      if (stop_.stop_requested()) fail_interrupted();
      const bool good = (result.status == 200 || result.status == 206) && result.fault.empty();
      if (incoming.unchanged() || (good && incoming.is_whole())) {
        if (!incoming.unchanged()) incoming.finish();
        ++progress_.files_done;
        return true;
      }
      if (is_absent(result.status)) {
        --progress_.files_total;
        return false;
      }
      if (result.status >= 400 && result.status < 500 && result.status != 408 &&
          result.status != 416 && result.status != 429)
        fail(ErrorKind::refused, "{}{}: the server answers with status {}", address_.directory,
             file, result.status);
      // A connection that brings something is taken up again at once.
      tries = incoming.bytes() > before ? 0 : tries + 1;
      if (tries > kMostTries)
        fail(ErrorKind::runtime, "{}{}: {}; run the same command again to continue",
             address_.directory, file, fault_of(result));
      if (tries > 0) {
        log::info("{}: {}; trying again", file, fault_of(result));
        wait_for(pause_before(tries, result.retry_after), stop_);
      }
    }
  }

  HttpResult transfer(const std::string& file, Incoming& incoming) {
    // An address has the names of its file's parts as a server knows them.
    const std::string path = address_.file.empty() ? url_path(file) : file;
    const HttpGet get{.url = address_.directory + path + address_.query,
                      .token = std::nullopt,
                      .from = incoming.resume_at()};
    return http_get(get,
                    {.begin = [&](const HttpHead& head) { return incoming.begin(head); },
                     .take = [&](std::span<const char> bytes) { return incoming.add(bytes); }},
                    stop_);
  }

  const WebAddress& address_;
  PullProgress& progress_;
  const std::stop_token& stop_;
  fs::path directory_;
  io::Fd lock_;
  std::optional<Record> record_;
  int status_ = 0;  // of the last answer
};

// The directory of all models; empty without a cache.
fs::path models_directory() {
  const fs::path cache = user_cache();
  return cache.empty() ? cache : cache / "models";
}

fs::path opened(const WebAddress& address) {
  const fs::path directory = web_cache(address);
  return address.file.empty() ? directory : directory / address.file;
}

}  // namespace

std::optional<WebAddress> parse_web_address(std::string_view text) {
  const size_t scheme = text.find("://");
  if (!text.starts_with("http://") && !text.starts_with("https://")) return std::nullopt;
  if (parse_hub_name(text)) return std::nullopt;
  WebAddress address;
  text = text.substr(0, text.find('#'));
  const size_t query = std::min(text.find('?'), text.size());
  address.query = text.substr(query);
  text = text.substr(0, query);
  const std::string_view host = text.substr(scheme + 3);
  if (host.substr(0, host.find('/')).find('@') != std::string_view::npos)
    fail(ErrorKind::usage,
         "an address with a password would be shown and kept; give one without what is before the "
         "@, or with a key behind ?");
  if (text.size() == scheme + 3) return std::nullopt;
  const size_t slash = text.rfind('/');
  const std::string_view last = slash > scheme + 2 ? text.substr(slash + 1) : std::string_view();
  const bool is_file = last.ends_with(".gguf") || last.ends_with(".safetensors") ||
                       last.ends_with(".json") || last.ends_with(".bin");
  if (last.ends_with(".gguf")) address.file = last;
  address.directory = is_file ? text.substr(0, slash + 1) : text;
  if (!address.directory.ends_with('/')) address.directory += '/';
  return address;
}

fs::path web_cache(const WebAddress& address) {
  const fs::path models = models_directory();
  if (models.empty())
    fail(ErrorKind::usage, "no cache directory is set; set XDG_CACHE_HOME or HOME to one");
  const std::string text = address.text();
  std::string name(address.directory, 0, address.directory.size() - 1);
  name = address.file.empty() ? name.substr(name.rfind('/') + 1) : address.file;
  constexpr size_t kMostName = 100;  // bytes
  name.resize(std::min(name.size(), kMostName));
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '_' && c != '.'; },
      '_');
  Digest digest(DigestKind::sha256, text.size());
  digest.add(text);
  return models / (name + "-" + digest.hex().substr(0, 16));
}

std::optional<fs::path> find_web_model(const WebAddress& address) {
  if (!Record(web_cache(address)).complete()) return std::nullopt;
  return opened(address);
}

fs::path fetch_web_model(const WebAddress& address, PullProgress& progress,
                         const std::stop_token& stop) {
  Fetch(address, progress, stop).run();
  return opened(address);
}

std::vector<WebModel> list_web_models() {
  std::vector<WebModel> models;
  std::error_code fault;
  for (const auto& each : fs::directory_iterator(models_directory(), fault)) {
    const Record record(each.path());
    WebModel model{
        .address = record.address(), .directory = each.path(), .is_complete = record.complete()};
    if (model.address.empty()) continue;
    for (fs::recursive_directory_iterator at(each.path(), fault), end; !fault && at != end;
         at.increment(fault)) {
      std::error_code gone;  // a pull may be at work
      const uint64_t bytes = at->is_regular_file(gone) ? at->file_size(gone) : 0;
      if (!gone && !at->path().filename().string().starts_with('.')) model.bytes += bytes;
    }
    models.push_back(std::move(model));
  }
  std::ranges::sort(models, {}, &WebModel::address);
  return models;
}

uint64_t remove_web_model(const WebAddress& address) {
  const fs::path directory = web_cache(address);
  if (!fs::is_directory(directory))
    fail(ErrorKind::refused, "{} is not here: there is no {}", address.text(), directory.string());
  return remove_tree(directory);
}

}  // namespace sluice
