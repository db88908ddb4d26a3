// Requests to a server of the hub, by libcurl.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

namespace sluice {

struct HttpGet {
  std::string url;
  std::optional<std::string> token;  // sent to the first host only, not to where it leads
  uint64_t from = 0;                 // the first byte that is asked for
};

struct HttpResult {
  int status = 0;            // of the last answer; 0: there was none
  std::string fault;         // why the transfer ended early; empty: it did not
  int64_t retry_after = -1;  // seconds that the server asks to wait; -1: it does not say
};

struct HttpHead {
  int status = 0;
  std::string validator;          // names the contents: a strong ETag, else Last-Modified
  uint64_t first = 0;             // the first byte that follows, of the whole
  std::optional<uint64_t> total;  // bytes of the whole; nullopt: the server does not say
};

// Receiver of an answer. `begin` is told its head before the first byte; false ends the transfer,
// and so does what they throw, which http_get() throws then.
struct HttpSink {
  std::function<bool(const HttpHead& head)> begin;
  std::function<bool(std::span<const char>)> take;
};

// Follows redirections. A transfer that stands still for 30 s ends with a fault.
HttpResult http_get(const HttpGet& get, const HttpSink& sink, const std::stop_token& stop);

// `text` as a part of a path in a URL: slashes stay.
std::string url_path(const std::string& text);

}  // namespace sluice
