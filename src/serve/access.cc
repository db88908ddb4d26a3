#include "src/serve/access.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

// In a time that does not tell how much of them is equal.
bool same(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool Access::allows(std::string_view origin) const {
  return std::ranges::any_of(
      origins_, [&](const std::string& each) { return each == "*" || each == origin; });
}

// A page that this server gave may ask; browsers let others send requests, too, that need no
// reading.
void Access::check(const Route& route, const Requester& who) const {
  constexpr std::string_view kBearer = "bearer ";  // in any case: RFC 9110, 11.1
  const std::string_view site = who.origin.substr(
      std::min(who.origin.size(), who.origin.find("://") == std::string_view::npos
                                      ? size_t{0}
                                      : who.origin.find("://") + std::string_view("://").size()));
  if (!who.origin.empty() && site != who.host && !allows(who.origin)) {
    throw Refusal(
        403, fmt::format("pages of {:?} may not ask here; --cors-origin allows them", who.origin));
  }
  if (key_.empty() || !route.needs_key) return;
  const std::string_view scheme = who.authorization.substr(0, kBearer.size());
  const bool bears = std::ranges::equal(scheme, kBearer, {}, lower);
  const std::string_view bearer =
      bears ? who.authorization.substr(kBearer.size()) : std::string_view();
  if (same(bearer, key_) || same(who.api_key, key_)) return;
  Refusal refusal(401, "the API key is missing or wrong; send it as \"Authorization: Bearer KEY\"",
                  "invalid_api_key");
  refusal.headers = "WWW-Authenticate: Bearer\r\n";
  throw refusal;
}

std::string Access::cors_lines(std::string_view origin) const {
  if (origin.empty() || !allows(origin)) return {};
  const bool plain = std::ranges::all_of(origin, [](char c) { return c > 0x20 && c < 0x7F; });
  if (!plain) return {};
  return fmt::format(
      "Access-Control-Allow-Origin: {}\r\n"
      "Access-Control-Expose-Headers: X-Request-Id, Request-Id, Retry-After\r\n"
      "Vary: Origin\r\n",
      origin);
}

}  // namespace sluice
