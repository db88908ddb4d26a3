#include "src/serve/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/strings.h"

namespace sluice {
namespace {

// In a time that does not tell how much of them is equal.
bool same(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

std::string_view without_scheme(std::string_view origin) {
  constexpr std::string_view kBehind = "://";
  const size_t at = origin.find(kBehind);
  return at == std::string_view::npos ? origin : origin.substr(at + kBehind.size());
}

// The 16 bytes of an address, those of version 4 as version 6 has them; nullopt: it is a name.
std::optional<std::array<uint8_t, 16>> address_bytes(std::string_view text) {
  const std::string whole(text);
  std::array<uint8_t, 16> bytes{};
  if (inet_pton(AF_INET6, whole.c_str(), bytes.data()) == 1) return bytes;
  bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (inet_pton(AF_INET, whole.c_str(), &bytes[12]) == 1) return bytes;
  return std::nullopt;
}

bool is_version_4(const std::array<uint8_t, 16>& bytes) {
  return std::ranges::all_of(bytes.begin(), bytes.begin() + 10, [](uint8_t b) { return b == 0; }) &&
         bytes[10] == 0xFF && bytes[11] == 0xFF;
}

bool is_loopback_address(const std::array<uint8_t, 16>& bytes) {
  if (is_version_4(bytes)) return bytes[12] == 127;
  return std::ranges::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t b) { return b == 0; }) &&
         bytes.back() == 1;
}

// Says if no page of another site can have it: a name can be made to point here, an address cannot.
bool is_nobody_elses(std::string_view name) {
  if (name == "localhost" || name.ends_with(".localhost")) return true;  // RFC 6761, 6.3
  return address_bytes(name).has_value();
}

}  // namespace

std::optional<std::string> host_name(std::string_view host) {
  constexpr size_t kPortDigits = 5;
  std::string_view name = host, port;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    name = host.substr(1, end - 1);
    port = host.substr(end + 1);
    const auto bytes = address_bytes(name);
    if (!bytes || name.find(':') == std::string_view::npos) return std::nullopt;
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    port = host.substr(colon);
  }
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!port.empty() && (port.front() != ':' || port.size() > kPortDigits + 1 ||
                        !std::ranges::all_of(port.substr(1), digit)))
    return std::nullopt;
  constexpr std::string_view kNone = "\"#/<>?@[\\]^`{|}";
  const auto good = [&](char c) { return c > ' ' && c < 0x7F && kNone.find(c) == kNone.npos; };
  if (!std::ranges::all_of(name, good)) return std::nullopt;
  if (name.size() > 1 && name.ends_with('.')) name.remove_suffix(1);
  return lower_ascii(name);
}

bool is_loopback(std::string_view address) {
  const auto bytes = address_bytes(address);
  return address == "localhost" || (bytes && is_loopback_address(*bytes));
}

Access::Access(AccessRules rules)
    : key_(std::move(rules.key)),
      origins_(std::move(rules.origins)),
      hosts_(std::move(rules.hosts)),
      guards_hosts_(key_.empty() && is_loopback(rules.address)) {
  for (std::string& host : hosts_) host = host_name(host).value_or(host);
  for (std::string& origin : origins_) {  // pages that may ask may also be of this server
    while (origin.ends_with('/')) origin.pop_back();  // as addresses of pages have it
    if (auto name = host_name(without_scheme(origin))) hosts_.push_back(*std::move(name));
  }
}

void Access::check_host(std::string_view host) const {
  const std::optional<std::string> name = host_name(host);
  if (!name) throw Refusal(400, "not a valid HTTP request: Host is neither a name nor an address");
  if (!guards_hosts_ || host.empty() || is_nobody_elses(*name)) return;
  const auto allows = [&](const std::string& each) { return each == "*" || each == *name; };
  if (std::ranges::any_of(hosts_, allows)) return;
  throw Refusal(
      403,
      fmt::format("this server is not called {:?}; --allowed-host allows a further name", *name));
}

bool Access::allows(std::string_view origin) const {
  return std::ranges::any_of(
      origins_, [&](const std::string& each) { return each == "*" || each == origin; });
}

// A page that this server gave may ask; browsers let others send requests, too, that need no
// reading.
void Access::check(const Route& route, const Requester& who) const {
  constexpr std::string_view kBearer = "bearer ";  // in any case: RFC 9110, 11.1
  const std::string_view site = without_scheme(who.origin);
  if (!who.origin.empty() && site != who.host && !allows(who.origin)) {
    throw Refusal(403, fmt::format("requests from pages of {:?} are not allowed; start the server "
                                   "with --cors-origin {} to allow them",
                                   who.origin, who.origin));
  }
  if (key_.empty() || !route.needs_key) return;
  const std::string_view scheme = who.authorization.substr(0, kBearer.size());
  const bool bears = lower_ascii(scheme) == kBearer;
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
