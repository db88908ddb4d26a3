#include "src/plan/host_rows.h"

#include <algorithm>

namespace sluice {
namespace {

// Rows of logits are wide, and few are wanted.
constexpr int64_t kMostHeadRows = 8;

// A parameter from the spill cache is there as the device needs it.
bool can_multiply(const ReadPlan& plan, const ParamPlan& p, const std::vector<bool>& spilled) {
  const Param& param = *p.param;
  return param.layout == WeightLayout::packed && !param.pieces.front().vector &&
         plan.matrix_layout != MatrixLayout::packed &&
         !spilled[static_cast<size_t>(&p - plan.params.data())];
}

}  // namespace

// The CPU needs as long for so many rows as for one, and then longer in proportion.
int64_t host_rows(const Rates& rates) {
  const double faster = rates.host.bytes_per_second / rates.link.bytes_per_second;
  if (faster <= 1) return 0;
  return static_cast<int64_t>(
      std::min(kSequencesForFree * faster, static_cast<double>(kMostHostRows)));
}

void set_host_rows(ReadPlan& laid_out, int64_t rows, const std::vector<PlaceRule>& rules) {
  std::vector<bool> spilled(laid_out.params.size());
  for (const TensorPlan& t : laid_out.tensors)
    if (t.origin == Origin::spill) spilled[t.param] = true;
  for (ParamPlan& p : laid_out.params) {
    p.host_rows = 0;
    if (!can_multiply(laid_out, p, spilled)) continue;
    const PlaceRule* rule = first_rule(rules, p.param->path);
    const bool forced = rule != nullptr && rule->by_cpu;
    const int64_t own = forced ? std::max(rows, kForcedHostRows) : rows;
    p.host_rows = static_cast<int64_t>(
        std::min(static_cast<double>(own) / p.param->share, static_cast<double>(kMostHostRows)));
    const bool is_head = p.param->role == ParamRole::head || p.table != Table::none;
    if (is_head) p.host_rows = std::min(p.host_rows, kMostHeadRows);
  }
}

}  // namespace sluice
