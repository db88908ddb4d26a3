#include "src/jinja/text_methods.h"

#include <algorithm>
#include <cstring>

#include "src/jinja/buffer.h"
#include "src/jinja/characters.h"
#include "src/text/utf8.h"

namespace sluice::jinja {

std::string capitalize(std::string_view text) {
  const size_t first = byte_of(text, 1);
  return title_character(text.substr(0, first)) + lower(text.substr(first));
}

size_t find_in(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::string_view strip_of(Meter& meter, std::string_view text, std::string_view characters,
                          Side side) {
  meter.step(static_cast<int64_t>(text.size() / 64 * (characters.size() / 16 + 1)));
  const std::u32string set = code_points(characters);
  auto in_set = [&](char32_t c) { return set.find(c) != std::u32string::npos; };
  while (side != Side::right && !text.empty()) {
    const Utf8Char c = utf8_char_at(text, 0);
    if (!in_set(c.code_point)) break;
    text.remove_prefix(static_cast<size_t>(c.bytes));
  }
  while (side != Side::left && !text.empty()) {
    const Utf8Char c = utf8_char_before(text, text.size());
    if (!in_set(c.code_point)) break;
    text.remove_suffix(static_cast<size_t>(c.bytes));
  }
  return text;
}

Value replace_all(Meter& meter, std::string_view text, std::string_view from, std::string_view to,
                  int64_t count) {
  meter.text_steps(text.size());
  Buffer out(meter);
  size_t at = 0;
  for (; count != 0; --count) {
    // An empty text is found between all characters.
    const size_t found = from.empty() ? at : find_in(text, from, at);
    if (found == std::string_view::npos) break;
    if (found > at) out.add(text.substr(at, found - at));
    out.add(to);
    at = found + from.size();
    if (!from.empty()) continue;
    if (at == text.size()) return make_text(meter, out.take());
    const size_t character = byte_of(text.substr(at), 1);
    out.add(text.substr(at, character));
    at += character;
  }
  out.add(text.substr(at));
  return make_text(meter, out.take());
}

Value justify(Meter& meter, std::string_view text, int64_t width, std::string_view fill,
              Side side) {
  const auto size = static_cast<int64_t>(character_count(text));
  const int64_t missing = width > size ? width - size : 0;
  // Python's center() puts the odd one to the left where the width is odd.
  const int64_t left = side == Side::left    ? missing
                       : side == Side::right ? 0
                                             : missing / 2 + (missing & width & 1);
  Buffer out(meter);
  out.repeat(fill, static_cast<uint64_t>(left));
  out.add(text);
  out.repeat(fill, static_cast<uint64_t>(missing - left));
  return make_text(meter, out.take());
}

std::string_view first_word(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const Utf8Char c = utf8_char_at(text, end);
    if (is_space(c.code_point)) break;
    end += static_cast<size_t>(c.bytes);
  }
  return text.substr(0, end);
}

std::string_view last_word(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    const Utf8Char c = utf8_char_before(text, begin);
    if (is_space(c.code_point)) break;
    begin -= static_cast<size_t>(c.bytes);
  }
  return text.substr(begin);
}

}  // namespace sluice::jinja
