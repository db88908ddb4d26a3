// Answers of /tokenize and /detokenize.
#include "src/serve/apis/tokens_json.h"

#include <gtest/gtest.h>

#include "src/base/json.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

TEST(TokensJson, TakesNoMoreThanItSays) {
  const Tokenizer tokenizer = test::load_tokenizer(test::small_tokenizer());
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.has(id)) ids.insert(ids.end(), 9, id);
  Json texts = Json::array();
  for (int32_t id : ids) texts.push_back(std::string(tokenizer.token(id)));
  Json want{{"count", ids.size()}, {"max_model_len", 7}, {"token_strs", nullptr}, {"tokens", ids}};
  EXPECT_EQ(tokens_json(tokenizer, ids, false, 7), want.dump());
  want["token_strs"] = texts;
  const std::string all = tokens_json(tokenizer, ids, true, 7);
  EXPECT_EQ(all, want.dump());
  EXPECT_GE(tokens_json_bytes(tokenizer, ids, true), all.size());
  const std::string text = text_json(tokenizer, ids);
  EXPECT_EQ(Json::parse(text), Json({{"prompt", tokenizer.decode(ids, false)}}));
  EXPECT_GE(text_json_bytes(tokenizer, ids), text.size() + tokenizer.decode(ids, false).size());
}

}  // namespace
}  // namespace sluice
