#include "src/plan/name_pattern.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr std::string_view kRegex = "re:";

bool part_matches(std::string_view wanted, std::string_view part) {
  if (matches(wanted, part)) return true;
  const size_t dash = wanted.find('-');
  if (dash == std::string_view::npos) return false;
  const auto low = parse_number<int64_t>(wanted.substr(0, dash));
  const auto high = parse_number<int64_t>(wanted.substr(dash + 1));
  const auto value = parse_number<int64_t>(part);
  return low && high && value && *low <= *value && *value <= *high;
}

// Returns whether some of the parts of a name, one after another, are those of the pattern.
bool has_run(const std::vector<std::string>& wanted, std::string_view name) {
  const std::vector<std::string_view> parts = split_text(name, '.');
  // Places between parts up to which the pattern so far may have come: it may begin anywhere.
  std::vector<bool> now(parts.size() + 1, true);
  for (const std::string& part : wanted) {
    std::vector<bool> next(parts.size() + 1, false);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (part == "*") {
        next[i + 1] = now[i] || next[i];
      } else {
        next[i + 1] = now[i] && part_matches(part, parts[i]);
      }
    }
    now = std::move(next);
  }
  return std::ranges::count(now, true) > 0;
}

}  // namespace

NamePattern NamePattern::parse(const std::string& text, std::string_view where) {
  NamePattern pattern;
  pattern.text_ = text;
  if (text.starts_with(kRegex)) {
    try {
      pattern.regex_ = std::make_shared<const Pattern>(
          Pattern::parse(std::string_view(text).substr(kRegex.size()), where));
    } catch (const Error& e) {
      fail(ErrorKind::usage, "{}", e.what());
    }
    return pattern;
  }
  for (const std::string_view part : split_text(text, '.')) pattern.parts_.emplace_back(part);
  if (std::ranges::any_of(pattern.parts_, &std::string::empty))
    fail(ErrorKind::usage, "{}: '{}' is no pattern such as layers.0-7, *.down_proj or re:.*_proj",
         where, text);
  return pattern;
}

bool NamePattern::matches(std::string_view name) const {
  if (regex_ == nullptr) return has_run(parts_, name);
  try {
    PatternMatcher matcher(*regex_);
    PatternMatcher::Search search;
    const std::string text = to_valid_utf8(name);
    const std::optional<TextSpan> first = matcher.find_next(text, search, true);
    return first && first->begin == 0;
  } catch (const Error& e) {
    fail(ErrorKind::usage, "{}: {}", text_, e.what());
  }
}

bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  // After the last star: it stands for what lies before `resume`, or for more.
  size_t after_star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace sluice
