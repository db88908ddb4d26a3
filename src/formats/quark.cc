#include "src/formats/quark.h"

#include <algorithm>
#include <string>

#include "src/base/error.h"

namespace sluice {
namespace {

bool has_weights(const Json& settings, std::string_view dtype) {
  if (!settings.is_object() || !settings.contains("weight")) return false;
  const Json& weight = settings["weight"];
  return weight.is_object() && weight.contains("dtype") && weight["dtype"] == dtype;
}

// Rotations that are no part of the weights alone: activations would have to be rotated, too.
void refuse_rotations(const JsonFields& q) {
  constexpr const char* kAlgorithms = "algo_config";
  if (!q.has(kAlgorithms) || !q.raw(kAlgorithms).is_array()) return;
  const auto is_online = [](const Json& algorithm) {
    const auto is_true = [&](const char* key) {
      return algorithm.is_object() && algorithm.contains(key) && algorithm[key] == true;
    };
    return is_true("r4") || is_true("online_had") ||
           (is_true("r1") && is_true("online_r1_rotation"));
  };
  if (std::ranges::any_of(q.raw(kAlgorithms), is_online))
    fail(ErrorKind::refused,
         "{}: {} has rotations that are not supported, as activations would have to be rotated, "
         "too; give a checkpoint without them",
         q.where(), kAlgorithms);
}

bool has_weights_of(const JsonFields& q, std::string_view dtype) {
  if (q.has("global_quant_config") && has_weights(q.raw("global_quant_config"), dtype)) return true;
  if (!q.has("layer_quant_config") || !q.raw("layer_quant_config").is_object()) return false;
  return std::ranges::any_of(q.raw("layer_quant_config"),
                             [&](const Json& layer) { return has_weights(layer, dtype); });
}

}  // namespace

bool has_quark_weights(const JsonFields& q, std::string_view dtype) {
  if (q.string_or("quant_method", "") != "quark" || !has_weights_of(q, dtype)) return false;
  refuse_rotations(q);
  return true;
}

}  // namespace sluice
