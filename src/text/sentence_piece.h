// SentencePiece's models (tokenizer.model, a ModelProto of sentencepiece_model.proto).
//   https://github.com/google/sentencepiece
#pragma once

#include <string>
#include <string_view>

#include "src/text/tokenizer_file.h"

namespace sluice {

struct SentencePieceRules {
  std::string_view charsmap = {};  // a precompiled one, by which characters are exchanged first
  bool squeeze = false;            // no space at an end or behind another one
  bool escape = true;              // spaces are written U+2581
  bool prefix = true;              // one comes before the text
  bool prefix_once = false;        // but not behind an added token
  bool byte_fallback = true;
  std::string whole = {};  // a pattern of what stays whole; empty: nothing
};
// The normalizer, the pre_tokenizer and the decoder.
void use_sentence_piece_rules(const SentencePieceRules& rules, Json& config);

// Returns whether a tokenizer.model is a SentencePiece model; others are of tiktoken.
bool is_sentence_piece(std::string_view bytes);

// Models of the types BPE and Unigram. `config` is that of tokenizer_config.json, and gets the
// names of the bos and eos tokens where it has none. The bos token comes before a text where the
// config says so, and, where it says nothing, with BPE. Control pieces are not found in a text, as
// SentencePiece has it; those that the config describes with their flags, or that its chat template
// may write, are, as transformers has it. Throws Error(refused) that begins with `where`.
TokenizerFile read_sentence_piece(std::string_view bytes, std::string_view where, Json& config);

}  // namespace sluice
