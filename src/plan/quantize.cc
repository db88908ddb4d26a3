#include "src/plan/quantize.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace sluice {
namespace {

std::string_view without_suffix(std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  return name;
}

}  // namespace

// Only a table that is the head too is multiplied.
Table table_of(const Param& param) {
  if (param.role != ParamRole::embedding) return Table::none;
  return param.layout == WeightLayout::packed ? Table::tied : Table::looked_up;
}

std::string scheme_names() {
  std::string names;
  for (const QuantScheme& scheme : quant_schemes()) names += fmt::format("{}, ", scheme.name);
  return names + fmt::format("fp8, int4, {}", rounded_inputs_scheme().name);
}

std::string QuantizeRequest::name() const {
  std::string text;
  for (const SchemeRule& rule : rules)
    text += fmt::format("{}={},", rule.pattern.text(), rule.scheme.name);
  return text + std::string(scheme.name);
}

bool QuantizeRequest::makes_groups() const {
  const auto grouped = [](const QuantScheme& s) { return s.grouped.scales == ScaleKind::grouped; };
  return grouped(scheme) || std::ranges::any_of(rules, grouped, &SchemeRule::scheme);
}

QuantizeRequest parse_quantization(const std::string& text) {
  QuantizeRequest request{*find_quant_scheme("none")};
  bool ended = false;
  for (const std::string_view item : split_text(text, ',')) {
    const size_t equals = item.rfind('=');
    const std::string_view name = item.substr(equals + 1);  // npos + 1 is 0
    std::optional<QuantScheme> scheme = find_quant_scheme(name);
    if (!scheme)
      fail(ErrorKind::usage, "--quantization {}: unknown scheme {}; choose one of: {}", text,
           name.empty() ? "nothing" : name, scheme_names());
    if (ended || equals == 0)
      fail(ErrorKind::usage,
           "--quantization {}: {}: rules are written PATTERN=SCHEME; the default scheme comes last",
           text, item);
    ended = equals == std::string_view::npos;
    if (ended) {
      request.scheme = *scheme;
    } else {
      request.rules.push_back(
          {NamePattern::parse(std::string(item.substr(0, equals)), "--quantization " + text),
           *scheme});
    }
  }
  return request;
}

bool fits(const SchemeRule& rule, const Param& param, const Piece& piece) {
  if (piece.vector) return false;
  return rule.pattern.matches(without_suffix(piece.source)) ||
         rule.pattern.matches(without_suffix(param.path)) ||
         (table_of(param) == Table::tied && rule.pattern.matches("lm_head"));
}

const QuantScheme& scheme_of(const QuantizeRequest& quantize, const Param& param,
                             const Piece& piece) {
  static const QuantScheme kNone = *find_quant_scheme("none");
  if (param.role == ParamRole::router) return kNone;
  for (const SchemeRule& rule : quantize.rules)
    if (fits(rule, param, piece)) return rule.scheme;
  if (param.role == ParamRole::bias) return kNone;
  const bool asked = quantize.roles.contains(param.role) ||
                     (table_of(param) == Table::tied && quantize.roles.contains(ParamRole::head));
  return asked ? quantize.scheme : kNone;
}

}  // namespace sluice
