// Limits of what is read of a request, and what is said of requests that break them. Private to the
// server.
#pragma once

#include <fmt/format.h>

#include <boost/beast/http/error.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <optional>

#include "src/serve/http/server.h"
#include "src/serve/refusal.h"

namespace sluice::http {

inline constexpr size_t kHeadBytes = 16 * 1024;  // of a request: its line and fields

// Returns the refusal for a fault of reading; nullopt: the client has gone, or has been given up.
inline std::optional<Refusal> refusal_of_fault(const boost::system::error_code& fault,
                                               const HttpOptions& options) {
  if (fault == boost::beast::http::error::header_limit ||
      fault == boost::beast::http::error::buffer_overflow)
    return Refusal(431, fmt::format("the head of a request may have {} bytes", kHeadBytes));
  if (fault == boost::beast::http::error::body_limit) {
    return Refusal(413, fmt::format("a request may have {} bytes (--max-request-bytes)",
                                    options.max_request_bytes));
  }
  const bool of_protocol =
      fault.category() == make_error_code(boost::beast::http::error::bad_method).category();
  if (!of_protocol || fault == boost::beast::http::error::end_of_stream ||
      fault == boost::beast::http::error::partial_message)
    return std::nullopt;
  return Refusal(400, fmt::format("not a valid HTTP request: {}", fault.message()));
}

}  // namespace sluice::http
