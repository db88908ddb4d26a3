// Tokens of a GGUF file that end a text. Its keys name one or two of them; many conversions name
// only the end of a document, though a turn of a chat ends with another. Every reader therefore
// knows such tokens by their texts.
#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "io/file.h"
#include "src/models/config.h"
#include "src/models/gguf/gguf.h"
#include "src/text/tokenizer_file.h"

namespace sluice {
namespace {

constexpr const char* kTokenTexts = "tokenizer.ggml.tokens";
constexpr const char* kTokenTypes = "tokenizer.ggml.token_type";

// Ends of turns, of calls, and of documents.
constexpr auto kEndTexts =
    std::to_array<std::string_view>({"<|eot_id|>",
                                     "<|eom_id|>",
                                     "<|im_end|>",
                                     "<|end|>",
                                     "<|return|>",
                                     "<|call|>",
                                     "<|calls|>",
                                     "<|flush|>",
                                     "<end_of_turn>",
                                     "<turn|>",
                                     "<|tool_response>",
                                     "<end_of_utterance>",
                                     "<EOT>",
                                     "_<EOT>",
                                     "[EOT]",
                                     "[EOS]",
                                     "[e~[",
                                     "<|endoftext|>",
                                     "<|end_of_text|>",
                                     "<|eot|>",
                                     "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
                                     "<eos>",
                                     "</s>"});

using Found = std::map<std::string, int64_t, std::less<>>;  // ids by text

// A normal token is a piece of texts, whatever it looks like.
void drop_normal_ones(const io::GgufHeader& header, Found& found) {
  constexpr double kControl = 3, kUserDefined = 4;
  if (found.empty() || !header.arrays.contains(kTokenTypes)) return;
  const std::vector<double> types = io::read_gguf_numbers(header, kTokenTypes);
  std::erase_if(found, [&](const auto& token) {
    const auto id = static_cast<size_t>(token.second);
    return id < types.size() && types[id] != kControl && types[id] != kUserDefined;
  });
}

Found known_ends(const io::GgufHeader& header) {
  Found found;
  const auto tokens = header.arrays.find(kTokenTexts);
  if (tokens == header.arrays.end() || tokens->second.type != io::GgufType::string) return found;
  int64_t id = 0;
  io::each_gguf_string(header, kTokenTexts, [&](std::string_view text) {
    if (std::ranges::find(kEndTexts, text) != kEndTexts.end()) found.emplace(text, id);
    ++id;
  });
  drop_normal_ones(header, found);
  const auto has = [&](std::string_view text) { return found.contains(text); };
  // In these formats an answer has several parts, each with this end.
  const bool parts = (has("<|return|>") && has("<|call|>")) ||
                     (has("<|flush|>") && (has("<|call|>") || has("<|calls|>")));
  if (parts) found.erase("<|end|>");
  if (has("<|tool_response>")) found.erase("</s>");  // a token of texts
  return found;
}

}  // namespace

std::vector<int64_t> gguf_end_ids(const io::GgufHeader& header) {
  constexpr const char* kList = "tokenizer.ggml.eos_token_ids";
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  std::vector<int64_t> ids;
  const auto add = [&](int64_t id) {  // 4294967295: none
    if (id >= 0 && id <= kMaxTokenId && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (fields.has(key)) add(fields.integer(key, INT32_MIN, UINT32_MAX));
  }
  if (header.arrays.contains(kList)) {
    for (double id : io::read_gguf_numbers(header, kList))
      add(id >= 0 && id <= kMaxTokenId ? static_cast<int64_t>(id) : -1);
  }
  std::vector<int64_t> known;
  for (const auto& [text, id] : known_ends(header)) known.push_back(id);
  std::ranges::sort(known);
  std::ranges::for_each(known, add);
  return ids;
}

}  // namespace sluice
