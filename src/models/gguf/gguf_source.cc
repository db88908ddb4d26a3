#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "io/checkpoint/read_tensors.h"
#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/models/gguf/gguf.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A small tensor of float32; empty where there is none.
std::vector<double> read_floats(const io::CheckpointIndex& index, std::string_view name) {
  const io::StoredTensor* tensor = index.find(name);
  if (tensor == nullptr) return {};
  if (tensor->dtype != DType::f32) {
    fail(ErrorKind::refused, "{}: tensor {}: is {}, but must be F32",
         io::printable(index.files()[tensor->file].path.string()), name, dtype_name(tensor->dtype));
  }
  const std::string bytes = io::read_small_tensors(index, std::array{tensor}).front();
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return {floats.begin(), floats.end()};
}

class GgufSource : public ModelSource {
 public:
  GgufSource(const io::ModelFile& file, std::span<const fs::path> mirrors, int ranks)
      : ranks_(ranks),
        checkpoint_(open_gguf_parts(file, mirrors)),
        architecture_(find_gguf_architecture(checkpoint_)),
        name_(io::printable(checkpoint_.header.file.path.string())) {}

  std::string_view config_name() const override { return name_; }
  Json config() const override {
    if (ranks_ > 1) return config_of_cut();
    const io::CheckpointIndex index = this->index();
    return gguf_config(architecture_, checkpoint_,
                       {.short_ones = read_floats(index, "rope_factors_short.weight"),
                        .long_ones = read_floats(index, "rope_factors_long.weight")});
  }
  std::optional<Json> generation_config() const override { return std::nullopt; }
  SourceFacts facts() const override;
  io::CheckpointIndex index() const override;
  std::optional<Tokenizer> tokenizer() const override { return gguf_tokenizer(checkpoint_.header); }
  ChatFiles chat_files() const override { return gguf_chat_files(checkpoint_.header); }
  EmbeddingRules embedding_rules() const override {
    return gguf_embedding_rules(checkpoint_.header, std::string(architecture_.name));
  }
  std::vector<MadeFile> made_files() const override {
    return gguf_made_files(config(), facts(), checkpoint_.header);
  }

 private:
  // A rank's file has parts of tensors, which do not tell all sizes of the model.
  Json config_of_cut() const {
    const JsonFields fields(checkpoint_.header.values, name_);
    const std::string key(io::kGgufCutConfig);
    if (!fields.has(key.c_str()))
      fail(ErrorKind::refused, "{}: has no {}; cut the model again, by `sluice shard`", name_, key);
    return parse_json(fields.string(key.c_str()), fmt::format("{}: {}", name_, key));
  }

  int ranks_;
  io::GgufCheckpoint checkpoint_;
  const GgufArchitecture& architecture_;
  std::string name_;
};

io::CheckpointIndex GgufSource::index() const {
  std::vector<io::StoredTensor> tensors = checkpoint_.tensors;
  leave_out_other_parts(architecture_, checkpoint_.header, tensors);
  for (io::StoredTensor& tensor : tensors) rename_gguf_tensor(architecture_, tensor);
  std::ranges::move(gguf_floats(architecture_, checkpoint_.header), std::back_inserter(tensors));
  io::CheckpointIndex index(checkpoint_.files, std::move(tensors), {});
  for (const io::FileCopy& copy : checkpoint_.copies) index.add_copy(copy);
  index.set_ranks(ranks_);
  return index;
}

SourceFacts GgufSource::facts() const {
  SourceFacts facts = architecture_.facts;
  facts.layers = gguf_layer_counts(architecture_, checkpoint_.header);
  facts.latent_parts = has_in_a_layer(checkpoint_, "attn_k_b.weight");
  facts.rope_factors = read_floats(index(), "rope_freqs.weight");
  return facts;
}

}  // namespace

std::unique_ptr<ModelSource> open_gguf_model(const io::ModelFile& file,
                                             std::span<const fs::path> mirrors, int ranks) {
  return std::make_unique<GgufSource>(file, mirrors, ranks);
}

}  // namespace sluice
