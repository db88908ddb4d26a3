// Rotary embeddings in config.json: frequencies are numbers, for any length.
#include "src/models/rope.h"

#include <cmath>

#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(rope) {
  constexpr int64_t kDim = 16;
  constexpr int64_t kPositions = 256;
  std::string_view text = test::text_of(data, size);
  return test::taken_or_refused([&] {
    Json config = parse_json(text, "config.json");
    RopeConfig rope = parse_rope(JsonFields(config, "config.json"), {kDim, kPositions});
    check(std::isfinite(static_cast<float>(rope.attention_factor)),
          "the attention factor is finite");
    int64_t most = rope.usable_positions();
    check(most >= kPositions && most <= int64_t{1} << 31, "usable positions");
    for (int64_t length : {int64_t{1}, kPositions, most}) {
      for (float f : rope_frequencies(rope, length))
        check(std::isfinite(f), "frequencies are finite");
    }
  });
}
