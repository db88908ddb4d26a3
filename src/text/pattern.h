// Regular expressions over valid UTF-8, with Oniguruma's syntax and PCRE2's engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace sluice {

// Bytes [begin, end) of a text.
struct TextSpan {
  uint32_t begin;
  uint32_t end;

  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
  bool operator==(const TextSpan&) const = default;
};

// Throws Error(refused) that begins with `where` when what rewrites a text makes so much more of it
// that no honest tokenizer does: steps that each double it are soon beyond all memory.
void check_growth(uint64_t before, uint64_t after, std::string_view where);

// Immutable; threads may share it.
class Pattern {
 public:
  // Throws Error(refused) that begins with `where` for what is no expression, or is not supported.
  static Pattern parse(std::string_view oniguruma, std::string_view where);
  static Pattern literal(std::string_view text, std::string_view where);

  // Returns how many characters before a place may decide what matches there; at least one.
  size_t lookbehind() const { return lookbehind_; }

 private:
  friend class PatternMatcher;
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };

  Pattern(const std::string& pcre2, std::string_view shown, std::string_view where);

  std::unique_ptr<pcre2_real_code_8, Free> code_;
  size_t lookbehind_ = 1;
  std::string where_;
};

// Working memory for matching one pattern; made once and used for many texts, by one thread.
class PatternMatcher {
 public:
  explicit PatternMatcher(const Pattern& pattern);  // which must outlive this

  // State of the search through a text.
  struct Search {
    static constexpr size_t kNowhere = std::string_view::npos;
    size_t from = 0;                 // no match that is not found yet begins before
    size_t previous_end = kNowhere;  // of a match
  };
  // Returns the next match in `text` from left to right, none overlapping; an empty match is left
  // out where the previous match ends. If the text is not the `last`, returns only matches that no
  // text behind it could change; nullopt: there is none until more text comes. Throws
  // Error(refused) when the pattern needs too many steps.
  std::optional<TextSpan> find_next(std::string_view text, Search& search, bool last);
  // Appends all matches in a whole text.
  void find_all(std::string_view text, std::vector<TextSpan>& matches);

 private:
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };

  enum class Found : uint8_t { nothing, match, partly };
  Found search(std::string_view text, size_t from, bool last);

  const Pattern& pattern_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;  // only once the default one overflowed
};

}  // namespace sluice
