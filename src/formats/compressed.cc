#include "src/formats/compressed.h"

#include <algorithm>

#include "src/base/error.h"

namespace sluice {
namespace {

// The groups of modules, with their names for messages.
std::vector<JsonFields> groups_of(const JsonFields& q) {
  std::vector<JsonFields> groups;
  if (!q.has("config_groups")) return groups;
  const Json& all = q.raw("config_groups");
  if (!all.is_object())
    fail(ErrorKind::refused, "{}: config_groups must be an object of groups", q.where());
  for (const auto& [name, group] : all.items())
    groups.emplace_back(group, fmt::format("{}: {}", q.where(), io::printable(name)));
  return groups;
}

// Returns whether activations are transformed, too: else transforms are part of the weights.
bool has_online_transforms(const Json& config) {
  if (config.empty()) return false;
  if (!config.is_object() || !config.contains("config_groups")) return true;
  const auto is_of_weights = [](const Json& args) {
    constexpr const char* kKey = "location";
    return args.is_object() && args.contains(kKey) &&
           (args[kKey] == "weight_input" || args[kKey] == "weight_output");
  };
  return !std::ranges::all_of(config["config_groups"], [&](const Json& scheme) {
    return scheme.is_object() && scheme.contains("apply") && scheme["apply"].is_array() &&
           std::ranges::all_of(scheme["apply"], is_of_weights);
  });
}

// Weights that were rotated need the inverse on activations; sparse ones lack elements.
void check_plain(const JsonFields& q) {
  if (q.has("transform_config") && has_online_transforms(q.raw("transform_config")))
    fail(ErrorKind::refused,
         "{}: transform_config is not supported: activations would have to be transformed, too; "
         "give a checkpoint without it",
         q.where());
  if (!q.has("sparsity_config") || q.raw("sparsity_config").empty()) return;
  const JsonFields sparsity(q.raw("sparsity_config"), q.where() + ": sparsity_config");
  const std::string format = sparsity.string_or("format", "dense");
  if (format != "dense")
    fail(ErrorKind::refused, "{}: format {} is not supported; give a checkpoint with dense weights",
         sparsity.where(), io::printable(format));
}

bool is_compressed(const JsonFields& q) {
  return q.string_or("quant_method", "") == "compressed-tensors";
}

}  // namespace

bool has_plain_compressed_weights(const JsonFields& q) {
  if (!is_compressed(q)) return false;
  check_plain(q);
  const bool only_kv_cache = q.has("kv_cache_scheme") && q.has("config_groups") &&
                             q.raw("config_groups").is_object() && q.raw("config_groups").empty();
  return only_kv_cache || q.string_or("format", "") == "dense";
}

bool has_compressed_format(const JsonFields& q, std::initializer_list<std::string_view> formats) {
  if (!is_compressed(q)) return false;
  const auto is_one = [&](const JsonFields& fields) {
    return std::ranges::find(formats, fields.string_or("format", "")) != formats.end();
  };
  // Groups without a format of their own: shapes and types of tensors tell it.
  const auto is_any = [&](const JsonFields& group) {
    return q.string_or("format", "") == "mixed-precision" && !group.has("format");
  };
  const std::vector<JsonFields> groups = groups_of(q);
  const bool found =
      is_one(q) || std::ranges::any_of(groups, is_one) || std::ranges::any_of(groups, is_any);
  if (found) check_plain(q);
  return found;
}

namespace {

// Values above 0 that groups of modules have for their weights.
std::vector<int64_t> values_of_weights(const JsonFields& q, const char* key, int64_t most) {
  std::vector<int64_t> values;
  for (const JsonFields& group : groups_of(q)) {
    if (!group.has("weights")) continue;
    const JsonFields weights(group.raw("weights"), group.where() + ": weights");
    const int64_t value = weights.integer_or(key, -1, most, -1);
    if (value > 0) values.push_back(value);
  }
  return values;
}

}  // namespace

std::optional<ScaleBlock> scale_block(const Json& structure) {
  constexpr int64_t kMost = int64_t{1} << 20;
  Json sizes = structure;
  if (structure.is_string()) {
    const std::string text = structure.get<std::string>();
    const size_t at = text.find('x');
    if (at == std::string::npos) return std::nullopt;
    sizes = Json::array({Json::parse(text.substr(0, at), nullptr, false),
                         Json::parse(text.substr(at + 1), nullptr, false)});
  }
  const auto is_size = [](const Json& value) {
    return value.is_number_integer() && value >= 1 && value <= kMost;
  };
  if (!sizes.is_array() || sizes.size() != 2 || !std::ranges::all_of(sizes, is_size))
    return std::nullopt;
  return ScaleBlock{sizes[0].get<int64_t>(), sizes[1].get<int64_t>()};
}

std::vector<ScaleBlock> compressed_blocks(const JsonFields& q) {
  constexpr const char* kKey = "block_structure";
  std::vector<ScaleBlock> blocks;
  for (const JsonFields& group : groups_of(q)) {
    if (!group.has("weights")) continue;
    const JsonFields weights(group.raw("weights"), group.where() + ": weights");
    if (!weights.has(kKey)) continue;
    const std::optional<ScaleBlock> block = scale_block(weights.raw(kKey));
    if (!block)
      fail(ErrorKind::refused, "{}: {} must be two numbers, of outputs and inputs", weights.where(),
           kKey);
    blocks.push_back(*block);
  }
  return blocks;
}

std::vector<int64_t> compressed_group_sizes(const JsonFields& q) {
  return values_of_weights(q, "group_size", int64_t{1} << 20);
}

std::vector<int64_t> compressed_bits(const JsonFields& q) {
  return values_of_weights(q, "num_bits", 64);
}

}  // namespace sluice
