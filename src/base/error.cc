#include "src/base/error.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace sluice {
namespace {

struct Characters {
  char32_t first, last;
};

// Characters that are not seen but steer how a terminal shows the rest: control characters, format
// characters (Unicode's category Cf, but for signs that are drawn), separators of lines.
constexpr std::array<Characters, 13> kUnseen{{{0x00, 0x1F},
                                              {0x7F, 0x9F},
                                              {0xAD, 0xAD},
                                              {0x61C, 0x61C},
                                              {0x180E, 0x180E},
                                              {0x200B, 0x200F},
                                              {0x2028, 0x202E},
                                              {0x2060, 0x206F},
                                              {0xFEFF, 0xFEFF},
                                              {0xFFF9, 0xFFFB},
                                              {0x1BCA0, 0x1BCA3},
                                              {0x1D173, 0x1D17A},
                                              {0xE0000, 0xE0FFF}}};

bool is_unseen(char32_t c) {
  for (const Characters& range : kUnseen) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

// The first character of `text` and its length in bytes; a length of 0: is no UTF-8.
std::pair<char32_t, size_t> first_character(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return {0, 0};
  char32_t c = byte(0) & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0, 0};
    c = (c << 6) | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  bool surrogate = c >= 0xD800 && c <= 0xDFFF;
  if (c < kLeast[length] || c > 0x10FFFF || surrogate) return {0, 0};
  return {c, length};
}

// `kept`: unseen characters that stay.
std::string for_terminal(std::string_view text, std::u32string_view kept) {
  std::string shown(text);
  for (size_t at = 0; at < shown.size();) {
    auto [c, length] = first_character(std::string_view(shown).substr(at));
    if (length == 0 || (is_unseen(c) && kept.find(c) == kept.npos))
      std::fill_n(shown.begin() + static_cast<std::ptrdiff_t>(at), std::max<size_t>(length, 1),
                  '?');
    at += std::max<size_t>(length, 1);
  }
  return shown;
}

}  // namespace

std::string lines_for_terminal(std::string_view text) { return for_terminal(text, U"\n"); }
std::string speech_for_terminal(std::string_view text) {
  return for_terminal(text, U"\n\t\u200c\u200d");
}

std::string one_line(std::string_view text) {
  std::string line(text);
  if (text.size() > kMaxErrorBytes) {
    constexpr std::string_view kGap = " ... ";
    constexpr size_t kTail = kMaxErrorBytes / 4;
    constexpr size_t kHead = kMaxErrorBytes - kTail - kGap.size();
    // The cut is never in the middle of a UTF-8 sequence, whose later bytes are 10xxxxxx.
    auto within = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
    size_t head = kHead;
    while (head > 0 && within(head)) --head;
    size_t tail = text.size() - kTail;
    while (tail < text.size() && within(tail)) ++tail;
    line.assign(text, 0, head).append(kGap).append(text.substr(tail));
  }
  line = lines_for_terminal(line);
  std::ranges::replace(line, '\n', '?');
  return line;
}

std::string errno_text(int errno_value) { return std::generic_category().message(errno_value); }

void check_failed(std::string_view what, std::source_location where) {
  std::fprintf(stderr, "sluice: internal error: %.*s (%s:%u, %s). Please report this.\n",
               static_cast<int>(what.size()), what.data(), where.file_name(),
               static_cast<unsigned>(where.line()), where.function_name());
  std::abort();
}

}  // namespace sluice
