// Vocabularies in other formats than tokenizer.json: what their own libraries make of texts, and
// what is no such file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/text/token_stream.h"
#include "src/text/tokenizer.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;
using test::read_file;
using test::write_file;

const fs::path kData = test::source_dir() / "tests/data/text";

std::vector<Json> rows_of(const fs::path& path) {
  std::vector<Json> rows;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
  return rows;
}

class VocabularyFiles : public testing::TestWithParam<const char*> {};

TEST_P(VocabularyFiles, GiveTheIdsOfTheirLibrary) {
  const fs::path folder = kData / GetParam();
  const Tokenizer tokenizer = Tokenizer::load(folder);
  EXPECT_THAT(tokenizer.warnings(), testing::IsEmpty());
  const std::vector<Json> rows = rows_of(folder / "rows.jsonl");
  ASSERT_GE(rows.size(), 100u);
  const bool has_unknown = std::string_view(GetParam()) == "sentencepiece_unigram";
  for (const Json& row : rows) {
    const auto ids = row.at("ids").get<Ids>();
    const auto text = row.at("text").get<std::string>();
    ASSERT_EQ(tokenizer.encode(text, false), ids) << row;
    Ids bit_by_bit;
    TokenStream stream(tokenizer, false);
    for (char byte : text) stream.add(std::string_view(&byte, 1), bit_by_bit);
    stream.finish({}, bit_by_bit);
    ASSERT_EQ(bit_by_bit, ids) << row;
    // SentencePiece shows another sign for what is unknown than transformers.
    if (has_unknown && std::ranges::find(ids, 0) != ids.end()) continue;
    EXPECT_EQ(tokenizer.decode(ids, false), row.at("decoded").get<std::string>()) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Sample, VocabularyFiles,
                         testing::Values("sentencepiece_bpe", "sentencepiece_unigram", "tiktoken",
                                         "tekken"),
                         [](const auto& p) { return std::string(p.param); });

// The vocabulary and the merges of a tokenizer.json, as two files.
void write_vocab_and_merges(const fs::path& directory, const Json& config) {
  const Json model = Json::parse(read_file(kData / "gpt2_bpe/tokenizer.json")).at("model");
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : model.at("merges"))
    merges += merge.is_string()
                  ? merge.get<std::string>() + "\n"
                  : merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  write_file(directory / "vocab.json", model.at("vocab").dump());
  write_file(directory / "merges.txt", merges);
  write_file(directory / "tokenizer_config.json", config.dump());
}

TEST(VocabAndMerges, GiveTheIdsOfTransformers) {
  for (const Json& each : Json::parse(read_file(kData / "vocab_and_merges.json"))) {
    test::TempDir dir;
    write_vocab_and_merges(dir.path(), each.at("config"));
    const Tokenizer tokenizer = Tokenizer::load(dir.path());
    EXPECT_THAT(tokenizer.warnings(), testing::IsEmpty());
    for (const Json& row : each.at("rows")) {
      const auto ids = row.at("ids").get<Ids>();
      ASSERT_EQ(tokenizer.encode(row.at("text").get<std::string>(), true), ids) << row;
      EXPECT_EQ(tokenizer.decode(ids, false), row.at("decoded").get<std::string>()) << row;
    }
  }
}

