#include "src/plan/units_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "src/plan/spill_layout.h"

namespace sluice {

Json units_json(const ReadPlan& read, const RunShape& shape, const char* memory) {
  SpillLayout spill = spill_layout(read, shape.spill_bytes);
  const std::vector<uint64_t> streamed = sweep_bytes_of_units(read, spill);
  std::vector<bool> lookup(read.units.size());
  std::vector<bool> cached(read.units.size());
  for (const ParamPlan& p : read.params) {
    if (p.streamed() && p.table != Table::none) lookup[p.unit] = true;
    if (p.tier == Tier::cached && read.expert_slots > 0) cached[p.unit] = true;
  }
  Json units = Json::array();
  for (size_t u = 0; u < read.units.size(); ++u) {
    const UnitPlan& unit = read.units[u];
    std::vector<std::string> places;
    if (unit.storage_bytes > 0) places.push_back(memory);
    if (unit.host_bytes > 0) places.push_back("host");
    if (cached[u]) places.push_back("cached");
    if (streamed[u] > 0 || lookup[u]) places.push_back("disk");
    units.push_back({{"name", unit.name},
                     {"place", fmt::format("{}", fmt::join(places, "+"))},
                     {"bytes", unit.storage_bytes},
                     {"host_bytes", unit.host_bytes},
                     {"read_bytes", unit.read_bytes},
                     {"streamed_bytes", streamed[u]}});
  }
  return units;
}

}  // namespace sluice
