#include "src/text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/text/component.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

using Steps = std::vector<Normalizer::Step>;

constexpr std::string_view kWhere = "tokenizer.json: normalizer";

void load_any(const Json& config, Steps& steps);

void load_sequence(const JsonFields& config, Steps& steps) {
  for (const Json& member : array_field(config, "normalizers")) load_any(member, steps);
}

template <UnicodeForm form>
void load_form(const JsonFields&, Steps& steps) {
  steps.push_back(form);
}

void load_lowercase(const JsonFields&, Steps& steps) { steps.push_back(Lowercase{}); }

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

constexpr ComponentType<Normalizer::Step> kTypes[] = {
    {"Sequence", load_sequence},
    {"NFC", load_form<UnicodeForm::nfc>},
    {"NFD", load_form<UnicodeForm::nfd>},
    {"NFKC", load_form<UnicodeForm::nfkc>},
    {"NFKD", load_form<UnicodeForm::nfkd>},
    {"Lowercase", load_lowercase},
    {"Strip", load_strip},
    {"Replace", load_replace},
    {"Prepend", load_prepend},
};

void load_any(const Json& config, Steps& steps) {
  load_component<Normalizer::Step>(config, "normalizer", kTypes, steps);
}

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

void apply(UnicodeForm form, std::string& text) {
  auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), ascii)) return;
  check_text_size(text.size());  // ICU counts in 32 bits
  icu::FilteredNormalizer2 normalizer(icu_normalizer(form), normalized_characters());
  std::string normalized;
  icu::StringByteSink<std::string> sink(&normalized);
  UErrorCode status = U_ZERO_ERROR;
  normalizer.normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())),
                           sink, nullptr, status);
  check_icu(status);
  text = std::move(normalized);
}

void apply(const Lowercase&, std::string& text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the only character with two for its lower case
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    Utf8Char c = utf8_char_at(text, at);
    at += static_cast<size_t>(c.bytes);
    if (c.code_point == kCapitalIWithDot) {
      lower += "i\xCC\x87";
    } else {
      append_utf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c.code_point))), lower);
    }
  }
  text = std::move(lower);
}

void apply(const Strip& strip, std::string& text) {
  size_t begin = 0;
  size_t end = text.size();
  while (strip.left && begin < end && is_white_space(utf8_char_at(text, begin).code_point)) {
    begin += static_cast<size_t>(utf8_char_at(text, begin).bytes);
  }
  while (strip.right && begin < end && is_white_space(utf8_char_before(text, end).code_point)) {
    end -= static_cast<size_t>(utf8_char_before(text, end).bytes);
  }
  text = text.substr(begin, end - begin);
}

void apply(const Replace& replace, std::string& text) {
  check_text_size(text.size());
  std::vector<TextSpan> matches;
  PatternMatcher(replace.pattern).find_all(text, matches);
  uint64_t most = text.size() + uint64_t{matches.size()} * replace.content.size();
  check_text_size(most);
  check_growth(text.size(), most, kWhere);
  std::string replaced;
  size_t end = 0;
  for (TextSpan match : matches) {
    replaced.append(text, end, match.begin - end).append(replace.content);
    end = match.end;
  }
  text = replaced.append(text, end);
}

void apply(const Prepend& prepend, std::string& text) {
  if (!text.empty()) text.insert(0, prepend.text);
}

}  // namespace

Normalizer Normalizer::load(const Json& config) {
  Normalizer normalizer;
  load_any(config, normalizer.steps_);
  return normalizer;
}

std::string Normalizer::normalize(std::string_view text) const {
  std::string normalized(text);
  for (const Step& step : steps_) {
    std::visit([&](const auto& s) { apply(s, normalized); }, step);
    check_growth(text.size(), normalized.size(), kWhere);
  }
  return normalized;
}

}  // namespace sluice
