#include "src/text/word_piece.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/text/word_level.h"

namespace sluice {

WordPiece WordPiece::load(const TokenizerFile& file) {
  file.need_vocabulary();
  WordPiece model(Vocabulary(file.tokens, file.ids, kTokenizerFile));
  JsonFields fields(file.config.at("model"), "tokenizer.json: model");
  model.unknown_ = fields.string_or("unk_token", "[UNK]");
  if (fields.has("max_input_chars_per_word"))
    model.longest_word_ = fields.integer("max_input_chars_per_word", 0, INT32_MAX);
  model.trie_ = Trie(file, kTokenizerFile);
  model.inside_.emplace();
  for (char byte : fields.string_or("continuing_subword_prefix", "##")) {
    if (model.trie_.step(*model.inside_, byte)) continue;
    model.inside_.reset();
    break;
  }
  return model;
}

void WordPiece::encode(const Pieces& pieces, Work& work, std::vector<int32_t>& ids) const {
  pieces.each([&](std::string_view part, bool end) {
    add_part(part, work);
    if (end) end_word(work, ids);
  });
}

void WordPiece::add_part(std::string_view part, Work& work) const {
  if (work.is_long) return;
  work.word += part;
  work.characters += std::ranges::count_if(part, [](char c) { return (c & 0xC0) != 0x80; });
  work.is_long = work.characters > longest_word_;
  if (work.is_long) work.word.clear();
}

void WordPiece::end_word(Work& work, std::vector<int32_t>& ids) const {
  const size_t count = ids.size();
  if (work.is_long || !split(work.word, ids)) {
    ids.resize(count);
    ids.push_back(unknown_id(vocabulary_, unknown_));
  }
  work.word.clear();
  work.characters = 0;
  work.is_long = false;
}

bool WordPiece::split(std::string_view word, std::vector<int32_t>& ids) const {
  for (size_t begin = 0; begin < word.size();) {
    std::optional<Trie::Node> node = begin == 0 ? Trie::Node() : inside_;
    int32_t token = -1;
    size_t token_end = begin;
    for (size_t end = begin; node && end < word.size() && trie_.step(*node, word[end]);) {
      ++end;
      if (node->token < 0) continue;
      token = node->token;
      token_end = end;
    }
    if (token < 0) return false;
    ids.push_back(token);
    begin = token_end;
  }
  return true;
}

}  // namespace sluice
