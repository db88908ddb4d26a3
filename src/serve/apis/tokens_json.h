// The answers of /tokenize and /detokenize, and what they take.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "src/text/tokenizer.h"

namespace sluice {

// {count, max_model_len, tokens, token_strs (null without `texts`)}.
std::string tokens_json(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool texts,
                        int64_t max_model_len);
// The most bytes that making it takes.
uint64_t tokens_json_bytes(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool texts);

// {prompt}: the text of the tokens, with the special ones.
std::string text_json(const Tokenizer& tokenizer, std::span<const int32_t> ids);
// The most bytes that making it takes.
uint64_t text_json_bytes(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace sluice
