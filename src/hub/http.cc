#include "src/hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <memory>
#include <mutex>

#include "src/base/check.h"

namespace sluice {
namespace {

constexpr long kStandstill =
    30;                        // seconds below one byte a second after which a transfer is given up
constexpr long kConnect = 30;  // seconds
constexpr long kBufferBytes = 512 * 1024;

struct FreeCurl {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
using Curl = std::unique_ptr<CURL, FreeCurl>;

Curl new_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  Curl curl(curl_easy_init());
  check(curl != nullptr, "memory for a transfer");
  return curl;
}

struct Transfer {
  CURL* curl;
  const HttpSink& sink;
  const std::stop_token& stop;
  bool begun = false;
};

size_t take(char* data, size_t size, size_t count, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (!transfer.begun) {
    long status = 0;
    curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
    transfer.begun = true;
    if (!transfer.sink.begin(static_cast<int>(status))) return 0;
  }
  return transfer.sink.take({data, size * count}) ? size * count : 0;
}

int watch(void* of, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(of)->stop.stop_requested() ? 1 : 0;
}

}  // namespace

HttpResult http_get(const HttpGet& get, const HttpSink& sink, const std::stop_token& stop) {
  const Curl owner = new_curl();
  CURL* curl = owner.get();
  Transfer transfer{curl, sink, stop};
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_URL, get.url.c_str());
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnect);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kStandstill);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "sluice");
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, watch);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  if (get.token) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, get.token->c_str());
  }
  const std::string range = fmt::format("{}-", get.from);
  if (get.from > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());

  const CURLcode code = curl_easy_perform(curl);
  HttpResult result;
  long status = 0;
  curl_off_t wait = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &wait);
  result.status = static_cast<int>(status);
  if (wait > 0) result.retry_after = wait;
  if (code != CURLE_OK) result.fault = *reason != 0 ? reason : curl_easy_strerror(code);
  if (code == CURLE_OK && !transfer.begun) sink.begin(result.status);  // without a body
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
