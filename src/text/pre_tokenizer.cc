#include "src/text/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/error.h"
#include "src/text/byte_alphabet.h"
#include "src/text/character_sets.h"
#include "src/text/component.h"
#include "src/text/scripts.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

using PreTokenizerSteps = std::vector<PreTokenizer::Step>;

constexpr std::string_view kPreTokenizerPlace = "tokenizer.json: pre_tokenizer";

// GPT-2's, in the words of its encoder.
constexpr std::string_view kByteLevelWords =
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
  fail(ErrorKind::refused, "{}: unknown behavior {}", config.where(), name);
}

void add_split(std::string_view pattern, SplitBehavior behavior, bool invert,
               PreTokenizerSteps& steps) {
  steps.push_back(Split{Pattern::parse(pattern, kPreTokenizerPlace), behavior, invert});
}

void load_split(const JsonFields& config, PreTokenizerSteps& steps) {
  config.raw("behavior");  // has no default here
  steps.push_back(
      Split{load_pattern(config), load_behavior(config), config.boolean_or("invert", false)});
}

void load_byte_level(const JsonFields& config, PreTokenizerSteps& steps) {
  if (config.boolean_or("add_prefix_space", true)) steps.push_back(PrefixSpace{});
  if (config.boolean_or("use_regex", true)) {
    add_split(kByteLevelWords, SplitBehavior::isolated, false, steps);
  }
  steps.push_back(ByteLevelAlphabet{});
}

void load_digits(const JsonFields& config, PreTokenizerSteps& steps) {
  bool individual = config.boolean_or("individual_digits", false);
  add_split(R"(\p{N})", individual ? SplitBehavior::isolated : SplitBehavior::contiguous, false,
            steps);
}

void load_punctuation(const JsonFields& config, PreTokenizerSteps& steps) {
  add_split(fmt::format("[{}]", punctuation_set()), load_behavior(config), false, steps);
}

void load_whitespace(const JsonFields&, PreTokenizerSteps& steps) {
  add_split(R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)", SplitBehavior::removed, true,
            steps);
}

void load_whitespace_split(const JsonFields&, PreTokenizerSteps& steps) {
  add_split(R"(\s)", SplitBehavior::removed, false, steps);
}

void load_bert(const JsonFields& config, PreTokenizerSteps& steps) {
  load_whitespace_split(config, steps);
  add_split(fmt::format("[{}]", punctuation_set()), SplitBehavior::isolated, false, steps);
}

void load_delimiter(const JsonFields& config, PreTokenizerSteps& steps) {
  steps.push_back(Split{Pattern::literal(config.string("delimiter"), config.where()),
                        SplitBehavior::removed, false});
}

void load_metaspace_steps(const JsonFields& config, PreTokenizerSteps& steps) {
  Metaspace metaspace = load_metaspace(config);
  steps.push_back(ReplaceSpaces{.by = metaspace.replacement, .prepend = metaspace.prepend});
  if (!metaspace.split) return;
  steps.push_back(Split{Pattern::literal(metaspace.replacement, config.where()),
                        SplitBehavior::merged_with_next, false});
}

void load_scripts(const JsonFields&, PreTokenizerSteps& steps) { steps.push_back(ScriptRuns{}); }

void load_fixed_length(const JsonFields& config, PreTokenizerSteps& steps) {
  constexpr int64_t kLongest = 65535;  // repeats in a pattern
  int64_t length = 5;
  if (config.has("length")) length = config.integer("length", 1, kLongest);
  add_split(fmt::format("(?m:.){{1,{}}}", length), SplitBehavior::isolated, false, steps);
}

constexpr ComponentType<PreTokenizerSteps> kPreTokenizers[] = {
    {"Split", load_split},
    {"ByteLevel", load_byte_level},
    {"Digits", load_digits},
    {"Punctuation", load_punctuation},
    {"Whitespace", load_whitespace},
    {"WhitespaceSplit", load_whitespace_split},
    {"BertPreTokenizer", load_bert},
    {"CharDelimiterSplit", load_delimiter},
    {"Metaspace", load_metaspace_steps},
    {"UnicodeScripts", load_scripts},
    {"FixedLength", load_fixed_length},
};

constexpr ComponentKind<PreTokenizerSteps> kPreTokenizerKind{"pre_tokenizer", "pretokenizers",
                                                             kPreTokenizers};

// Returns whether a part joins the one before it.
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

}  // namespace

PreTokenizer PreTokenizer::load(const Json& config) {
  PreTokenizer pre_tokenizer;
  kPreTokenizerKind.load(config, pre_tokenizer.steps_);
  return pre_tokenizer;
}

