// Random schemas and patterns as Python's jsonschema and re understand them.
// (tests/data/grammar/make_golden.py)
#include <gtest/gtest.h>

#include <fstream>

#include "src/base/json.h"
#include "tests/grammar/matching.h"
#include "tests/support/temp.h"

namespace sluice::grammar {
namespace {

void check_golden(const char* file, SourceKind kind, const char* key) {
  std::ifstream in(test::source_dir() / "tests/data/grammar" / file);
  int accepted = 0, refused = 0;
  for (std::string line; std::getline(in, line);) {
    const Json golden = Json::parse(line);
    const auto source = golden.at(key).get<std::string>();
    SCOPED_TRACE(source);
    const auto grammar = compile({kind, source}, "test");
    for (const auto& text : golden.at("accepted").get<std::vector<std::string>>()) {
      EXPECT_TRUE(matches(*grammar, text)) << text;
      for (size_t size = 0; size < text.size(); ++size)
        EXPECT_FALSE(state_after(*grammar, text.substr(0, size)).dead()) << text << size;
      ++accepted;
    }
    for (const auto& text : golden.at("refused").get<std::vector<std::string>>()) {
      EXPECT_FALSE(matches(*grammar, text)) << text;
      ++refused;
    }
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 300);
}

TEST(Golden, SchemasAcceptWhatJsonschemaDoes) {
  check_golden("schemas.jsonl", SourceKind::json_schema, "schema");
}

TEST(Golden, RulesAcceptWhatJsonschemaDoes) {
  check_golden("rules.jsonl", SourceKind::json_schema, "schema");
}

TEST(Golden, PatternsMatchWhatPythonDoes) {
  check_golden("patterns.jsonl", SourceKind::regex, "pattern");
}

}  // namespace
}  // namespace sluice::grammar
