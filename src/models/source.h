// A model's files, whatever their format. Each format has an opener that gives what a directory of
// the Hugging Face hub has in config.json, generation_config.json, tokenizer.json and
// *.safetensors; nothing above knows which it was.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "io/checkpoint/index.h"
#include "src/base/json.h"
#include "src/text/tokenizer.h"

namespace sluice {

// Each part is read when it is asked for: the text verbs need a tokenizer only, others the weights.
// All throw Error(refused) with one sentence that names the file and the fault.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // In messages, the file that config() comes from.
  virtual std::string_view config_name() const = 0;
  // As config.json has it, whatever the file has.
  virtual Json config() const = 0;
  virtual std::optional<Json> generation_config() const = 0;
  // The tensors, under the names that the families know. Copies of files in `mirrors` are part of
  // it (io/checkpoint/index.h).
  virtual io::CheckpointIndex index(std::span<const std::filesystem::path> mirrors) const = 0;
  virtual std::optional<Tokenizer> tokenizer() const = 0;  // nullopt: there is none
};

// `model` is a directory.
std::unique_ptr<ModelSource> open_model(const std::filesystem::path& model);

}  // namespace sluice
