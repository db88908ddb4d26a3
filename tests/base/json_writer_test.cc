// JSON that is written piece by piece equals the dump of a document.
#include "src/base/json_writer.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string written(int indent, const std::function<void(JsonWriter&)>& write,
                    size_t* most = nullptr) {
  std::string text;
  JsonWriter json(
      [&](std::string_view piece) {
        text += piece;
        if (most != nullptr) *most = std::max(*most, piece.size());
      },
      indent);
  write(json);
  json.flush();
  return text;
}

TEST(JsonWriter, WritesWhatADocumentDoes) {
  Json json = {{"a", {1, -2, 0.1, 1e300, nullptr, true}},
               {"b", Json::object()},
               {"c", {{"d", Json::array()}, {"e\n", {{{"f", "\"\\ \x01 é"}}}}}}};
  for (int indent : {-1, 0, 2})
    EXPECT_EQ(written(indent, [&](JsonWriter& w) { w.value(json); }), json.dump(indent));
}

TEST(JsonWriter, PartsStandInTheOrderOfNames) {
  const Json whole{{"a", 1}, {"b", {1, 2}}, {"c", Json::object()}, {"d", nullptr}, {"e", "x"}};
  Json members = whole;
  members.erase("b");
  members.erase("e");
  for (int indent : {-1, 2}) {
    EXPECT_EQ(written(indent,
                      [&](JsonWriter& w) {
                        w.object(members, {{"e", [&] { w.value("x"); }},
                                           {"b", [&] { w.array(std::vector{1, 2}); }}});
                      }),
              whole.dump(indent));
  }
}

TEST(JsonWriter, PiecesAreSmall) {
  std::string text(300'000, '\x01');
  for (size_t i = 1; i + 2 < text.size(); i += 5) text.replace(i, 2, "é");
  size_t most = 0;
  std::string result = written(
      -1,
      [&](JsonWriter& w) {
        w.array([&] {
          w.text({text, text});
          for (int i = 0; i < 100'000; ++i) w.value(i);
        });
      },
      &most);
  EXPECT_LT(most, 2 * JsonWriter::kPiece);
  Json parsed = Json::parse(result);
  EXPECT_EQ(parsed[0], text + text);
  EXPECT_EQ(parsed.size(), 100'001U);
}

TEST(JsonWriter, WhatIsNotUtf8IsReplaced) {
  std::string bytes(5000, '\x80');
  Json parsed = Json::parse(written(-1, [&](JsonWriter& w) { w.text({bytes}); }));
  EXPECT_TRUE(parsed.get<std::string>().starts_with("\uFFFD\uFFFD"));
}

}  // namespace
}  // namespace sluice
