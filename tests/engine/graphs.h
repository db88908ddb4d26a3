// Steps of a model as graphs of its device, beside the same steps launched kernel by kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/engine/loaded_model.h"
#include "tests/engine/golden.h"

namespace sluice::test {

// Tells whether the kernels compute all experts of a layer at once, which waits for nothing:
// resident weights of bf16 in whole vectors. Others wait for the device in the middle of a step.
inline bool computes_experts_at_once(const LoadedModel& model) {
  if (model.planner().run_shape(1, 1, 1).compute != Compute::bf16) return false;
  return std::ranges::all_of(model.read_plan().params, [](const ParamPlan& p) {
    constexpr int64_t kVector = 8;
    const bool fits = p.format.dtype == DType::bf16 && p.param->cols % kVector == 0;
    return !p.param->is_routed() || (fits && p.param->stream == nullptr);
  });
}

// Number of graphs of a step: one for each run of neighbouring layers that wait for nothing.
inline int64_t graphs_of_a_step(const LoadedModel& model) {
  const DecoderSpec& spec = model.planner().checkpoint().spec();
  const bool at_once = computes_experts_at_once(model);
  int64_t runs = 0;
  bool in_run = false;
  for (const size_t kind : spec.layers) {
    const bool recorded = at_once || !has_experts(spec.kinds[kind]);
    if (recorded && !in_run) ++runs;
    in_run = recorded;
  }
  return runs;
}

// The first step of all is launched kernel by kernel, the others as graphs where there are any.
inline void expect_graphs_give_the_same_bits(const ModelOptions& options,
                                             std::optional<int64_t> expected = {}) {
  Planner planner(options);
  LoadedModel model(planner, planner.place(planner.run_shape(2 * 16, 8, 1, 2)));
  Runner& runner = model.runner();
  const std::vector<int32_t> ids{5, 17, 30, 2, 44};
  std::vector<std::vector<float>> rows[2];
  Sequence sequences[2] = {runner.new_sequence(), runner.new_sequence()};
  for (size_t s : {0, 1}) {
    for (const int32_t& id : ids) {
      const Tensor logits = runner.logits(runner.decode(sequences[s], {&id, 1}));
      rows[s].emplace_back(logits.row<float>(0), logits.row<float>(0) + logits.cols);
    }
  }
  EXPECT_EQ(rows[1], rows[0]);
  const int64_t graphs = graphs_of_a_step(model);
  EXPECT_EQ(graphs, expected.value_or(graphs));
  EXPECT_EQ(runner.graphs().captured, graphs);
  EXPECT_EQ(runner.graphs().launched, graphs * (2 * std::ssize(ids) - 1));
}

}  // namespace sluice::test
