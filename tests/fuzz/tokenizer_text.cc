// Any text, encoded and decoded again by tokenizers that are good: nothing is lost, and it does not
// matter in what parts it comes.
#include <vector>

#include "src/text/token_stream.h"
#include "src/text/tokenizer.h"
#include "src/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

const std::filesystem::path kData = test::source_dir() / "tests/data/text";

// The first byte of the text says how long its parts are.
std::vector<int32_t> in_parts(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  TokenStream stream(tokenizer, false);
  size_t part = text.empty() ? 1 : 1 + static_cast<uint8_t>(text[0]) % 64;
  for (; text.size() > part; text.remove_prefix(part)) stream.add(text.substr(0, part), ids);
  stream.finish(text, ids);
  return ids;
}

}  // namespace

FUZZ_TARGET(tokenizer_text) {
  static const Tokenizer gpt2 = Tokenizer::load(kData / "gpt2_bpe");
  static const Tokenizer llama3 = Tokenizer::load(kData / "llama3_bpe");
  static const Tokenizer qwen2 = Tokenizer::load(kData / "qwen2_bpe");
  for (const Tokenizer* tokenizer : {&gpt2, &llama3, &qwen2}) {
    std::string_view given = test::text_of(data, size);
    check(in_parts(*tokenizer, given) == tokenizer->encode(given, false), "parts do not matter");
  }
  std::string text = to_valid_utf8(test::text_of(data, size));
  auto again = [](const Tokenizer& tokenizer, std::string_view given) {
    return tokenizer.decode(tokenizer.encode(given, false), false);
  };
  check(again(llama3, text) == text, "bytes survive");
  // This one's <pad> takes the white space before it along.
  if (text.find("<pad>") == std::string::npos) check(again(gpt2, text) == text, "bytes survive");
  // This one normalizes, and what is normalized stays as it is.
  std::string normalized = again(qwen2, text);
  check(again(qwen2, normalized) == normalized, "normalized bytes survive");
  return 0;
}
