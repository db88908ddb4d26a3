#include "src/text/normalizer.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/text/base64.h"
#include "src/text/utf8.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

std::string normalize(const Json& config, std::string_view text) {
  return Normalizer::load(config).normalize(text);
}

TEST(Normalizer, UnicodeForms) {
  EXPECT_EQ(normalize({{"type", "NFC"}}, "e\u0301 \u212B"), "\u00E9 \u00C5");
  EXPECT_EQ(normalize({{"type", "NFD"}}, "\u00E9\uAC01"), "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(normalize({{"type", "NFKC"}}, "\uFB01\u00B2"), "fi2");
  EXPECT_EQ(normalize({{"type", "NFKD"}}, "\u1E9B"), "s\u0307");
  EXPECT_EQ(normalize({{"type", "NFC"}}, "q\u0307\u0323"), "q\u0323\u0307");
}

// The reference's tables end with Unicode 9: U+07FD (11.0) has a combining class that it ignores.
TEST(Normalizer, NewerCharactersPassUnchanged) {
  EXPECT_EQ(normalize({{"type", "NFC"}}, "\u07FD\u0334"), "\u07FD\u0334");
  EXPECT_EQ(normalize({{"type", "NFKC"}}, "\u32FF"), "\u32FF");
}

TEST(Normalizer, Lowercase) {
  EXPECT_EQ(normalize({{"type", "Lowercase"}}, "A\u0130\u03A3\u1E9E"), "ai\u0307\u03C3\u00DF");
}

TEST(Normalizer, ByteLevel) {
  EXPECT_EQ(normalize({{"type", "ByteLevel"}}, "\u00E9 a\n"), "\u00C3\u00A9\u0120a\u010A");
}

TEST(Normalizer, Strip) {
  Json config = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  EXPECT_EQ(normalize(config,
                      " \u3000\u0085"
                      "a "),
            "a ");
  config["strip_right"] = true;
  EXPECT_EQ(normalize(config, " a\u2003"), "a");
  EXPECT_EQ(normalize(config, " \t"), "");
}

TEST(Normalizer, ReplaceAndPrepend) {
  Json replace = {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "_"}};
  EXPECT_EQ(normalize(replace, "a   b c  "), "a_b c_");
  replace["pattern"] = {{"String", "."}};
  EXPECT_EQ(normalize(replace, "a.b"), "a_b");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", "\u2581"}}, "a"),
            "\u2581"
            "a");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", "\u2581"}}, ""), "");
}

TEST(Normalizer, SequenceAppliesOneAfterTheOther) {
  Json config = {{"type", "Sequence"},
                 {"normalizers", {{{"type", "NFKC"}}, {{"type", "Lowercase"}}}}};
  EXPECT_EQ(normalize(config, "\uFF21"), "a");
  EXPECT_EQ(normalize(nullptr, "A"), "A");
}

// Texts normalized by a table that SentencePiece has compiled, as tokenizers 0.23.3 does.
TEST(Normalizer, PrecompiledIsThatOfTokenizers) {
  const Json golden =
      Json::parse(test::read_file(test::source_dir() / "tests/data/text/normalizers.json"));
  const Json config{{"type", "Precompiled"},
                    {"precompiled_charsmap", golden.at("precompiled_charsmap")}};
  const Normalizer normalizer = Normalizer::load(config);
  ASSERT_GE(golden.at("rows").size(), 100u);
  for (const Json& row : golden.at("rows")) {
    const auto text = row.at("text").get<std::string>();
    EXPECT_EQ(normalizer.normalize(text), row.at("normalized")) << row;
    std::string bit_by_bit;
    NormalizerStream stream(normalizer);
    for (size_t at = 0; at < text.size();) {
      const auto bytes = static_cast<size_t>(utf8_char_at(text, at).bytes);
      std::string bit = text.substr(at, bytes);
      at += bytes;
      stream.add(bit, false);
      bit_by_bit += bit;
    }
    std::string rest;
    stream.add(rest, true);
    EXPECT_EQ(bit_by_bit + rest, row.at("normalized")) << row;
  }
}

TEST(Normalizer, DamagedTablesAreRefusedOrHarmless) {
  const auto with = [](std::string_view map) {
    return Json{{"type", "Precompiled"}, {"precompiled_charsmap", map}};
  };
  for (std::string_view map : {"*", "AAAA", "AAAAAA==", "/////w==", "BAAAAA=="})
    EXPECT_THROW(normalize(with(map), "a"), Error) << map;
  // A unit that leads out of the array, and a leaf that leads out of the texts.
  EXPECT_EQ(normalize(with("BAAAAP///w8="), "ab"), "ab");
}

// A double array with one entry: this byte, for which the text at `begin` stands.
std::string one_entry(uint8_t key, uint32_t begin, std::string_view texts) {
  constexpr uint32_t kHasLeaf = 1 << 8, kLeaf = 256;
  std::array<uint32_t, kLeaf + 2> numbers{sizeof numbers - sizeof(uint32_t)};
  numbers[1U + key] = key | kHasLeaf | (key ^ kLeaf) << 10;
  numbers[1U + kLeaf] = begin;
  std::string bytes(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
  return encode_base64(bytes.append(texts));
}

// Steps behind a table look at whole characters.
TEST(Normalizer, TablesThatCutCharactersAreRefusedOrHarmless) {
  const auto with = [](const std::string& map) {
    return Json{{"type", "Precompiled"}, {"precompiled_charsmap", map}};
  };
  EXPECT_EQ(normalize(with(one_entry('a', 0, "\u00e9")), "aba"), "\u00e9b\u00e9");
  EXPECT_THROW(normalize(with(one_entry('a', 0, "\xF0")), "a"), Error);
  EXPECT_EQ(normalize(with(one_entry('a', 1, "\u00e9")), "aba"), "aba");
  EXPECT_EQ(normalize(with(one_entry(0xC3, 0, "x")), "\u00e9"), "\u00e9");
}

TEST(Normalizer, RefusesToGrowWithoutBound) {
  Json config = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'b')}};
  EXPECT_THROW(normalize(config, std::string(2000, 'a')), Error);
  // Each step doubles a little text.
  Json steps = Json::array();
  for (int i = 0; i < 40; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  try {
    normalize({{"type", "Sequence"}, {"normalizers", steps}}, "a");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    EXPECT_TRUE(std::string(e.what()).starts_with("tokenizer.json: normalizer: makes "))
        << e.what();
  }
}

}  // namespace
}  // namespace sluice
