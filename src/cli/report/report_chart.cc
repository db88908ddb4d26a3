#include "src/cli/report/report_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace sluice::cli {
namespace {

// Pixels of the viewBox; the page scales it.
constexpr double kWidth = 960;
constexpr double kHeight = 340;
constexpr double kLeft = 76;
constexpr double kRight = kWidth - 14;
constexpr double kTop = 44;
constexpr double kBottom = kHeight - 28;
constexpr double kLabelRow = 14;  // height of a line of text
constexpr double kLetter = 6.5;   // width of a letter, roughly
constexpr size_t kMostMoments = 100;
constexpr int kTickCount = 5;
constexpr double kShortestAxis = 1e-6;  // seconds

struct Scale {
  double seconds_to_x;
  double value_to_y;
  double x(double seconds) const { return kLeft + seconds * seconds_to_x; }
  double y(double value) const { return kBottom - value * value_to_y; }
};

// The unit in which the largest tick is at least one.
std::pair<double, const char*> unit_of(Quantity quantity, double most) {
  using Units = std::vector<std::pair<double, const char*>>;
  static const Units kSeconds{{1e-3, "ms"}, {1, "s"}};
  static const Units kBytes{
      {1, "B"}, {0x1p10, "KiB"}, {0x1p20, "MiB"}, {0x1p30, "GiB"}, {0x1p40, "TiB"}};
  static const Units kRates{{1e3, "kB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}};
  const Units& units = quantity == Quantity::seconds ? kSeconds
                       : quantity == Quantity::bytes ? kBytes
                                                     : kRates;
  auto unit = units.front();
  for (const auto& u : units)
    if (u.first <= most * (1 + 1e-9)) unit = u;
  return unit;
}

double round_step(Quantity quantity, double least) {
  if (quantity == Quantity::bytes) return std::exp2(std::ceil(std::log2(least)));
  double decade = std::pow(10, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * decade >= least * (1 - 1e-9)) return factor * decade;
  return 10 * decade;
}

std::vector<double> stacked_heights(const Chart& chart) {
  std::vector<double> heights(chart.begins.size());
  for (const ChartLayer& layer : chart.layers)
    for (size_t i = 0; i < heights.size(); ++i) heights[i] += layer.heights[i];
  return heights;
}

void add_axes(const Chart& chart, const Scale& scale, const std::vector<Tick>& values,
              std::string& svg) {
  for (const Tick& t : values) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.2f}\" y2=\"{:.2f}\"/>"
        "<text class=\"tick\" x=\"{:.0f}\" y=\"{:.2f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, kRight, scale.y(t.at), scale.y(t.at), kLeft - 8, scale.y(t.at) + 4, t.label);
  }
  for (const Tick& t : axis_ticks(Quantity::seconds, chart.end)) {
    if (t.at > chart.end * (1 + 1e-9)) continue;
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{:.2f}\" x2=\"{:.2f}\" y1=\"{:.0f}\" y2=\"{:.0f}\"/>"
        "<text class=\"tick\" x=\"{:.2f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n",
        scale.x(t.at), scale.x(t.at), kBottom, kBottom + 4, scale.x(t.at), kBottom + 18, t.label);
  }
  svg += fmt::format(
      "<line class=\"axis\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.2f}\" y2=\"{:.2f}\"/>\n", kLeft,
      kRight, kBottom, kBottom);
}

// Along the top of the layer from left to right, and back along its bottom.
std::string band(const Chart& chart, const Scale& scale, const std::vector<double>& bottom,
                 const std::vector<double>& top) {
  size_t count = chart.begins.size();
  auto end = [&](size_t i) {
    return scale.x(i + 1 < count ? chart.begins[i + 1] : chart.last_end);
  };
  std::string path =
      fmt::format("M{:.2f} {:.2f}", scale.x(chart.begins.front()), scale.y(bottom.front()));
  for (size_t i = 0; i < count; ++i) path += fmt::format("V{:.2f}H{:.2f}", scale.y(top[i]), end(i));
  for (size_t i = count; i > 0; --i)
    path += fmt::format("V{:.2f}H{:.2f}", scale.y(bottom[i - 1]), scale.x(chart.begins[i - 1]));
  return path + "Z";
}

