#include "src/serve/batch_width.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/plan/rates.h"

namespace sluice {
namespace {

constexpr double kWorthwhile = 1.02;  // of the tokens a second, for twice as many sequences

int64_t sum_of_largest(std::vector<int64_t> values, int64_t count) {
  auto end = values.begin() + std::min<std::ptrdiff_t>(count, std::ssize(values));
  std::ranges::partial_sort(values, end, std::greater{});
  return std::accumulate(values.begin(), end, int64_t{0});
}

}  // namespace

RunShape batch_shape(const Session& session, std::span<const Request> requests, int64_t sequences) {
  std::vector<int64_t> slots, prompts;
  int64_t block = session.options().block_size;
  for (const Request& r : requests) {
    int64_t tokens = std::ssize(r.prompt) + r.max_tokens;
    slots.insert(slots.end(), static_cast<size_t>(std::min(r.n, sequences)),
                 ceil_div(tokens, block) * block);
    prompts.push_back(std::ssize(r.prompt));
  }
  int64_t rows = std::max(sequences, sum_of_largest(std::move(prompts), sequences));
  return session.run_shape(sum_of_largest(std::move(slots), sequences), rows, sequences);
}

BatchWidth choose_batch_width(Session& session, std::span<const Request> requests, int64_t most) {
  int64_t sequences = 0;
  for (const Request& r : requests) sequences += r.n;
  most = std::clamp<int64_t>(most, 1, std::max<int64_t>(sequences, 1));
  Rates rates = remembered_rates(rates_file(), session.options().model);
  std::optional<BatchWidth> best;
  for (int64_t width = 1;; width = std::min(2 * width, most)) {
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
  return *best;
}

}  // namespace sluice
