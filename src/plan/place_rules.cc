#include "src/plan/place_rules.h"

#include <algorithm>
#include <charconv>

#include "src/base/error.h"

namespace sluice {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool whole = status == std::errc{} && end == text.data() + text.size() && value >= 0;
  return whole ? std::optional(value) : std::nullopt;
}

bool name_matches(std::string_view wanted, std::string_view name) {
  if (wanted == "*" || wanted == name) return true;
  size_t dash = wanted.find('-');
  if (dash == std::string_view::npos) return false;
  auto low = number(wanted.substr(0, dash));
  auto high = number(wanted.substr(dash + 1));
  auto value = number(name);
  return low && high && value && *low <= *value && *value <= *high;
}

}  // namespace

bool PlaceRule::matches(std::string_view path) const {
  std::vector<std::string> parts = split(path, '.');
  auto found =
      std::search(parts.begin(), parts.end(), names.begin(), names.end(),
                  [](const auto& part, const auto& name) { return name_matches(name, part); });
  return found != parts.end();
}

std::vector<PlaceRule> parse_place_rules(const std::string& text) {
  std::vector<PlaceRule> rules;
  for (const std::string& item : split(text, ',')) {
    size_t equals = item.find('=');
    PlaceRule rule;
    rule.pattern = item.substr(0, equals);
    rule.names = split(rule.pattern, '.');
    std::string place = equals == std::string::npos ? "" : item.substr(equals + 1);
    bool empty = std::ranges::any_of(rule.names, [](const auto& n) { return n.empty(); });
    if (empty || equals == std::string::npos)
      fail(ErrorKind::usage, "--place {}: not a rule such as layers.0-7=host", item);
    if (place != "device" && place != "host" && place != "cpu" && place != "disk")
      fail(ErrorKind::usage, "--place {}: unknown place {}; choose device, host, cpu or disk", item,
           place);
    rule.by_cpu = place == "cpu";
    rule.tier = place == "device" ? Tier::device : place == "disk" ? Tier::disk : Tier::host;
    rules.push_back(std::move(rule));
  }
  return rules;
}

const PlaceRule* last_rule(const std::vector<PlaceRule>& rules, std::string_view path) {
  const PlaceRule* last = nullptr;
  for (const PlaceRule& rule : rules) {
    if (rule.matches(path)) last = &rule;
  }
  return last;
}

std::optional<Tier> wanted_tier(const std::vector<PlaceRule>& rules, std::string_view path) {
  const PlaceRule* rule = last_rule(rules, path);
  return rule != nullptr ? std::optional(rule->tier) : std::nullopt;
}

}  // namespace sluice
