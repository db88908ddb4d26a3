// Reads tokenizer.json. The vocabulary and the merges are nearly all of it: they go straight into
// compact lists instead of a JSON tree, which would take twenty times the room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_directory.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/text/string_list.h"

namespace sluice {

inline constexpr std::string_view kTokenizerFile = "tokenizer.json";
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

struct TokenizerFile {
  Json config;  // all but model.merges and model.vocab
  // model.vocab in the file's order, where it is an object {token: id}
  bool has_vocabulary = false;
  StringList tokens;
  std::vector<int32_t> ids;
  void need_vocabulary() const;  // Error(refused) without one
  // or an array of pairs [token, score], whose ids are their places
  bool has_scores = false;
  std::vector<double> scores;
  bool single_precision =
      false;  // sums of scores are rounded to float32, as SentencePiece has them
  // Tokens that are no text, whatever they are called, by place; empty: none.
  std::vector<bool> never_in_text;
  bool may_be_text(size_t place) const { return never_in_text.empty() || !never_in_text[place]; }
  // model.merges, two strings each, where it is an array of pairs or of "left right"
  bool has_merges = false;
  StringList merges;
  // A rank of each merge, where it is not its place: of equal ones the leftmost in a text is first.
  std::vector<int32_t> merge_ranks;
};

// Parses a file piece by piece: take(depth, event, value) is called for each event of the parser,
// with the number of containers around it; false: what the value holds does not enter the tree.
// Throws Error(refused) that begins with `file`.
template <class Take>
Json parse_large_json(std::string_view json, std::string_view file, Take take) {
  constexpr int kMaxDepth = 64;
  const auto checked = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth)
      fail(ErrorKind::refused, "{}: nested too deeply (more than {} levels)", file, kMaxDepth);
    return take(depth, event, value);
  };
  // The library takes a NUL for the end of its input.
  if (json.find('\0') != std::string_view::npos)
    fail(ErrorKind::refused, "{}: not valid JSON: it holds a NUL", file);
  try {
    return Json::parse(json, checked);
  } catch (const Json::exception& fault) {
    refuse_json(json, file, fault.what());
  }
}

// The text of `directory`/`name`; nullopt when there is none. Errors as ModelDirectory::read.
std::optional<std::string> read_text_file(const io::ModelDirectory& directory,
                                          std::string_view name);
// The JSON object in `directory`/`name`; an empty one when there is no file.
Json read_json_file(const io::ModelDirectory& directory, std::string_view name);

// The files that a directory's tokenizer is made from.
struct TokenizerFiles {
  std::string name;    // of the file
  TokenizerFile file;  // it, or what it becomes, as a tokenizer.json
  Json config;         // tokenizer_config.json, or what stands for it
};
// nullopt where there is none. Throws Error(refused).
std::optional<TokenizerFiles> read_tokenizer_files(const io::ModelDirectory& directory);

// Throws Error(refused), which begins "tokenizer.json: ".
TokenizerFile parse_tokenizer_file(const std::string& json);
// The text of a tokenizer.json of tokens with ids, with the fields that Hugging Face's library asks
// for. Of merges of one rank, which it has not, the first is first.
std::string tokenizer_json(const TokenizerFile& file);

}  // namespace sluice
