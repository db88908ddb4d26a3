// Hostile and broken tokenizer files: refused with one sentence, or loaded; never anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/text/tokenizer.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

using test::added_token;
using test::load_tokenizer;
using test::small_tokenizer;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// The refusal of what is loaded from `directory`, or "" when nothing is wrong.
std::string refusal(const std::filesystem::path& directory) {
  try {
    Tokenizer::load(directory);
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
}

std::string refusal(const Json& file) {
  test::TempDir dir;
  test::write_file(dir / "tokenizer.json", file.dump());
  return refusal(dir.path());
}

struct Fault {
  const char* pointer;  // what to replace
  Json value;
  const char* message;  // part of the refusal
};

TEST(MalformedTokenizer, IsRefusedByName) {
  const Json kDropout = 0.1;
  const std::vector<Fault> faults = {
      {"/model", nullptr, "model: must be a JSON object"},
      {"/model/type", "Telepathy", "unknown model type Telepathy"},
      {"/model/type", 7, "type must be a string"},
      {"/model/vocab", Json::array(), "model.vocab must be an object"},
      {"/model/merges", 3, "model.merges must be an array"},
      {"/model/vocab/a", -1, "token 'a' has id -1"},
      {"/model/vocab/a", 4294967295u, "token 'a' has id 4294967295"},
      {"/model/vocab/a", 16000000, "token 'a' has id 16000000"},
      {"/model/vocab/a", 18446744073709551615u, "token 'a' has id"},
      {"/model/vocab/a", 1.5, "id of token 'a' must be an integer"},
      {"/model/vocab/a", "1", "id of token 'a' must be an integer"},
      {"/model/vocab/a", Json::object(), "id of token 'a' must be an integer"},
      {"/model/vocab/a", 98, "'a' and 'b' both have id 98"},
      {"/model/merges/0", {"zz", "yy"}, "names token 'zz'"},
      {"/model/merges/0", {"a", "b"}, "names token 'ab'"},
      {"/model/merges/0", "a b c", "must have two parts"},
      {"/model/merges/0", "ab", "must have two parts"},
      {"/model/merges/0", {"a", "b", "c"}, "must have two parts"},
      {"/model/merges/0", {"a", 1}, "must have two parts"},
      {"/model/merges/0", {"a", {"b"}}, "must have two parts"},
      {"/model/merges/0", 5, "must have two parts"},
      {"/model/dropout", kDropout, "dropout"},
      {"/model/continuing_subword_prefix", "##", "continuing_subword_prefix"},
      {"/model/fuse_unk", 1, "fuse_unk must be true or false"},
      {"/normalizer", {{"type", "Rot13"}}, "unknown normalizer type Rot13"},
      {"/normalizer", "NFC", "normalizer: must be a JSON object"},
      {"/normalizer", Json::object(), "normalizer: type is missing"},
      {"/normalizer", {{"type", "Sequence"}}, "normalizers is missing"},
      {"/pre_tokenizer", {{"type", "Blender"}}, "unknown pre_tokenizer type Blender"},
      {"/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}}, "pattern is missing"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(?<x"}}}, {"behavior", "Isolated"}},
       "pattern '(?<x' is not a valid"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "x"}}}, {"behavior", "Shredded"}},
       "unknown behavior Shredded"},
      {"/decoder", {{"type", "Oracle"}}, "unknown decoder type Oracle"},
      {"/decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 1}}}}},
       "with a stop"},
      {"/decoder", {{"type", "Strip"}, {"content", ""}, {"start", 1}, {"stop", 0}}, "is empty"},
      {"/decoder",
       {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}},
       "start is -1"},
      {"/decoder",
       {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}},
       "'(' is not a valid"},
      {"/decoder",
       {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}},
       "String is empty"},
      {"/post_processor", {{"type", "Laminator"}}, "unknown post_processor type Laminator"},
      {"/post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}},
        {"special_tokens", Json::object()}},
       "'<s>' is not among special_tokens"},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", Json::array()}},
       "sequence A once"},
      {"/added_tokens", 1, "added_tokens must be an array"},
      {"/added_tokens/0", {{"content", "<s>"}}, "id is missing"},
      {"/added_tokens/0", added_token("<s>", -5), "id is -5"},
      {"/added_tokens/0/id", 4294967296, "id is 4294967296"},
  };
  for (const Fault& fault : faults) {
    Json file = small_tokenizer();
    file["added_tokens"].push_back(added_token("<x>", 300));
    file[Json::json_pointer(fault.pointer)] = fault.value;
    EXPECT_THAT(refusal(file), AllOf(StartsWith("tokenizer.json: "), HasSubstr(fault.message)));
  }
}

