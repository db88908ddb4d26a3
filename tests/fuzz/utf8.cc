// Bytes that arrive in parts: the first byte of the input says in how large ones.
#include "src/text/utf8.h"

#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(utf8) {
  if (size == 0) return 0;
  std::string_view bytes = test::text_of(data + 1, size - 1);
  std::string whole = to_valid_utf8(bytes);
  check(to_valid_utf8(whole) == whole, "valid text stays as it is");
  std::string parts;
  Utf8Decoder decoder;
  for (size_t at = 0; at < bytes.size();) {
    size_t length = std::min<size_t>(1 + data[0] % 8, bytes.size() - at);
    decoder.append(bytes.substr(at, length), parts);
    at += length;
  }
  decoder.finish(parts);
  check(parts == whole, "the result does not depend on the parts");
  std::string rebuilt;
  for (size_t at = 0; at < whole.size();) {
    Utf8Char c = utf8_char_at(whole, at);
    at += static_cast<size_t>(c.bytes);
    check(utf8_char_before(whole, at).code_point == c.code_point, "backwards as forwards");
    check(!is_white_space(c.code_point) || !is_word_character(c.code_point), "one or the other");
    append_utf8(c.code_point, rebuilt);
  }
  check(rebuilt == whole, "the characters are the text");
  return 0;
}
