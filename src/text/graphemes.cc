#include "src/text/graphemes.h"

#include <unicode/uchar.h>

#include <utility>

namespace sluice {
namespace {

int32_t break_class(char32_t c) {
  if (c >= 0x20 && c < 0x7F) return U_GCB_OTHER;
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

bool is_control(int32_t kind) {
  return kind == U_GCB_CONTROL || kind == U_GCB_CR || kind == U_GCB_LF;
}

// GB6 to GB8: the parts of a Hangul syllable.
bool is_syllable(int32_t before, int32_t kind) {
  if (before == U_GCB_L)
    return kind == U_GCB_L || kind == U_GCB_V || kind == U_GCB_LV || kind == U_GCB_LVT;
  if (before == U_GCB_LV || before == U_GCB_V) return kind == U_GCB_V || kind == U_GCB_T;
  return (before == U_GCB_LVT || before == U_GCB_T) && kind == U_GCB_T;
}

}  // namespace

bool GraphemeBreaks::begins(char32_t c) {
  const int32_t kind = break_class(c);
  const int32_t before = std::exchange(previous_, kind);
  const bool is_pictograph =
      c >= 0x80 && u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC);
  const bool joined = std::exchange(joins_pictograph_, pictograph_ && kind == U_GCB_ZWJ);
  const bool paired =
      std::exchange(odd_indicators_, kind == U_GCB_REGIONAL_INDICATOR && !odd_indicators_);
  pictograph_ = is_pictograph || (pictograph_ && kind == U_GCB_EXTEND);
  if (before < 0) return true;
  if (before == U_GCB_CR && kind == U_GCB_LF) return false;
  if (is_control(before) || is_control(kind)) return true;
  if (is_syllable(before, kind) || before == U_GCB_PREPEND) return false;
  if (kind == U_GCB_EXTEND || kind == U_GCB_ZWJ || kind == U_GCB_SPACING_MARK) return false;
  if (is_pictograph && joined) return false;
  return !(kind == U_GCB_REGIONAL_INDICATOR && paired);
}

}  // namespace sluice
