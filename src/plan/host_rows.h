// The border between the CPU and the link: how many rows a step may have for the CPU to multiply
// what lies in host memory beside a device, instead of bringing it there.
#pragma once

#include <cstdint>
#include <vector>

#include "src/plan/place_rules.h"
#include "src/plan/rates.h"
#include "src/plan/read_plan.h"

namespace sluice {

// Rows of a product that are multiplied where its weight lies; 0: none. Of experts, which have
// `share` of a step's rows each, a step may have as many rows more.
int64_t host_rows(const Rates& rates);

// The most rows that the CPU ever multiplies, for which memory is kept.
inline constexpr int64_t kMostHostRows = 256;
// Rows where a rule says that the CPU multiplies (`=cpu`), whatever the rates.
inline constexpr int64_t kForcedHostRows = 32;

// Sets ParamPlan::host_rows of a plan that has been laid out for a device with memory of its own.
void set_host_rows(ReadPlan& laid_out, int64_t rows, const std::vector<PlaceRule>& rules);

}  // namespace sluice
