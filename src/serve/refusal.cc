#include "src/serve/refusal.h"

#include <fmt/format.h>

#include "src/base/units.h"

namespace sluice {
namespace {

// OpenAI's names; Anthropic's are nearly the same.
const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

Refusal refusal_of(const Error& error) {
  return {error.kind() == ErrorKind::runtime ? 500 : 400, error.what()};
}

Refusal no_room(uint64_t bytes, uint64_t all) {
  if (bytes <= all) {
    return {
        503,
        fmt::format("the request needs {} of memory, more than is free now", format_size(bytes)),
        {},
        1};
  }
  return {413, fmt::format("the request takes {} of memory, and all requests together may take {} "
                           "(--request-memory)",
                           format_size(bytes), format_size(all))};
}

Json refusal_json(Dialect dialect, const Refusal& refusal, std::string_view request_id) {
  const char* type = type_of(refusal.status);
  if (dialect == Dialect::anthropic) {
    Json json{{"type", "error"}, {"error", {{"type", type}, {"message", refusal.what()}}}};
    if (!request_id.empty()) json["request_id"] = request_id;
    return json;
  }
  return {{"error",
           {{"message", refusal.what()},
            {"type", type},
            {"param", nullptr},
            {"code", refusal.code.empty() ? Json() : Json(refusal.code)}}}};
}

}  // namespace sluice
