// Places that the user gives to parameters: "layers.0-7=host,layers.*.mlp=disk".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/memory/tier.h"
#include "src/plan/name_pattern.h"

namespace sluice {

struct PlaceRule {
  NamePattern pattern;
  Tier tier = Tier::device;
  bool by_cpu = false;  // "cpu": in host memory, and few rows are multiplied by the CPU in any case
};

// Throws Error(usage) for text that is no list of rules.
std::vector<PlaceRule> parse_place_rules(const std::string& text);

// The first rule that matches; null: none does.
const PlaceRule* first_rule(const std::vector<PlaceRule>& rules, std::string_view path);
// Its tier; none: the planner chooses.
std::optional<Tier> wanted_tier(const std::vector<PlaceRule>& rules, std::string_view path);

}  // namespace sluice
