#include "src/text/vocab_and_merges.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/text/byte_alphabet.h"
#include "src/text/conversion.h"

namespace sluice {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

// A class of transformers, and what its code has.
struct Kind {
  std::string_view name;
  bool is_qwen = false;  // NFC, a split of its own, and no bos token
};
// A config without a class is of GPT-2's time.
constexpr auto kKinds = std::to_array<Kind>({{"GPT2Tokenizer"},
                                             {"GPT2TokenizerFast"},
                                             {"CodeGenTokenizer"},
                                             {"CodeGenTokenizerFast"},
                                             {"PreTrainedTokenizerFast"},
                                             {"Qwen2Tokenizer", true},
                                             {"Qwen2TokenizerFast", true}});

const Kind& kind_of(const Json& config) {
  const auto name = config.find("tokenizer_class");
  if (name == config.end() || !name->is_string()) return kKinds.front();
  const auto found = std::ranges::find(kKinds, name->get_ref<const std::string&>(), &Kind::name);
  if (found != kKinds.end()) return *found;
  std::vector<std::string_view> known;
  for (const Kind& kind : kKinds) known.push_back(kind.name);
  fail(ErrorKind::refused,
       "{}: how a {} splits a text is not known; it is of {}; give the model a tokenizer.json",
       kVocabFile, name->get_ref<const std::string&>(), fmt::join(known, ", "));
}

bool flag(const Json& config, const char* name) {
  const auto found = config.find(name);
  return found != config.end() && *found == true;
}

TokenizerFile read_vocabulary(std::string_view vocab) {
  try {
    return parse_tokenizer_file(
        fmt::format(R"({{"model": {{"type": "BPE", "vocab": {}}}}})", vocab));
  } catch (const Error& e) {
    fail(e.kind(), "{}: as a tokenizer.json: {}", kVocabFile, e.what());
  }
}

void read_merges(std::string_view merges, TokenizerFile& file) {
  file.has_merges = true;
  for (int number = 1; !merges.empty(); ++number) {
    std::string_view line = take_until(merges, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const std::string_view left = take_until(line, ' ');
    if (left.empty() || line.empty() || line.find(' ') != std::string_view::npos)
      fail(ErrorKind::refused, "{}: line {} must have two parts with a space between them",
           kMergesFile, number);
    file.merges.push_back(left);
    file.merges.push_back(line);
  }
}

// Places of tokens in a file, to which special ones are added.
class Places {
 public:
  explicit Places(TokenizerFile& file) : file_(file) {
    for (size_t i = 0; i < file.tokens.size(); ++i) {
      places_.emplace(file.tokens[i], static_cast<int32_t>(i));
      next_id_ = std::max<int64_t>(next_id_, file.ids[i] + 1);
    }
  }

  bool has_all_bytes() const {
    for (int byte = 0; byte < 256; ++byte) {
      std::string character;
      append_byte_characters(std::string(1, static_cast<char>(byte)), character);
      if (!places_.contains(character)) return false;
    }
    return true;
  }

  // nullopt: there is no such token.
  std::optional<int32_t> place_of(const std::string& token) const {
    const auto found = places_.find(token);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  // Gives a described token its id, and a place in the file where it has none.
  void add(Json& token) {
    const auto content = token["content"].get<std::string>();
    const std::optional<int32_t> place = place_of(content);
    if (place) {
      token["id"] = file_.ids[static_cast<size_t>(*place)];
      return;
    }
    if (!token.contains("id")) token["id"] = next_id_;
    const auto id = token["id"].get<int64_t>();
    if (id > kMaxTokenId)
      fail(ErrorKind::refused, "{}: special token '{}' has id {}", kVocabFile, content, id);
    next_id_ = std::max(next_id_, id + 1);
    places_.emplace(content, static_cast<int32_t>(file_.ids.size()));
    file_.tokens.push_back(content);
    file_.ids.push_back(static_cast<int32_t>(id));
  }

 private:
  TokenizerFile& file_;
  std::unordered_map<std::string, int32_t> places_;
  int64_t next_id_ = 0;
};

void set_split(const Kind& kind, const Json& config, TokenizerFile& file) {
  if (kind.is_qwen) {
    file.config["normalizer"] = {{"type", "NFC"}};
    return use_byte_level(file, split_patterns::kOneDigit);
  }
  file.config["pre_tokenizer"] = {{"type", "ByteLevel"},
                                  {"add_prefix_space", flag(config, "add_prefix_space")},
                                  {"use_regex", true}};
  file.config["decoder"] = {{"type", "ByteLevel"}};
}

}  // namespace

TokenizerFile read_vocab_and_merges(std::string_view vocab, std::string_view merges, Json& config) {
  const Kind& kind = kind_of(config);
  TokenizerFile file = read_vocabulary(vocab);
  read_merges(merges, file);
  Places places(file);
  if (!places.has_all_bytes())
    fail(ErrorKind::refused,
         "{}: not every byte is a token, so that it is no byte-level BPE; give the model a "
         "tokenizer.json",
         kVocabFile);
  if (!config.contains("eos_token")) config["eos_token"] = kEndOfText;
  if (!kind.is_qwen && !config.contains("bos_token")) config["bos_token"] = kEndOfText;
  Json added = Json::array();
  for (Json& token : described_tokens(config, Names::always)) {
    const bool again = std::ranges::any_of(
        added, [&](const Json& other) { return other["content"] == token["content"]; });
    if (again) continue;
    places.add(token);
    added.push_back(std::move(token));
  }
  file.config["added_tokens"] = std::move(added);
  set_split(kind, config, file);
  const std::optional<std::string> bos = token_content(config.value("bos_token", Json()));
  if (bos && flag(config, "add_bos_token"))
    add_around_text(file, places.place_of(*bos), std::nullopt);
  return file;
}

}  // namespace sluice
