// Answers of models, read as a whole and in pieces.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/chat/answer_parser.h"
#include "tests/support/random.h"

namespace sluice::test {

inline const Json kParserTools = Json::parse(R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "code": {}}}}},
  {"type": "function", "function": {"name": "now"}}])");

// The parts as one text: thoughts in (), calls as NAME[ARGUMENTS].
inline std::string shown(const std::vector<AnswerPart>& parts) {
  std::string text;
  bool in_call = false;
  auto end_call = [&] {
    if (std::exchange(in_call, false)) text += "]";
  };
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::arguments) {
      EXPECT_TRUE(in_call);
      text += part.text;
      continue;
    }
    end_call();
    in_call = part.kind == AnswerPart::Kind::call;
    text += part.kind == AnswerPart::Kind::reasoning ? "(" + part.text + ")"
                                                     : part.text + (in_call ? "[" : "");
  }
  end_call();
  return text;
}

class AnswerFormat {
 public:
  explicit AnswerFormat(std::string chat_template, std::string prompt = "",
                        Json tools = kParserTools, AnswerHints hints = {})
      : template_(std::move(chat_template)),
        prompt_(std::move(prompt)),
        tools_(std::move(tools)),
        hints_(hints) {}

  // Parses the whole at once, which must not differ from what it gives piece by piece.
  std::string of(std::string_view text, bool cut = false, int times = 20) {
    return shown(parts_of(text, cut, times));
  }
  std::vector<AnswerPart> parts_of(std::string_view text, bool cut = false, int times = 20) {
    const std::vector<AnswerPart> parts = read(text, cut, [&] { return text.size(); });
    const std::string whole = shown(parts);
    EXPECT_EQ(shown(read(text, cut, [] { return 1; })), whole) << text;
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ(shown(read(text, cut, [&] { return random_.between(1, 12); })), whole) << text;
    }
    return parts;
  }

 private:
  template <class Size>
  std::vector<AnswerPart> read(std::string_view text, bool cut, Size size) {
    AnswerParser parser(template_, prompt_, tools_, hints_);
    std::vector<AnswerPart> parts;
    auto take = [&](const std::vector<AnswerPart>& more) {
      for (const AnswerPart& part : more) append(parts, part);
    };
    while (!text.empty()) {
      const size_t bytes = std::min<size_t>(size(), text.size());
      take(parser.add(text.substr(0, bytes)));
      text.remove_prefix(bytes);
    }
    take(parser.add({}, true, cut));
    return parts;
  }

  static void append(std::vector<AnswerPart>& parts, const AnswerPart& part) {
    if (part.kind == AnswerPart::Kind::call)
      parts.push_back(part);
    else
      give(parts, part.kind, part.text);
  }

  std::string template_, prompt_;
  Json tools_;
  AnswerHints hints_;
  Random random_{"answers"};
};

}  // namespace sluice::test
