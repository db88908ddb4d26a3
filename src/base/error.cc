#include "src/base/error.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace sluice {

std::string one_line(std::string_view text) {
  std::string line(text);
  if (text.size() > kMaxErrorBytes) {
    constexpr std::string_view kGap = " ... ";
    constexpr size_t kTail = kMaxErrorBytes / 4;
    constexpr size_t kHead = kMaxErrorBytes - kTail - kGap.size();
    // Not in the middle of a UTF-8 sequence, whose later bytes are 10xxxxxx.
    auto within = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
    size_t head = kHead;
    while (head > 0 && within(head)) --head;
    size_t tail = text.size() - kTail;
    while (tail < text.size() && within(tail)) ++tail;
    line.assign(text, 0, head).append(kGap).append(text.substr(tail));
  }
  for (size_t i = 0; i < line.size(); ++i) {
    auto c = static_cast<unsigned char>(line[i]);
    // U+0080 to U+009F are control characters, too: C2 80 to C2 9F.
    bool second = i > 0 && c >= 0x80 && c < 0xA0 && line[i - 1] == '\xC2';
    if (second) line[i - 1] = '?';
    if (second || c < 0x20 || c == 0x7F) line[i] = '?';
  }
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
