// The body of a response, from results that are made here.
#include <gtest/gtest.h>

#include "src/serve/apis/completion.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

// One prompt, one result of these tokens; each place has the same likely ones.
Json only_choice(const Tokenizer* tokenizer, std::vector<int32_t> prompt, std::vector<int32_t> ids,
                 std::string text, const std::vector<int32_t>& likely, bool echo) {
  auto logprobs = [&](int32_t id) {
    TokenLogprobs t{{id, -0.5}, {}};
    for (int32_t l : likely) t.top.push_back({l, -1.0 - static_cast<double>(t.top.size())});
    return t;
  };
  Completion asked;
  asked.echo = echo;
  asked.prompts = {std::move(prompt)};
  asked.request.sampling.logprobs = 1;
  RequestResult result;
  result.text = std::move(text);
  for (int32_t id : ids) result.logprobs.push_back(logprobs(id));
  for (size_t i = 1; i < asked.prompts[0].size(); ++i)
    result.prompt_logprobs.push_back(logprobs(asked.prompts[0][i]));
  result.ids = std::move(ids);
  std::string body;
  append_json(body,
              [&](JsonWriter& json) { write_completion(json, {}, asked, {{result}}, tokenizer); });
  return Json::parse(body).at("choices").at(0);
}

Tokenizer tokenizer_with(std::initializer_list<const char*> added) {
  Json file = test::small_tokenizer();
  for (const char* content : added) file["added_tokens"].push_back(test::added_token(content, 0));
  return test::load_tokenizer(file);
}

TEST(CompletionJson, LikelyTokensOfTheSameTextAreAllThere) {
  constexpr int32_t kSpaceH = 259, kAddedSpaceH = 260;
  Tokenizer tokenizer = tokenizer_with({" h"});
  auto top = [&](const std::vector<int32_t>& likely) {
    return only_choice(&tokenizer, {'a'}, {'b'}, "b", likely, false)["logprobs"]["top_logprobs"][0];
  };
  EXPECT_EQ(top({kSpaceH, kAddedSpaceH, 0xE2, 0x80, 999}), Json::parse(R"({" h": -1.0,
    "token_id:260": -2.0, "bytes:\\xe2": -3.0, "bytes:\\x80": -4.0, "token_id:999": -5.0})"));
  EXPECT_EQ(top({kAddedSpaceH, kSpaceH}), Json::parse(R"({" h": -1.0, "token_id:259": -2.0})"));
  EXPECT_EQ(only_choice(nullptr, {1}, {2}, "", {3}, false)["logprobs"],
            Json::parse(R"({"tokens": ["token_id:2"], "token_logprobs": [-0.5],
              "top_logprobs": [{"token_id:3": -1.0}], "text_offset": [0]})"));
}

TEST(CompletionJson, OffsetsCountCharactersOfTheText) {
  Tokenizer tokenizer = tokenizer_with({});
  auto offsets = [&](std::vector<int32_t> prompt, std::vector<int32_t> ids, const char* text,
                     bool echo = false) {
    return only_choice(&tokenizer, std::move(prompt), std::move(ids), text, {},
                       echo)["logprobs"]["text_offset"]
        .get<std::vector<int64_t>>();
  };
  using Offsets = std::vector<int64_t>;
  // Tokens of one character are where it is, those without a text where the next one is.
  EXPECT_EQ(offsets({1}, {'a', 0xE2, 0x80, 0x94, 999, 'b'}, "a\u2014b"),
            (Offsets{0, 1, 1, 1, 2, 2}));
  // A byte that breaks a character off comes after its U+FFFD.
  EXPECT_EQ(offsets({1}, {0xE2, 0x80, 'b', 0xE2}, "\uFFFDb\uFFFD"), (Offsets{0, 0, 1, 2}));
  EXPECT_EQ(offsets({0xC3, 0xA9, 'x'}, {'a', 'b'}, "ab", true), (Offsets{0, 0, 1, 2, 3}));
  EXPECT_EQ(offsets({'x'}, {'a', 'b', 'c'}, "a"), (Offsets{0, 1, 1})) << "a stop string ended it";
}

}  // namespace
}  // namespace sluice
