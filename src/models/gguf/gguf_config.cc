#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/gguf/gguf.h"

namespace sluice {
namespace {

constexpr std::string_view kKvHeads = "attention.head_count_kv", kMlpWidth = "feed_forward_length",
                           kWindowPattern = "attention.sliding_window_pattern";

const io::StoredTensor* find_tensor(const io::GgufCheckpoint& checkpoint, std::string_view name) {
  auto found = std::ranges::find(checkpoint.tensors, name, &io::StoredTensor::name);
  return found == checkpoint.tensors.end() ? nullptr : &*found;
}

// True for the tensor `rest` of any layer: "blk.N.REST".
bool is_in_a_layer(std::string_view name, std::string_view rest) {
  const size_t dot = name.starts_with("blk.") ? name.find('.', 4) : std::string_view::npos;
  return dot != std::string_view::npos && name.substr(dot + 1) == rest;
}

// Tells whether a layer has the tensor of a sign, and not the other one.
bool holds(const io::GgufCheckpoint& checkpoint, const GgufSign& sign) {
  return std::ranges::any_of(checkpoint.tensors, [&](const io::StoredTensor& tensor) {
    if (tensor.name == sign.tensor) return true;
    if (!is_in_a_layer(tensor.name, sign.tensor)) return false;
    if (sign.without.empty()) return true;
    const size_t layer = tensor.name.size() - sign.tensor.size();
    return find_tensor(checkpoint, tensor.name.substr(0, layer) + std::string(sign.without)) ==
           nullptr;
  });
}

// The place of a key, which may be in an object: "OBJECT.KEY".
Json& place_of(Json& config, std::string_view key) {
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return config[std::string(key)];
  return place_of(config[std::string(key.substr(0, dot))], key.substr(dot + 1));
}

void set_scaling(const JsonFields& fields, const GgufArchitecture& architecture,
                 const RopeFactors& factors, Json& config) {
  const std::string prefix = std::string(architecture.name) + ".";
  const std::string at = prefix + "rope.scaling.", older = prefix + "rope.scale_linear";
  const bool has_factors = !factors.long_ones.empty() || !factors.short_ones.empty();
  // A factor without a type is linear; its key was another one before there were types. 0: none.
  const double factor =
      fields.number_or((at + "factor").c_str(), fields.number_or(older.c_str(), 0));
  const std::string type = fields.string_or((at + "type").c_str(), factor == 0 ? "none" : "linear");
  if ((type == "none" || (type == "linear" && factor == 0)) && !has_factors) return;
  Json& scaling = config["rope_scaling"];
  scaling["rope_type"] = has_factors ? "longrope" : type;
  if (factor != 0) scaling["factor"] = factor;
  const auto take = [&](const char* key, const char* config_key) {
    const std::string full = at + key;
    if (fields.has(full.c_str())) scaling[config_key] = fields.raw(full.c_str());
  };
  take("attn_factor", "attention_factor");
  take("yarn_attn_factor", "attention_factor");
  take("beta_fast", "beta_fast");  // Ollama's
  take("beta_slow", "beta_slow");
  take("yarn_beta_fast", "beta_fast");
  take("yarn_beta_slow", "beta_slow");
  const std::string multiplier = at + "yarn_log_multiplier";
  if (fields.has(multiplier.c_str()))
    scaling["mscale"] = scaling["mscale_all_dim"] =
        fields.number(multiplier.c_str()) / architecture.log_multiplier;
  const std::string temperature = prefix + "attention.temperature_scale";
  if (fields.has(temperature.c_str()))
    scaling["llama_4_scaling_beta"] = fields.raw(temperature.c_str());
  constexpr const char* kOriginal = "original_max_position_embeddings";
  take("original_context_length", kOriginal);
  if (scaling.contains(kOriginal)) config[kOriginal] = scaling[kOriginal];  // where Phi-3 has it
  if (!has_factors) return;
  scaling["long_factor"] = factors.long_ones;
  scaling["short_factor"] = factors.short_ones;
}

// head_dim, or what follows from other sizes.
int64_t head_size(const JsonFields& made) {
  const int64_t heads = made.integer("num_attention_heads", 1, kMaxWidth);
  return made.integer_or("head_dim", 1, kMaxWidth,
                         made.integer("hidden_size", 1, kMaxWidth) / heads);
}

// A window of 0 is none, as in files of Phi-4.
void drop_empty_window(Json& config) {
  constexpr const char* kWindow = "sliding_window";
  if (config.contains(kWindow) && config[kWindow] == 0) config[kWindow] = nullptr;
}

// Biases of layers, where no row of the architecture speaks of them. Classes without such keys have
// them always, or never.
void set_biases(const io::GgufCheckpoint& checkpoint, Json& config) {
  constexpr GgufSign kSigns[]{{"attn_q.bias", "attention_bias"}, {"ffn_up.bias", "mlp_bias"}};
  for (const GgufSign& row : kSigns) {
    const std::string key(row.config_key);
    if (!config.contains(key) && holds(checkpoint, row)) config[key] = true;
  }
}

// The part of each head that turns, of which the field `name` has the elements.
void set_rotated(const JsonFields& fields, const std::string& name, std::string_view key,
                 Json& config) {
  if (key.empty() || !fields.has(name.c_str()) || !config.contains("num_attention_heads")) return;
  const int64_t head = head_size(JsonFields(config, fields.where()));
  const int64_t rotated = fields.integer(name.c_str(), 1, kMaxWidth);
  if (rotated != head)
    place_of(config, key) = static_cast<double>(rotated) / static_cast<double>(head);
}

void set_score_divisor(const JsonFields& fields, int64_t deepest, Json& config) {
  if (deepest == 0 || !config.contains("num_attention_heads")) return;
  const JsonFields made(config, fields.where());
  const bool is_deepest = made.integer("num_hidden_layers", 1, kMaxLayers) == deepest;
  const int64_t divisor = is_deepest ? made.integer("hidden_size", 1, kMaxWidth) /
                                           made.integer("num_attention_heads", 1, kMaxWidth)
                                     : head_size(made);
  config["query_pre_attn_scalar"] = divisor;
}

// Returns the type to compute with where nothing is asked for: that of the stored matrices.
const char* torch_dtype(const io::GgufCheckpoint& checkpoint) {
  const io::StoredTensor* table = find_tensor(checkpoint, "token_embd.weight");
  if (table != nullptr && table->dtype == DType::f16) return "float16";
  return table != nullptr && table->dtype == DType::f32 ? "float32" : "bfloat16";
}

// Layers that predict further tokens, which stand behind the others and are counted among them.
int64_t more_layers(const JsonFields& fields, const std::string& architecture, int64_t layers) {
  return fields.integer_or((architecture + ".nextn_predict_layers").c_str(), 0, layers - 1, 0);
}
int64_t own_layers(const JsonFields& fields, const std::string& architecture) {
  const int64_t layers = fields.integer((architecture + ".block_count").c_str(), 1, kMaxLayers);
  return layers - more_layers(fields, architecture, layers);
}

// The integers of an array with one for each layer; empty: there is no such array.
std::vector<int64_t> layer_numbers(const io::GgufHeader& header, const std::string& architecture,
                                   std::string_view key) {
  const std::string full = fmt::format("{}.{}", architecture, key);
  if (!header.arrays.contains(full)) return {};
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  const std::vector<double> numbers = read_gguf_numbers(header, full);
  const int64_t layers = fields.integer((architecture + ".block_count").c_str(), 1, kMaxLayers);
  // Converters write some arrays without the layers that predict further tokens.
  if (std::ssize(numbers) != layers && std::ssize(numbers) != own_layers(fields, architecture))
    fail(ErrorKind::refused, "{}: {} has {} values for {} layers", fields.where(), full,
         numbers.size(), layers);
  std::vector<int64_t> whole;
  for (double number : numbers) {
    if (number < 0 || number > 4 * kMaxWidth || number != std::floor(number))
      fail(ErrorKind::refused, "{}: {} must have whole numbers from 0 to {}", fields.where(), full,
           4 * kMaxWidth);
    whole.push_back(static_cast<int64_t>(number));
  }
  whole.resize(static_cast<size_t>(own_layers(fields, architecture)));
  return whole;
}

bool all_equal(const std::vector<int64_t>& numbers) {
  return std::ranges::all_of(numbers, [&](int64_t n) { return n == numbers.front(); });
}

// Sets the types of layers by their KV heads and widths, and the number of KV heads.
void set_layer_types(const JsonFields& fields, const GgufArchitecture& architecture,
                     const io::GgufHeader& header, Json& config) {
  const std::string name(architecture.name);
  const std::vector<int64_t> kv_heads = layer_numbers(header, name, kKvHeads);
  if (kv_heads.empty() || !architecture.layer_types) return;
  const GgufLayerTypes& as = *architecture.layer_types;
  const std::vector<int64_t> widths = layer_numbers(header, name, kMlpWidth);
  const int64_t most = std::ranges::max(kv_heads);
  Json types = Json::array();
  std::vector<int64_t> attending;
  for (size_t l = 0; l < kv_heads.size(); ++l) {
    if (kv_heads[l] != 0 && kv_heads[l] != most)
      fail(ErrorKind::refused, "{}: {}.{} has {} and {}, which is not supported", fields.where(),
           name, kKvHeads, kv_heads[l], most);
    const bool is_mlp = !as.mlp.empty() && !widths.empty() && widths[l] > 0;
    types.push_back(kv_heads[l] > 0 ? as.attending : is_mlp ? as.mlp : as.others);
    if (kv_heads[l] > 0) attending.push_back(static_cast<int64_t>(l));
  }
  config["num_key_value_heads"] = std::max<int64_t>(most, 1);
  const std::string key(as.config_key);
  if (as.offset_key.empty()) {
    config[key] = std::move(types);
  } else if (!attending.empty()) {
    const int64_t first = attending[0];
    config[std::string(as.offset_key)] = first;
    config[key] = attending.size() > 1 ? attending[1] - first : std::ssize(kv_heads);
  }
}

// Sets what each layer has of its own.
void set_layer_config(const JsonFields& fields, const GgufArchitecture& architecture,
                      const io::GgufHeader& header, Json& config) {
  if (!architecture.layer_config) return;
  const std::string name(architecture.name);
  const std::vector<int64_t> kv_heads = layer_numbers(header, name, kKvHeads),
                             widths = layer_numbers(header, name, kMlpWidth),
                             sliding = layer_numbers(header, name, kWindowPattern);
  const auto size = [&](const char* key) {
    return fields.integer((name + key).c_str(), 1, kMaxWidth);
  };
  Json& all = config["per_layer_config"] = Json::object();
  for (int64_t l = 0; l < own_layers(fields, name); ++l) {
    const auto at = static_cast<size_t>(l);
    Json& own = all[std::to_string(l)] = Json::object();
    if (!kv_heads.empty()) own["num_key_value_heads"] = kv_heads[at];
    if (!widths.empty()) own["intermediate_size"] = widths[at];
    if (!sliding.empty() && sliding[at] == 0) own["head_dim"] = size(".attention.key_length");
  }
}

// Sets the layers' windows: a value for each, or a number of layers of which the last has none.
void set_windows(const JsonFields& fields, const io::GgufHeader& header,
                 const std::string& architecture, Json& config) {
  std::vector<int64_t> sliding = layer_numbers(header, architecture, kWindowPattern);
  const std::string key = fmt::format("{}.{}", architecture, kWindowPattern);
  if (fields.has(key.c_str()) && fields.raw(key.c_str()).is_number()) {
    const int64_t each = fields.integer(key.c_str(), 0, kMaxLayers);
    const int64_t layers = own_layers(fields, architecture);
    for (int64_t l = 1; l <= layers; ++l) sliding.push_back(each == 0 || l % each != 0 ? 1 : 0);
  }
  if (sliding.empty() || config.value("sliding_window", Json()).is_null()) return;
  Json& types = config["layer_types"] = Json::array();
  for (int64_t has : sliding) types.push_back(has != 0 ? "sliding_attention" : "full_attention");
}

// The value of a key, or the one that all layers have, which some may have of their own.
void set_key(const JsonFields& fields, const GgufArchitecture& architecture,
             const io::GgufHeader& header, const GgufKey& row, Json& config) {
  const std::string name(architecture.name);
  const std::string key = fmt::format("{}.{}", name, row.key);
  const std::vector<int64_t> of_layers = layer_numbers(header, name, row.key);
  if (!of_layers.empty()) {
    const auto& lists = architecture.lists;
    const bool may_differ = row.key == kKvHeads || row.key == kMlpWidth ||
                            std::ranges::find(lists, row.key, &GgufKey::key) != lists.end();
    if (!may_differ && !all_equal(of_layers))
      fail(ErrorKind::refused, "{}: {} differs from layer to layer, which is not supported",
           fields.where(), key);
    place_of(config, row.config_key) =
        row.key == kMlpWidth ? std::ranges::max(of_layers) : of_layers.front();
  } else if (fields.has(key.c_str())) {
    place_of(config, row.config_key) = fields.raw(key.c_str());
  } else if (row.key == kGgufFrequencyBase) {
    place_of(config, row.config_key) = 10000;  // the format's default, not the class's
  }
}

// The numbers of the model's own layers, where the file has them. One number is that of all layers,
// if the key is no plain one, too.
void set_list(const JsonFields& fields, const GgufArchitecture& architecture,
              const io::GgufHeader& header, const GgufKey& row, Json& config) {
  const std::string key = fmt::format("{}.{}", architecture.name, row.key);
  const auto& plain = architecture.keys;
  const bool is_one =
      fields.has(key.c_str()) && std::ranges::find(plain, row.key, &GgufKey::key) == plain.end();
  if (!is_one && !header.arrays.contains(key)) return;
  const auto layers = static_cast<size_t>(own_layers(fields, std::string(architecture.name)));
  std::vector<double> numbers = is_one ? std::vector<double>(layers, fields.number(key.c_str()))
                                       : read_gguf_numbers(header, key);
  if (numbers.size() < layers)
    fail(ErrorKind::refused, "{}: {} has {} values for {} layers", fields.where(), key,
         numbers.size(), layers);
  numbers.resize(layers);
  Json& list = place_of(config, row.config_key) = numbers;
  const auto array = header.arrays.find(key);
  const bool are_floats = array == header.arrays.end() || array->second.type == io::GgufType::f32 ||
                          array->second.type == io::GgufType::f64;
  if (!are_floats) list = std::vector<int64_t>(numbers.begin(), numbers.end());
}

void set_flags(const io::GgufHeader& header, const std::string& architecture, const GgufFlags& row,
               Json& config) {
  const std::vector<int64_t> numbers = layer_numbers(header, architecture, row.key);
  if (numbers.empty()) return;
  Json& names = config[std::string(row.config_key)] = Json::array();
  for (int64_t number : numbers) names.push_back(number != 0 ? row.set : row.unset);
}

// A size that no key says.
void set_width(const io::GgufCheckpoint& checkpoint, const GgufWidth& row, Json& config) {
  const std::string key(row.config_key);
  if (config.contains(key)) return;
  for (const io::StoredTensor& tensor : checkpoint.tensors) {
    const bool is_it = tensor.name == row.tensor || is_in_a_layer(tensor.name, row.tensor);
    if (!is_it || tensor.shape.size() < 2) continue;
    config[key] = tensor.shape[tensor.shape.size() - 2];
    return;
  }
}

void set_quotient(const JsonFields& fields, const std::string& prefix, const GgufQuotient& row,
                  Json& config) {
  const std::string whole = prefix + std::string(row.whole), by = prefix + std::string(row.by);
  if (config.contains(std::string(row.config_key))) return;
  if (!fields.has(whole.c_str()) || !fields.has(by.c_str())) return;
  const int64_t size = fields.integer(whole.c_str(), 1, kMaxWidth);
  const int64_t parts = fields.integer(by.c_str(), 1, kMaxWidth);
  if (size % parts != 0)
    fail(ErrorKind::refused, "{}: {} ({}) does not divide {} ({})", fields.where(), by, parts,
         whole, size);
  config[std::string(row.config_key)] = size / parts;
}

void set_difference(const JsonFields& fields, const std::string& prefix, const GgufDifference& row,
                    Json& config) {
  const std::string whole = prefix + std::string(row.whole), less = prefix + std::string(row.less);
  if (!fields.has(whole.c_str()) || !fields.has(less.c_str())) return;
  const int64_t size = fields.integer(whole.c_str(), 1, kMaxWidth);
  config[std::string(row.config_key)] = size - fields.integer(less.c_str(), 0, size - 1);
}

// Refuses what a router's keys say and the family's experts have not.
void check_experts(const JsonFields& fields, const std::string& prefix,
                   const GgufArchitecture& architecture) {
  const auto refuse = [&](const std::string& key) {
    fail(ErrorKind::refused, "{}: {} is {}, which is not supported", fields.where(), key,
         fields.raw(key.c_str()).dump());
  };
  const std::string count = prefix + "expert_count", scores = prefix + "expert_gating_func",
                    factor = prefix + "expert_weights_scale";
  if (architecture.scores == GgufScores::none) {
    if (fields.integer_or(count.c_str(), 0, INT32_MAX, 0) > 0) refuse(count);
    return;
  }
  const auto expected = static_cast<int64_t>(architecture.scores);
  const int64_t stored = fields.integer_or(scores.c_str(), 0, INT32_MAX, 0);
  if (stored != 0 && stored != expected) refuse(scores);
  const bool takes_factor = std::ranges::any_of(
      architecture.keys, [](const GgufKey& row) { return row.key == "expert_weights_scale"; });
  const double by = fields.number_or(factor.c_str(), 0);
  if (!takes_factor && by != 0 && by != 1) refuse(factor);
}

// Refuses texts that are not UTF-8, as no JSON holds them.
void refuse_odd_texts(const JsonFields& fields, const Json& config) {
  const Json flat = config.flatten();
  for (const auto& [place, value] : flat.items()) {
    if (!value.is_string()) continue;
    const auto& text = value.get_ref<const std::string&>();
    if (one_line(text) != text)
      fail(ErrorKind::refused, "{}: the metadata has {} for {}, which is not printable text",
           fields.where(), io::printable(text), place);
  }
}

// Embedding models may attend to what comes behind a token, too.
void refuse_bidirectional(const JsonFields& fields, const std::string& prefix) {
  const std::string causal = prefix + "attention.causal";
  if (!fields.boolean_or(causal.c_str(), true))
    fail(ErrorKind::refused, "{}: {} is false, which is not supported", fields.where(), causal);
}

}  // namespace

bool has_in_a_layer(const io::GgufCheckpoint& checkpoint, std::string_view rest) {
  return holds(checkpoint, {.tensor = rest, .config_key = {}});
}

const GgufArchitecture& find_gguf_architecture(const io::GgufCheckpoint& checkpoint) {
  const JsonFields fields(checkpoint.header.values,
                          io::printable(checkpoint.header.file.path.string()));
  const std::string type = fields.string_or("general.type", "model");
  if (type != "model")
    fail(ErrorKind::refused,
         "{}: general.type is {}, which is not supported; give the file of the language model",
         fields.where(), io::printable(type));
  const std::string name = fields.string("general.architecture");
  const auto is_set = [&](std::string_view only_with) {
    const std::string key = fmt::format("{}.{}", name, only_with);
    if (!fields.has(key.c_str())) return false;
    return fields.raw(key.c_str()).is_boolean() ? fields.boolean_or(key.c_str(), false)
                                                : fields.number_or(key.c_str(), 0) > 0;
  };
  const auto fits = [&](const GgufArchitecture& a) {
    return a.name == name && (a.only_with.empty() || is_set(a.only_with)) &&
           (a.only_with_tensor.empty() || has_in_a_layer(checkpoint, a.only_with_tensor));
  };
  const std::vector<GgufArchitecture>& all = gguf_architectures();
  auto found = std::ranges::find_if(all, fits);
  if (found != all.end()) return *found;
  if (const std::string_view why = why_gguf_is_refused(name); !why.empty())
    fail(ErrorKind::refused, "{}: general.architecture is {}, {}, which is not supported",
         fields.where(), name, why);
  std::vector<std::string_view> known;
  for (const GgufArchitecture& a : all)
    if (std::ranges::find(known, a.name) == known.end()) known.push_back(a.name);
  fail(ErrorKind::refused, "{}: general.architecture {} is not supported; supported: {}",
       fields.where(), io::printable(name), fmt::join(known, ", "));
}

Json gguf_config(const GgufArchitecture& architecture, const io::GgufCheckpoint& checkpoint,
                 const RopeFactors& factors) {
  const JsonFields fields(checkpoint.header.values,
                          io::printable(checkpoint.header.file.path.string()));
  const std::string prefix = std::string(architecture.name) + ".";
  refuse_bidirectional(fields, prefix);
  check_experts(fields, prefix, architecture);
  Json config{{"architectures", {architecture.architecture}},
              {"model_type", architecture.model_type},
              {"torch_dtype", torch_dtype(checkpoint)},
              {"tie_word_embeddings", find_tensor(checkpoint, "output.weight") == nullptr}};
  for (const GgufValue& row : architecture.values)
    place_of(config, row.config_key) = Json::parse(row.json);
  for (const GgufSign& row : architecture.signs)
    config[std::string(row.config_key)] = holds(checkpoint, row);
  for (const GgufKey& row : architecture.keys)
    set_key(fields, architecture, checkpoint.header, row, config);
  drop_empty_window(config);
  set_biases(checkpoint, config);
  set_layer_types(fields, architecture, checkpoint.header, config);
  set_layer_config(fields, architecture, checkpoint.header, config);
  // Converters do not agree on vocab_size; the table's rows are what there is.
  const io::StoredTensor* table = find_tensor(checkpoint, "token_embd.weight");
  if (table != nullptr && table->shape.size() >= 2)
    config["vocab_size"] = table->shape[table->shape.size() - 2];
  if (config.contains("num_hidden_layers"))
    config["num_hidden_layers"] = own_layers(fields, std::string(architecture.name));
  for (const GgufWidth& row : architecture.widths) set_width(checkpoint, row, config);
  for (const GgufQuotient& row : architecture.quotients) set_quotient(fields, prefix, row, config);
  for (const GgufDifference& row : architecture.differences)
    set_difference(fields, prefix, row, config);
  set_windows(fields, checkpoint.header, std::string(architecture.name), config);
  for (const GgufKey& row : architecture.lists)
    set_list(fields, architecture, checkpoint.header, row, config);
  for (const GgufFlags& row : architecture.flags)
    set_flags(checkpoint.header, std::string(architecture.name), row, config);
  set_scaling(fields, architecture, factors, config);
  set_rotated(fields, prefix + "rope.dimension_count", architecture.rotated_key, config);
  set_rotated(fields, prefix + "rope.dimension_count_swa", architecture.rotated_windows_key,
              config);
  set_score_divisor(fields, architecture.deepest, config);
  if (architecture.derive != nullptr) architecture.derive(fields, config);
  const std::vector<int64_t> ids = gguf_end_ids(checkpoint.header);
  if (!ids.empty()) config["eos_token_id"] = ids;
  refuse_odd_texts(fields, config);
  return config;
}

int64_t gguf_layer_number(const io::GgufHeader& header, const std::string& architecture,
                          std::string_view name, std::string_view number) {
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  const std::string key = fmt::format("{}.{}", architecture, name);
  const std::vector<int64_t> of_layers = layer_numbers(header, architecture, name);
  size_t layer = 0;
  std::from_chars(number.data(), number.data() + number.size(), layer);
  if (layer < of_layers.size()) return of_layers[layer];
  return of_layers.empty() ? fields.integer_or(key.c_str(), 0, kMaxWidth, 0) : of_layers.back();
}

LayerCounts gguf_layer_counts(const GgufArchitecture& architecture, const io::GgufHeader& header) {
  const std::string name(architecture.name);
  LayerCounts counts;
  if (architecture.layer_config) return counts;
  for (const auto& [key, to] :
       {std::pair{kKvHeads, &counts.kv_heads}, {kMlpWidth, &counts.mlp_widths}}) {
    const auto& types = architecture.layer_types;
    if (types && (key == kKvHeads || !types->mlp.empty())) continue;
    if (std::ranges::find(architecture.lists, key, &GgufKey::key) != architecture.lists.end())
      continue;
    const std::vector<int64_t> numbers = layer_numbers(header, name, key);
    if (!all_equal(numbers)) to->assign(numbers.begin(), numbers.end());
  }
  return counts;
}

void leave_out_other_parts(const GgufArchitecture& architecture, const io::GgufHeader& header,
                           std::vector<io::StoredTensor>& tensors) {
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  const std::string name(architecture.name);
  // Ollama's files have the model for images, too.
  std::erase_if(tensors, [](const io::StoredTensor& tensor) {
    return tensor.name.starts_with("v.") || tensor.name.starts_with("mm.");
  });
  if (more_layers(fields, name, kMaxLayers) == 0) return;
  const int64_t own = own_layers(fields, name);
  std::erase_if(tensors, [&](const io::StoredTensor& tensor) {
    const std::string_view begin = "blk.", all = tensor.name;
    if (!all.starts_with(begin)) return false;
    int64_t layer = 0;
    std::from_chars(all.data() + begin.size(), all.data() + all.size(), layer);
    return layer >= own;
  });
}

std::vector<io::StoredTensor> gguf_floats(const GgufArchitecture& architecture,
                                          const io::GgufHeader& header) {
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  std::vector<io::StoredTensor> tensors;
  for (const GgufFloats& row : architecture.floats) {
    const auto found = header.arrays.find(row.key);
    const int64_t layers = own_layers(fields, std::string(architecture.name));
    if (found == header.arrays.end() || found->second.type != io::GgufType::f32 ||
        std::cmp_less(found->second.count, layers))
      fail(ErrorKind::refused, "{}: {} must be {} numbers of float32", fields.where(), row.key,
           layers);
    for (int64_t l = 0; l < layers; ++l) {
      std::string name(row.hub_name);
      name.replace(name.find("{}"), 2, std::to_string(l));
      const uint64_t at = found->second.offset + static_cast<uint64_t>(l) * sizeof(float);
      tensors.push_back({.name = std::move(name),
                         .dtype = DType::f32,
                         .shape = row.is_number ? Shape{} : Shape{1},
                         .file = 0,
                         .offset = at,
                         .bytes = sizeof(float)});
    }
  }
  return tensors;
}

void rename_gguf_tensor(const GgufArchitecture& architecture, io::StoredTensor& tensor) {
  std::string_view rest = tensor.name, layer, expert;
  if (rest.starts_with("blk.")) {
    const size_t dot = rest.find('.', 4);
    if (dot == std::string_view::npos) return;
    layer = rest.substr(4, dot - 4);
    rest = rest.substr(dot + 1);
  }
  const bool is_whole =
      std::ranges::find(architecture.names, rest, &GgufName::name) != architecture.names.end();
  const size_t dot = is_whole ? rest.size() : std::min(rest.rfind('.'), rest.size());
  std::string name(rest.substr(0, dot));
  // Older files have a tensor for each expert: "ffn_up.N.weight".
  const size_t number = name.find_last_not_of("0123456789") + 1;
  if (number < name.size() && number > 0 && name[number - 1] == '.') {
    expert = rest.substr(number, name.size() - number);
    name.replace(number, std::string::npos, "{e}");
  }
  auto found = std::ranges::find(architecture.names, name, &GgufName::name);
  if (found == architecture.names.end()) return;
  const bool alone = has_no_end(found->end);
  if (dot == rest.size() && !alone && found->end != GgufNameEnd::weight) return;
  std::string hub(found->hub_name);
  const auto put = [&](std::string_view place, std::string_view value) {
    const size_t at = hub.find(place);
    if ((at == std::string::npos) != value.empty()) return false;
    if (!value.empty()) hub.replace(at, place.size(), value);
    return true;
  };
  if (!put("{}", layer) || !put("{e}", expert)) return;
  if (found->end == GgufNameEnd::weight) {
    hub += ".weight";
  } else if (!alone) {
    hub += rest.substr(dot);
  }
  tensor.name = std::move(hub);
  if (found->end == GgufNameEnd::one_row && tensor.shape.size() == 1)
    tensor.shape = Shape{1, tensor.shape[0]};
  const bool flat = found->end == GgufNameEnd::vector || found->end == GgufNameEnd::vector_alone ||
                    found->end == GgufNameEnd::column;
  if (flat && tensor.shape.elements()) tensor.shape = Shape{*tensor.shape.elements()};
  const bool filters = found->end == GgufNameEnd::convolution || found->end == GgufNameEnd::filters;
  if (filters && tensor.shape.elements() && tensor.shape.size() > 1) {
    const int64_t width = tensor.shape[tensor.shape.size() - 1];
    tensor.shape = Shape{*tensor.shape.elements() / width, 1, width};
  }
  if (found->end == GgufNameEnd::heads && tensor.shape.size() == 3)
    tensor.shape = Shape{tensor.shape[0] * tensor.shape[1], tensor.shape[2]};
}

}  // namespace sluice
