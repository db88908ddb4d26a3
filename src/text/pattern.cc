#include "src/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/text/pattern_syntax.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

// Bounds for patterns that backtrack without end. The longest honest searches take a few steps for
// each character of a run.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;
constexpr size_t kJitStackBytes = 16 * MiB;  // reserved, not touched before it is needed

std::string pcre2_message(int code) {
  char message[256];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
  return message;
}

template <class T>
T* allocated(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}

// PCRE2 knows the longest single assertion; those that are nested reach further back.
size_t lookbehind_of(const pcre2_code& code, std::string_view pcre2) {
  uint32_t longest = 0;
  pcre2_pattern_info(&code, PCRE2_INFO_MAXLOOKBEHIND, &longest);
  size_t assertions = 0;
  for (size_t at = 0; (at = pcre2.find("(?<", at)) != std::string_view::npos; ++at) ++assertions;
  return std::max<size_t>(longest, 1) * std::max<size_t>(assertions, 1);
}

}  // namespace

void check_growth(uint64_t before, uint64_t after, std::string_view where) {
  constexpr uint64_t kMostTimes = 64;
  constexpr uint64_t kForFree = 64 * KiB;  // prepended to however short a text
  if (after > kForFree + kMostTimes * before) {
    fail(ErrorKind::refused, "{}: makes {} of a text of {}, which is absurd", where,
         format_size(after), format_size(before));
  }
}

void Pattern::Free::operator()(pcre2_code* code) const { pcre2_code_free(code); }

Pattern::Pattern(const std::string& pcre2, std::string_view shown, std::string_view where)
    : where_(where) {
  int error = 0;
  PCRE2_SIZE error_at = 0;
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      allocated(pcre2_compile_context_create(nullptr)), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre2.data()), pcre2.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE, &error,
                            &error_at, context.get()));
  if (!code_) refuse_pattern(shown, where, pcre2_message(error));
  // PCRE2 interprets the pattern if the system forbids code made at run time: slower, the same
  // matches.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  lookbehind_ = lookbehind_of(*code_, pcre2);
}

Pattern Pattern::parse(std::string_view oniguruma, std::string_view where) {
  if (to_valid_utf8(oniguruma) != oniguruma) refuse_pattern(oniguruma, where, "it is not UTF-8");
  return Pattern(pcre2_pattern(oniguruma, where), oniguruma, where);
}

Pattern Pattern::literal(std::string_view text, std::string_view where) {
  return Pattern(pcre2_literal(text), text, where);
}

void PatternMatcher::Free::operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
void PatternMatcher::Free::operator()(pcre2_match_context* context) const {
  pcre2_match_context_free(context);
}
void PatternMatcher::Free::operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }

PatternMatcher::PatternMatcher(const Pattern& pattern)
    : pattern_(pattern),
      context_(allocated(pcre2_match_context_create(nullptr))),
      data_(allocated(pcre2_match_data_create(1, nullptr))) {
  pcre2_set_match_limit(context_.get(), kMatchLimit);
  pcre2_set_heap_limit(context_.get(), kHeapLimitKiB);
}

// The first match at `from` or later, which data_ then holds; or of a text that goes on the first
// place where a match has begun that reaches the text's end.
PatternMatcher::Found PatternMatcher::search(std::string_view text, size_t from, bool last) {
  const uint32_t options = PCRE2_NO_UTF_CHECK | (last ? 0 : PCRE2_PARTIAL_HARD);
  auto match = [&] {
    return pcre2_match(pattern_.code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       from, options, data_.get(), context_.get());
  };
  int result = match();
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
    stack_.reset(allocated(pcre2_jit_stack_create(32 * KiB, kJitStackBytes, nullptr)));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    result = match();
  }
  if (result == PCRE2_ERROR_NOMATCH) return Found::nothing;
  if (result == PCRE2_ERROR_PARTIAL) return Found::partly;
  if (result < 0) {
    fail(ErrorKind::refused, "{}: a pattern cannot be matched against the text: {}",
         pattern_.where_, pcre2_message(result));
  }
  return Found::match;
}

std::optional<TextSpan> PatternMatcher::find_next(std::string_view text, Search& search,
                                                  bool last) {
  const size_t end_of_search = last ? text.size() + 1 : text.size();
  while (search.from < end_of_search) {
    const Found found = this->search(text, search.from, last);
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
    if (found != Found::match) {
      search.from = found == Found::partly ? bounds[0] : end_of_search;
      return std::nullopt;
    }
    size_t begin = bounds[0];
    size_t end = bounds[1];
    if (begin == end && end == search.previous_end) {
      bool more = search.from < text.size();
      search.from += more ? static_cast<size_t>(utf8_char_at(text, search.from).bytes) : 1;
      continue;
    }
    search.from = search.previous_end = end;
    return TextSpan{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  }
  return std::nullopt;
}

void PatternMatcher::find_all(std::string_view text, std::vector<TextSpan>& matches) {
  Search search;
  while (std::optional<TextSpan> match = find_next(text, search, true)) matches.push_back(*match);
}

}  // namespace sluice
