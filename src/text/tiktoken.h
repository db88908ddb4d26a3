// Byte-level vocabularies in the formats of tiktoken: tokens and their ranks, which are their ids,
// and no merges. Encoding joins the two neighbours whose token has the lowest rank.
//   https://github.com/openai/tiktoken; tekken.json: https://github.com/mistralai/mistral-common
#pragma once

#include <string_view>

#include "src/text/tokenizer_file.h"

namespace sluice {

// A line "BASE64 RANK" a token. How a text is split and which special tokens there are is code in
// the models' own repositories: a table has it, by the file's `name`. Special tokens that `config`
// (tokenizer_config.json) describes count before those of the table; it gets the names of the bos
// and eos tokens where it has none. Throws Error(refused) that begins with `name`, also for files
// that the table does not have.
TokenizerFile read_tiktoken(std::string_view bytes, std::string_view name, Json& config);

// tekken.json, which has its own pattern and special tokens; `config` as above.
TokenizerFile read_tekken(std::string_view json, Json& config);

}  // namespace sluice
