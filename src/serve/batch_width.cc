#include "src/serve/batch_width.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/engine/speculation.h"

namespace sluice {
namespace {

constexpr double kWorthwhile = 1.02;  // of the tokens a second, for twice as many sequences

// Of values that are there several times.
struct Times {
  int64_t value = 0;
  int64_t times = 0;
};

int64_t sum_of_largest(std::vector<Times> all, int64_t count) {
  std::ranges::sort(all, std::greater{}, &Times::value);
  int64_t sum = 0;
  for (const Times& t : all) {
    int64_t taken = std::min(count, t.times);
    sum += taken * t.value;
    count -= taken;
  }
  return sum;
}

// A pass over streamed weights has time for guesses at what follows: rows of logits for some, where
// the budget has room for them beside everything else.
void make_room_for_guesses(Session& session, BatchWidth& width) {
  constexpr int64_t kRows = 4;  // of a sequence, its next token's included
  int64_t rows = std::max(kRows * width.sequences, kSpeculativeRows);
  RunShape shape =
      session.run_shape(width.shape.max_tokens, std::max(width.shape.longest_prompt, rows), rows,
                        width.shape.sequences);
  shape.sampling_bytes = width.shape.sampling_bytes;
  std::optional<MemoryPlan> plan = session.fitting_plan(shape);
  if (plan && plan->streams() && plan->chunk_rows >= width.sequences) width.shape = shape;
}

int64_t sequences_of(const Request& request) { return std::max(request.n, request.beams.width); }

}  // namespace

RunShape batch_shape(const Session& session, std::span<const Request* const> requests,
                     int64_t sequences) {
  std::vector<Times> slots, prompts;
  int64_t block = session.options().block_size;
  for (const Request* r : requests) {
    int64_t tokens = std::ssize(r->prompt) + r->max_tokens;
    slots.push_back({ceil_div(tokens, block) * block, sequences_of(*r)});
    prompts.push_back({std::ssize(r->prompt), 1});
  }
  int64_t rows = std::max(sequences, sum_of_largest(std::move(prompts), sequences));
  RunShape shape =
      session.run_shape(sum_of_largest(std::move(slots), sequences), rows, sequences, sequences);
  for (const Request* r : requests) {
    shape.sampling_bytes =
        std::max(shape.sampling_bytes, sampling_bytes(*r, session.config().vocab_size));
  }
  return shape;
}

BatchWidth choose_batch_width(Session& session, std::span<const Request* const> requests,
                              int64_t most) {
  int64_t sequences = 0;
  int64_t widest = 1;  // a request's beams run together
  for (const Request* r : requests) {
    sequences += sequences_of(*r);
    widest = std::max(widest, r->beams.width);
  }
  most = std::clamp<int64_t>(std::max(most, widest), 1, std::max<int64_t>(sequences, 1));
  Rates rates = session.rates();
  std::optional<BatchWidth> best;
  for (int64_t width = widest;; width = std::min(2 * width, most)) {
    BatchWidth wide{width, batch_shape(session, requests, width), 0};
    try {
      auto [memory, read] =
          session.what_if(wide.shape, session.budget(), session.options().quantize);
      wide.sequences = std::min(width, memory.chunk_rows);
      wide.tokens_per_second = predict_speed(memory, read, rates, wide.sequences).tokens_per_second;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::no_fit || !best) throw;
      break;
    }
    if (!best || wide.tokens_per_second > kWorthwhile * best->tokens_per_second) best = wide;
    if (width == most) break;
  }
  make_room_for_guesses(session, *best);
  return *best;
}

}  // namespace sluice
