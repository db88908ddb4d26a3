#include "src/models/config.h"

#include <array>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxConfigBytes = 16 * MiB;

Json read_json(const std::filesystem::path& directory, const char* name) {
  return parse_json(io::read_checkpoint_file(directory, name, kMaxConfigBytes), name);
}

std::string parse_architecture(const JsonFields& config) {
  if (!config.has("architectures")) {
    fail(ErrorKind::refused, "{}: names no architecture (architectures is missing)",
         config.where());
  }
  const Json& list = config.raw("architectures");
  if (!list.is_array() || list.empty() || !list[0].is_string()) {
    fail(ErrorKind::refused, "{}: architectures must be a list of strings", config.where());
  }
  return list[0].get<std::string>();
}

DType parse_torch_dtype(const JsonFields& config) {
  const char* key = config.has("dtype") ? "dtype" : "torch_dtype";
  std::string name = config.string_or(key, "bfloat16");
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16" || name == "half") return DType::f16;
  if (name == "float32" || name == "float") return DType::f32;
  fail(ErrorKind::refused, "{}: {} \"{}\" is not known; bfloat16, float16 and float32 are",
       config.where(), key, name);
}

std::vector<int32_t> parse_ids(const JsonFields& fields, const char* key) {
  std::vector<int32_t> ids;
  if (!fields.has(key)) return ids;
  const Json& value = fields.raw(key);
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxVocab) {
      fail(ErrorKind::refused, "{}: {} must be a token id or a list of them", fields.where(), key);
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// compressed-tensors says so of a checkpoint whose weights are plain, and that has scales of the KV
// cache beside them.
bool quantizes_only_kv_cache(const JsonFields& quantization) {
  if (quantization.string_or("quant_method", "") != "compressed-tensors") return false;
  return quantization.has("kv_cache_scheme") && quantization.has("config_groups") &&
         quantization.raw("config_groups").is_object() && quantization.raw("config_groups").empty();
}

// A checkpoint that is quantized already needs a reader for its scheme: running it as if it were
// plain would be wrong.
void refuse_stored_quantization(const JsonFields& config) {
  if (!config.has("quantization_config")) return;
  JsonFields q(config.raw("quantization_config"), config.where() + ": quantization_config");
  if (quantizes_only_kv_cache(q)) return;
  fail(ErrorKind::refused,
       "{}: quantization method \"{}\" is not supported; give the unquantized checkpoint and "
       "--quantization",
       q.where(), q.string_or("quant_method", "(none named)"));
}

}  // namespace

Activation parse_activation(const JsonFields& config, const char* key, std::string fallback) {
  static constexpr std::array<std::pair<std::string_view, Activation>, 7> kNames{
      {{"silu", Activation::silu},
       {"swish", Activation::silu},
       {"gelu", Activation::gelu},
       {"gelu_new", Activation::gelu_tanh},
       {"gelu_pytorch_tanh", Activation::gelu_tanh},
       {"gelu_fast", Activation::gelu_tanh},
       {"relu", Activation::relu}}};
  std::string name = config.string_or(key, std::move(fallback));
  for (const auto& [known, activation] : kNames) {
    if (known == name) return activation;
  }
  fail(ErrorKind::refused, "{}: {} \"{}\" is not known", config.where(), key, name);
}

DecoderConfig parse_decoder_config(const JsonFields& c) {
  DecoderConfig d;
  d.vocab_size = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden_size = c.integer("hidden_size", 1, kMaxWidth);
  d.intermediate_size = c.integer("intermediate_size", 1, 4 * kMaxWidth);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  d.heads = c.integer("num_attention_heads", 1, kMaxWidth);
  d.kv_heads = c.integer_or("num_key_value_heads", 1, kMaxWidth, d.heads);
  if (d.heads % d.kv_heads != 0) {
    fail(ErrorKind::refused,
         "{}: num_key_value_heads ({}) does not divide num_attention_heads ({})", c.where(),
         d.kv_heads, d.heads);
  }
  if (!c.has("head_dim") && d.hidden_size % d.heads != 0) {
    fail(ErrorKind::refused,
         "{}: num_attention_heads ({}) does not divide hidden_size ({}) and head_dim is missing",
         c.where(), d.heads, d.hidden_size);
  }
  d.head_dim = c.integer_or("head_dim", 1, kMaxWidth, d.hidden_size / d.heads);
  if (d.head_dim < 2 || d.head_dim % 2 != 0) {
    fail(ErrorKind::refused, "{}: head_dim is {}, but must be even for rotary embeddings",
         c.where(), d.head_dim);
  }
  if (d.heads * d.head_dim > kMaxWidth) {
    fail(ErrorKind::refused, "{}: num_attention_heads x head_dim is {}, which is absurd", c.where(),
         d.heads * d.head_dim);
  }
  double eps = c.number_or("rms_norm_eps", 1e-6);
  if (!(eps > 0) || eps > 1)
    fail(ErrorKind::refused, "{}: rms_norm_eps is {}, but must be positive", c.where(), eps);
  d.rms_norm_eps = static_cast<float>(eps);
  d.max_positions = c.integer_or("max_position_embeddings", 1, kMaxPositions, 2048);
  d.activation = parse_activation(c, "hidden_act", "silu");
  d.rope = parse_rope(c, d.head_dim, d.max_positions);
  d.tie_word_embeddings = c.boolean_or("tie_word_embeddings", false);
  d.windows.assign(static_cast<size_t>(d.layers), 0);
  return d;
}

std::vector<int64_t> parse_windows(const JsonFields& c, int64_t layers) {
  int64_t window = c.has("sliding_window") ? c.integer("sliding_window", 1, kMaxPositions) : 0;
  std::vector<int64_t> windows(static_cast<size_t>(layers), window);
  if (!c.has("layer_types")) return windows;
  const Json& types = c.raw("layer_types");
  if (!types.is_array() || types.size() != windows.size()) {
    fail(ErrorKind::refused, "{}: layer_types must be a list of {} names, one a layer", c.where(),
         layers);
  }
  for (size_t l = 0; l < windows.size(); ++l) {
    std::string type = types[l].is_string() ? types[l].get<std::string>() : types[l].dump();
    if (type == "full_attention") {
      windows[l] = 0;
    } else if (type != "sliding_attention" || window == 0) {
      fail(ErrorKind::refused,
           "{}: layer_types[{}] is {}; full_attention is known, and sliding_attention with a "
           "sliding_window",
           c.where(), l, io::printable(type));
    }
  }
  return windows;
}

ModelFiles read_model_files(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory)) {
    bool exists = std::filesystem::exists(directory);
    fail(ErrorKind::refused, "{}: {}; MODEL must be a checkpoint directory with config.json",
         directory.string(), exists ? "is not a directory" : "does not exist");
  }
  ModelFiles files;
  files.config = read_json(directory, "config.json");
  JsonFields config(files.config, "config.json");
  files.architecture = parse_architecture(config);
  files.dtype = parse_torch_dtype(config);
  refuse_stored_quantization(config);
  files.eos_ids = parse_ids(config, "eos_token_id");
  if (std::filesystem::exists(directory / "generation_config.json")) {
    Json generation = read_json(directory, "generation_config.json");
    JsonFields fields(generation, "generation_config.json");
    if (fields.has("eos_token_id")) files.eos_ids = parse_ids(fields, "eos_token_id");
  }
  return files;
}

}  // namespace sluice
