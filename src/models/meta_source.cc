#include <array>
#include <cmath>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/models/config.h"
#include "src/models/meta.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kParams = "params.json";
constexpr std::string_view kTableName = "tok_embeddings.weight";
constexpr std::string_view kHeadName = "output.weight";

constexpr auto kModelNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {kTableName, "model.embed_tokens.weight"},
    {"norm.weight", "model.norm.weight"},
    {kHeadName, "lm_head.weight"},
});
constexpr auto kLayerNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"attention.wq.weight", "self_attn.q_proj.weight"},
    {"attention.wk.weight", "self_attn.k_proj.weight"},
    {"attention.wv.weight", "self_attn.v_proj.weight"},
    {"attention.wo.weight", "self_attn.o_proj.weight"},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
    {"feed_forward.w2.weight", "mlp.down_proj.weight"},
    {"feed_forward.w3.weight", "mlp.up_proj.weight"},
    {"attention_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
});

// The hub's name of a tensor; its own where it has none.
std::string hub_name(const std::string& name) {
  for (const auto& [own, hub] : kModelNames)
    if (name == own) return std::string(hub);
  constexpr std::string_view kLayers = "layers.";
  const size_t dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == std::string::npos) return name;
  for (const auto& [own, hub] : kLayerNames) {
    if (std::string_view(name).substr(dot + 1) == own)
      return fmt::format("model.{}.{}", name.substr(0, dot), hub);
  }
  return name;
}

// The width of the MLP, which Meta's files leave to a formula.
int64_t ffn_width(const JsonFields& params, int64_t dim) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (params.has("hidden_dim")) return params.integer("hidden_dim", 1, kMost);
  auto width = static_cast<int64_t>(static_cast<double>(8 * dim) / 3);
  const double factor = params.number_or("ffn_dim_multiplier", 1);
  if (!(factor > 0) || factor > 1024)
    fail(ErrorKind::refused, "{}: ffn_dim_multiplier is {}, but must be positive", params.where(),
         factor);
  width = static_cast<int64_t>(factor * static_cast<double>(width));
  const int64_t multiple = params.integer_or("multiple_of", 1, kMost, 256);
  return std::max<int64_t>(1, ceil_div(width, multiple)) * multiple;
}

// Keys of params.json that other models have than the first ones of Llama and Mistral.
void refuse_keys_of_others(const JsonFields& params) {
  for (const char* key : {"moe", "moe_args", "quantization", "quantization_args", "lora_args",
                          "vision_encoder", "vision_args", "yarn", "llama_4_scaling",
                          "kv_lora_rank", "attention_chunk_size", "nope_layer_interval"}) {
    if (params.has(key))
      fail(ErrorKind::refused,
           "{}: {} is not supported in this format; give the model as transformers saves it",
           params.where(), key);
  }
}

Json scaled_rope(const JsonFields& params) {
  constexpr double kLlama31 = 8;
  if (!params.has("rope_scaling_factor"))
    log::warning(
        "{}: use_scaled_rope is true and rope_scaling_factor is missing; 8 is taken, as in Llama "
        "3.1 (Llama 3.2 has 32: add \"rope_scaling_factor\": 32)",
        params.where());
  return {{"rope_type", "llama3"},
          {"factor", params.number_or("rope_scaling_factor", kLlama31)},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", params.number_or("rope_high_freq_factor", 4)},
          {"original_max_position_embeddings", 8192}};
}

class MetaSource : public ModelSource {
 public:
  MetaSource(io::ModelDirectory directory, std::unique_ptr<ModelSource> files)
      : directory_(std::move(directory)), files_(std::move(files)), stored_(files_->index()) {}

  std::string_view config_name() const override { return kParams; }
  Json config() const override;
  std::optional<Json> generation_config() const override { return files_->generation_config(); }
  SourceFacts facts() const override { return {.interleaved_rope = true}; }
  io::CheckpointIndex index() const override;
  std::optional<Tokenizer> tokenizer() const override { return files_->tokenizer(); }
  ChatFiles chat_files() const override { return files_->chat_files(); }
  EmbeddingRules embedding_rules() const override { return files_->embedding_rules(); }
  std::vector<MadeFile> made_files() const override {
    return {{"config.json", config().dump(2) + "\n"}};
  }

