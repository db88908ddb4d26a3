// Reads tokenizer.json. The vocabulary and the merges are nearly all of it: they go straight into
// compact lists instead of a JSON tree, which would take twenty times the room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/text/string_list.h"

namespace sluice {

inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

struct TokenizerFile {
  Json config;  // all but model.merges and model.vocab
  // model.vocab in the file's order, where it is an object {token: id}
  bool has_vocabulary = false;
  StringList tokens;
  std::vector<int32_t> ids;
  // or an array of pairs [token, score], whose ids are their places
  bool has_scores = false;
  std::vector<double> scores;
  // model.merges, two strings each, where it is an array of pairs or of "left right"
  bool has_merges = false;
  StringList merges;
};

// The text of `directory`/`name`; nullopt when there is none. Errors as io::read_checkpoint_file.
std::optional<std::string> read_text_file(const std::filesystem::path& directory,
                                          std::string_view name);

// Throws Error(refused), which begins "tokenizer.json: ".
TokenizerFile parse_tokenizer_file(const std::string& json);

}  // namespace sluice
