// Makes what a tokenizer.json has of vocabularies in other formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/tokenizer_file.h"

namespace sluice {

// Merges for a vocabulary that lists none: any two tokens that together are the text of a third
// become that one, first those of the lowest `order` (one for each token, by its place in the
// file). `joins` has those that are made and used so. Throws Error(refused) that begins with
// `where` when there are absurdly many.
void add_merges(TokenizerFile& file, const std::vector<double>& order,
                const std::vector<bool>& joins, std::string_view where);

// A post_processor that puts these tokens, by their places in the file, around a text.
void add_around_text(TokenizerFile& file, std::optional<int32_t> before,
                     std::optional<int32_t> after);

// A pre_tokenizer that makes a piece of each match.
Json split_by(std::string_view pattern);
// One that splits by `pattern` and writes bytes in the byte alphabet; the decoder for it.
void use_byte_level(TokenizerFile& file, std::string_view pattern);

// A token that is found in the text as it stands.
Json added_token(int64_t id, std::string_view content, bool special);

// "<s>", or the content of {"content": "<s>", ...}; nullopt: neither.
std::optional<std::string> token_content(const Json& value);

// The tokens that tokenizer_config.json describes as added ones, as tokenizer.json has them: of
// added_tokens_decoder, with their ids, then those under names such as bos_token that have flags,
// or have none: always, or where there is a chat template that may write them. Throws
// Error(refused).
enum class Names : uint8_t { with_template, always };
std::vector<Json> described_tokens(const Json& config, Names names = Names::with_template);

// Patterns that split texts before byte-level encoding: by contractions, words, numbers of as many
// digits, other characters, and white space. Those of "cased" end a word where upper case begins in
// it.
namespace split_patterns {
inline constexpr std::string_view kThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kCasedOneDigit =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kCasedThreeDigits =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Chinese characters are words of their own.
inline constexpr std::string_view kHanCasedThreeDigits =
    R"(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}  // namespace split_patterns

}  // namespace sluice
