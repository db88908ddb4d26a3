#include "src/serve/batch/batch_width.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <ranges>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/engine/speculation.h"

namespace sluice {
namespace {

// Thresholds of the gain in tokens a second, for twice as many sequences.
constexpr double kFaster = 1.02, kNotSlower = 0.98;

// A pass over streamed weights has time for draft tokens: rows of logits for some, where
// the budget has room for them beside everything else.
void make_room_for_drafts(Planner& planner, BatchWidth& width) {
  constexpr int64_t kRows = 4;  // of a sequence, its next token's included
  int64_t rows = std::max(kRows * width.sequences, kSpeculativeRows);
  RunShape shape =
      planner.run_shape(width.shape.max_tokens, std::max(width.shape.longest_prompt, rows), rows,
                        width.shape.sequences);
  shape.sampling_bytes = width.shape.sampling_bytes;
  shape.output_bytes = width.shape.output_bytes;
  shape.input_bytes = width.shape.input_bytes;
  std::optional<MemoryPlan> plan = planner.fitting_plan(shape);
  if (plan && plan->streams() && plan->chunk_rows >= width.sequences) width.shape = shape;
}

}  // namespace

// Values that have the first four bits in common.
void LargestValues::add(int64_t value, int64_t times) {
  auto bits = static_cast<uint64_t>(value);
  auto step = static_cast<int64_t>(std::max<uint64_t>(std::bit_floor(bits) / 8, 1));
  Similar& similar = all_[value / step * step];
  similar.times += times;
  similar.sum += value * times;
  similar.largest = std::max(similar.largest, value);
}

int64_t LargestValues::sum(int64_t count) const {
  int64_t sum = 0;
  for (const auto& [value, similar] : std::views::reverse(all_)) {
    if (count < similar.times) return sum + count * similar.largest;
    sum += similar.sum;
    count -= similar.times;
  }
  return sum;
}

void BatchNeeds::add(const Request& request, int64_t prompt_tokens, int64_t prompts,
                     uint64_t held_bytes, const Planner& planner) {
  int64_t block = planner.options().block_size;
  int64_t sequences = prompts * std::max(request.n, request.beams.width);
  slots_.add(ceil_div(prompt_tokens + request.max_tokens, block) * block, sequences);
  prompts_.add(prompt_tokens, prompts);
  held_.add(ceil_div(static_cast<int64_t>(held_bytes), sequences), sequences);
  most_held_ = std::max(most_held_, held_bytes);
  sampling_bytes_ =
      std::max(sampling_bytes_, sampling_bytes(request, planner.checkpoint().spec().vocab_size));
  sequences_ += sequences;
  widest_ = std::max(widest_, request.beams.width);
}

uint64_t BatchNeeds::held_bytes(int64_t sequences) const {
  constexpr uint64_t kWaiting = 2 * MiB;
  auto running = static_cast<uint64_t>(held_.sum(sequences));
  return std::max(most_held_, running) + std::min(running, kWaiting);
}

RunShape BatchNeeds::shape(const Planner& planner, int64_t sequences) const {
  int64_t rows = std::max(sequences, prompts_.sum(sequences));
  int64_t slots = std::max<int64_t>(slots_.sum(sequences), 1);
  RunShape shape = planner.run_shape(slots, rows, sequences, sequences);
  shape.sampling_bytes = sampling_bytes_;
  shape.input_bytes = index_bytes_;
  shape.output_bytes = request_bytes(sequences);
  return shape;
}

BatchWidth choose_batch_width(Planner& planner, const BatchNeeds& needs, int64_t most,
                              BatchAim aim) {
  most = std::clamp<int64_t>(std::max(most, needs.widest()), 1,
                             std::max<int64_t>(needs.sequences(), 1));
  const double worthwhile = aim == BatchAim::speed ? kFaster : kNotSlower;
  double fastest = 0;
  std::optional<BatchWidth> best;
  for (int64_t width = needs.widest();; width = std::min(2 * width, most)) {
    BatchWidth wide{width, needs.shape(planner, width), 0};
    try {
      const QuantizeRequest& quantize = planner.options().quantize;
      const MemoryPlan memory =
          planner.plan_within(wide.shape, planner.machine().budget(), quantize);
      wide.sequences = std::min(width, memory.chunk_rows);
      wide.tokens_per_second = planner.tokens_per_second(memory, quantize, wide.sequences);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::no_fit || !best) throw;
      break;
    }
    if (!best || wide.tokens_per_second > worthwhile * fastest) {
      best = wide;
      fastest = std::max(fastest, wide.tokens_per_second);
    }
    if (width == most) break;
  }
  make_room_for_drafts(planner, *best);
  return *best;
}

}  // namespace sluice