TEST(MalformedTokenizer, FilesThatAreNone) {
  test::TempDir dir;
  EXPECT_THAT(refusal(dir.path()), HasSubstr(" has no tokenizer (tokenizer.json"));
  for (const char* text : {"", "{model:", "[]", "3", "{}", "\xFF\xFE", "{\"model\": \"\\ud800\"}",
                           "{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}, \"merges\": []}}",
                           // Keys that are there twice, the second time with another kind of value.
                           "{\"model\": {\"vocab\": {}, \"vocab\": [1], \"merges\": []}}",
                           "{\"model\": {\"vocab\": {}, \"merges\": [], \"merges\": 1}}"}) {
    test::write_file(dir / "tokenizer.json", text);
    EXPECT_THAT(refusal(dir.path()), StartsWith("tokenizer.json: ")) << text;
  }
  std::string deep = R"({"pre_tokenizer": )";
  for (int i = 0; i < 20000; ++i) deep += R"({"type":"Sequence","pretokenizers":[)";
  test::write_file(dir / "tokenizer.json", deep);
  EXPECT_THAT(refusal(dir.path()), StartsWith("tokenizer.json: nested too deeply"));
  std::filesystem::remove(dir / "tokenizer.json");
  std::filesystem::create_directory(dir / "tokenizer.json");
  EXPECT_THAT(refusal(dir.path()), HasSubstr("tokenizer.json: is a directory"));
}

TEST(MalformedTokenizer, TokenizerConfig) {
  test::TempDir dir;
  test::write_file(dir / "tokenizer.json", small_tokenizer().dump());
  test::write_file(dir / "tokenizer_config.json",
                   R"({"bos_token": {"content": "a"}, "eos_token": null})");
  Tokenizer tokenizer = Tokenizer::load(dir.path());
  EXPECT_EQ(tokenizer.bos_id(), 'a');
  EXPECT_EQ(tokenizer.eos_id(), std::nullopt);
  test::write_file(dir / "tokenizer_config.json", R"({"eos_token": "<none>"})");
  tokenizer = Tokenizer::load(dir.path());
  EXPECT_THAT(
      tokenizer.warnings(),
      testing::ElementsAre("tokenizer_config.json: eos_token '<none>' is not in the vocabulary"));
  // Older files have names in special_tokens_map.json; they count where the config has none.
  test::write_file(dir / "special_tokens_map.json",
                   R"({"bos_token": {"content": "b"}, "eos_token": "c", "pad_token": 7})");
  for (const auto& [text, bos, eos] : std::vector<std::tuple<const char*, int, int>>{
           {"{}", 'b', 'c'}, {R"({"bos_token": "a"})", 'a', 'c'}}) {
    test::write_file(dir / "tokenizer_config.json", text);
    EXPECT_EQ(Tokenizer::load(dir.path()).bos_id(), bos) << text;
    EXPECT_EQ(Tokenizer::load(dir.path()).eos_id(), eos) << text;
  }
  for (const char* text : {R"({"eos_token": null})", R"({"added_tokens_decoder": {}})"}) {
    test::write_file(dir / "tokenizer_config.json", text);
    EXPECT_EQ(Tokenizer::load(dir.path()).eos_id(), std::nullopt) << text;
  }
  for (const char* text : {"", "[]", R"({"bos_token": 3})", R"({"bos_token": {}})"}) {
    test::write_file(dir / "tokenizer_config.json", text);
    EXPECT_THAT(refusal(dir.path()), StartsWith("tokenizer_config.json: ")) << text;
  }
}

