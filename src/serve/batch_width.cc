#include "src/serve/batch_width.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/plan/rates.h"

namespace sluice {
namespace {

constexpr double kWorthwhile = 1.02;  // of the tokens a second, for twice as many sequences

// For `sequences` of the longest, whichever they are.
RunShape shape_for(const Session& session, std::span<const Request> requests, int64_t sequences) {
  std::vector<int64_t> lengths;
  int64_t longest_prompt = sequences;
  for (const Request& r : requests) {
    int64_t tokens = std::ssize(r.prompt) + r.max_tokens;
    int64_t slots = ceil_div(tokens, session.options().block_size) * session.options().block_size;
    lengths.insert(lengths.end(), static_cast<size_t>(std::min(r.n, sequences)), slots);
    longest_prompt = std::max(longest_prompt, std::ssize(r.prompt));
  }
  auto count = std::min<std::ptrdiff_t>(sequences, std::ssize(lengths));
  std::ranges::partial_sort(lengths, lengths.begin() + count, std::greater{});
  int64_t slots = 0;
  for (std::ptrdiff_t i = 0; i < count; ++i) slots += lengths[static_cast<size_t>(i)];
  return session.run_shape(slots, longest_prompt, sequences);
}

}  // namespace

BatchWidth choose_batch_width(Session& session, std::span<const Request> requests, int64_t most) {
  int64_t sequences = 0;
  for (const Request& r : requests) sequences += r.n;
  most = std::clamp<int64_t>(most, 1, std::max<int64_t>(sequences, 1));
  Rates rates = remembered_rates(rates_file(), session.options().model);
  std::optional<BatchWidth> best;
  for (int64_t width = 1;; width = std::min(2 * width, most)) {
    BatchWidth wide{width, shape_for(session, requests, width), 0};
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
  return *best;
}

}  // namespace sluice
