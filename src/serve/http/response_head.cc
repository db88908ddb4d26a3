#include "src/serve/http/response_head.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <iterator>

namespace sluice {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

}  // namespace

std::string response_head(const ResponseHead& head) {
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nServer: sluice\r\n",
                  head.status, reason(head.status), fmt::gmtime(std::time(nullptr)));
  auto to = std::back_inserter(text);
  if (!head.type.empty()) fmt::format_to(to, "Content-Type: {}\r\n", head.type);
  if (head.type == "text/event-stream")
    text += "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  if (head.content_size) fmt::format_to(to, "Content-Length: {}\r\n", *head.content_size);
  if (head.chunked) text += "Transfer-Encoding: chunked\r\n";
  if (head.retry_after > 0) fmt::format_to(to, "Retry-After: {}\r\n", head.retry_after);
  if (!head.keep_alive) text += "Connection: close\r\n";
  text += head.lines;
  text += "\r\n";
  return text;
}

// Each API's clients look for the id in fields of their own.
std::string request_id_lines(Dialect dialect, std::string_view id) {
  std::string lines = fmt::format("X-Request-Id: {}\r\n", id);
  if (dialect == Dialect::anthropic) lines += fmt::format("Request-Id: {}\r\n", id);
  return lines;
}

}  // namespace sluice
