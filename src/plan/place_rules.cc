#include "src/plan/place_rules.h"

#include <algorithm>
#include <iterator>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace sluice {
namespace {

struct NamedTier {
  std::string_view name;
  Tier tier;
  bool by_cpu = false;
};
constexpr NamedTier kTierNames[] = {{"device", Tier::device},
                                    {"host", Tier::host},
                                    {"cpu", Tier::host, true},
                                    {"cached", Tier::cached},
                                    {"disk", Tier::disk}};

}  // namespace

std::vector<PlaceRule> parse_place_rules(const std::string& text) {
  std::vector<PlaceRule> rules;
  for (const std::string_view item : split_text(text, ',')) {
    const size_t equals = item.rfind('=');
    if (equals == std::string_view::npos)
      fail(ErrorKind::usage, "--place {}: not a rule such as layers.0-7=host", item);
    const std::string_view place = item.substr(equals + 1);
    const auto* found = std::ranges::find(kTierNames, place, &NamedTier::name);
    if (found == std::end(kTierNames)) {
      fail(ErrorKind::usage,
           "--place {}: unknown place {}; choose device, host, cpu, cached or disk", item, place);
    }
    rules.push_back(
        {NamePattern::parse(std::string(item.substr(0, equals)), fmt::format("--place {}", item)),
         found->tier, found->by_cpu});
  }
  return rules;
}

const PlaceRule* first_rule(const std::vector<PlaceRule>& rules, std::string_view path) {
  const auto found = std::ranges::find_if(
      rules, [&](const PlaceRule& rule) { return rule.pattern.matches(path); });
  return found == rules.end() ? nullptr : &*found;
}

std::optional<Tier> wanted_tier(const std::vector<PlaceRule>& rules, std::string_view path) {
  const PlaceRule* rule = first_rule(rules, path);
  return rule != nullptr ? std::optional(rule->tier) : std::nullopt;
}

}  // namespace sluice