void add_layers(const Chart& chart, const Scale& scale, std::string& svg) {
  std::vector<double> bottom(chart.begins.size());
  for (const ChartLayer& layer : chart.layers) {
    std::vector<double> top = bottom;
    for (size_t i = 0; i < top.size(); ++i) top[i] += layer.heights[i];
    svg += fmt::format("<path class=\"layer {}\" d=\"{}\"><title>{}</title></path>\n",
                       layer.css_class, band(chart, scale, bottom, top), html_text(layer.tooltip));
    bottom = std::move(top);
  }
}

// Labels alternate between the two ends, so that neighbouring lines do not write over each other.
void add_levels(const Chart& chart, const Scale& scale, double most, std::string& svg) {
  bool left = true;
  for (const ChartMark& level : chart.levels) {
    bool shown = level.at <= most;
    double y = shown ? scale.y(level.at) : kTop;
    if (shown) {
      svg += fmt::format(
          "<line class=\"level\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.2f}\" y2=\"{:.2f}\"/>", kLeft,
          kRight, y, y);
    }
    svg += fmt::format(
        "<text class=\"mark\" x=\"{:.0f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}{}</text>\n",
        left ? kLeft + 6 : kRight - 6, y < kTop + kLabelRow ? y + kLabelRow : y - 4,
        left ? "start" : "end", html_text(level.label), shown ? "" : ", above this chart");
    left = !left;
  }
}

// Labels stand above the plot, in as many rows as there is room for; one that finds none is left to
// the line's tooltip.
void add_moments(const Chart& chart, const Scale& scale, std::string& svg) {
  std::array<double, 2> taken{0, 0};  // how far each row is written
  size_t shown = std::min(chart.moments.size(), kMostMoments);
  for (size_t i = 0; i < shown; ++i) {
    const ChartMark& moment = chart.moments[i];
    double x = scale.x(moment.at);
    std::string label = html_text(moment.label);
    svg += fmt::format(
        "<line class=\"moment\" x1=\"{:.2f}\" x2=\"{:.2f}\" y1=\"{:.0f}\" y2=\"{:.0f}\">"
        "<title>{}</title></line>",
        x, x, kTop - 8, kBottom, label);
    double width = static_cast<double>(moment.label.size()) * kLetter;
    bool flip = x + width > kRight;  // to the left of its line
    double begin = flip ? x - 3 - width : x + 3;
    for (size_t row = 0; row < taken.size(); ++row) {
      if (begin < taken[row]) continue;
      taken[row] = begin + width + kLetter;
      svg += fmt::format("<text class=\"mark\" x=\"{:.2f}\" y=\"{:.0f}\"{}>{}</text>",
                         flip ? x - 3 : x + 3, kTop - 12 - static_cast<double>(row) * kLabelRow,
                         flip ? " text-anchor=\"end\"" : "", label);
      break;
    }
    svg += "\n";
  }
}

}  // namespace

std::string html_text(std::string_view text) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    auto c = static_cast<unsigned char>(text[i]);
    std::string_view three = text.substr(i, 3);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if ((c < 0x20 && c != '\t' && c != '\n') || c == 0x7f) {
      out += kReplacement;
    } else if (three == "\xef\xbf\xbe" || three == "\xef\xbf\xbf") {  // U+FFFE, U+FFFF
      out += kReplacement;
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<Tick> axis_ticks(Quantity quantity, double most) {
  std::vector<Tick> ticks;
  double step = round_step(quantity, most / kTickCount);
  auto [unit, name] = unit_of(quantity, most);
  for (int i = 0; i == 0 || ticks.back().at < most * (1 - 1e-9); ++i) {
    double at = i * step;
    ticks.push_back({at, i == 0 ? "0" : fmt::format("{:.6g} {}", at / unit, name)});
  }
  return ticks;
}

std::string chart_svg(const Chart& chart) {
  if (chart.begins.empty() || chart.end < kShortestAxis) return {};
  double tallest = std::ranges::max(stacked_heights(chart));
  if (!(tallest > 0)) return {};
  double most = tallest;
  // A budget that is far away would press everything else to the bottom.
  for (const ChartMark& level : chart.levels)
    if (level.at <= 2 * tallest) most = std::max(most, level.at);
  std::vector<Tick> ticks = axis_ticks(chart.quantity, most);
  double top = ticks.back().at;
  Scale scale{(kRight - kLeft) / chart.end, (kBottom - kTop) / top};
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n", kWidth,
                  kHeight, html_text(chart.description));
  add_axes(chart, scale, ticks, svg);
  add_layers(chart, scale, svg);
  add_moments(chart, scale, svg);
  add_levels(chart, scale, top, svg);
  return svg + "</svg>\n";
}

}  // namespace sluice::cli