TEST(MalformedTokenizer, FlagsThatThePostProcessorDoesNotFollow) {
  Json file = small_tokenizer();
  file["added_tokens"] = {added_token("<s>", 260), added_token("</s>", 261)};
  Json bos = {{"SpecialToken", {{"id", "<s>"}}}}, text = {{"Sequence", {{"id", "A"}}}};
  Json with_bos = {{"type", "TemplateProcessing"},
                   {"single", {bos, text}},
                   {"special_tokens", {{"<s>", {{"ids", {260}}}}}}};
  Json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  auto warning = [&](const Json& post_processor, const char* flag, const Json& value) {
    file["post_processor"] = post_processor;
    Json flagged = config;
    flagged[flag] = value;
    test::TempDir dir;
    test::write_file(dir / "tokenizer.json", file.dump());
    test::write_file(dir / "tokenizer_config.json", flagged.dump());
    Tokenizer tokenizer = Tokenizer::load(dir.path());
    EXPECT_EQ(tokenizer.encode("a", true).size(), post_processor.is_null() ? 1u : 2u);
    EXPECT_LE(tokenizer.warnings().size(), 1u);
    return tokenizer.warnings().empty() ? "" : tokenizer.warnings()[0];
  };
  EXPECT_EQ(warning(nullptr, "add_bos_token", true),
            "tokenizer_config.json: add_bos_token is true, but the post_processor of "
            "tokenizer.json, which is used, does not add '<s>'");
  EXPECT_THAT(warning(with_bos, "add_bos_token", false), HasSubstr("is false, but"));
  EXPECT_THAT(warning(with_bos, "add_eos_token", true), HasSubstr("does not add '</s>'"));
  for (const Json& agrees : {Json(true), Json(nullptr), Json("yes")})
    EXPECT_EQ(warning(with_bos, "add_bos_token", agrees), "");
  EXPECT_EQ(warning(nullptr, "add_bos_token", false), "");
  EXPECT_EQ(warning(with_bos, "add_eos_token", false), "");
}

// Like in the library, the unknown token is looked for when a text needs it.
TEST(MalformedTokenizer, AnUnknownTokenThatIsNone) {
  Json file = small_tokenizer();
  file["model"]["vocab"].erase("x");
  for (const char* unknown : {"", "<none>", "<unk>"}) {
    file["added_tokens"] = {added_token("<unk>", 259)};
    file["model"]["unk_token"] = unknown;
    Tokenizer tokenizer = load_tokenizer(file);
    EXPECT_EQ(tokenizer.encode("ab", false), (std::vector<int32_t>{'a', 'b'}));
    try {
      tokenizer.encode("ax", false);
      ADD_FAILURE() << "'" << unknown << "' was found";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_EQ(e.what(),
                fmt::format("tokenizer.json: unk_token '{}' is not in the vocabulary, and "
                            "the text has \"x\", which needs it",
                            unknown));
    }
  }
}

// Replaces one value anywhere in the tree by another kind of value.
void mutate(Json& value, test::Random& random) {
  Json* at = &value;
  while (at->is_structured() && !at->empty() && random.between(0, 5) > 0) {
    auto child = at->begin();
    // Vocabulary and merges would take all the chances.
    std::advance(child,
                 random.between(0, std::min<int64_t>(static_cast<int64_t>(at->size()), 12) - 1));
    at = &*child;
  }
  const std::vector<Json> others = {nullptr,
                                    true,
                                    -1,
                                    1e300,
                                    70000,
                                    "",
                                    "Split",
                                    "\u0120",
                                    "[",
                                    Json::array(),
                                    Json::object(),
                                    {"a", "b"},
                                    {{"type", "NFC"}},
                                    {{"Regex", "\\p{L}+|(?!x)"}},
                                    Json::array({Json::array()})};
  *at = others[static_cast<size_t>(random.between(0, static_cast<int64_t>(others.size()) - 1))];
}

