#include "src/grammar/schema_formats.h"

#include <algorithm>
#include <iterator>

namespace sluice::grammar {
namespace {

#define SLUICE_YEAR_OF_29_FEBRUARY \
  "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define SLUICE_DATE                                                          \
  "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]" \
  "|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|" SLUICE_YEAR_OF_29_FEBRUARY "-02-29)"
// A second is put in at midnight UTC.
#define SLUICE_FRACTION "(\\.[0-9]{1,9})?"
#define SLUICE_TIME                                           \
  "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" SLUICE_FRACTION \
  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])|23:59:60" SLUICE_FRACTION "(Z|[+-]00:00))"
#define SLUICE_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define SLUICE_IPV4 "(" SLUICE_BYTE "\\.){3}" SLUICE_BYTE
#define SLUICE_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define SLUICE_ANY_LABEL "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
#define SLUICE_HEX "[0-9a-fA-F]{1,4}"
#define SLUICE_IPV6                                                                                \
  "((" SLUICE_HEX ":){7}" SLUICE_HEX "|(" SLUICE_HEX ":){1,7}:|(" SLUICE_HEX ":){1,6}:" SLUICE_HEX \
  "|(" SLUICE_HEX ":){1,5}(:" SLUICE_HEX "){2}|(" SLUICE_HEX ":){1,4}(:" SLUICE_HEX                \
  "){3}|(" SLUICE_HEX ":){1,3}(:" SLUICE_HEX "){4}|(" SLUICE_HEX ":){1,2}(:" SLUICE_HEX            \
  "){5}|" SLUICE_HEX ":(:" SLUICE_HEX "){6}|:((:" SLUICE_HEX "){1,7}|:)|(" SLUICE_HEX              \
  ":){6}" SLUICE_IPV4 "|::(" SLUICE_HEX ":){0,5}" SLUICE_IPV4 "|(" SLUICE_HEX ":){1}:(" SLUICE_HEX \
  ":){0,4}" SLUICE_IPV4 "|(" SLUICE_HEX ":){2}:(" SLUICE_HEX ":){0,3}" SLUICE_IPV4 "|(" SLUICE_HEX \
  ":){3}:(" SLUICE_HEX ":){0,2}" SLUICE_IPV4 "|(" SLUICE_HEX ":){4}:(" SLUICE_HEX                  \
  ":){0,1}" SLUICE_IPV4 "|(" SLUICE_HEX ":){5}:" SLUICE_IPV4 ")"
#define SLUICE_COUNT "[0-9]{1,9}"
#define SLUICE_TIME_OF_DURATION                                                                 \
  "T(" SLUICE_COUNT "H(" SLUICE_COUNT "M)?(" SLUICE_COUNT "S)?|" SLUICE_COUNT "M(" SLUICE_COUNT \
  "S)?|" SLUICE_COUNT "S)"
#define SLUICE_ENCODED "%[0-9A-Fa-f]{2}"
#define SLUICE_PATH_CHARACTER "([A-Za-z0-9._~!$&'()*+,;=:@-]|" SLUICE_ENCODED ")"

struct Format {
  std::string_view name;
  std::string_view pattern;
  // Characters of the longest and the shortest text.
  uint32_t longest = 0;
  uint32_t shortest = 0;
  // The same without limits of its own, for texts whose length is limited; empty: `pattern`.
  std::string_view unlimited = {};
};

// They take in all texts of RFC 3339, 5321, 3986 and so on, but for very long ones, quoted mail
// boxes and lower case letters in times; a duration may also leave out units, as in ISO 8601.
constexpr Format kFormats[] = {
    {"date", SLUICE_DATE, 10, 10},
    {"time", SLUICE_TIME, 24, 9},
    {"date-time", SLUICE_DATE "T" SLUICE_TIME, 35, 20},
    {"duration",
     "P(" SLUICE_COUNT "W|(" SLUICE_COUNT "Y(" SLUICE_COUNT "M)?(" SLUICE_COUNT "D)?|" SLUICE_COUNT
     "M(" SLUICE_COUNT "D)?|" SLUICE_COUNT "D)(" SLUICE_TIME_OF_DURATION
     ")?|" SLUICE_TIME_OF_DURATION ")",
     62, 3},
    {"email",
     "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}){0,4}"
     "@" SLUICE_LABEL "(\\." SLUICE_LABEL "){0,10}",
     1028, 3,
     "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" SLUICE_ANY_LABEL
     "(\\." SLUICE_ANY_LABEL ")*"},
    {"hostname", SLUICE_LABEL "(\\." SLUICE_LABEL "){0,10}", 703, 1,
     SLUICE_ANY_LABEL "(\\." SLUICE_ANY_LABEL ")*"},
    {"ipv4", SLUICE_IPV4, 15, 7},
    {"ipv6", SLUICE_IPV6, 45, 2},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", 36, 36},
    {"uri",
     "[A-Za-z][A-Za-z0-9+.-]{0,20}:(//([A-Za-z0-9._~!$&'()*+,;=:-]{0,60}@)?([A-Za-z0-9._~-]{0,253}|"
     "\\[" SLUICE_IPV6 "\\])(:[0-9]{0,5})?(/" SLUICE_PATH_CHARACTER
     "{0,60}){0,8}|/|/?" SLUICE_PATH_CHARACTER "{1,60}(/" SLUICE_PATH_CHARACTER
     "{0,60}){0,7})(\\?(" SLUICE_PATH_CHARACTER "|[/?]){0,50})?(#(" SLUICE_PATH_CHARACTER
     "|[/?]){0,20})?",
     2004, 3,
     "[A-Za-z][A-Za-z0-9+.-]*:(//"
     "([A-Za-z0-9._~!$&'()*+,;=:-]*@)?[A-Za-z0-9._~-]*(:[0-9]*)?(/" SLUICE_PATH_CHARACTER
     "*)*|/|/?" SLUICE_PATH_CHARACTER "+(/" SLUICE_PATH_CHARACTER "*)*)(\\?(" SLUICE_PATH_CHARACTER
     "|[/?])*)?(#(" SLUICE_PATH_CHARACTER "|[/?])*)?"},
};

const Format* find_format(std::string_view name) {
  const auto* known = std::ranges::find(kFormats, name, &Format::name);
  return known == std::end(kFormats) ? nullptr : known;
}

}  // namespace

std::string_view format_pattern(std::string_view format) {
  const Format* known = find_format(format);
  return known == nullptr ? std::string_view() : known->pattern;
}

std::string_view unlimited_format_pattern(std::string_view format) {
  const Format* known = find_format(format);
  if (known == nullptr) return {};
  return known->unlimited.empty() ? known->pattern : known->unlimited;
}

bool format_has_lengths(std::string_view format, uint32_t low, uint32_t high) {
  const Format* known = find_format(format);
  return known != nullptr && known->shortest >= low && known->longest <= high;
}

}  // namespace sluice::grammar
