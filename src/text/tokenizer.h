// Text to token ids and back, as a checkpoint's tokenizer.json describes it, or a vocabulary of
// SentencePiece or tiktoken in its place; the ids are those of Hugging Face tokenizers, and of
// these libraries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/model_directory.h"
#include "src/text/added_tokens.h"
#include "src/text/bpe.h"
#include "src/text/decoder.h"
#include "src/text/normalizer.h"
#include "src/text/post_processor.h"
#include "src/text/pre_tokenizer.h"
#include "src/text/tokenizer_file.h"
#include "src/text/unigram.h"
#include "src/text/word_level.h"
#include "src/text/word_piece.h"

namespace sluice {

// Immutable; threads may share it.
class Tokenizer {
 public:
  // Reads DIRECTORY/tokenizer.json, and from tokenizer_config.json, if there is one, the names of
  // the bos and eos tokens. Without a tokenizer.json it reads tekken.json, tokenizer.model,
  // tiktoken.model or *.tiktoken, with the config's special tokens. Throws Error(refused), which
  // begins with the file's name.
  static Tokenizer load(const io::ModelDirectory& directory);
  static Tokenizer load(const TokenizerFiles& files);
  // Returns whether the directory has one of these files.
  static bool is_in(const io::ModelDirectory& directory);
  // Says that `model`, a directory or a GGUF file, has none, and what would be one.
  static std::string missing(const std::filesystem::path& model);
  // Loads a tokenizer from another format; `config` stands for tokenizer_config.json.
  static Tokenizer load(const TokenizerFile& file, const Json& config);

  // Each maximal subpart of the text that is not UTF-8 counts as one U+FFFD. The post-processor's
  // special tokens (bos, ...) are optional; special tokens that stand in the text are always found.
  // TokenStream does the same with a text that comes bit by bit, and has its errors.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;

  // Bytes that are not UTF-8 become U+FFFD. Ids without a token add nothing: has() tells.
  // Detokenizer does the same one token at a time.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The largest id + 1. Some ids below it may have no token.
  int32_t vocab_size() const;
  bool has(int32_t id) const;
  std::optional<int32_t> id_of(std::string_view token) const;
  // The token as it stands in the vocabulary: byte-level ones are written in the byte alphabet.
  // Throws Error(usage) when there is none.
  std::string_view token(int32_t id) const;
  // Left out when decoding with skip_special_tokens.
  bool is_special(int32_t id) const;
  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }

  // The bytes that a token adds to a decoded text; `first` when no token came before it. (In some
  // texts what stands around it says more: decode() knows.)
  std::string bytes(int32_t id, bool first) const;
  const Decoder& decoder() const { return decoder_; }

  // Sentences about what is odd in the files, and does no harm.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class TokenStream;
  using Model = std::variant<Bpe, Unigram, WordLevel, WordPiece>;

  explicit Tokenizer(const TokenizerFile& file);
  static Model load_model(const TokenizerFile& file);
  const Vocabulary& vocabulary() const;
  void warn_about_holes();
  void load_special_ids(const Json& config);
  void warn_about_flags(const JsonFields& config);
  std::optional<int32_t> special_id(const JsonFields& config, const char* key);

  std::vector<std::string> warnings_;
  Model model_;
  Normalizer normalizer_;
  AddedTokens added_;
  PreTokenizer pre_tokenizer_;
  PostProcessor post_processor_;
  Decoder decoder_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
};

}  // namespace sluice
