// tokenizer.json, and a text that it encodes.
#include "src/text/tokenizer.h"

#include "src/text/detokenizer.h"
#include "src/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(tokenizer) {
  std::string_view input = test::text_of(data, size);
  static test::TempDir dir;
  test::write_file(dir / "tokenizer.json", test::take_part(input));
  std::string_view text = input.empty() ? "It was 12 o'clock.\n\u00e9t\u00e9 " : input;
  return test::taken_or_refused([&] {
    Tokenizer tokenizer = Tokenizer::load(dir.path());
    std::vector<int32_t> ids = tokenizer.encode(text, true);
    std::string whole = tokenizer.decode(ids, true);
    check(to_valid_utf8(whole) == whole, "what is decoded is UTF-8");
  });
}