TEST(MalformedTokenizer, RandomDamageIsRefusedOrHarmless) {
  test::Random random("tokenizer damage");
  Json file = small_tokenizer();
  file["added_tokens"] = {added_token("<x>", 300)};
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "x+"}}}, {"content", "y"}};
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", "Removed"}},
        {{"type", "ByteLevel"}}}}};
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<x>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<x>", {{"ids", {300}}}}}}};
  int loaded = 0;
  for (int round = 0; round < 1500; ++round) {
    Json damaged = file;
    mutate(damaged, random);
    try {
      Tokenizer tokenizer = load_tokenizer(damaged);
      tokenizer.decode(tokenizer.encode("hell-o <x> \u00E9", true), false);
      ++loaded;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused) << e.what();
      EXPECT_THAT(e.what(), StartsWith("tokenizer.json: "));
    }
  }
  EXPECT_GT(loaded, 0);
  EXPECT_LT(loaded, 1500);
}

TEST(MalformedTokenizer, TruncatedFilesAreRefused) {
  test::Random random("tokenizer truncation");
  test::TempDir dir;
  std::string whole = small_tokenizer().dump();
  for (int round = 0; round < 100; ++round) {
    size_t size = static_cast<size_t>(random.between(0, static_cast<int64_t>(whole.size()) - 1));
    test::write_file(dir / "tokenizer.json", whole.substr(0, size));
    EXPECT_THAT(refusal(dir.path()), StartsWith("tokenizer.json: not valid JSON"));
  }
}

// Python writes them, and the library whose file it is does not read them.
TEST(MalformedTokenizer, NumbersThatAreNotFiniteAreRefused) {
  test::TempDir dir;
  const std::string whole = small_tokenizer().dump();
  for (const char* number : {"NaN", "Infinity", "-Infinity"}) {
    for (const std::string before : {"\"vocab\":{", "\"version\":"}) {
      std::string text = whole;
      const size_t at = text.find(before) + before.size();
      const std::string key = before.ends_with('{') ? "\"?\":" : "";
      text.insert(at, key + number + ",\"x\":");
      test::write_file(dir / "tokenizer.json", text);
      EXPECT_THAT(refusal(dir.path()), StartsWith("tokenizer.json: not valid JSON: ")) << text;
    }
  }
  test::write_file(dir / "tokenizer.json", whole + std::string(1, '\0') + "{");
  EXPECT_THAT(refusal(dir.path()), StartsWith("tokenizer.json: not valid JSON: "));
}

TEST(MalformedTokenizer, SharedFixtures) {
  if (test::oracle_dir().empty()) GTEST_SKIP() << "the shared fixtures are not here";
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::oracle_dir() / "malformed")) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with("tok_") || name.starts_with("tok_template_")) continue;
    ++seen;
    Json manifest = Json::parse(test::read_file(entry.path() / "manifest.json"));
    std::string message = refusal(entry.path());
    std::string expect = manifest.at("expect");
    if (message.empty() && expect == "error_or_warning") {
      Tokenizer tokenizer = Tokenizer::load(entry.path());
      for (const std::string& warning : tokenizer.warnings()) message += warning;
    }
    for (const Json& word : manifest.at("message_should_mention")) {
      EXPECT_THAT(message, HasSubstr(word.get<std::string>())) << name;
    }
    EXPECT_NE(message, "") << name;
  }
  EXPECT_GE(seen, 10);
}

}  // namespace
}  // namespace sluice
