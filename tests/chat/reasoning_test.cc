#include "src/chat/reasoning.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/random.h"

namespace sluice {
namespace {

using Texts = std::pair<std::string, std::string>;  // thoughts, answer

// `cut`: gives the size of the next piece of a text of so many bytes.
template <class Cut>
Texts split(std::string_view prompt, std::string_view text, Cut cut) {
  ReasoningSplitter splitter("", prompt);
  Texts texts;
  auto take = [&](const std::vector<ReasoningSplitter::Part>& parts) {
    for (const auto& part : parts) (part.reasoning ? texts.first : texts.second) += part.text;
  };
  while (!text.empty()) {
    const size_t size = cut(text.size());
    take(splitter.add(text.substr(0, size)));
    text.remove_prefix(size);
  }
  take(splitter.add({}, true));
  return texts;
}

Texts whole(std::string_view prompt, std::string_view text) {
  return split(prompt, text, [](size_t size) { return size; });
}

TEST(Reasoning, IsApartFromTheAnswer) {
  EXPECT_EQ(whole("", "<think>\nHm.\nSo.\n</think>\n\nYes.\n"), Texts("Hm.\nSo.", "Yes.\n"));
  EXPECT_EQ(whole("<|assistant|><think>\n", "Hm.</think>Yes."), Texts("Hm.", "Yes."));
  EXPECT_EQ(whole("", "\n [THINK]Hm[/THINK]Yes"), Texts("Hm", "Yes"));
  EXPECT_EQ(whole("", "<think>\n\n</think>\n\nYes"), Texts("", "Yes"));
}

TEST(Reasoning, IsOnlyAtTheBeginning) {
  EXPECT_EQ(whole("", "Use <think> tags</think>"), Texts("", "Use <think> tags</think>"));
  EXPECT_EQ(whole("", "<thi"), Texts("", "<thi"));
  EXPECT_EQ(whole("", "<b>bold</b>"), Texts("", "<b>bold</b>"));
  EXPECT_EQ(whole("", "  indented"), Texts("", "  indented"));
}

TEST(Reasoning, MayHaveNoEnd) {
  EXPECT_EQ(whole("", "<think>Hm. </thi"), Texts("Hm. </thi", ""));
  EXPECT_EQ(whole("<think>", "Hm\n"), Texts("Hm\n", ""));
}

// It does not matter in what pieces the text comes.
TEST(ReasoningProperty, PiecesDoNotMatter) {
  const std::vector<std::string> words{"<think>", "</think>", "<",    "/",
                                       "think",   ">",        "\n",   " a",
                                       "[THINK]", "[/THINK]", "</th", "\r\n"};
  test::Random random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int64_t i = random.between(0, 12); i > 0; --i)
      text += words[static_cast<size_t>(random.between(0, std::ssize(words) - 1))];
    const std::string prompt = random.between(0, 1) == 0 ? "" : "<think>\n";
    auto cut = [&](size_t size) {
      return static_cast<size_t>(random.between(1, static_cast<int64_t>(size)));
    };
    EXPECT_EQ(split(prompt, text, cut), whole(prompt, text)) << text;
  }
}

}  // namespace
}  // namespace sluice