TEST(VocabAndMerges, OfOtherClassesAndWithFaultsAreRefused) {
  const auto refusal = [](const Json& config, const char* file, const std::string& text) {
    test::TempDir dir;
    write_vocab_and_merges(dir.path(), config);
    if (file != nullptr) write_file(dir / file, text);
    try {
      Tokenizer::load(dir.path());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal({{"tokenizer_class", "BioGptTokenizer"}}, nullptr, ""),
              HasSubstr("vocab.json: how a BioGptTokenizer splits a text is not known"));
  EXPECT_THAT(refusal(Json::object(), "vocab.json", R"({"a": 0})"),
              HasSubstr("not every byte is a token"));
  EXPECT_THAT(refusal(Json::object(), "vocab.json", R"({"a": -1})"), HasSubstr("id -1"));
  EXPECT_THAT(refusal(Json::object(), "vocab.json", "{"), HasSubstr("vocab.json: "));
  EXPECT_THAT(refusal(Json::object(), "merges.txt", "a b\na b c\n"),
              HasSubstr("merges.txt: line 2"));
  EXPECT_THAT(refusal(Json::object(), "merges.txt", "a\n"), HasSubstr("merges.txt: line 1"));
  EXPECT_THAT(refusal(Json::object(), "merges.txt", "\xff z\n"), HasSubstr("vocab.json: "));
}

// The shared tokenizer.model alone.
TEST(SentencePiece, GivesTheIdsOfItsLibraryForAllSharedTexts) {
  if (test::oracle_dir().empty()) GTEST_SKIP() << "the shared fixtures are not here";
  for (const char* family : {"llama2_spm", "unigram_spm"}) {
    const fs::path fixture = test::oracle_dir() / "tokenizers" / family;
    test::TempDir dir;
    for (const char* name : {"tokenizer.model", "tokenizer_config.json"})
      write_file(dir / name, read_file(fixture / name));
    const Tokenizer tokenizer = Tokenizer::load(dir.path());
    EXPECT_THAT(tokenizer.warnings(), testing::IsEmpty());
    for (const Json& row : rows_of(fixture / "strings.jsonl")) {
      const Json& own = row.at("sentencepiece_ids");
      const Ids ids = (own == "same" ? row.at("ids_no_special") : own).get<Ids>();
      ASSERT_EQ(tokenizer.encode(row.at("text").get<std::string>(), false), ids) << row;
      EXPECT_EQ(tokenizer.decode(ids, false), row.at("sentencepiece_decoded")) << row;
    }
    for (const Json& row : rows_of(fixture / "decode.jsonl")) {
      const Ids ids = row.at("ids").get<Ids>();
      EXPECT_EQ(tokenizer.decode(ids, false), row.at("decoded")) << row;
      EXPECT_EQ(tokenizer.decode(ids, true), row.at("decoded_skip_special")) << row;
    }
  }
}

// A tokenizer.model beside a tokenizer_config.json.
class SentencePieceConfig : public testing::Test {
 protected:
  Tokenizer load(const Json& config) const {
    test::TempDir dir;
    write_file(dir / "tokenizer.model", read_file(kData / "sentencepiece_bpe/tokenizer.model"));
    write_file(dir / "tokenizer_config.json", config.dump());
    return Tokenizer::load(dir.path());
  }
};

TEST_F(SentencePieceConfig, SaysWhichTokensTextsHave) {
  const Json bos{{"content", "<s>"}, {"lstrip", false}};
  const Tokenizer named = load({{"bos_token", "<s>"}});
  EXPECT_NE(named.encode("<s>", false), Ids{1});
  EXPECT_EQ(load({{"bos_token", bos}}).encode("<s>", false), Ids{1});
  EXPECT_EQ(load({{"bos_token", "<s>"}, {"chat_template", "x"}}).encode("<s>", false), Ids{1});
  EXPECT_EQ(load({{"added_tokens_decoder", {{"1", bos}}}}).encode("<s>", false), Ids{1});
  for (const Tokenizer& tokenizer : {load(Json::object()), load({{"bos_token", bos}})}) {
    EXPECT_EQ(tokenizer.bos_id(), 1);
    EXPECT_EQ(tokenizer.eos_id(), 2);
    EXPECT_EQ(tokenizer.decode(Ids{1, 2}, true), "");
    EXPECT_EQ(tokenizer.decode(Ids{1, 2}, false), "<s></s>");
  }
}

TEST_F(SentencePieceConfig, SaysWhatComesAroundATextAndBehindATokenInIt) {
  const auto front = [&](const Json& config) { return load(config).encode("a", true).front(); };
  EXPECT_EQ(front(Json::object()), 1);
  EXPECT_NE(front({{"add_bos_token", false}}), 1);
  EXPECT_EQ(load({{"add_eos_token", true}}).encode("a", true).back(), 2);
  const Json eos{{"content", "</s>"}};
  const Tokenizer legacy = load({{"eos_token", eos}});
  const Tokenizer other = load({{"eos_token", eos}, {"legacy", false}});
  EXPECT_EQ(legacy.decode(legacy.encode("a</s>b", false), false), "a</s> b");
  EXPECT_EQ(other.decode(other.encode("a</s>b", false), false), "a</s>b");
}

TEST_F(SentencePieceConfig, AddsAndRenamesTokens) {
  const Tokenizer plain = load(Json::object());
  const int32_t size = plain.vocab_size();
  const Tokenizer tokenizer =
      load({{"added_tokens_decoder",
             {{"3", {{"content", "<|im_start|>"}, {"special", true}}},
              {std::to_string(size), {{"content", "<|more|>"}, {"special", false}}}}}});
  EXPECT_EQ(tokenizer.encode("<|im_start|><|more|>", false), (Ids{3, size}));
  EXPECT_EQ(tokenizer.vocab_size(), size + 1);
  EXPECT_EQ(tokenizer.decode(Ids{3, size}, true), "<|more|>");
}

// A tokenizer that keeps no space at the beginning of a text shows none there, prefix or not.
TEST(SentencePiece, ShowsNoSpacesThatItRemoves) {
  const auto decoded = [](const std::string& normalizer_spec) {
    test::TempDir dir;
    write_file(dir / "tokenizer.model", "\n\6\n\4\xE2\x96\x81z" + normalizer_spec);
    return Tokenizer::load(dir.path()).decode(Ids{0, 0}, false);
  };
  EXPECT_EQ(decoded(std::string("\x1A\2\x18\0", 4)), "z z");         // no prefix
  EXPECT_EQ(decoded(std::string("\x1A\4\x18\0\x20\0", 6)), " z z");  // and spaces stay
  EXPECT_EQ(decoded(std::string("\x1A\2\x20\0", 4)), "z z");
}

void expect_refused(const char* name, const std::string& bytes, const char* mention) {
  test::TempDir dir;
  write_file(dir / name, bytes);
  try {
    Tokenizer::load(dir.path());
    ADD_FAILURE() << name << " was taken: " << mention;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    EXPECT_THAT(e.what(), testing::StartsWith(name));
    EXPECT_THAT(e.what(), testing::HasSubstr(mention));
  }
}

TEST(VocabularyFaults, AreRefused) {
  expect_refused("tokenizer.model", "\n\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
                 "is damaged: Protocol Buffers");
  expect_refused("tokenizer.model", "\n", "is damaged: Protocol Buffers");
  expect_refused("tokenizer.model", std::string("\n\0", 2), "a piece is empty");
  expect_refused("tokenizer.model", "\n\3\n\1a\x13", "is damaged: Protocol Buffers");
  expect_refused("tokenizer.model", "\n\3\n\1a\n\3\n\1a", "twice");
  expect_refused("tokenizer.model", "\n\3\n\1a\x12\2\x18\4", "model_type 4");
  expect_refused("tokenizer.model", "\n\3\n\1a\x12\3\xC0\1\1", "treat_whitespace_as_suffix");
  expect_refused("tokenizer.model", std::string("\n\x08\n\1a\x15\0\0\xC0\x7F", 10),
                 "no finite score");
  expect_refused("tokenizer.model", "\n\4\n\2a\xF0", "token 0 (\"a\\xf0\") is not UTF-8");
  // A piece of continuation bytes alone, in front of all others, that a merge would join.
  expect_refused("tokenizer.model", "\n\3\n\1\x80\n\3\n\1\x61\n\4\n\2\x80\x61\x12\2\x18\2",
                 "is not UTF-8");
  expect_refused("tokenizer.model", "YQ== 0\n", "not every byte");
  expect_refused("tokenizer.model", "YQ== x\n", "a rank");
  expect_refused("tokenizer.model", "Y 0\n", "base64");
  expect_refused("other.tiktoken", "YQ== 0\n", "qwen.tiktoken");
  expect_refused("tekken.json", "{", "tekken.json");
  expect_refused("tekken.json", R"({"vocab": [], "config": {}, "x": NaN})", "tekken.json");
  expect_refused("tekken.json", R"({"vocab": [], "config": {}})", "pattern");
  expect_refused("tekken.json", R"({"vocab": [{"rank": 0}], "config": {}})", "token_bytes");
}

TEST(VocabularyFaults, DamagedFilesAreRefusedOrTaken) {
  for (const char* folder : {"sentencepiece_bpe", "sentencepiece_unigram"}) {
    const std::string whole = read_file(kData / folder / "tokenizer.model");
    for (size_t at = 1; at < whole.size(); at += 211) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0x55);
      for (const std::string& bytes : {whole.substr(0, at), changed}) {
        test::TempDir dir;
        write_file(dir / "tokenizer.model", bytes);
        try {
          Tokenizer::load(dir.path()).encode("some text\t\ufb01", true);
        } catch (const Error& e) {
          EXPECT_EQ(e.kind(), ErrorKind::refused) << e.what();
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
