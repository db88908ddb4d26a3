// The tokens of a message, among those of thoughts and tags.
#include "src/serve/apis/message_tokens.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

// The text of the tokens of a message; each byte of the answer is a token.
std::string tokens_of(const std::string& answer) {
  const Tokenizer tokenizer = test::load_tokenizer(test::small_tokenizer());
  RequestResult result;
  result.text = answer;
  result.finish_reason = "stop";
  for (char c : answer) result.logprobs.push_back({{static_cast<uint8_t>(c), -0.5}, {}});
  const ChatForm form{.chat_template = "{{ '<think>' }}{{ '</think>' }}"};
  std::string text;
  for (const TokenLogprobs& t : message_tokens(form, result, &tokenizer, false))
    text += static_cast<char>(t.token.token_id);
  return text;
}

TEST(MessageTokens, ThoughtsAndTagsAreLeftOut) {
  EXPECT_EQ(tokens_of("Hello"), "Hello");
  EXPECT_EQ(tokens_of("<think>a</think>Hello"), "Hello");
  EXPECT_EQ(tokens_of("<think>a < b</think>\n\n5 < 6"), "5 < 6");
  EXPECT_EQ(tokens_of("<think>only thoughts"), "");
  EXPECT_EQ(tokens_of("1 < 2 and <t"), "1 < 2 and <t");
}

}  // namespace
}  // namespace sluice
