// GGUF files as models: what their metadata and tensor names mean.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/gguf.h"
#include "src/base/json.h"
#include "src/models/source.h"
#include "src/text/tokenizer.h"

namespace sluice {

std::unique_ptr<ModelSource> open_gguf_model(const std::filesystem::path& path,
                                             std::span<const std::filesystem::path> mirrors);

// An architecture of GGUF (general.architecture) and what it is on the hub (gguf_config.cc).
struct GgufKey {
  std::string_view key;         // after "ARCHITECTURE."
  std::string_view config_key;  // of config.json
};
struct GgufName {
  std::string_view name;      // without ".weight" or ".bias"; of a layer: after "blk.N."
  std::string_view hub_name;  // "{}" stands for the layer's number
};
struct GgufArchitecture {
  std::string_view name;
  std::string_view architecture;  // of config.json
  std::string_view model_type;
  std::vector<GgufKey> keys;
  std::vector<GgufName> names;
  SourceFacts facts;
  std::string_view rotated_key = "partial_rotary_factor";  // of config.json
  // Scores are divided by sqrt(query_pre_attn_scalar), of which no key tells: in the model with so
  // many layers it is hidden_size / heads, in others the size of a head. 0: config.json has none.
  int64_t deepest = 0;
};
// Factors of longrope, from small tensors of the file; empty: none.
struct RopeFactors {
  std::vector<double> short_ones;
  std::vector<double> long_ones;
};
// Throws Error(refused) that names the known ones.
const GgufArchitecture& find_gguf_architecture(const io::GgufHeader& header);
// The metadata in the form of config.json.
Json gguf_config(const GgufArchitecture& architecture, const io::GgufCheckpoint& checkpoint,
                 const RopeFactors& factors);
// In what the layers of the model differ.
LayerCounts gguf_layer_counts(const GgufArchitecture& architecture, const io::GgufHeader& header);
// Ids of the tokens that end a text: those that keys name, then those that are known by their texts
// (gguf_end_tokens.cc).
std::vector<int64_t> gguf_end_ids(const io::GgufHeader& header);
// The hub's name of a tensor; its own where the architecture has none.
std::string gguf_tensor_name(const GgufArchitecture& architecture, std::string_view name);

// tokenizer.ggml.* (gguf_tokenizer.cc); nullopt where the file has none.
std::optional<Tokenizer> gguf_tokenizer(const io::GgufHeader& header);

}  // namespace sluice
