#include "src/text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/text/base64.h"
#include "src/text/component.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

using Steps = std::vector<Normalizer::Step>;

constexpr std::string_view kNormalizerPlace = "tokenizer.json: normalizer";

template <UnicodeForm form>
void load_form(const JsonFields&, Steps& steps) {
  steps.push_back(form);
}

template <CharacterMap map>
void load_map(const JsonFields&, Steps& steps) {
  steps.push_back(MapCharacters{map});
}

void load_bert(const JsonFields& config, Steps& steps) {
  const bool lower = config.boolean_or("lowercase", true);
  if (config.boolean_or("clean_text", true)) steps.push_back(MapCharacters{clean});
  if (config.boolean_or("handle_chinese_chars", true))
    steps.push_back(MapCharacters{set_apart_ideographs});
  if (config.boolean_or("strip_accents", lower)) {
    steps.push_back(UnicodeForm::nfd);
    steps.push_back(MapCharacters{strip_nonspacing_marks});
  }
  if (lower) steps.push_back(MapCharacters{lower_case});
}

void load_strip(const JsonFields& config, Steps& steps) {
  steps.push_back(
      Strip{config.boolean_or("strip_left", true), config.boolean_or("strip_right", true)});
}

void load_replace(const JsonFields& config, Steps& steps) {
  steps.push_back(Replace{load_pattern(config), config.string("content")});
}

void load_prepend(const JsonFields& config, Steps& steps) {
  steps.push_back(Prepend{config.string("prepend")});
}

// A conversion has the table as it is, and wants it used as SentencePiece does.
void load_precompiled(const JsonFields& config, Steps& steps) {
  constexpr const char* kMap = "precompiled_charsmap";
  const Json& map = config.raw(kMap);
  if (map.is_binary()) {
    const std::vector<uint8_t>& bytes = map.get_binary();
    steps.push_back(
        Exchange{.map = Charsmap::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                        config.where()),
                 .longest = true});
    return;
  }
  const std::optional<std::string> bytes = decode_base64(config.string(kMap));
  if (!bytes) fail(ErrorKind::refused, "{}: {} must be in base64", config.where(), kMap);
  if (bytes->empty()) return;
  steps.push_back(Exchange{.map = Charsmap::parse(*bytes, config.where()), .longest = false});
}

constexpr ComponentType<Steps> kNormalizers[] = {
    {"NFC", load_form<UnicodeForm::nfc>},
    {"NFD", load_form<UnicodeForm::nfd>},
    {"NFKC", load_form<UnicodeForm::nfkc>},
    {"NFKD", load_form<UnicodeForm::nfkd>},
    {"Lowercase", load_map<lower_case>},
    {"StripAccents", load_map<strip_marks>},
    {"Nmt", load_map<clean_nmt>},
    {"ByteLevel", load_map<write_bytes>},
    {"BertNormalizer", load_bert},
    {"Strip", load_strip},
    {"Replace", load_replace},
    {"Prepend", load_prepend},
    {"Precompiled", load_precompiled},
};

constexpr ComponentKind<Steps> kNormalizerKind{"normalizer", "normalizers", kNormalizers};

void check_icu(UErrorCode status) { check(U_SUCCESS(status), u_errorName(status)); }

// The characters that the tokenizers whose ids we reproduce normalize: their tables are Unicode
// 9.0. Later ones pass unchanged and stop composition and reordering.
const icu::UnicodeSet& normalized_characters() {
  static const icu::UnicodeSet set = [] {
    UErrorCode status = U_ZERO_ERROR;
    icu::UnicodeSet age(icu::UnicodeString("[:age=9.0:]"), status);
    check_icu(status);
    age.freeze();
    return age;
  }();
  return set;
}

const icu::Normalizer2& icu_normalizer(UnicodeForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer =
      form == UnicodeForm::nfc    ? icu::Normalizer2::getNFCInstance(status)
      : form == UnicodeForm::nfd  ? icu::Normalizer2::getNFDInstance(status)
      : form == UnicodeForm::nfkc ? icu::Normalizer2::getNFKCInstance(status)
                                  : icu::Normalizer2::getNFKDInstance(status);
  check_icu(status);
  return *normalizer;
}

// Returns the last place from which on the text can be normalized for itself; none: 0.
size_t last_boundary(const icu::Normalizer2& normalizer, std::string_view text, size_t lowest) {
  for (size_t at = text.size(); at > lowest;) {
    Utf8Char c = utf8_char_before(text, at);
    at -= static_cast<size_t>(c.bytes);
    if (normalizer.hasBoundaryBefore(static_cast<UChar32>(c.code_point))) return at;
  }
  return 0;
}

// Returns where the white space that ends `text` begins.
size_t trailing_white_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && is_white_space(utf8_char_before(text, end).code_point))
    end -= static_cast<size_t>(utf8_char_before(text, end).bytes);
  return end;
}

// Appends an Exchange's result for a cluster of at most 5 bytes, or for one character.
void exchange_one(const Charsmap& map, std::string_view text, std::string& result) {
  const Charsmap::Match match = map.shortest(text);
  result += match.bytes > 0 ? match.by : text;
}

size_t leading_white_space(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size() && is_white_space(utf8_char_at(text, begin).code_point))
    begin += static_cast<size_t>(utf8_char_at(text, begin).bytes);
  return begin;
}

}  // namespace

Normalizer Normalizer::load(const Json& config) {
  Normalizer normalizer;
  kNormalizerKind.load(config, normalizer.steps_);
  return normalizer;
}

std::string Normalizer::normalize(std::string_view text) const {
  std::string normalized(text);
  NormalizerStream(*this).add(normalized, true);
  return normalized;
}

