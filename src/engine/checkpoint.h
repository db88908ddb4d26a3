// A model as its headers say it: config, tokenizer, where each tensor lies. What everything else is
// made from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/models/families.h"
#include "src/models/source.h"
#include "src/text/tokenizer.h"

namespace sluice {

class Checkpoint {
 public:
  // Headers only. `path` and `mirrors` as in open_model(). Throws Error(refused).
  Checkpoint(const std::filesystem::path& path, const std::vector<std::filesystem::path>& mirrors);

  Model& model() { return model_; }
  const Model& model() const { return model_; }
  const io::CheckpointIndex& index() const { return index_; }
  // As transformers: where config.json names no type, that of the first weight.
  DType weights_dtype() const;

  // A model may go without one: token ids need none. A second model of the process has the first
  // one's.
  void load_tokenizer();
  // Null where there is none, or one that cannot be used; need_tokenizer() then says why as
  // Error(refused).
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const Tokenizer& need_tokenizer() const;

  // Error(refused) where `other` is another model, and not other weights of the same.
  void check_same_model(const Checkpoint& other) const;
  // The tensors are those of `other` from now on; nothing may know where they were.
  void take_tensors(Checkpoint&& other);

 private:
  std::filesystem::path path_;
  std::unique_ptr<ModelSource> source_;
  Model model_;
  io::CheckpointIndex index_;
  std::optional<Tokenizer> tokenizer_;
  std::string tokenizer_fault_;
};

}  // namespace sluice
