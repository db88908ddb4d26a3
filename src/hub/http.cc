#include "src/hub/http.h"

#define CURL_DISABLE_TYPECHECK  // its macros take no pointers to functions
#include <curl/curl.h>
#include <fmt/format.h>

#include <exception>
#include <memory>

#include "src/base/check.h"
#include "src/base/shared_library.h"
#include "src/base/strings.h"

namespace sluice {
namespace {

constexpr long kStandstill =
    30;                        // seconds below one byte a second after which a transfer is given up
constexpr long kConnect = 30;  // seconds
constexpr long kBufferBytes = 512 * 1024;

struct Api {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) init;
  decltype(&curl_easy_cleanup) cleanup;
  decltype(&::curl_easy_setopt) set;
  decltype(&::curl_easy_getinfo) get;
  decltype(&curl_easy_perform) perform;
  decltype(&curl_easy_strerror) text_of;
};

Api load_curl() {
  const SharedLibrary library("libcurl.so.4", {"libcurl.so.4"});
  if (!library.found())
    fail(ErrorKind::runtime,
         "libcurl.so.4 is missing, which fetching models needs; install libcurl4");
  Api api{};
  library.load(api.global_init, "curl_global_init");
  library.load(api.init, "curl_easy_init");
  library.load(api.cleanup, "curl_easy_cleanup");
  library.load(api.set, "curl_easy_setopt");
  library.load(api.get, "curl_easy_getinfo");
  library.load(api.perform, "curl_easy_perform");
  library.load(api.text_of, "curl_easy_strerror");
  api.global_init(CURL_GLOBAL_DEFAULT);
  return api;
}

const Api& api() {
  static const Api loaded = load_curl();
  return loaded;
}

struct FreeCurl {
  void operator()(CURL* curl) const { api().cleanup(curl); }
};
using Curl = std::unique_ptr<CURL, FreeCurl>;

Curl new_curl() {
  Curl curl(api().init());
  check(curl != nullptr, "memory for a transfer");
  return curl;
}

struct Transfer {
  CURL* curl;
  const HttpSink& sink;
  const std::stop_token& stop;
  HttpHead head;
  bool begun = false;
  std::exception_ptr fault = {};  // of the sink: none may pass through C

  template <class Action>
  bool guarded(Action action) {
    try {
      return action();
    } catch (...) {
      fault = std::current_exception();
      return false;
    }
  }

  bool begin() {
    long status = 0;
    curl_off_t length = -1;
    api().get(curl, CURLINFO_RESPONSE_CODE, &status);
    api().get(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    head.status = static_cast<int>(status);
    if (status != 206 && length >= 0) head.total = static_cast<uint64_t>(length);
    begun = true;
    return guarded([&] { return sink.begin(head); });
  }
};

// "bytes 100-199/200", or "*" for the number of all.
void take_range(std::string_view value, HttpHead& head) {
  take_until(value, ' ');
  head.first = parse_number<uint64_t>(take_until(value, '-')).value_or(0);
  take_until(value, '/');
  head.total = parse_number<uint64_t>(value);
}

void read_header(std::string_view line, HttpHead& head) {
  if (line.starts_with("HTTP/")) {  // another answer, behind a redirection
    head = {};
    return;
  }
  const std::string name = lower_ascii(take_until(line, ':'));
  const std::string_view value = trim(line);
  if (name == "etag" && !value.starts_with("W/")) head.validator = value;
  if (name == "last-modified" && head.validator.empty()) head.validator = value;
  if (name == "content-range") take_range(value, head);
}

size_t take_header(char* data, size_t size, size_t count, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  const bool goes_on = transfer.guarded([&] {
    read_header({data, size * count}, transfer.head);
    return true;
  });
  return goes_on ? size * count : 0;
}

size_t take(char* data, size_t size, size_t count, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (!transfer.begun && !transfer.begin()) return 0;
  return transfer.guarded([&] { return transfer.sink.take({data, size * count}); }) ? size * count
                                                                                    : 0;
}

int watch(void* of, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(of)->stop.stop_requested() ? 1 : 0;
}

}  // namespace

HttpResult http_get(const HttpGet& get, const HttpSink& sink, const std::stop_token& stop) {
  const Curl owner = new_curl();
  CURL* curl = owner.get();
  Transfer transfer{.curl = curl, .sink = sink, .stop = stop, .head = {}};
  char reason[CURL_ERROR_SIZE] = "";
  api().set(curl, CURLOPT_URL, get.url.c_str());
  api().set(curl, CURLOPT_FOLLOWLOCATION, 1L);
  api().set(curl, CURLOPT_MAXREDIRS, 10L);
  api().set(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  const bool safe = get.url.starts_with("https:");  // stays so behind a redirection
  api().set(curl, CURLOPT_REDIR_PROTOCOLS_STR, safe ? "https" : "http,https");
  api().set(curl, CURLOPT_NOSIGNAL, 1L);
  api().set(curl, CURLOPT_CONNECTTIMEOUT, kConnect);
  api().set(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  api().set(curl, CURLOPT_LOW_SPEED_TIME, kStandstill);
  api().set(curl, CURLOPT_BUFFERSIZE, kBufferBytes);
  api().set(curl, CURLOPT_ERRORBUFFER, reason);
  api().set(curl, CURLOPT_USERAGENT, "sluice");
  api().set(curl, CURLOPT_HEADERFUNCTION, take_header);
  api().set(curl, CURLOPT_HEADERDATA, &transfer);
  api().set(curl, CURLOPT_WRITEFUNCTION, take);
  api().set(curl, CURLOPT_WRITEDATA, &transfer);
  api().set(curl, CURLOPT_NOPROGRESS, 0L);
  api().set(curl, CURLOPT_XFERINFOFUNCTION, watch);
  api().set(curl, CURLOPT_XFERINFODATA, &transfer);
  if (get.token) {
    api().set(curl, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    api().set(curl, CURLOPT_XOAUTH2_BEARER, get.token->c_str());
  }
  const std::string range = fmt::format("{}-", get.from);
  if (get.from > 0) api().set(curl, CURLOPT_RANGE, range.c_str());

  const CURLcode code = api().perform(curl);
  if (code == CURLE_OK && !transfer.begun) transfer.begin();  // without a body
  if (transfer.fault) std::rethrow_exception(transfer.fault);
  HttpResult result;
  long status = 0;
  curl_off_t wait = 0;
  api().get(curl, CURLINFO_RESPONSE_CODE, &status);
  api().get(curl, CURLINFO_RETRY_AFTER, &wait);
  result.status = static_cast<int>(status);
  if (wait > 0) result.retry_after = wait;
  if (code != CURLE_OK) result.fault = *reason != 0 ? reason : api().text_of(code);
  return result;
}

std::string url_path(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || c == '/';
    result += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

}  // namespace sluice
