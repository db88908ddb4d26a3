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
#include "src/models/decoder_spec.h"
#include "src/models/source.h"
#include "src/text/tokenizer.h"

namespace sluice {

// `ranks`: for which it is cut, so that it has one rank's parts.
std::unique_ptr<ModelSource> open_gguf_model(const io::ModelFile& file,
                                             std::span<const std::filesystem::path> mirrors,
                                             int ranks = 1);

// The file, with the tensors of GgufNameEnd::slices and heads_apart taken apart.
io::GgufCheckpoint open_gguf_parts(const io::ModelFile& file,
                                   std::span<const std::filesystem::path> mirrors = {});

// An architecture of GGUF (general.architecture) and what it is on the hub: a row of a table in
// architectures/.
struct GgufKey {
  std::string_view key;         // after "ARCHITECTURE."
  std::string_view config_key;  // of config.json; "OBJECT.KEY" for a key of an object there
};
// The end of a tensor's name on the hub: that of the file (".weight", ".bias"), the same for a
// vector that is a matrix of one row there, for a matrix here that is a vector there, for a
// convolution's matrix that has one more dimension there, or here, too (filters), or for heads'
// matrices that lie below one another there, or nothing, for a vector there, too, also of a matrix
// of one column here, or ".weight", which the file has not. Some
// stand for several tensors: matrices, whose numbers then follow their name, or q, k and v. Else a
// name without an end here has none there.
enum class GgufNameEnd : uint8_t {
  same,
  one_row,
  vector,
  convolution,
  filters,
  heads,
  none,
  vector_alone,
  column,
  weight,
  slices,
  heads_apart
};
constexpr bool has_no_end(GgufNameEnd end) {
  return end == GgufNameEnd::none || end == GgufNameEnd::vector_alone || end == GgufNameEnd::column;
}
struct GgufName {
  // Without ".weight" or ".bias", or a whole name with another end; of a layer: after "blk.N.".
  std::string_view name;
  // "{}" stands for the layer's number; "{e}", here and above, for the expert's.
  std::string_view hub_name;
  GgufNameEnd end = GgufNameEnd::same;
};
// A value of config.json that is always the same, unless a key says another.
struct GgufValue {
  std::string_view config_key;
  std::string_view json;
};
// A size of config.json that no key has: a key's value divided by another's.
struct GgufQuotient {
  std::string_view config_key;
  std::string_view whole;  // after "ARCHITECTURE.", both
  std::string_view by;
};
// A size of config.json: a key's value less another's.
struct GgufDifference {
  std::string_view config_key;
  std::string_view whole;  // after "ARCHITECTURE.", both
  std::string_view less;
};
// Names of config.json, one for each layer: of those whose number is not 0, and of the others.
struct GgufFlags {
  std::string_view key;  // after "ARCHITECTURE."
  std::string_view config_key;
  std::string_view set;
  std::string_view unset;
};
// Floats of the metadata, one for each layer, which are tensors of one element on the hub.
struct GgufFloats {
  std::string_view key;
  std::string_view hub_name;  // as of GgufName
  bool is_number = false;     // without a dimension there
};
// A boolean of config.json: whether a layer has the tensor, and has not another one.
struct GgufSign {
  std::string_view tensor;  // after "blk.N."
  std::string_view config_key;
  std::string_view without = {};
};
// A size of config.json, where no key has it: the outputs of a tensor, or of a layer's.
struct GgufWidth {
  std::string_view tensor;
  std::string_view config_key;
};
// Names of the types of layers: of those with KV heads, of the others, and where some layers have
// no MLP, of those with one.
struct GgufLayerTypes {
  std::string_view attending;
  std::string_view others;
  std::string_view mlp = {};
  // The place in config.json of each type, or of the period of the layers that attend, beside the
  // first one's.
  std::string_view config_key = "layer_types";
  std::string_view offset_key = {};
};
// A key that other readers want, and its value.
struct GgufConstant {
  std::string_view key;  // after "ARCHITECTURE."
  std::string_view json;
};
// The function of a router's scores, as expert_gating_func has it; none: there are no experts.
enum class GgufScores : uint8_t { none, softmax, sigmoid, sqrt_softplus = 4 };
struct GgufArchitecture {
  std::string_view name;
  std::string_view architecture;  // of config.json
  std::string_view model_type;
  std::vector<GgufKey> keys;
  std::vector<GgufName> names;
  SourceFacts facts;
  // The key of config.json that has the rotated part of a head; empty: none has.
  std::string_view rotated_key = "partial_rotary_factor";
  // Scores are divided by sqrt(query_pre_attn_scalar), of which no key tells: in the model with so
  // many layers it is hidden_size / heads, in others the size of a head. 0: config.json has none.
  int64_t deepest = 0;
  // A key that is true or above 0, or a layer's tensor; such rows come before others of the name.
  std::string_view only_with = {};
  std::string_view only_with_tensor = {};
  GgufScores scores = GgufScores::none;
  std::vector<GgufValue> values = {};
  std::vector<GgufSign> signs = {};
  std::vector<GgufWidth> widths = {};
  std::vector<GgufQuotient> quotients = {};
  std::vector<GgufDifference> differences = {};
  std::vector<GgufFloats> floats = {};
  std::vector<GgufFlags> flags = {};
  std::optional<GgufLayerTypes> layer_types = {};  // nullopt: all have KV heads
  // Sets what else follows from the file's fields.
  void (*derive)(const JsonFields& fields, Json& config) = nullptr;
  bool layer_config = false;  // sizes of layers are in per_layer_config
  // Keys whose numbers of all layers, an array of the file, are a list in config.json. The first of
  // them is that of a plain key, too.
  std::vector<GgufKey> lists = {};
  // The key of config.json that has the rotated part of a head in layers with a window; empty:
  // none.
  std::string_view rotated_windows_key = {};
  // Tokens of SentencePiece that are found as they stand take the white space behind them along.
  bool tokens_take_space = false;
  double log_multiplier = 1;  // factor of yarn's mscale in rope.scaling.yarn_log_multiplier
  // Only written: constants, and the inverse of `derive`.
  std::vector<GgufConstant> constants = {};
  void (*undo)(const DecoderSpec& spec, Json& config) = nullptr;
  bool names_windows = false;  // the layers with a window are listed, whatever they are
};
inline constexpr std::string_view kGgufFrequencyBase = "rope.freq_base";
const std::vector<GgufArchitecture>& gguf_architectures();

// Factors of longrope, from small tensors of the file; empty: none.
struct RopeFactors {
  std::vector<double> short_ones;
  std::vector<double> long_ones;
};
// Why an architecture that is known is not supported; empty: it is not known
// (architectures/all.cc).
std::string_view why_gguf_is_refused(std::string_view architecture);
// Throws Error(refused) that names the known ones.
const GgufArchitecture& find_gguf_architecture(const io::GgufCheckpoint& checkpoint);
// Tells whether a layer has the tensor `rest`, "blk.N.REST".
bool has_in_a_layer(const io::GgufCheckpoint& checkpoint, std::string_view rest);
// The metadata in the form of config.json.
Json gguf_config(const GgufArchitecture& architecture, const io::GgufCheckpoint& checkpoint,
                 const RopeFactors& factors);
// In what the layers of the model differ.
LayerCounts gguf_layer_counts(const GgufArchitecture& architecture, const io::GgufHeader& header);
// Ids of the tokens that end a text: those that keys name, then those that are known by their texts
// (gguf_end_tokens.cc).
std::vector<int64_t> gguf_end_ids(const io::GgufHeader& header);
// The files of a directory of the hub, of a config and the facts that it has not.
std::vector<MadeFile> gguf_made_files(Json config, const SourceFacts& facts,
                                      const io::GgufHeader& header);
// Takes off the tensors of layers behind the model's own, which predict further tokens, and those
// of images.
void leave_out_other_parts(const GgufArchitecture& architecture, const io::GgufHeader& header,
                           std::vector<io::StoredTensor>& tensors);
// The tensors of GgufArchitecture::floats, which lie in the first file's metadata.
std::vector<io::StoredTensor> gguf_floats(const GgufArchitecture& architecture,
                                          const io::GgufHeader& header);
// Returns the value of ARCHITECTURE.`name` for layer `number`; 0: there is none.
int64_t gguf_layer_number(const io::GgufHeader& header, const std::string& architecture,
                          std::string_view name, std::string_view number);
// Gives a tensor the hub's name; it keeps its own where the architecture has none.
void rename_gguf_tensor(const GgufArchitecture& architecture, io::StoredTensor& tensor);

// A way to split text before byte-level encoding (gguf_splits.cc).
struct GgufSplit {
  std::span<const std::string_view> patterns = {};  // one after another; none: GPT-2's own
  bool single_digits = false;
  bool ignore_merges = false;
  bool nfc = false;
  bool add_bos = false;  // where the file does not say
};
// That of tokenizer.ggml.pre. Throws Error(refused) that names the known ones.
const GgufSplit& find_gguf_split(const JsonFields& fields);
// tokenizer.ggml.* (gguf_tokenizer.cc); nullopt where the file has none.
std::optional<Tokenizer> gguf_tokenizer(const io::GgufHeader& header);
// tokenizer.json and tokenizer_config.json, with chat templates; none where the file has none.
std::vector<MadeFile> gguf_tokenizer_files(const io::GgufHeader& header);

}  // namespace sluice
