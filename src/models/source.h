// A model's files, whatever their format. Each format has an opener that gives what a directory of
// the Hugging Face hub has in config.json, generation_config.json, tokenizer.json and
// *.safetensors; nothing above knows which it was.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/base/json.h"
#include "src/models/chat_files.h"
#include "src/models/embedding_rules.h"
#include "src/text/tokenizer.h"

namespace sluice {

// Sizes of each layer, where layers differ in them; else empty. nullopt: as the model's.
struct LayerCounts {
  std::vector<std::optional<int64_t>> kv_heads = {};
  std::vector<std::optional<int64_t>> mlp_widths = {};
};

// Differences of a format's weights from those of the hub. The decoder is built with these values,
// so that no weight has to be changed.
struct SourceFacts {
  // Rows of q and k are in such an order that the two of a rotary pair are neighbours.
  bool interleaved_rope = false;
  bool norms_have_one = false;  // weights of norms that multiply by 1 + w are stored as 1 + w
  bool outputs_first = false;   // GPT-2's matrices are [outputs, inputs]
  // A fused qkv has all of q, then all of k, then all of v, where the hub's goes by heads.
  bool stacked_heads = false;
  // Rates of recurrences are stored as -exp of what the hub has.
  bool negative_rates = false;
  // Keys and values of latent attention have tensors of their own, and a head's keys are [rank,
  // elements].
  bool latent_parts = false;
  // Queries, keys and values have tensors of their own where the hub has one for all, and so have
  // an MLP's gate and up.
  bool parts_apart = false;
  // Value heads of a gated DeltaNet go by their place among those of a key head, not by key heads.
  bool tiled_heads = false;
  LayerCounts layers = {};
  std::vector<double> rope_factors = {};  // the rotary frequencies are divided by them
  size_t factored_rope = 0;               // which of the model's ropes has them
};

// A text file of a directory of the hub.
struct MadeFile {
  std::string name;
  std::string text;
};

// Each part is read when it is asked for: the text verbs need a tokenizer only, others the weights.
// All throw Error(refused) with one sentence that names the file and the fault.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // Name of the file that config() comes from, for messages.
  virtual std::string_view config_name() const = 0;
  // The config in the form of config.json, in every format.
  virtual Json config() const = 0;
  virtual std::optional<Json> generation_config() const = 0;
  virtual SourceFacts facts() const { return {}; }
  // The tensors, under the names that the families know.
  virtual io::CheckpointIndex index() const = 0;
  virtual std::optional<Tokenizer> tokenizer() const = 0;  // nullopt: there is none
  virtual ChatFiles chat_files() const = 0;
  virtual EmbeddingRules embedding_rules() const = 0;
  // Files that a directory of the hub has of this model and the source has not, config.json among
  // them; none where it has that.
  virtual std::vector<MadeFile> made_files() const { return {}; }
};

// A model as the user names it.
struct ModelPlace {
  ModelPlace(std::filesystem::path model, std::vector<std::filesystem::path> copies = {},
             io::OutsideLinks links = io::OutsideLinks::refused)
      : path(std::move(model)), mirrors(std::move(copies)), outside_links(links) {}

  // A directory as the hub has it, or as Meta has it (meta.h), or a GGUF file, any of several that
  // belong together.
  std::filesystem::path path;
  std::vector<std::filesystem::path> mirrors;  // with copies of files (io/checkpoint/index.h)
  io::OutsideLinks outside_links;
};

// `rank` opens it, of a model on several.
std::unique_ptr<ModelSource> open_model(const ModelPlace& place, io::OpeningRank rank = {});

}  // namespace sluice
