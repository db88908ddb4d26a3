// Tokenizers made for one test: a byte-level tokenizer.json to change and load.
#pragma once

#include <string>
#include <string_view>

#include "src/base/json.h"
#include "src/text/byte_alphabet.h"
#include "src/text/tokenizer.h"
#include "tests/support/temp.h"

namespace sluice::test {

inline Tokenizer load_tokenizer(const Json& tokenizer_json) {
  TempDir dir;
  write_file(dir / "tokenizer.json", tokenizer_json.dump());
  return Tokenizer::load(dir.path());
}

// The 256 bytes, in order, have the ids 0 to 255; then come "he", "ll", "hell", " h" (in the byte
// alphabet). A GPT-2 pre-tokenizer, nothing added.
inline Json small_tokenizer() {
  Json vocab = Json::object();
  auto written = [](std::string_view bytes) {
    std::string text;
    append_byte_characters(bytes, text);
    return text;
  };
  for (int b = 0; b < 256; ++b) vocab[written(std::string(1, static_cast<char>(b)))] = b;
  Json merges = Json::array();
  for (auto [left, right] : {std::pair{"h", "e"}, {"l", "l"}, {"he", "ll"}, {" ", "h"}}) {
    vocab[written(std::string(left) + right)] = vocab.size();
    merges.push_back({written(left), written(right)});
  }
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

inline Json added_token(std::string_view content, int id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", false}};
}

}  // namespace sluice::test