NormalizerStream::NormalizerStream(const Normalizer& normalizer) {
  for (const Normalizer::Step& step : normalizer.steps()) {
    Progress& progress = steps_.emplace_back(&step);
    if (const auto* replace = std::get_if<Replace>(&step))
      progress.matches.emplace(replace->pattern);
  }
}

void NormalizerStream::add(std::string& text, bool last) {
  bytes_ += text.size();
  for (Progress& progress : steps_) {
    std::visit([&](const auto& step) { apply(step, progress, text, last); }, *progress.step);
    progress.bytes += text.size();
    check_growth(bytes_, progress.bytes, kNormalizerPlace);
    progress.begun = !last && (progress.begun || !text.empty());
    if (last) progress.bytes = 0;
  }
  if (last) bytes_ = 0;
}

size_t NormalizerStream::held() const {
  size_t bytes = 0;
  for (const Progress& p : steps_) bytes += p.held.size() + (p.matches ? p.matches->held() : 0);
  return bytes;
}

// A character may compose with those before it, and the order of marks depends on them.
void NormalizerStream::apply(UnicodeForm form, Progress& progress, std::string& text, bool last) {
  size_t old = progress.held.size();
  std::string all = std::move(progress.held.append(text));
  progress.held.clear();
  text.clear();
  auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(all.begin(), all.end(), ascii)) {  // each is a boundary, and stays what it is
    if (!last && !all.empty()) {
      progress.held = all.back();
      all.pop_back();
    }
    text = std::move(all);
    return;
  }
  icu::FilteredNormalizer2 normalizer(icu_normalizer(form), normalized_characters());
  size_t end = last ? all.size() : last_boundary(normalizer, all, old);
  progress.held = all.substr(end);
  icu::StringByteSink<std::string> sink(&text);
  UErrorCode status = U_ZERO_ERROR;
  normalizer.normalizeUTF8(0, icu::StringPiece(all.data(), static_cast<int32_t>(end)), sink,
                           nullptr, status);
  check_icu(status);
}

void NormalizerStream::apply(const MapCharacters& characters, Progress&, std::string& text, bool) {
  std::string mapped;
  mapped.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    Utf8Char c = utf8_char_at(text, at);
    at += static_cast<size_t>(c.bytes);
    characters.map(c.code_point, mapped);
  }
  text = std::move(mapped);
}

void NormalizerStream::apply(const Strip& strip, Progress& progress, std::string& text, bool last) {
  if (strip.left && !progress.begun) text.erase(0, leading_white_space(text));
  if (!strip.right) return;
  // White space is held until something else comes.
  size_t end = trailing_white_space(text);
  std::string after = text.substr(end);
  text.resize(end);
  if (end > 0) text.insert(0, std::exchange(progress.held, {}));
  progress.held = last ? std::string() : std::move(progress.held.append(after));
}

void NormalizerStream::apply(const Replace& replace, Progress& progress, std::string& text,
                             bool last) {
  std::string replaced;
  progress.matches->add(text, last, [&](const MatchStream::Part& part) {
    replaced += part.is_match ? std::string_view(replace.content) : part.text;
    check_growth(bytes_, progress.bytes + replaced.size(), kNormalizerPlace);
  });
  text = std::move(replaced);
}

void NormalizerStream::apply(const Prepend& prepend, Progress& progress, std::string& text, bool) {
  if (!progress.begun && !text.empty()) text.insert(0, prepend.text);
}

void NormalizerStream::apply(const Exchange& exchange, Progress& progress, std::string& text,
                             bool last) {
  std::string result;
  if (exchange.longest) {
    exchange_entries(exchange, progress, text, last, result);
  } else {
    exchange_clusters(exchange, progress, text, last, result);
  }
  text = std::move(result);
}

void NormalizerStream::exchange_entries(const Exchange& exchange, Progress& progress,
                                        std::string_view text, bool last,
                                        std::string& result) const {
  const std::string all = std::exchange(progress.held, {}).append(text);
  for (std::string_view rest = all; !rest.empty();) {
    const Charsmap::Match match = exchange.map.longest(rest);
    if (match.is_open && !last) {
      progress.held = rest;
      return;
    }
    const size_t character = static_cast<size_t>(utf8_char_at(rest, 0).bytes);
    result += match.bytes > 0 ? match.by : rest.substr(0, character);
    rest.remove_prefix(match.bytes > 0 ? match.bytes : character);
    check_growth(bytes_, progress.bytes + result.size(), kNormalizerPlace);
  }
}

void NormalizerStream::exchange_clusters(const Exchange& exchange, Progress& progress,
                                         std::string_view text, bool last,
                                         std::string& result) const {
  constexpr size_t kLongest = 5;  // bytes of a cluster that is looked for as a whole
  std::string& cluster = progress.held;
  const auto one_by_one = [&](std::string_view characters) {
    while (!characters.empty()) {
      const auto bytes = static_cast<size_t>(utf8_char_at(characters, 0).bytes);
      exchange_one(exchange.map, characters.substr(0, bytes), result);
      characters.remove_prefix(bytes);
    }
  };
  const auto end_cluster = [&] {
    if (exchange.map.shortest(cluster).bytes > 0) {
      exchange_one(exchange.map, cluster, result);
    } else {
      one_by_one(cluster);
    }
    cluster.clear();
    progress.is_long = false;
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    if (progress.graphemes.begins(c.code_point)) end_cluster();
    cluster += text.substr(at, static_cast<size_t>(c.bytes));
    at += static_cast<size_t>(c.bytes);
    progress.is_long = progress.is_long || cluster.size() > kLongest;
    if (progress.is_long) one_by_one(std::exchange(cluster, {}));
    check_growth(bytes_, progress.bytes + result.size(), kNormalizerPlace);
  }
  if (!last) return;
  end_cluster();
  progress.graphemes = {};
}

}  // namespace sluice
