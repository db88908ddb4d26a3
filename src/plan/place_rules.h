// Places that the user gives to parameters: "layers.0-7=host,layers.*.mlp=disk".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/memory/tier.h"

namespace sluice {

// A rule's pattern is a run of names anywhere in a parameter's path: "layers.0-7" is in
// "model.layers.3.mlp.down_proj.weight". `*` is any one name, `0-7` any number from 0 to 7.
struct PlaceRule {
  std::string pattern;             // as written, for messages
  std::vector<std::string> names;  // between its dots
  Tier tier = Tier::device;
  bool by_cpu = false;  // "cpu": in host memory, and few rows are multiplied by the CPU in any case

  bool matches(std::string_view path) const;
};

// Throws Error(usage) for text that is no list of rules.
std::vector<PlaceRule> parse_place_rules(const std::string& text);

// The last rule that matches; null: none does.
const PlaceRule* last_rule(const std::vector<PlaceRule>& rules, std::string_view path);
// Its tier; none: the planner chooses.
std::optional<Tier> wanted_tier(const std::vector<PlaceRule>& rules, std::string_view path);

}  // namespace sluice
