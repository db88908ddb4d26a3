// The parts of config.json and generation_config.json that all families share.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "src/base/dtype.h"
#include "src/base/json.h"
#include "src/models/source.h"

namespace sluice {

// Bounds that no real model passes; they keep arithmetic on sizes far from overflow.
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden_size, head_dim, heads
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;

// Helpers for families. Each has the keys' names and the defaults of the family's config class of
// transformers as parameters, and throws Error(refused) that names the key. Absent is not null: a
// null has a meaning of its own, or is refused.

// A warning that names those of the keys that are absent. The weights decide whether defaults are
// right; a config that lacks a size is seldom meant so.
void warn_of_absent(const JsonFields& config, std::initializer_list<const char*> keys);

// `key`, or another name of the same field, where that is there and `key` is not.
const char* present(const JsonFields& config, const char* key, const char* other);

// From 1 to `most`; null is refused.
int64_t read_size(const JsonFields& config, const char* key, int64_t absent,
                  int64_t most = kMaxWidth);
// The epsilon of norms; null is refused.
float read_eps(const JsonFields& config, const char* key, double absent);
// A multiplier or divisor: finite, and above zero; null is refused.
float read_factor(const JsonFields& config, const char* key, double absent);
// Reads the bound that tanh gives to scores or logits; null: 0, no bound.
float read_cap(const JsonFields& config, const char* key, double absent);
bool read_boolean(const JsonFields& config, const char* key, bool absent);
// The same of a key that the class allows to be null, which is false.
bool read_flag(const JsonFields& config, const char* key, bool absent);

struct HeadKeys {
  const char* heads = "num_attention_heads";
  int64_t absent_heads = 0;
  const char* kv_heads = "num_key_value_heads";  // nullptr: as many as heads, as where it is null
  std::optional<int64_t> absent_kv_heads = {};   // nullopt: as many as heads
  const char* head_dim = "head_dim";             // nullptr: the config does not say it
  std::optional<int64_t> absent_head_dim = {};  // nullopt: hidden_size / heads, as where it is null
};
struct Heads {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // even
};
Heads read_heads(const JsonFields& config, int64_t hidden_size, const HeadKeys& keys);

// A window of sliding_window tokens for each layer that layer_types says has one ("full_attention",
// "sliding_attention"); where there are no layer_types, for all but each `full_each`th (0: for
// all). No window (0) where sliding_window is null, or absent without a default.
std::vector<int64_t> read_windows(const JsonFields& config, std::optional<int64_t> absent,
                                  int64_t layers, int64_t full_each = 0);

// Reads windows as read_windows does; without layer_types the first max_window_layers have none.
std::vector<int64_t> read_upper_windows(const JsonFields& config, int64_t absent_window,
                                        int64_t layers, int64_t absent_full);

// The kind of each layer, by the list of names under `key`: the place of its name in `names`. Empty
// where config.json has no list.
std::vector<size_t> read_layer_types(const JsonFields& config, int64_t layers,
                                     std::initializer_list<std::string_view> names,
                                     const char* key = "layer_types");
// A list of finite numbers; nullopt where it is null or absent.
std::optional<std::vector<double>> read_numbers(const JsonFields& config, const char* key);

// Calls take(layer, its fields, key) with each key that per_layer_config has for a single layer
// (transformers since 5.24). A key that it does not take, by returning false, is refused where its
// value is another than all layers have.
void each_own_config(
    const JsonFields& config, size_t layers,
    const std::function<bool(size_t, const JsonFields&, const std::string&)>& take);

// "silu", "gelu_pytorch_tanh", ...; null is refused.
Activation read_activation(const JsonFields& config, const char* key, std::string_view absent);

// Everything that a model's files say about it, without the weights.
struct ModelFiles {
  Json config;                   // config.json, or what stands for it; of the language model
  std::string config_name;       // in messages
  bool wrapper = false;          // it is of a model with a language model in it
  std::string architecture;      // "LlamaForCausalLM"; build_model finds it
  std::optional<DType> dtype;    // dtype / torch_dtype; nullopt: that of the weights
  std::vector<int32_t> eos_ids;  // of config.json and generation_config.json
};
ModelFiles read_model_files(const ModelSource& source);

}  // namespace sluice
