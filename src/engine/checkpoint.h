// A model as described by its headers: config, tokenizer, and the place of each
// tensor.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/grammar/grammars.h"
#include "src/models/registry.h"
#include "src/models/source.h"
#include "src/text/tokenizer.h"

namespace sluice {

class Checkpoint {
 public:
  // Headers only. `place` as in open_model(), `needs_head` as of build_root(), `rank`: whose part
  // of the model is built. `dummy`: weights as of dummy_index(). Throws Error(refused).
  Checkpoint(const ModelPlace& place, bool needs_head, Rank rank = {}, bool dummy = false);
  // The same, of files that are whole, or for so many ranks as `files` says; a part of the model.
  Checkpoint(const ModelPlace& place, bool needs_head, Rank rank, bool dummy, io::OpeningRank files,
             const PartRequest& part = {});

  const std::filesystem::path& path() const { return path_; }
  Model& model() { return model_; }
  const Model& model() const { return model_; }
  const DecoderSpec& spec() const { return model_.root->spec(); }
  const io::CheckpointIndex& index() const { return index_; }
  // The dtype of config.json, else that of the first weight, as in transformers.
  DType weights_dtype() const;

  ChatFiles chat_files() const { return source_->chat_files(); }
  EmbeddingRules embedding_rules() const { return source_->embedding_rules(); }
  std::optional<Json> generation_config() const { return source_->generation_config(); }

  // Loads the tokenizer. A model may have none (token ids need none); a draft model uses its
  // target's.
  void load_tokenizer();
  // Null where there is none, or one that cannot be used; need_tokenizer() then says why as
  // Error(refused).
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const Tokenizer& need_tokenizer() const;
  // Compiles grammars for the tokenizer's tokens; errors as need_tokenizer().
  grammar::Grammars& grammars() const {
    need_tokenizer();
    return *grammars_;
  }

  // Why so many ranks cannot divide each layer; empty: they can.
  std::string refusal_of(int ranks, bool needs_head) const;

  // The config without what changes no result: names, versions, and the ends of texts.
  Json config_of_results() const;
  // Throws Error(refused) unless `other` has other weights of the same model.
  void check_same_model(const Checkpoint& other) const;
  // Replaces the tensors by those of `other`; nothing may refer to the old ones.
  void take_tensors(Checkpoint&& other);

 private:
  void take_eos();

  std::filesystem::path path_;
  std::unique_ptr<ModelSource> source_;
  Model model_;
  io::CheckpointIndex index_;
  std::optional<Tokenizer> tokenizer_;
  std::string tokenizer_fault_;
  std::unique_ptr<grammar::Grammars> grammars_;  // null without a tokenizer
};

}  // namespace sluice
