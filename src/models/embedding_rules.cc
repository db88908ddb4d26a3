#include "src/models/embedding_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/units.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModules = "modules.json";
constexpr uint64_t kMostBytes = MiB;

struct PoolingName {
  std::string_view name;
  const char* flag;  // of older files
  Pooling pooling;
};
constexpr auto kPoolings = std::to_array<PoolingName>({
    {"mean", "pooling_mode_mean_tokens", Pooling::mean},
    {"cls", "pooling_mode_cls_token", Pooling::first},
    {"max", "pooling_mode_max_tokens", Pooling::max},
    {"lasttoken", "pooling_mode_lasttoken", Pooling::last},
    {"weightedmean", "pooling_mode_weightedmean_tokens", Pooling::weighted_mean},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::root_mean},
});

Json read_module_file(const io::ModelDirectory& directory, const std::string& name) {
  return parse_json(directory.read(name, kMostBytes), io::printable(name));
}

// "pooling_mode": "mean", or a list of such names, whose vectors are joined.
Pooling named_pooling(const JsonFields& config) {
  const Json& value = config.raw("pooling_mode");
  const Json names = value.is_array() ? value : Json::array({value});
  if (names.size() == 1 && names[0].is_string()) {
    const auto name = names[0].get<std::string>();
    const auto* found = std::ranges::find(kPoolings, name, &PoolingName::name);
    if (found != kPoolings.end()) return found->pooling;
  }
  fail(ErrorKind::refused, "{}: pooling_mode {} is not supported", config.where(),
       io::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

Pooling read_pooling(const Json& object, const std::string& where) {
  const JsonFields config(object, where);
  if (config.has("pooling_mode")) return named_pooling(config);
  std::optional<Pooling> chosen;
  for (const auto& [key, value] : object.items()) {
    if (!key.starts_with("pooling_mode_") || value != Json(true)) continue;
    const auto* found = std::ranges::find(kPoolings, key, &PoolingName::flag);
    if (found == kPoolings.end())
      fail(ErrorKind::refused, "{}: {} is not supported", config.where(), io::printable(key));
    if (chosen)
      fail(ErrorKind::refused,
           "{}: several pooling modes, whose vectors are joined, are not "
           "supported",
           config.where());
    chosen = found->pooling;
  }
  if (!chosen && config.has("pooling_mode_mean_tokens"))
    fail(ErrorKind::refused, "{}: no pooling mode is true", config.where());
  return chosen.value_or(Pooling::mean);
}

// The path of a module, as modules.json names it, must not leave the model's directory.
std::string config_of_module(const JsonFields& module) {
  const std::string path = module.string_or("path", "");
  const fs::path parts(path);
  if (parts.is_absolute() || std::ranges::find(parts, fs::path("..")) != parts.end())
    fail(ErrorKind::refused, "{}: path {} leaves the model's directory", module.where(),
         io::printable(path));
  return path.empty() ? "config.json" : path + "/config.json";
}

// Returns a class's name without its package, which has been renamed over time.
std::string class_of(const JsonFields& module) {
  const std::string type = module.string("type");
  return type.substr(type.rfind('.') + 1);
}

EmbeddingRules read_modules(const io::ModelDirectory& directory) {
  const Json modules = read_module_file(directory, kModules);
  if (!modules.is_array()) fail(ErrorKind::refused, "{}: must be a list of modules", kModules);
  EmbeddingRules rules{.normalized = false};
  bool pooled = false;
  for (size_t i = 0; i < modules.size(); ++i) {
    const JsonFields module(modules[i], fmt::format("{}: module {}", kModules, i));
    const std::string type = class_of(module);
    if (type == "Transformer" && i == 0) continue;
    if (type == "Pooling" && !pooled) {
      const std::string name = config_of_module(module);
      rules.pooling = read_pooling(read_module_file(directory, name), io::printable(name));
      pooled = true;
    } else if (type == "Normalize" && pooled) {
      rules.normalized = true;
    } else {
      fail(
          ErrorKind::refused,
          "{}: module {} is a {}, which is not supported there; Transformer, Pooling and Normalize "
          "are, in this order",
          kModules, i, io::printable(type));
    }
  }
  if (!pooled) fail(ErrorKind::refused, "{}: no module is a Pooling", kModules);
  return rules;
}

}  // namespace

EmbeddingRules read_embedding_rules(const io::ModelDirectory& directory) {
  std::error_code fault;
  if (!fs::exists(directory.path() / kModules, fault)) return {};
  try {
    return read_modules(directory);
  } catch (const Error& e) {  // the model can still write
    if (e.kind() != ErrorKind::refused) throw;
    return {.refusal = e.what()};
  }
}

EmbeddingRules gguf_embedding_rules(const io::GgufHeader& header, const std::string& architecture) {
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  const std::string key = architecture + ".pooling_type";
  if (!fields.has(key.c_str())) return {};
  constexpr std::array kTypes{Pooling::last, Pooling::mean, Pooling::first, Pooling::last};
  const int64_t type = fields.integer(key.c_str(), INT32_MIN, INT32_MAX);
  if (type <= 0) return {};  // none, or not said
  if (type < std::ssize(kTypes)) return {.pooling = kTypes[static_cast<size_t>(type)]};
  return {.refusal = fmt::format("{}: {} is {}, which is not supported; 1 (mean), 2 (first) and 3 "
                                 "(last) are",
                                 fields.where(), key, type)};
}

}  // namespace sluice
