#include "src/plan/plan_lists.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr uint64_t kClaimBytes = 160;  // of a tensor, in bind.cc

}  // namespace

PlanLists plan_lists(const ReadPlan& plan) {
  const uint64_t params = plan.params.size(), tensors = plan.tensors.size();
  const auto streamed =
      static_cast<uint64_t>(std::ranges::count_if(plan.params, &ParamPlan::streamed));
  PlanLists lists;
  lists.plan = plan.units.size() * sizeof(UnitPlan) + params * (sizeof(ParamPlan) + sizeof(Tier)) +
               tensors * (sizeof(TensorPlan) + sizeof(uint32_t)) + plan.load_spans * sizeof(Span) +
               plan.load_moves * sizeof(Move) + plan.sweep.size() * sizeof(TiledTensor) +
               plan.host_sweep.size() * sizeof(TiledParam) +
               plan.experts.size() * sizeof(CachedExpert) + plan.order_bytes;
  lists.kept =
      tensors * (kTensorReportBytes + sizeof(float)) + (params - streamed) * kResidentBytes;
  lists.load = plan.load_spans * kFetchBytes + plan.load_moves * kEncodeStatsBytes +
               tensors * kMeasuringBytes + params * sizeof(Weight);
  lists.stream = streamed * kStreamedBytes + plan.sweep.size() * kTileStatsBytes +
                 plan.host_sweep.size() * kHostSourceBytes;
  if (plan.expert_slots > 0) {
    for (const CachedExpert& e : plan.experts)
      lists.stream += kExpertBytes + (e.end_param - e.first_param) * kStreamedBytes;
    lists.stream += plan.expert_slots * kExpertSlotBytes;
  }
  lists.making = tensors * kClaimBytes;
  return lists;
}

}  // namespace sluice
