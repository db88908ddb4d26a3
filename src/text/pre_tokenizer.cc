#include "src/text/pre_tokenizer.h"

#include <array>
#include <utility>

#include "src/base/error.h"
#include "src/text/byte_alphabet.h"
#include "src/text/component.h"

namespace sluice {
namespace {

using Steps = std::vector<PreTokenizer::Step>;

void load_any(const Json& config, Steps& steps);

constexpr std::string_view kWhere = "tokenizer.json: pre_tokenizer";

// GPT-2's, in the words of its encoder.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

SplitBehavior load_behavior(const JsonFields& config) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {{
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  }};
  std::string name = config.string_or("behavior", "Isolated");
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  fail(ErrorKind::refused, "{}: behavior {} is not known", config.where(), name);
}

void add_split(std::string_view pattern, SplitBehavior behavior, bool invert, Steps& steps) {
  steps.push_back(Split{Pattern::parse(pattern, kWhere), behavior, invert});
}

void load_sequence(const JsonFields& config, Steps& steps) {
  for (const Json& member : array_field(config, "pretokenizers")) load_any(member, steps);
}

void load_split(const JsonFields& config, Steps& steps) {
  config.raw("behavior");  // has no default here
  steps.push_back(
      Split{load_pattern(config), load_behavior(config), config.boolean_or("invert", false)});
}

void load_byte_level(const JsonFields& config, Steps& steps) {
  if (config.boolean_or("add_prefix_space", true)) steps.push_back(PrefixSpace{});
  if (config.boolean_or("use_regex", true)) {
    add_split(kGpt2, SplitBehavior::isolated, false, steps);
  }
  steps.push_back(ByteLevelAlphabet{});
}

void load_digits(const JsonFields& config, Steps& steps) {
  bool individual = config.boolean_or("individual_digits", false);
  add_split(R"(\p{N})", individual ? SplitBehavior::isolated : SplitBehavior::contiguous, false,
            steps);
}

// ASCII punctuation and Unicode's.
void load_punctuation(const JsonFields& config, Steps& steps) {
  add_split(R"([\p{P}$+<=>^`|~])", load_behavior(config), false, steps);
}

void load_whitespace(const JsonFields&, Steps& steps) {
  add_split(R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)", SplitBehavior::removed, true,
            steps);
}

void load_whitespace_split(const JsonFields&, Steps& steps) {
  add_split(R"(\s)", SplitBehavior::removed, false, steps);
}

constexpr ComponentType<PreTokenizer::Step> kTypes[] = {
    {"Sequence", load_sequence},
    {"Split", load_split},
    {"ByteLevel", load_byte_level},
    {"Digits", load_digits},
    {"Punctuation", load_punctuation},
    {"Whitespace", load_whitespace},
    {"WhitespaceSplit", load_whitespace_split},
};

void load_any(const Json& config, Steps& steps) {
  load_component<PreTokenizer::Step>(config, "pre_tokenizer", kTypes, steps);
}

// A stretch of a piece: one match of the pattern, or what lies between two.
struct Part {
  TextSpan span;
  bool is_match;
};

// The parts of `text`, which begins at `offset` in the whole. `matches` is working space.
void find_parts(PatternMatcher& matcher, std::string_view text, uint32_t offset, bool invert,
                std::vector<TextSpan>& matches, std::vector<Part>& parts) {
  matches.clear();
  parts.clear();
  matcher.find_all(text, matches);
  auto add = [&](uint32_t begin, uint32_t end, bool is_match) {
    parts.push_back({{offset + begin, offset + end}, is_match != invert});
  };
  uint32_t end = 0;
  for (TextSpan match : matches) {
    if (end != match.begin) add(end, match.begin, false);
    add(match.begin, match.end, true);
    end = match.end;
  }
  if (end != text.size()) add(end, static_cast<uint32_t>(text.size()), false);
}

// Whether a part joins the one before it.
bool joins_previous(SplitBehavior behavior, bool previous_is_match, bool is_match) {
  switch (behavior) {
    case SplitBehavior::merged_with_previous:
      return is_match && !previous_is_match;
    case SplitBehavior::merged_with_next:
      return previous_is_match && !is_match;
    case SplitBehavior::contiguous:
      return previous_is_match == is_match;
    default:
      return false;
  }
}

void apply(const Split& split, Pieces& pieces) {
  PatternMatcher matcher(split.pattern);
  std::vector<TextSpan> spans;
  std::vector<TextSpan> matches;
  std::vector<Part> parts;
  for (TextSpan piece : pieces.spans) {
    find_parts(matcher, piece.of(pieces.text), piece.begin, split.invert, matches, parts);
    size_t first = spans.size();
    bool previous_is_match = false;
    for (const Part& part : parts) {
      bool joins = joins_previous(split.behavior, previous_is_match, part.is_match);
      previous_is_match = part.is_match;
      if (split.behavior == SplitBehavior::removed && part.is_match) continue;
      if (joins && spans.size() > first) {
        spans.back().end = part.span.end;
      } else {
        spans.push_back(part.span);
      }
    }
    auto empty = [](TextSpan span) { return span.begin == span.end; };
    spans.erase(std::remove_if(spans.begin() + static_cast<ptrdiff_t>(first), spans.end(), empty),
                spans.end());
  }
  pieces.spans = std::move(spans);
}

// Writes each piece anew: append(piece, text) adds what stands for it.
template <class Append>
void rewrite(Pieces& pieces, Append append) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 8);
  for (TextSpan& span : pieces.spans) {
    uint32_t begin = static_cast<uint32_t>(text.size());
    append(span.of(pieces.text), text);
    span = {begin, static_cast<uint32_t>(text.size())};
  }
  pieces.text = std::move(text);
}

void apply(const PrefixSpace&, Pieces& pieces) {
  rewrite(pieces, [](std::string_view piece, std::string& text) {
    if (!piece.starts_with(' ')) text += ' ';
    text += piece;
  });
}

void apply(const ByteLevelAlphabet&, Pieces& pieces) { rewrite(pieces, append_byte_characters); }

}  // namespace

PreTokenizer PreTokenizer::load(const Json& config) {
  PreTokenizer pre_tokenizer;
  load_any(config, pre_tokenizer.steps_);
  return pre_tokenizer;
}

Pieces PreTokenizer::split(std::string text) const {
  Pieces pieces{std::move(text), {}};
  if (pieces.text.empty()) return pieces;
  size_t before = pieces.text.size();
  pieces.spans.push_back({0, static_cast<uint32_t>(before)});
  for (const Step& step : steps_) {
    check_text_size(pieces.text.size());
    std::visit([&](const auto& s) { apply(s, pieces); }, step);
    check_growth(before, pieces.text.size(), kWhere);
  }
  return pieces;
}

}  // namespace sluice
