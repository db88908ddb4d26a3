// Ids and texts that Hugging Face tokenizers gave: a sample beside the tests, and all of the shared
// fixtures where they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/text/detokenizer.h"
#include "src/text/tokenizer.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using test::read_file;

std::vector<Json> read_rows(const std::filesystem::path& path) {
  std::vector<Json> rows;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
  return rows;
}

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

struct Golden {
  const char* family;
  bool shared;  // all rows, of the shared fixtures
};

std::ostream& operator<<(std::ostream& out, const Golden& golden) { return out << golden.family; }

class GoldenTest : public testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    std::filesystem::path root = test::source_dir() / "tests/data/text" / GetParam().family;
    if (GetParam().shared) {
      if (test::oracle_dir().empty()) GTEST_SKIP() << "the shared fixtures are not here";
      root = test::oracle_dir() / "tokenizers" / GetParam().family;
    }
    directory_ = root;
  }

  std::filesystem::path directory_;
};

// Returns the parts of incremental decoding, as the fixtures write them: null where text is held
// back.
Json stream_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, std::string& whole) {
  Json stream = Json::array();
  Detokenizer detokenizer(tokenizer, false);
  for (int32_t id : ids) {
    std::string text = detokenizer.add(id);
    whole += text;
    stream.push_back(text.empty() ? Json() : Json(text));
  }
  whole += detokenizer.finish();
  return stream;
}

void expect_decoding(const Tokenizer& tokenizer, const Json& row, const char* ids_key) {
  auto ids = row.at("ids").get<std::vector<int32_t>>();
  auto kept = row.at(ids_key).get<std::vector<int32_t>>();
  EXPECT_EQ(tokenizer.decode(kept, false), row.at("decoded").get<std::string>()) << row;
  EXPECT_EQ(tokenizer.decode(ids, true), row.at("decoded_skip_special").get<std::string>()) << row;
  std::string whole;
  Json stream = stream_of(tokenizer, kept, whole);
  if (row.contains("stream")) {
    const Json& expected = row.at("stream");
    // The library gives up where text that it has given out turns out to be none.
    const bool ends = !expected.empty() && expected.back().is_object();
    if (ends) stream.get_ref<Json::array_t&>().resize(expected.size() - 1);
    Json given = expected;
    if (ends) given.erase(expected.size() - 1);
    EXPECT_EQ(stream, given) << row;
    if (ends) return;
  }
  std::string given;
  for (const Json& text : stream)
    if (text.is_string()) given += text.get<std::string>();
  const auto decoded = row.at("decoded").get<std::string>();
  // Text that has been given out stays, even if later bytes made it invalid.
  const bool invalid = decoded.find("\uFFFD") != std::string::npos;
  if (invalid && !decoded.starts_with(given)) return;
  EXPECT_EQ(whole, decoded) << row;
}

TEST_P(GoldenTest, Strings) {
  Tokenizer tokenizer = Tokenizer::load(directory_);
  EXPECT_THAT(tokenizer.warnings(), testing::IsEmpty());
  std::vector<Json> rows = read_rows(directory_ / "strings.jsonl");
  ASSERT_GE(rows.size(), 30u);
  const Json model = Json::parse(read_file(directory_ / "tokenizer.json")).at("model");
  const int32_t unknown = model.contains("unk_id") ? model.at("unk_id").get<int32_t>() : -1;
  for (const Json& row : rows) {
    std::string text = row.at("text").get<std::string>();
    auto ids = row.at("ids").get<std::vector<int32_t>>();
    auto ids_no_special = row.at("ids_no_special").get<std::vector<int32_t>>();
    ASSERT_EQ(tokenizer.encode(text, true), ids) << row;
    ASSERT_EQ(tokenizer.encode(text, false), ids_no_special) << row;
    expect_decoding(tokenizer, row, "ids_no_special");
    if (!row.contains("tokens")) continue;
    auto tokens = row.at("tokens").get<std::vector<std::string>>();
    for (size_t i = 0; i < tokens.size(); ++i) {
      // For an added token, and for Unigram's unknown token, the fixture has the text that it
      // covered, stripped white space included.
      EXPECT_TRUE(ids_no_special[i] == unknown ||
                  tokens[i].ends_with(tokenizer.token(ids_no_special[i])))
          << row;
      EXPECT_EQ(tokenizer.id_of(tokenizer.token(ids_no_special[i])), ids_no_special[i]) << row;
    }
  }
}

TEST_P(GoldenTest, Decoding) {
  Tokenizer tokenizer = Tokenizer::load(directory_);
  std::vector<Json> rows = read_rows(directory_ / "decode.jsonl");
  ASSERT_GE(rows.size(), 20u);
  for (const Json& row : rows) expect_decoding(tokenizer, row, "ids");
}

TEST_P(GoldenTest, InvalidUtf8) {
  Tokenizer tokenizer = Tokenizer::load(directory_);
  std::vector<Json> rows = read_rows(directory_ / "invalid_utf8.jsonl");
  ASSERT_GE(rows.size(), 20u);
  for (const Json& row : rows) {
    auto ids = row.at("ids_no_special").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(unhex(row.at("bytes_hex")), false), ids) << row;
    EXPECT_EQ(tokenizer.encode(row.at("replaced_text").get<std::string>(), false), ids) << row;
  }
}

TEST_P(GoldenTest, SpecialTokens) {
  Tokenizer tokenizer = Tokenizer::load(directory_);
  Json config = Json::parse(read_file(directory_ / "tokenizer_config.json"));
  auto id = [&](const char* key) -> std::optional<int32_t> {
    if (!config.contains(key)) return std::nullopt;
    return tokenizer.id_of(config.at(key).get<std::string>());
  };
  EXPECT_EQ(tokenizer.bos_id(), id("bos_token"));
  EXPECT_EQ(tokenizer.eos_id(), id("eos_token"));
  Json file = Json::parse(read_file(directory_ / "tokenizer.json"));
  int32_t largest = 0;
  Json vocab = file.at("model").at("vocab");
  for (size_t i = 0; vocab.is_array() && i < vocab.size(); ++i)
    EXPECT_EQ(tokenizer.token(static_cast<int32_t>(i)), vocab[i][0]);
  if (vocab.is_array()) {
    largest = static_cast<int32_t>(vocab.size()) - 1;
    vocab = Json::object();
  }
  for (const auto& [token, value] : vocab.items()) {
    largest = std::max(largest, value.get<int32_t>());
    EXPECT_EQ(tokenizer.token(value.get<int32_t>()), token);
    EXPECT_EQ(tokenizer.id_of(token), value.get<int32_t>());
  }
  for (const Json& token : file.at("added_tokens")) {
    int32_t token_id = token.at("id").get<int32_t>();
    largest = std::max(largest, token_id);
    EXPECT_EQ(tokenizer.is_special(token_id), token.at("special").get<bool>()) << token;
    EXPECT_EQ(tokenizer.token(token_id), token.at("content").get<std::string>());
  }
  EXPECT_EQ(tokenizer.vocab_size(), largest + 1);
}

std::vector<Golden> goldens(bool shared) {
  std::vector<Golden> all;
  for (const char* family :
       {"gpt2_bpe", "llama3_bpe", "qwen2_bpe", "llama2_spm", "unigram", "unigram_spm", "wordpiece"})
    all.push_back({family, shared});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sample, GoldenTest, testing::ValuesIn(goldens(false)),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Shared, GoldenTest, testing::ValuesIn(goldens(true)),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace sluice
