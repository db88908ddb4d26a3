#include "src/formats/quark.h"

#include <algorithm>
#include <string>

namespace sluice {
namespace {

bool has_weights(const Json& settings, std::string_view dtype) {
  if (!settings.is_object() || !settings.contains("weight")) return false;
  const Json& weight = settings["weight"];
  return weight.is_object() && weight.contains("dtype") && weight["dtype"] == dtype;
}

}  // namespace

bool has_quark_weights(const JsonFields& q, std::string_view dtype) {
  if (q.string_or("quant_method", "") != "quark") return false;
  if (q.has("global_quant_config") && has_weights(q.raw("global_quant_config"), dtype)) return true;
  if (!q.has("layer_quant_config") || !q.raw("layer_quant_config").is_object()) return false;
  return std::ranges::any_of(q.raw("layer_quant_config"),
                             [&](const Json& layer) { return has_weights(layer, dtype); });
}

}  // namespace sluice
