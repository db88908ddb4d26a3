#include "src/text/character_sets.h"

#include <fmt/format.h>
#include <unicode/uniset.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "src/base/error.h"
#include "src/text/unicode_additions.h"

namespace sluice {
namespace {

struct Category {
  std::string_view long_name;
  std::string_view name;
};
constexpr std::array<Category, 37> kCategories = {{
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"unassigned", "Cn"},
}};

}  // namespace

std::string category_set(std::string_view name) {
  std::string items = fmt::format("\\p{{{}}}", name);
  for (const CategoryRange& range : categories_after_unicode_14()) {
    if (std::string_view(range.category).starts_with(name)) {
      items += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", range.first, range.last);
    }
  }
  return items;
}

std::string punctuation_set() {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeSet set(icu::UnicodeString::fromUTF8("[[[:P:]&[:age=8.0:]]\\u166D\\U000111C9]"),
                      status);
  check(U_SUCCESS(status), u_errorName(status));
  std::string items = "$+<=>^`|~";
  for (int32_t i = 0; i < set.getRangeCount(); ++i)
    items += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(set.getRangeStart(i)),
                         static_cast<uint32_t>(set.getRangeEnd(i)));
  return items;
}

std::string word_set() {
  return "\\p{Alphabetic}" + category_set("L") + category_set("M") + category_set("Nd") +
         category_set("Pc");
}

std::optional<std::string> posix_set(std::string_view name) {
  const auto categories = [](std::initializer_list<std::string_view> names) {
    std::string items;
    for (std::string_view each : names) items += category_set(each);
    return items;
  };
  if (name == "alpha") return "\\p{Alphabetic}" + category_set("L");
  if (name == "alnum") return "\\p{Alphabetic}" + categories({"L", "Nd"});
  if (name == "upper") return "\\p{Uppercase}" + category_set("Lu");
  if (name == "lower") return "\\p{Lowercase}" + category_set("Ll");
  if (name == "blank") return "\\x{9}" + category_set("Zs");
  if (name == "cntrl") return category_set("Cc");
  if (name == "graph") return categories({"L", "M", "N", "P", "S", "Cf", "Co"});
  if (name == "print") return categories({"L", "M", "N", "P", "S", "Cf", "Co", "Zs"});
  if (name == "digit") return category_set("Nd");
  if (name == "punct") return categories({"P", "S"});
  if (name == "space") return std::string(kWhiteSpaceSet);
  if (name == "word") return word_set();
  if (name == "xdigit") return std::string(kHexDigitSet);
  if (name == "ascii") return "\\x{0}-\\x{7f}";
  return std::nullopt;
}

std::optional<std::string> property_set(std::string_view name) {
  std::string loose;  // names are compared without case and separators (UAX 44, LM3)
  for (char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    if (!std::isalnum(static_cast<uint8_t>(c))) return std::nullopt;
    loose += static_cast<char>(std::tolower(c));
  }
  for (const Category& category : kCategories) {
    std::string short_name(category.name);
    short_name[0] = static_cast<char>(std::tolower(short_name[0]));
    if (loose == category.long_name || loose == short_name) return category_set(category.name);
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kNames = {{
      {"alphabetic", "alpha"},
      {"lowercase", "lower"},
      {"uppercase", "upper"},
      {"whitespace", "space"},
      {"punct", "punctuation"},
  }};
  for (const auto& [other, known] : kNames)
    if (loose == other) loose = known;
  if (loose == "punctuation") return category_set("P");
  if (std::optional<std::string> posix = posix_set(loose)) return posix;
  if (loose == "any") return "\\x{0}-\\x{10ffff}";
  for (std::string_view property :
       {"cased", "emoji", "extendedpictographic", "ideographic", "unifiedideograph"})
    if (loose == property) return fmt::format("\\p{{{}}}", loose);
  return fmt::format("\\p{{sc:{}}}", loose);
}

}  // namespace sluice
