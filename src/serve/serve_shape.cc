#include "src/serve/serve_shape.h"

#include <algorithm>
#include <optional>

#include "src/serve/apis/structured.h"

namespace sluice {
namespace {

// Longer contexts are used where they are asked for: their keys and values would leave less to
// weights.
constexpr int64_t kLongestUnasked = 32768;
constexpr int64_t kShortestUnasked = 2048;
constexpr int64_t kUsualLength = 512;  // tokens of a sequence, prompt and continuation

// Returns a request that needs as much as any: with sampling, and a grammar.
Request request_of(const Planner& planner, int64_t tokens) {
  const OrderedJson body{{"response_format", {{"type", "json_object"}}}};
  Request request;
  request.max_tokens = tokens;
  request.rank = true;  // takes all that sampling may take
  if (planner.checkpoint().tokenizer() != nullptr)
    request.sampling.grammar = grammar_of(OrderedFields(body, "a request"), planner.checkpoint());
  return request;
}

BatchNeeds needs_of(const Planner& planner, int64_t max_model_len, int64_t max_num_seqs,
                    uint64_t request_bytes) {
  BatchNeeds needs;
  needs.set_index(request_bytes);
  const Request request = request_of(planner, 1);
  needs.add(request, max_model_len - 1, 1, 0, planner);
  const int64_t usual = std::min(kUsualLength, max_model_len);
  if (max_num_seqs > 1) needs.add(request, usual - 1, max_num_seqs - 1, 0, planner);
  return needs;
}

// Returns whether one such sequence lets weights stay that stay for the shortest.
bool is_modest(Planner& planner, int64_t max_model_len, uint64_t request_bytes) {
  auto plan_for = [&](int64_t tokens) {
    return planner.fitting_plan(needs_of(planner, tokens, 1, request_bytes).shape(planner, 1));
  };
  const std::optional<MemoryPlan> plan = plan_for(max_model_len);
  if (!plan) return false;
  const std::optional<MemoryPlan> shortest = plan_for(std::min(kUsualLength, max_model_len));
  const uint64_t place = planner.machine().device_budget() > 0 ? planner.machine().device_budget()
                                                               : planner.machine().budget();
  return shortest && plan->streams() == shortest->streams() && plan->all_kv_cache() <= place / 4;
}

}  // namespace

ServeShape choose_serve_shape(Planner& planner, int64_t max_model_len, int64_t max_num_seqs,
                              uint64_t request_bytes) {
  ServeShape shape;
  shape.max_model_len =
      max_model_len > 0 ? max_model_len : std::min(planner.max_model_len(), kLongestUnasked);
  while (max_model_len == 0 && shape.max_model_len > kShortestUnasked &&
         !is_modest(planner, shape.max_model_len, request_bytes))
    shape.max_model_len /= 2;
  const BatchNeeds needs = needs_of(planner, shape.max_model_len, max_num_seqs, request_bytes);
  shape.width = choose_batch_width(planner, needs, max_num_seqs, BatchAim::no_waiting);
  return shape;
}

}  // namespace sluice
