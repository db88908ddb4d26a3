#include "src/grammar/schema_formats.h"

#include <algorithm>
#include <iterator>

namespace sluice::grammar {
namespace {

#define SLUICE_DATE                                                         \
  "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]" \
  "|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define SLUICE_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define SLUICE_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define SLUICE_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

struct Format {
  std::string_view name;
  std::string_view pattern;
};

constexpr Format kFormats[] = {
    {"date", SLUICE_DATE},
    {"time", SLUICE_TIME},
    {"date-time", SLUICE_DATE "T" SLUICE_TIME},
    {"duration",
     "P([0-9]{1,9}W|[0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}"
     "D)"},
    {"email", "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" SLUICE_LABEL "(\\." SLUICE_LABEL "){1,10}"},
    {"hostname", SLUICE_LABEL "(\\." SLUICE_LABEL "){0,2}"},
    {"ipv4", SLUICE_BYTE "\\." SLUICE_BYTE "\\." SLUICE_BYTE "\\." SLUICE_BYTE},
    {"ipv6", "[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){7}"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri",
     "[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._-]+(:[0-9]{1,4})?(/"
     "[A-Za-z0-9._~-]*)*(\\?[A-Za-z0-9._~=&-]*)?"},
};

}  // namespace

std::string_view format_pattern(std::string_view format) {
  const auto* known = std::ranges::find(kFormats, format, &Format::name);
  return known == std::end(kFormats) ? std::string_view() : known->pattern;
}

}  // namespace sluice::grammar
