#include "tests/support/checkpoint.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace sluice::test {

std::string random_bf16(Random& random, int64_t count, float sigma) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    float value = random.normal(sigma);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    bytes.append(reinterpret_cast<const char*>(&half), 2);
  }
  return bytes;
}

std::string safetensors_bytes(const std::vector<TinyTensor>& tensors) {
  Json header = Json::object();
  uint64_t offset = 0;
  for (const TinyTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", t.shape},
                      {"data_offsets", {offset, offset + t.bytes.size()}}};
    offset += t.bytes.size();
  }
  std::string text = header.dump();
  uint64_t size = text.size();
  std::string file(reinterpret_cast<const char*>(&size), 8);
  file += text;
  for (const TinyTensor& t : tensors) file += t.bytes;
  return file;
}

Json tiny_config() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "hidden_size": 48, "intermediate_size": 40, "vocab_size": 37, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 4096, "rope_theta": 10000.0, "tie_word_embeddings": false, "eos_token_id": 2,
    "attention_bias": false, "mlp_bias": false})");
}

std::vector<TinyTensor> tiny_tensors(const Json& c, Random& random) {
  std::vector<TinyTensor> tensors;
  auto n = [&](const char* key) { return c.at(key).get<int64_t>(); };
  int64_t hidden = n("hidden_size"), inner = n("intermediate_size"), vocab = n("vocab_size");
  int64_t q = n("num_attention_heads") * n("head_dim"),
          kv = n("num_key_value_heads") * n("head_dim");
  auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) {
    float sigma = 1.0f / std::sqrt(static_cast<float>(cols));
    tensors.push_back(
        {name + ".weight", {rows, cols}, "BF16", random_bf16(random, rows * cols, sigma)});
  };
  auto vector = [&](const std::string& name, int64_t size) {
    tensors.push_back({name, {size}, "BF16", random_bf16(random, size, 1)});
  };
  matrix("model.embed_tokens", vocab, hidden);
  for (int64_t l = 0; l < n("num_hidden_layers"); ++l) {
    std::string p = "model.layers." + std::to_string(l) + ".";
    vector(p + "input_layernorm.weight", hidden);
    matrix(p + "mlp.down_proj", hidden, inner);
    matrix(p + "mlp.gate_proj", inner, hidden);
    matrix(p + "mlp.up_proj", inner, hidden);
    vector(p + "post_attention_layernorm.weight", hidden);
    matrix(p + "self_attn.k_proj", kv, hidden);
    matrix(p + "self_attn.o_proj", hidden, q);
    matrix(p + "self_attn.q_proj", q, hidden);
    matrix(p + "self_attn.v_proj", kv, hidden);
    if (c.value("attention_bias", false)) {
      for (auto [part, size] : {std::pair{"q", q}, {"k", kv}, {"v", kv}, {"o", hidden}}) {
        vector(p + "self_attn." + part + "_proj.bias", size);
      }
    }
    if (c.value("mlp_bias", false)) {
      for (auto [part, size] : {std::pair{"gate", inner}, {"up", inner}, {"down", hidden}}) {
        vector(p + "mlp." + part + "_proj.bias", size);
      }
    }
  }
  vector("model.norm.weight", hidden);
  if (!c.value("tie_word_embeddings", false)) matrix("lm_head", vocab, hidden);
  return tensors;
}

void write_checkpoint(const std::filesystem::path& dir, const Json& config,
                      const std::vector<TinyTensor>& tensors, size_t shards) {
  write_file(dir / "config.json", config.dump());
  if (shards == 1) {
    write_file(dir / "model.safetensors", safetensors_bytes(tensors));
    return;
  }
  Json map = Json::object();
  for (size_t s = 0; s < shards; ++s) {
    std::vector<TinyTensor> part(
        tensors.begin() + static_cast<long>(tensors.size() * s / shards),
        tensors.begin() + static_cast<long>(tensors.size() * (s + 1) / shards));
    std::string name =
        "model-0000" + std::to_string(s + 1) + "-of-0000" + std::to_string(shards) + ".safetensors";
    for (const TinyTensor& t : part) map[t.name] = name;
    write_file(dir / name, safetensors_bytes(part));
  }
  write_file(dir / "model.safetensors.index.json",
             Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
}

}  // namespace sluice::test
