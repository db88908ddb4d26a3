#include "src/chat/conversation.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

const std::filesystem::path kTokenizers = test::source_dir() / "tests/data/text";

TEST(Conversation, IsSavedAndLoaded) {
  Conversation conversation;
  conversation.set_system("Be brief.");
  conversation.add({.role = "user", .content = "Hi", .reasoning = {}});
  conversation.add({.role = "assistant", .content = "Ho", .reasoning = "Hm"});
  const Conversation again = Conversation::from_json(conversation.json().dump(), "file");
  EXPECT_EQ(again.json(), conversation.json());
  EXPECT_EQ(again.json()[2]["reasoning_content"], "Hm");
  const char* call = R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])";
  EXPECT_EQ(Conversation::from_json(call, "file").json().dump(), call);
  EXPECT_THROW(Conversation::from_json("{}", "file"), Error);
  EXPECT_THROW(Conversation::from_json(R"([{"role": "user"}])", "file"), Error);
}

TEST(Conversation, KeepsItsSystemMessage) {
  Conversation conversation;
  conversation.add({.role = "user", .content = "Hi", .reasoning = {}});
  conversation.set_system("one");
  conversation.set_system("two");
  EXPECT_EQ(conversation.json().size(), 2U);
  conversation.reset();
  ASSERT_EQ(conversation.json().size(), 1U);
  EXPECT_EQ(conversation.json()[0]["content"], "two");
  conversation.set_system("");
  EXPECT_TRUE(conversation.json().empty());
}

// Whatever tokens a model chooses for its text, the next turn begins with them; where the text is
// another one, with what is left of it.
TEST(ConversationIdsProperty, KnownTokensStay) {
  const Tokenizer tokenizer = Tokenizer::load(kTokenizers / "llama3_bpe");
  const std::string end = "<|eot_id|>";
  ASSERT_TRUE(tokenizer.is_special(tokenizer.id_of(end).value()));
  test::Random random(2);
  for (int round = 0; round < 100; ++round) {
    ConversationIds ids(tokenizer);
    std::string text;
    std::vector<int32_t> known;
    for (int turn = 0; turn < 4; ++turn) {
      text += end + "user says " + std::to_string(random.between(0, 1000)) + end + "model:";
      const std::vector<int32_t> prompt = ids.of(text);
      ASSERT_EQ(tokenizer.decode(prompt, false), text);
      ASSERT_LE(known.size(), prompt.size());
      ASSERT_TRUE(std::equal(known.begin(), known.end(), prompt.begin())) << text;
      std::vector<int32_t> generated;  // letters, which the tokenizer would join
      for (int64_t i = random.between(0, 9); i > 0; --i)
        generated.push_back(
            tokenizer.encode(std::string(1, "abcdefg "[random.between(0, 7)]), false).front());
      ids.learn(text, prompt, generated);
      known = prompt;
      known.insert(known.end(), generated.begin(), generated.end());
      text += tokenizer.decode(generated, false);
    }
    // The last answer is changed: what came before it is known still.
    const size_t last = text.rfind(end + "user");
    const std::string changed = text.substr(0, last) + end + "something else";
    const std::vector<int32_t> prompt = ids.of(changed);
    EXPECT_EQ(tokenizer.decode(prompt, false), changed);
  }
}

}  // namespace
}  // namespace sluice
