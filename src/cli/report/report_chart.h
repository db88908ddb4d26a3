// Stacked step areas over time as inline SVG. Colours are the page's: a layer's class is styled
// where the chart is shown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

// Text as content or attribute of HTML and XML; control characters, which neither may hold, become
// U+FFFD.
std::string html_text(std::string_view text);

enum class Quantity : uint8_t { seconds, bytes, bytes_per_second };

struct Tick {
  double at = 0;
  std::string label;  // with its unit
};
// Round numbers from 0 to the first at or above `most`, some five of them: powers of two times a
// count of bytes, else 1, 2 or 5 times a power of ten.
std::vector<Tick> axis_ticks(Quantity quantity, double most);

struct ChartLayer {
  std::string css_class;
  std::string tooltip;
  std::vector<double> heights;  // one for each of Chart::begins
};

struct ChartMark {
  double at = 0;
  std::string label;
};

struct Chart {
  std::string description;  // for readers who do not see it
  Quantity quantity = Quantity::bytes;
  std::vector<double> begins;      // seconds, ascending; each lasts to the next
  double last_end = 0;             // where the last one ends
  double end = 0;                  // of the time axis, which begins at 0; positive
  std::vector<ChartLayer> layers;  // from the bottom up
  std::vector<ChartMark> levels;   // dashed lines across; far above the layers only named
  std::vector<ChartMark> moments;  // lines down
};

// One <svg> element; empty when there is nothing to show.
std::string chart_svg(const Chart& chart);

}  // namespace sluice::cli
