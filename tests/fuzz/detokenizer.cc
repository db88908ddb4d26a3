// Any ids, one at a time: each part is UTF-8, and together they are what decoding gives.
#include "src/text/detokenizer.h"

#include <cstring>

#include "src/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(detokenizer) {
  static const Tokenizer tokenizer =
      Tokenizer::load(test::source_dir() / "tests/data/text/llama3_bpe");
  if (size == 0) return 0;
  // Two bytes an id: there are a thousand tokens. The first byte says what is asked for.
  bool skip_special_tokens = data[0] % 2 == 1;
  std::vector<int32_t> ids;
  for (size_t at = 1; at + 2 <= size; at += 2) {
    int16_t id = 0;
    std::memcpy(&id, data + at, sizeof id);
    ids.push_back(id);
  }
  Detokenizer detokenizer(tokenizer, skip_special_tokens);
  std::string whole;
  for (int32_t id : ids) {
    std::string part = detokenizer.add(id);
    check(to_valid_utf8(part) == part, "each part is UTF-8");
    whole += part;
  }
  whole += detokenizer.finish();
  check(whole == tokenizer.decode(ids, skip_special_tokens), "the parts are the whole");
  return 0;
}
