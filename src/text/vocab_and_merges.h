// Byte-level BPE in two files, as of GPT-2: vocab.json has tokens and their ids, merges.txt a merge
// a line. How a text is split is code in transformers, by the class that tokenizer_config.json
// names.
#pragma once

#include <string_view>

#include "src/text/tokenizer_file.h"

namespace sluice {

inline constexpr std::string_view kVocabFile = "vocab.json";
inline constexpr std::string_view kMergesFile = "merges.txt";

// Special tokens that `config` (tokenizer_config.json) describes have the ids that it says, else
// those of the vocabulary, else the next ones, as in transformers; `config` gets the names of the
// bos and eos tokens where it has none. Throws Error(refused) that begins with a file's name, also
// for classes that are not known.
TokenizerFile read_vocab_and_merges(std::string_view vocab, std::string_view merges, Json& config);

}  // namespace sluice