 private:
  int64_t vocabulary(const JsonFields& params) const;

  io::ModelDirectory directory_;
  std::unique_ptr<ModelSource> files_;
  io::CheckpointIndex stored_;
};

// Llama's first files say -1, and leave it to the tokenizer.
int64_t MetaSource::vocabulary(const JsonFields& params) const {
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t said = params.integer_or("vocab_size", -1, kMost, -1);
  if (said > 0) return said;
  const io::StoredTensor* table = stored_.find(kTableName);
  if (table == nullptr || table->shape.size() != 2)
    fail(ErrorKind::refused, "{}: has no vocab_size, and there is no {} to tell it", params.where(),
         kTableName);
  return table->shape[table->column_major ? 1 : 0];
}

Json MetaSource::config() const {
  constexpr uint64_t most_bytes = 1 * MiB;
  constexpr int64_t kMost = int64_t{1} << 30;
  const Json json = parse_json(directory_.read(kParams, most_bytes), kParams);
  const JsonFields params(json, kParams);
  refuse_keys_of_others(params);
  const bool mistral = params.has("hidden_dim");
  const bool scaled = params.boolean_or("use_scaled_rope", false);
  const int64_t dim = params.integer("dim", 1, kMost);
  const int64_t heads = params.integer("n_heads", 1, kMost);
  const int64_t positions = scaled ? 131072 : mistral ? 32768 : 4096;
  Json config = {
      {"architectures", {mistral ? "MistralForCausalLM" : "LlamaForCausalLM"}},
      {"model_type", mistral ? "mistral" : "llama"},
      {"hidden_size", dim},
      {"intermediate_size", ffn_width(params, dim)},
      {"num_hidden_layers", params.integer("n_layers", 1, kMost)},
      {"num_attention_heads", heads},
      {"num_key_value_heads", params.integer_or("n_kv_heads", 1, kMost, heads)},
      {"vocab_size", vocabulary(params)},
      {"rms_norm_eps", params.number_or("norm_eps", 1e-5)},
      {"rope_theta", params.number_or("rope_theta", 10000)},
      {"max_position_embeddings",
       params.integer_or("max_position_embeddings", 1, kMost,
                         params.integer_or("max_seq_len", 1, kMost, positions))},
      {"tie_word_embeddings", !stored_.is_named(kHeadName)},
  };
  if (params.has("head_dim")) config["head_dim"] = params.integer("head_dim", 1, kMost);
  if (mistral)
    config["sliding_window"] = params.has("sliding_window")
                                   ? Json(params.integer("sliding_window", 1, kMost))
                                   : Json(nullptr);
  if (scaled) config["rope_scaling"] = scaled_rope(params);
  return config;
}

io::CheckpointIndex MetaSource::index() const {
  std::vector<io::StoredTensor> tensors = stored_.tensors();
  for (io::StoredTensor& tensor : tensors) tensor.name = hub_name(tensor.name);
  io::CheckpointIndex index(stored_.files(), std::move(tensors), stored_.warnings());
  for (const io::FileCopy& copy : stored_.copies()) index.add_copy(copy);
  for (io::AbsentTensors absent : stored_.absent()) {
    for (std::string& name : absent.names) name = hub_name(name);
    std::ranges::sort(absent.names);
    index.add_absent(std::move(absent));
  }
  return index;
}

}  // namespace

bool is_meta_model(const fs::path& directory) {
  std::error_code fault;
  return io::container_name(directory).starts_with("consolidated") &&
         fs::exists(directory / kParams, fault);
}

std::unique_ptr<ModelSource> open_meta_model(io::ModelDirectory directory,
                                             std::unique_ptr<ModelSource> files) {
  return std::make_unique<MetaSource>(std::move(directory), std::move(files));
}

}  // namespace sluice
