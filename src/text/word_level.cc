#include "src/text/word_level.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/json.h"

namespace sluice {

int32_t unknown_id(const Vocabulary& vocabulary, std::string_view unknown) {
  const std::optional<int32_t> id = vocabulary.find(unknown);
  if (!id) {
    fail(ErrorKind::refused,
         "{}: unk_token '{}' is not in the vocabulary, and the text has a word that needs it",
         kTokenizerFile, unknown);
  }
  return *id;
}

WordLevel WordLevel::load(const TokenizerFile& file) {
  file.need_vocabulary();
  WordLevel model(Vocabulary(file.tokens, file.ids, kTokenizerFile));
  for (size_t i = 0; i < file.tokens.size(); ++i)
    model.longest_ = std::max(model.longest_, file.tokens[i].size());
  model.unknown_ = JsonFields(file.config.at("model"), "tokenizer.json: model").string("unk_token");
  return model;
}

void WordLevel::encode(const Pieces& pieces, Work& work, std::vector<int32_t>& ids) const {
  pieces.each([&](std::string_view part, bool end) {
    // One byte more than the longest token has says that the word is none.
    work.word += part.substr(0, longest_ + 1 - work.word.size());
    if (!end) return;
    const std::optional<int32_t> id = vocabulary_.find(work.word);
    ids.push_back(id ? *id : unknown_id(vocabulary_, unknown_));
    work.word.clear();
  });
}

}  // namespace sluice
