#include "src/models/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/formats/formats.h"

namespace sluice {
namespace {

// Reads the type as transformers does: dtype is preferred, and a null says nothing.
std::optional<DType> parse_torch_dtype(const JsonFields& config) {
  static constexpr std::array<std::pair<std::string_view, DType>, 7> kNames{
      {{"bfloat16", DType::bf16},
       {"float16", DType::f16},
       {"half", DType::f16},
       {"float32", DType::f32},
       {"float", DType::f32},
       {"float64", DType::f64},
       {"double", DType::f64}}};
  const char* key = config.has("dtype") ? "dtype" : "torch_dtype";
  if (!config.has(key)) return std::nullopt;
  std::string name = config.string(key);
  if (config.string_or("torch_dtype", name) != name) {
    log::warning("{}: dtype is {}, torch_dtype {}: dtype counts", config.where(),
                 io::printable(name), io::printable(config.string("torch_dtype")));
  }
  for (const auto& [known, dtype] : kNames) {
    if (known == name) return dtype;
  }
  fail(ErrorKind::refused,
       "{}: {} \"{}\" is not supported; supported: bfloat16, float16, float32, float64",
       config.where(), key, io::printable(name));
}

// Ids below zero are none: some configs have -1 where there is no such token.
std::vector<int32_t> parse_ids(const JsonFields& fields, const char* key) {
  std::vector<int32_t> ids;
  if (!fields.has(key)) return ids;
  const Json& value = fields.raw(key);
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    bool is_id = id.is_number_unsigned() ? id.get<uint64_t>() <= uint64_t{kMaxVocab}
                                         : id.is_number_integer();
    if (!is_id) {
      fail(ErrorKind::refused, "{}: {} must be a token id or a list of them", fields.where(), key);
    }
    if (id.get<int64_t>() >= 0) ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// Returns the end tokens of both files: after a fine-tune only one of them may be new.
std::vector<int32_t> read_eos_ids(const ModelSource& source, const JsonFields& config) {
  std::vector<int32_t> ids = parse_ids(config, "eos_token_id");
  const std::optional<Json> json = source.generation_config();
  if (!json) return ids;
  for (int32_t id : parse_ids(JsonFields(*json, "generation_config.json"), "eos_token_id")) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

// A checkpoint that is quantized already needs a reader for its scheme: running it as if it were
// plain would be wrong.
void refuse_stored_quantization(const JsonFields& config) {
  if (!config.has("quantization_config")) return;
  JsonFields q(config.raw("quantization_config"), config.where() + ": quantization_config");
  if (names_stored_format(q)) return;
  std::string kind;
  for (const char* key : {"quant_algo", "format", "packing_format"}) {
    const std::string value = q.string_or(key, "");
    if (!value.empty()) kind += fmt::format(" with {} \"{}\"", key, io::printable(value));
  }
  fail(ErrorKind::refused,
       "{}: quantization method \"{}\"{} is not supported; give the unquantized checkpoint and "
       "--quantization",
       q.where(), io::printable(q.string_or("quant_method", "(none named)")), kind);
}

// Returns the config of the language model within another model (text_config; llm_config of
// InternVL's first releases, language_config of DeepSeek's), else `config`. The outer one counts
// for what it says of both. Some have both in one object.
Json language_model_config(Json config, bool& wrapper) {
  auto has = [&](const char* key) {
    return config.is_object() && config.contains(key) && config[key].is_object();
  };
  if (has("thinker_config")) config = Json(config["thinker_config"]);  // of Qwen's Omni models
  const char* inner = "text_config";
  for (const char* older : {"llm_config", "language_config"})
    if (!has(inner)) inner = older;
  wrapper = has(inner) || has("vision_config");
  if (!wrapper) return config;
  if (!has(inner)) {
    config.erase("architectures");
    return config;
  }
  Json text = config[inner];
  for (const char* key :
       {"dtype", "torch_dtype", "eos_token_id", "quantization_config", "tie_word_embeddings"}) {
    if (config.contains(key) && !config[key].is_null()) text[key] = config[key];
  }
  return text;
}

}  // namespace

void warn_of_absent(const JsonFields& config, std::initializer_list<const char*> keys) {
  std::vector<std::string_view> missing;
  for (const char* key : keys) {
    if (!config.has(key)) missing.push_back(key);
  }
  if (missing.empty()) return;
  log::warning("{}: {} missing; the default of transformers is taken", config.where(),
               fmt::join(missing, ", "));
}

const char* present(const JsonFields& config, const char* key, const char* other) {
  return config.has(other) && !config.has(key) ? other : key;
}

int64_t read_size(const JsonFields& config, const char* key, int64_t absent, int64_t most) {
  config.refuse_null({key});
  return config.integer_or(key, 1, most, absent);
}

float read_eps(const JsonFields& config, const char* key, double absent) {
  config.refuse_null({key});
  double eps = config.number_or(key, absent);
  if (!(eps > 0) || eps > 1)
    fail(ErrorKind::refused, "{}: {} is {}, but must be above 0 and at most 1", config.where(), key,
         eps);
  return static_cast<float>(eps);
}

float read_factor(const JsonFields& config, const char* key, double absent) {
  config.refuse_null({key});
  const auto factor = static_cast<float>(config.number_or(key, absent));
  if (!(factor > 0) || !std::isfinite(factor) || !std::isfinite(1 / factor))
    fail(ErrorKind::refused, "{}: {} is {}, but must be positive", config.where(), key, factor);
  return factor;
}

float read_cap(const JsonFields& config, const char* key, double absent) {
  if (config.is_null(key) || (!config.has(key) && absent == 0)) return 0;
  return read_factor(config, key, absent);
}

bool read_boolean(const JsonFields& config, const char* key, bool absent) {
  config.refuse_null({key});
  return config.boolean_or(key, absent);
}

bool read_flag(const JsonFields& config, const char* key, bool absent) {
  return !config.is_null(key) && config.boolean_or(key, absent);
}

Activation read_activation(const JsonFields& config, const char* key, std::string_view absent) {
  static constexpr std::array<std::pair<std::string_view, Activation>, 12> kNames{
      {{"silu", Activation::silu},
       {"swish", Activation::silu},
       {"gelu", Activation::gelu},
       {"gelu_new", Activation::gelu_tanh},
       {"gelu_pytorch_tanh", Activation::gelu_tanh},
       {"gelu_fast", Activation::gelu_tanh},
       {"gelu_python", Activation::gelu},
       {"gelu_python_tanh", Activation::gelu_tanh},
       {"gelu_accurate", Activation::gelu_tanh},
       {"relu", Activation::relu},
       {"relu2", Activation::relu_squared},
       {"xielu", Activation::xielu}}};
  config.refuse_null({key});
  std::string name = config.string_or(key, std::string(absent));
  for (const auto& [known, activation] : kNames) {
    if (known == name) return activation;
  }
  fail(ErrorKind::refused, "{}: {} \"{}\" is not known", config.where(), key, io::printable(name));
}

Heads read_heads(const JsonFields& c, int64_t hidden_size, const HeadKeys& keys) {
  Heads h;
  h.heads = read_size(c, keys.heads, keys.absent_heads);
  h.kv_heads = h.heads;
  if (keys.kv_heads != nullptr) {
    int64_t absent = c.is_null(keys.kv_heads) ? h.heads : keys.absent_kv_heads.value_or(h.heads);
    h.kv_heads = c.integer_or(keys.kv_heads, 1, kMaxWidth, absent);
  }
  if (h.heads % h.kv_heads != 0) {
    fail(ErrorKind::refused, "{}: {} ({}) does not divide {} ({})", c.where(),
         keys.kv_heads != nullptr ? keys.kv_heads : "KV heads", h.kv_heads, keys.heads, h.heads);
  }
  const bool is_null = keys.head_dim != nullptr && c.is_null(keys.head_dim);
  const bool is_there = keys.head_dim != nullptr && c.has(keys.head_dim);
  const bool given = is_there || (keys.absent_head_dim && !is_null);
  if (!given && hidden_size % h.heads != 0) {
    fail(ErrorKind::refused,
         "{}: {} ({}) does not divide the hidden size ({}), and head_dim is missing", c.where(),
         keys.heads, h.heads, hidden_size);
  }
  h.head_dim = hidden_size / h.heads;
  if (given) h.head_dim = is_there ? c.integer(keys.head_dim, 1, kMaxWidth) : *keys.absent_head_dim;
  if (h.head_dim < 2 || h.head_dim % 2 != 0)
    fail(ErrorKind::refused, "{}: head_dim is {}, but must be even", c.where(), h.head_dim);
  if (h.heads * h.head_dim > kMaxWidth) {
    fail(ErrorKind::refused, "{}: {} x head_dim is {}, which is absurd", c.where(), keys.heads,
         h.heads * h.head_dim);
  }
  return h;
}

std::vector<size_t> read_layer_types(const JsonFields& c, int64_t layers,
                                     std::initializer_list<std::string_view> names,
                                     const char* key) {
  if (!c.has(key)) return {};
  const Json& types = c.raw(key);
  if (!types.is_array() || std::ssize(types) != layers)
    fail(ErrorKind::refused, "{}: {} must be a list of {} names, one a layer", c.where(), key,
         layers);
  std::vector<size_t> kinds;
  for (const Json& type : types) {
    const auto* name = std::ranges::find_if(names, [&](std::string_view n) {
      return type.is_string() && type.get<std::string>() == n;
    });
    if (name == names.end())
      fail(ErrorKind::refused, "{}: {} has {}; {} are known", c.where(), key,
           io::printable(type.dump()), fmt::join(names, ", "));
    kinds.push_back(static_cast<size_t>(name - names.begin()));
  }
  return kinds;
}

std::vector<int64_t> read_windows(const JsonFields& c, std::optional<int64_t> absent_window,
                                  int64_t layers, int64_t full_each) {
  const int64_t absent = c.is_null("sliding_window") ? 0 : absent_window.value_or(0);
  const int64_t window =
      c.has("sliding_window") ? c.integer("sliding_window", 1, kMaxPositions) : absent;
  std::vector<int64_t> windows(static_cast<size_t>(layers), window);
  // "attention" is an older name.
  const std::vector<size_t> kinds =
      read_layer_types(c, layers, {"full_attention", "attention", "sliding_attention"});
  if (kinds.empty()) {
    for (int64_t l = full_each; l > 0 && l <= layers; l += full_each)
      windows[static_cast<size_t>(l - 1)] = 0;
    return windows;
  }
  constexpr size_t kSliding = 2;
  for (size_t l = 0; l < windows.size(); ++l) {
    if (kinds[l] != kSliding) windows[l] = 0;
    if (kinds[l] == kSliding && window == 0)
      fail(ErrorKind::refused, "{}: layer_types[{}] is sliding_attention, without a sliding_window",
           c.where(), l);
  }
  return windows;
}

std::vector<int64_t> read_upper_windows(const JsonFields& c, int64_t absent_window, int64_t layers,
                                        int64_t absent_full) {
  std::vector<int64_t> windows = read_windows(c, absent_window, layers);
  c.refuse_null({"max_window_layers"});
  const int64_t full = c.integer_or("max_window_layers", 0, kMaxLayers, absent_full);
  if (!c.has("layer_types")) std::fill_n(windows.begin(), std::min(full, layers), 0);
  return windows;
}

void each_own_config(
    const JsonFields& c, size_t layers,
    const std::function<bool(size_t, const JsonFields&, const std::string&)>& take) {
  if (!c.has("per_layer_config")) return;
  const std::string where = c.where() + ": per_layer_config";
  const Json& all = c.raw("per_layer_config");
  if (!all.is_object()) fail(ErrorKind::refused, "{} must be an object", where);
  std::map<std::string, size_t> numbers;
  for (size_t l = 0; l < layers; ++l) numbers.emplace(std::to_string(l), l);
  for (const auto& [number, json] : all.items()) {
    const auto layer = numbers.find(number);
    if (layer == numbers.end())
      fail(ErrorKind::refused, "{}: {} is no layer of {}", where, io::printable(number), layers);
    const JsonFields own(json, fmt::format("{}: {}", where, number));
    for (const auto& [key, value] : json.items()) {
      if (key == "skip" && value.empty()) continue;
      if (c.has(key.c_str()) && c.raw(key.c_str()) == value) continue;
      if (!take(layer->second, own, key))
        fail(ErrorKind::refused, "{}: {} of a single layer is not supported", own.where(),
             io::printable(key));
    }
  }
}

std::optional<std::vector<double>> read_numbers(const JsonFields& c, const char* key) {
  if (!c.has(key)) return std::nullopt;
  const Json& list = c.raw(key);
  std::vector<double> numbers;
  if (list.is_array()) {
    for (const Json& number : list)
      numbers.push_back(number.is_number() ? number.get<double>() : NAN);
  }
  if (!list.is_array() ||
      !std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); }))
    fail(ErrorKind::refused, "{}: {} must be a list of numbers", c.where(), key);
  return numbers;
}

ModelFiles read_model_files(const ModelSource& source) {
  ModelFiles files;
  files.config = language_model_config(source.config(), files.wrapper);
  files.config_name = source.config_name();
  JsonFields config(files.config, files.config_name);
  files.dtype = parse_torch_dtype(config);
  refuse_stored_quantization(config);
  files.eos_ids = read_eos_ids(source, config);
  return files;
}

}  // namespace sluice
