#include "src/text/decoder.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"
#include "src/text/byte_alphabet.h"
#include "src/text/component.h"
#include "src/text/utf8.h"

namespace sluice {

// The parts of a Decoder, while it is loaded.
struct DecoderLoader {
  std::vector<Decoder::Step>& steps;
  std::optional<size_t>& byte_fallback;
  std::optional<size_t>& fused;
  std::vector<StripEnds>& text_start;
  explicit DecoderLoader(Decoder& d)
      : steps(d.steps_),
        byte_fallback(d.byte_fallback_),
        fused(d.fused_),
        text_start(d.text_start_) {}
};

namespace {

std::string not_empty(const JsonFields& config, const char* key, std::string text) {
  if (text.empty()) fail(ErrorKind::refused, "{}: {} is empty", config.where(), key);
  return text;
}

void load_fuse(const JsonFields&, DecoderLoader& decoder) {
  if (!decoder.fused) decoder.fused = decoder.steps.size();
}

void load_byte_level(const JsonFields& config, DecoderLoader& decoder) {
  decoder.steps.push_back(ByteLevelBytes{});
  load_fuse(config, decoder);  // bytes of one character may come from several tokens
}

// A second byte fallback has nothing to do.
void load_byte_fallback(const JsonFields&, DecoderLoader& decoder) {
  if (!decoder.byte_fallback && !decoder.fused) decoder.byte_fallback = decoder.steps.size();
}

void load_replace(const JsonFields& config, DecoderLoader& decoder) {
  const JsonFields pattern(config.raw("pattern"), config.where() + ": pattern");
  std::string by = config.string("content");
  if (pattern.has("String")) {
    decoder.steps.push_back(ReplaceText{
        .text = not_empty(pattern, "String", pattern.string("String")), .by = std::move(by)});
  } else {
    decoder.steps.push_back(ReplaceMatches{.pattern = load_pattern(config), .by = std::move(by)});
  }
}

void load_strip(const JsonFields& config, DecoderLoader& decoder) {
  StripEnds strip{.text = not_empty(config, "content", config.string("content")),
                  .start = config.integer("start", 0, INT32_MAX),
                  .stop = config.integer("stop", 0, INT32_MAX)};
  if (!decoder.fused) return decoder.steps.push_back(std::move(strip));
  if (strip.stop != 0) {
    fail(ErrorKind::refused, "{}: Strip with a stop is not supported behind Fuse", config.where());
  }
  decoder.text_start.push_back(std::move(strip));
}

void load_word_piece(const JsonFields& config, DecoderLoader& decoder) {
  decoder.steps.push_back(JoinWords{.prefix = config.string_or("prefix", "##"),
                                    .clean_up = config.boolean_or("cleanup", true)});
}

void load_spaces(const JsonFields& config, DecoderLoader& decoder) {
  Metaspace metaspace = load_metaspace(config);
  decoder.steps.push_back(Spaces{.text = std::move(metaspace.replacement),
                                 .in_first = metaspace.prepend == Metaspace::Prepend::never});
}

void load_bpe(const JsonFields& config, DecoderLoader& decoder) {
  decoder.steps.push_back(
      WordEnds{.suffix = not_empty(config, "suffix", config.string_or("suffix", "</w>"))});
}

void load_ctc(const JsonFields& config, DecoderLoader& decoder) {
  const auto text = [&](const char* key) { return not_empty(config, key, config.string(key)); };
  decoder.steps.push_back(Repeats{.pad = text("pad_token"),
                                  .delimiter = text("word_delimiter_token"),
                                  .clean_up = config.boolean_or("cleanup", true)});
}

constexpr ComponentType<DecoderLoader> kDecoders[] = {
    {"ByteLevel", load_byte_level}, {"Fuse", load_fuse},      {"ByteFallback", load_byte_fallback},
    {"Replace", load_replace},      {"Strip", load_strip},    {"WordPiece", load_word_piece},
    {"Metaspace", load_spaces},     {"BPEDecoder", load_bpe}, {"CTC", load_ctc},
};

constexpr ComponentKind<DecoderLoader> kDecoderKind{"decoder", "decoders", kDecoders};

void replace_all(std::string_view text, std::string_view by, std::string& bytes) {
  for (size_t at = bytes.find(text); at != std::string::npos; at = bytes.find(text, at)) {
    bytes.replace(at, text.size(), by);
    at += by.size();
  }
}

void apply(const JoinWithSpaces&, Decoder::Place place, std::string& bytes) {
  if (!place.first) bytes.insert(bytes.begin(), ' ');
}

void apply(const ByteLevelBytes&, Decoder::Place, std::string& bytes) {
  std::string decoded;
  append_bytes_of_characters(bytes, decoded);
  bytes = std::move(decoded);
}

void apply(const ReplaceText& replace, Decoder::Place, std::string& bytes) {
  replace_all(replace.text, replace.by, bytes);
}

// Patterns know characters alone: a part of one, as bytes may be, stays as it is.
void apply(const ReplaceMatches& replace, Decoder::Place, std::string& bytes) {
  if (to_valid_utf8(bytes) != bytes) return;
  std::vector<TextSpan> matches;
  PatternMatcher(replace.pattern).find_all(bytes, matches);
  std::string replaced;
  size_t begin = 0;
  for (TextSpan match : matches) {
    replaced.append(bytes, begin, match.begin - begin).append(replace.by);
    begin = match.end;
  }
  bytes = replaced.append(bytes, begin);
}

void apply(const StripEnds& strip, Decoder::Place, std::string& bytes) {
  size_t begin = 0, end = bytes.size();
  const size_t size = strip.text.size();
  for (int64_t i = 0; i < strip.start && bytes.compare(begin, size, strip.text) == 0; ++i)
    begin += size;
  for (int64_t i = 0; i < strip.stop && end - begin >= size; ++i, end -= size)
    if (bytes.compare(end - size, size, strip.text) != 0) break;
  bytes = bytes.substr(begin, end - begin);
}

void clean_up(std::string& bytes) {
  if (bytes.find(' ') == std::string::npos) return;
  constexpr std::pair<std::string_view, std::string_view> kTidy[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [text, by] : kTidy) replace_all(text, by, bytes);
}

void apply(const JoinWords& words, Decoder::Place place, std::string& bytes) {
  if (!place.first) {
    if (bytes.starts_with(words.prefix)) {
      bytes.erase(0, words.prefix.size());
    } else {
      bytes.insert(bytes.begin(), ' ');
    }
  }
  if (words.clean_up) clean_up(bytes);
}

void apply(const Spaces& spaces, Decoder::Place place, std::string& bytes) {
  replace_all(spaces.text, place.first && !spaces.in_first ? "" : " ", bytes);
}

void apply(const Repeats& repeats, Decoder::Place place, std::string& bytes) {
  if (place.repeats) return bytes.clear();
  replace_all(repeats.pad, "", bytes);
  if (!repeats.clean_up) return;
  clean_up(bytes);
  replace_all(repeats.delimiter, " ", bytes);
}

void apply(const WordEnds& ends, Decoder::Place place, std::string& bytes) {
  replace_all(ends.suffix, place.last ? "" : " ", bytes);
}

}  // namespace

Decoder Decoder::load(const Json& config) {
  Decoder decoder;
  if (config.is_null()) decoder.steps_.push_back(JoinWithSpaces{});
  DecoderLoader loader(decoder);
  kDecoderKind.load(config, loader);
  return decoder;
}

std::string Decoder::apply(std::string bytes, size_t from, size_t to, Place place) const {
  constexpr Place kWhole{.first = true, .last = true};
  for (size_t i = from; i < to; ++i) {
    const Place here = fused_ && i >= *fused_ ? kWhole : place;
    std::visit([&](const auto& step) { sluice::apply(step, here, bytes); }, steps_[i]);
  }
  return bytes;
}

std::string Decoder::bytes(std::string_view token, Place place) const {
  if (std::optional<char> one = byte(token)) return run(std::string(1, *one), place);
  return apply(std::string(token), 0, steps_.size(), place);
}

std::optional<char> Decoder::byte(std::string_view token) const {
  if (!byte_fallback_ || token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
    return std::nullopt;
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

std::string Decoder::run(std::string text, Place place) const {
  return apply(std::move(text), *byte_fallback_, steps_.size(), place);
}

bool Decoder::looks_ahead() const {
  return std::ranges::any_of(steps_,
                             [](const Step& s) { return std::holds_alternative<WordEnds>(s); });
}

}  // namespace sluice
