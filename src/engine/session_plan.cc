// Plans of a session within other budgets, and the sources that it would read from.
#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/engine/session.h"
#include "src/plan/host_rows.h"

namespace sluice {

std::optional<MemoryPlan> Session::fitting_plan(const RunShape& shape) {
  try {
    return plan_within(shape, budget(), options_.quantize);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::no_fit) throw;
    return std::nullopt;
  }
}

MemoryPlan Session::predict(const RunShape& shape) {
  if (auto plan = fitting_plan(shape)) return *std::move(plan);
  return smallest(shape);
}

ReadPlan& Session::laid_out(const QuantizeRequest& quantize, Origin origin) {
  if (!laid_out_ || laid_out_->quantize != quantize || laid_out_->origin != origin) {
    const uint64_t before = process_peak_rss();
    laid_out_.reset();
    laid_out_.emplace(quantize, origin, lay_out(model(), index(), quantize, origin));
    laid_out_->plan.expert_reuse = rates_.expert_reuse();
    if (host_ != nullptr) set_host_rows(laid_out_->plan, cpu_rows_, options_.place);
    // A draft model's plan counts its memory beside its target.
    if (const uint64_t peak = process_peak_rss(); target_ == nullptr && peak > before)
      start_peak_ = std::max(start_peak_, peak);
  }
  return laid_out_->plan;
}

// Adds the peak of laying out.
RunShape Session::counted(RunShape shape) const {
  shape.start_peak = std::max(shape.start_peak, start_peak_);
  return shape;
}

Origin Session::streamed_origin() const {
  if (is_loaded_) return memory_plan().origin;
  return can_spill_ ? Origin::spill : Origin::checkpoint;
}

// Input-major matrices are read from the checkpoint if they can all stay in memory.
MemoryPlan Session::plan_within(const RunShape& shape, uint64_t budget,
                                const QuantizeRequest& quantize) {
  const Origin origin = streamed_origin();
  if (origin == Origin::spill && !is_loaded_) {
    ReadPlan& resident = laid_out(quantize, Origin::checkpoint);
    auto plan = try_place(*model().root, resident, counted(shape), budget, runtime_bytes_);
    if (plan) return *std::move(plan);
  }
  ReadPlan& all = laid_out(quantize, origin);
  return sluice::place(*model().root, all, counted(shape), budget, runtime_bytes_);
}

std::pair<MemoryPlan, ReadPlan> Session::what_if(const RunShape& shape, uint64_t budget,
                                                 const QuantizeRequest& quantize) {
  MemoryPlan plan = plan_within(shape, budget, quantize);
  ReadPlan read = read_plan_for(plan, quantize);
  return {std::move(plan), std::move(read)};
}

ReadPlan Session::read_plan_for(const MemoryPlan& plan, const QuantizeRequest& quantize) {
  return compile(laid_out(quantize, plan.origin), plan.buffers.staging, plan.placement,
                 plan.expert_slots);
}

ReadPlan Session::take_read_plan(const MemoryPlan& plan) {
  ReadPlan all = std::move(laid_out(options_.quantize, plan.origin));
  laid_out_.reset();
  return compile(std::move(all), plan.buffers.staging, plan.placement, plan.expert_slots);
}

MemoryPlan Session::smallest(const RunShape& shape) {
  ReadPlan& all = laid_out(options_.quantize, streamed_origin());
  return smallest_plan(*model().root, all, counted(shape), runtime_bytes_);
}

namespace {

DraftMemory draft_memory(const MemoryPlan& plan) {
  return {.host = plan.run_peak(), .loading = plan.load_peak(), .device = plan.device.peak()};
}

}  // namespace

RunShape Session::least_beside(const RunShape& shape, RunShape target_shape) {
  ReadPlan& all = laid_out(options_.quantize, Origin::checkpoint);
  target_shape.draft =
      draft_memory(smallest_resident_plan(*model().root, all, counted(shape), runtime_bytes_));
  return target_shape;
}

RunShape Session::place_beside(Session& target, const RunShape& shape, RunShape target_shape) {
  auto has_room = [&](const MemoryPlan& plan) {
    target_shape.draft = draft_memory(plan);
    return plan.peak() <= target.budget() / 2 && plan.device.peak() <= target.device_budget() / 2 &&
           target.fits(target.smallest(target_shape));
  };
  ReadPlan& all = laid_out(options_.quantize, Origin::checkpoint);
  MemoryPlan plan = resident_plan(*model().root, all, counted(shape), runtime_bytes_, has_room);
  target_shape.draft = draft_memory(plan);
  auto read = std::make_shared<ReadPlan>(take_read_plan(plan));
  placed_ = std::make_shared<Placed>(Placed{shape, std::move(plan), std::move(read)});
  return target_shape;
}

}  // namespace sluice