class PreTokenizerStream::Writer {
 public:
  Writer(Pieces& out, bool& begun) : out_(out), begun_(begun) {}
  void add(std::string_view text) {
    out_.text += text;
    begun_ = begun_ || !text.empty();
  }
  void add_as_characters(std::string_view bytes) {
    append_byte_characters(bytes, out_.text);
    begun_ = begun_ || !bytes.empty();
  }
  void end_piece() {
    if (begun_) out_.ends.push_back(static_cast<uint32_t>(out_.text.size()));
    begun_ = false;
  }

 private:
  Pieces& out_;
  bool& begun_;
};

PreTokenizerStream::PreTokenizerStream(const PreTokenizer& pre_tokenizer) {
  for (const PreTokenizer::Step& step : pre_tokenizer.steps()) {
    Progress& progress = steps_.emplace_back(&step);
    if (const auto* split = std::get_if<Split>(&step)) progress.matches.emplace(split->pattern);
  }
}

const Pieces& PreTokenizerStream::add(std::string_view text, bool last) {
  bytes_ += text.size();
  begun_ = begun_ || !text.empty();
  pieces_.text = text;
  pieces_.ends.clear();
  if (last && begun_) pieces_.ends.push_back(static_cast<uint32_t>(text.size()));
  for (Progress& progress : steps_) {
    next_.text.clear();
    next_.ends.clear();
    Writer out(next_, progress.begun);
    pieces_.each([&](std::string_view part, bool end) {
      std::visit([&](const auto& step) { apply(step, progress, part, end, out); }, *progress.step);
      progress.inside = !end && (progress.inside || !part.empty());
      if (end) out.end_piece();
    });
    progress.bytes += next_.text.size();
    check_growth(bytes_, progress.bytes, kPreTokenizerPlace);
    if (last) progress.bytes = 0;
    std::swap(pieces_, next_);
  }
  if (last) {
    begun_ = at_start_ = false;
    bytes_ = 0;
  }
  return pieces_;
}

size_t PreTokenizerStream::held() const {
  size_t bytes = 0;
  for (const Progress& p : steps_) bytes += p.matches ? p.matches->held() : 0;
  return bytes;
}

void PreTokenizerStream::apply(const Split& split, Progress& progress, std::string_view part,
                               bool end, Writer& out) {
  progress.matches->add(part, end, [&](const MatchStream::Part& found) {
    bool is_match = found.is_match != split.invert;
    if (!found.continued) {
      if (!joins_previous(split.behavior, progress.previous_is_match, is_match)) out.end_piece();
      progress.previous_is_match = is_match;
    }
    if (split.behavior != SplitBehavior::removed || !is_match) {
      out.add(found.text);
    } else if (progress.bytes == 0 && next_.text.empty()) {
      at_start_ = false;
    }
  });
  if (end) progress.previous_is_match = false;
}

void PreTokenizerStream::apply(const PrefixSpace&, Progress& progress, std::string_view part, bool,
                               Writer& out) {
  if (!progress.inside && !part.empty() && !part.starts_with(' ')) out.add(" ");
  out.add(part);
}

void PreTokenizerStream::apply(const ReplaceSpaces& spaces, Progress& progress,
                               std::string_view part, bool, Writer& out) {
  const bool first = at_start_ && progress.bytes == 0 && next_.text.empty();
  const bool prepends = spaces.prepend == Metaspace::Prepend::always ||
                        (spaces.prepend == Metaspace::Prepend::first && first);
  if (prepends && !progress.inside && !part.empty() && part[0] != ' ' &&
      !part.starts_with(spaces.by)) {
    out.add(spaces.by);
  }
  while (!part.empty()) {
    const size_t space = std::min(part.find(' '), part.size());
    out.add(part.substr(0, space));
    if (space == part.size()) return;
    out.add(spaces.by);
    part.remove_prefix(space + 1);
  }
}

void PreTokenizerStream::apply(const ScriptRuns&, Progress& progress, std::string_view part,
                               bool end, Writer& out) {
  for (size_t at = 0; at < part.size();) {
    const Utf8Char c = utf8_char_at(part, at);
    const std::optional<int32_t> script = script_of(c.code_point);
    if (script && script != progress.script) out.end_piece();
    if (script) progress.script = script;
    if (progress.script) {
      out.add(part.substr(at, static_cast<size_t>(c.bytes)));
    } else if (progress.bytes == 0 && next_.text.empty()) {
      at_start_ = false;
    }
    at += static_cast<size_t>(c.bytes);
  }
  if (end) progress.script.reset();
}

void PreTokenizerStream::apply(const ByteLevelAlphabet&, Progress&, std::string_view part, bool,
                               Writer& out) {
  out.add_as_characters(part);
}

}  // namespace sluice
