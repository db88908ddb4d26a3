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

// `ranks`: for which it is cut, so that it has one rank's parts.
std::unique_ptr<ModelSource> open_gguf_model(const std::filesystem::path& path,
                                             std::span<const std::filesystem::path> mirrors,
                                             int ranks = 1);

// An architecture of GGUF (general.architecture) and what it is on the hub: a row of the table in
// gguf_architectures.cc.
struct GgufKey {
  std::string_view key;         // after "ARCHITECTURE."
  std::string_view config_key;  // of config.json
};
// The end of a tensor's name on the hub: that of the file (".weight", ".bias"), the same for a
// vector that is a matrix of one row there, for a matrix here that is a vector there or for a
// convolution's matrix that has one more dimension there, or nothing, for a vector there, too. A
// name without an end here has none there.
enum class GgufNameEnd : uint8_t { same, one_row, vector, convolution, none, vector_alone };
struct GgufName {
  std::string_view name;  // without ".weight" or ".bias"; of a layer: after "blk.N."
  // "{}" stands for the layer's number; "{e}", here and above, for the expert's.
  std::string_view hub_name;
  GgufNameEnd end = GgufNameEnd::same;
};
// A value of config.json that is always the same, unless a key says another.
struct GgufValue {
  std::string_view config_key;
  std::string_view json;
};
// A size of config.json: a key's value divided by another's.
struct GgufQuotient {
  std::string_view config_key;
  std::string_view whole;  // after "ARCHITECTURE.", both
  std::string_view by;
};
// A boolean of config.json: whether a layer has the tensor.
struct GgufSign {
  std::string_view tensor;  // after "blk.N."
  std::string_view config_key;
};
// A width of config.json, where no key has it: the outputs of a layer's tensor.
using GgufWidth = GgufSign;
// The function of a router's scores, as expert_gating_func has it; none: there are no experts.
enum class GgufScores : uint8_t { none, softmax, sigmoid };
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
  // A key that is true or above 0; such rows come before others of the name.
  std::string_view only_with = {};
  GgufScores scores = GgufScores::none;
  std::vector<GgufValue> values = {};
  std::vector<GgufSign> signs = {};
  std::vector<GgufWidth> widths = {};
  std::vector<GgufQuotient> quotients = {};
  // The type of layers without KV heads, as layer_types has it; empty: all have some.
  std::string_view without_kv_heads = {};
};
inline constexpr std::string_view kGgufFrequencyBase = "rope.freq_base";
const std::vector<GgufArchitecture>& gguf_architectures();

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
// Gives a tensor the hub's name; it keeps its own where the architecture has none.
void rename_gguf_tensor(const GgufArchitecture& architecture, io::StoredTensor& tensor);

// tokenizer.ggml.* (gguf_tokenizer.cc); nullopt where the file has none.
std::optional<Tokenizer> gguf_tokenizer(const io::GgufHeader& header);

}  // namespace sluice
