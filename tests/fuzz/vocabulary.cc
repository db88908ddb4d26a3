// A vocabulary in another format than tokenizer.json, and a text that it encodes. The first byte
// says what the file is called.
#include <array>

#include "src/text/tokenizer.h"
#include "src/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(vocabulary) {
  constexpr std::array kNames{"tokenizer.model", "tekken.json", "qwen.tiktoken"};
  if (size == 0) return 0;
  test::TempDir dir;
  test::write_file(dir / kNames[data[0] % kNames.size()], test::text_of(data + 1, size - 1));
  return test::taken_or_refused([&] {
    const Tokenizer tokenizer = Tokenizer::load(dir.path());
    const std::vector<int32_t> ids =
        tokenizer.encode("It's  12 o'clock.\n\u00e9t\u00e9 e\u0301 \ufb01 <tool> <s> ", true);
    const std::string whole = tokenizer.decode(ids, false);
    check(to_valid_utf8(whole) == whole, "what is decoded is UTF-8");
  });
}
