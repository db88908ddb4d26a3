#include "src/text/tiktoken.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/text/base64.h"
#include "src/text/byte_alphabet.h"
#include "src/text/conversion.h"

namespace sluice {
namespace {

// A file's settings that only the code in its repository has.
struct Kind {
  std::string_view file;
  std::string_view pattern;
  bool nfc = false;
  std::string_view bos = {};  // comes before each text
  std::string_view eos = {};
  // Special tokens, in order, behind the ranks; then `more` of them, numbered.
  std::span<const std::string_view> special = {};
  std::string_view numbered = {};
  int first_number = 0;
  int more = 0;
};

constexpr auto kLlama3Special = std::to_array<std::string_view>(
    {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
     "<|reserved_special_token_1|>", "<|reserved_special_token_2|>", "<|reserved_special_token_3|>",
     "<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"});
constexpr auto kQwenSpecial =
    std::to_array<std::string_view>({"<|endoftext|>", "<|im_start|>", "<|im_end|>"});

constexpr auto kKinds = std::to_array<Kind>({
    {.file = "tokenizer.model",  // of Llama 3
     .pattern = split_patterns::kThreeDigits,
     .bos = "<|begin_of_text|>",
     .eos = "<|end_of_text|>",
     .special = kLlama3Special,
     .numbered = "<|reserved_special_token_{}|>",
     .first_number = 5,
     .more = 246},
    {.file = "qwen.tiktoken",
     .pattern = split_patterns::kOneDigit,
     .nfc = true,
     .eos = "<|endoftext|>",
     .special = kQwenSpecial,
     .numbered = "<|extra_{}|>",
     .more = 205},
    {.file = "tiktoken.model",  // of Kimi
     .pattern = split_patterns::kHanCasedThreeDigits,
     .eos = "[EOS]"},
});

// Special tokens of files from before they named them.
constexpr auto kTekkenSpecial = std::to_array<std::string_view>({"<unk>",
                                                                 "<s>",
                                                                 "</s>",
                                                                 "[INST]",
                                                                 "[/INST]",
                                                                 "[AVAILABLE_TOOLS]",
                                                                 "[/AVAILABLE_TOOLS]",
                                                                 "[TOOL_RESULTS]",
                                                                 "[/TOOL_RESULTS]",
                                                                 "[TOOL_CALLS]",
                                                                 "[IMG]",
                                                                 "<pad>",
                                                                 "[IMG_BREAK]",
                                                                 "[IMG_END]",
                                                                 "[PREFIX]",
                                                                 "[MIDDLE]",
                                                                 "[SUFFIX]",
                                                                 "[SYSTEM_PROMPT]",
                                                                 "[/SYSTEM_PROMPT]",
                                                                 "[TOOL_CONTENT]"});

// Makes a tokenizer.json of tokens as they come.
class Ranks {
 public:
  explicit Ranks(std::string_view where) : where_(where) { file_.config = Json::object(); }

  // A token of these bytes, in base64.
  void add(std::string_view base64, int64_t id) {
    const std::optional<std::string> bytes = decode_base64(base64);
    if (!bytes || bytes->empty() || id < 0 || id > kMaxTokenId)
      fail(ErrorKind::refused, "{}: token {} must be bytes in base64 and a rank", where_,
           file_.ids.size());
    if (bytes->size() == 1) has_byte_[static_cast<uint8_t>(bytes->front())] = true;
    std::string text;
    append_byte_characters(*bytes, text);
    file_.tokens.push_back(text);
    file_.ids.push_back(static_cast<int32_t>(id));
  }

  void add_special(std::string_view content, int64_t id) {
    if (content.empty() || id < 0 || id > kMaxTokenId)
      fail(ErrorKind::refused, "{}: special token '{}' has id {}", where_, content, id);
    special_.emplace_back(content, static_cast<int32_t>(id));
  }

  int64_t size() const { return std::ssize(file_.ids); }

  TokenizerFile make(std::string_view pattern, std::string_view bos);

 private:
  std::string where_;
  TokenizerFile file_;
  std::array<bool, 256> has_byte_{};
  std::vector<std::pair<std::string, int32_t>> special_;
};

TokenizerFile Ranks::make(std::string_view pattern, std::string_view bos) {
  if (std::ranges::find(has_byte_, false) != has_byte_.end())
    fail(ErrorKind::refused, "{}: not every byte is a token", where_);
  const std::vector<double> order(file_.ids.begin(), file_.ids.end());
  add_merges(file_, order, std::vector<bool>(file_.ids.size(), true), where_);
  std::optional<int32_t> before;
  Json added = Json::array();
  for (const auto& [content, id] : special_) {
    if (content == bos) before = static_cast<int32_t>(file_.ids.size());
    file_.tokens.push_back(content);
    file_.ids.push_back(id);
    added.push_back(added_token(id, content, true));
  }
  file_.has_vocabulary = true;
  file_.config["model"] = {{"type", "BPE"}, {"ignore_merges", true}};
  file_.config["added_tokens"] = std::move(added);
  use_byte_level(file_, pattern);
  add_around_text(file_, before, std::nullopt);
  return std::move(file_);
}

void set_name(Json& config, const char* key, std::string_view token) {
  if (!token.empty() && !config.contains(key)) config[key] = token;
}

const Kind& find_kind(std::string_view name) {
  auto found = std::ranges::find(kKinds, name, &Kind::file);
  if (found != kKinds.end()) return *found;
  std::vector<std::string_view> known;
  for (const Kind& kind : kKinds) known.push_back(kind.file);
  fail(ErrorKind::refused,
       "{}: how it splits a text is not known; it is of {}; give the model a tokenizer.json", name,
       fmt::join(known, ", "));
}

// Adds the special tokens that the config describes, or else those of the table.
void add_special_tokens(const Kind& kind, const Json& config, Ranks& ranks) {
  const int64_t count = ranks.size();
  bool described = false;
  for (const Json& token : described_tokens(config)) {
    if (!token.contains("id") || token["id"] < count) continue;
    ranks.add_special(token["content"].get_ref<const std::string&>(), token["id"].get<int64_t>());
    described = true;
  }
  if (described) return;
  int64_t id = count;
  for (std::string_view content : kind.special) ranks.add_special(content, id++);
  for (int i = 0; i < kind.more; ++i)
    ranks.add_special(fmt::format(fmt::runtime(kind.numbered), kind.first_number + i), id++);
}

// Takes the vocabulary of a tekken.json out of the stream of parser events: a tree of it would take
// a hundred times the room.
class TekkenCapture {
 public:
  bool take(int depth, Json::parse_event_t event, const Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key)
      in_vocabulary_ = value.get_ref<const std::string&>() == "vocab";
    if (!in_vocabulary_ || depth != 2 || event != Json::parse_event_t::object_end) return true;
    tokens.push_back(JsonFields(value, "tekken.json: vocab").string("token_bytes"));
    return false;
  }

  StringList tokens;  // in base64, by rank

 private:
  bool in_vocabulary_ = false;
};

// The special tokens, by id.
std::vector<std::string> tekken_special(const JsonFields& fields) {
  std::vector<std::string> special(kTekkenSpecial.begin(), kTekkenSpecial.end());
  if (fields.has("special_tokens")) {
    const Json& list = fields.raw("special_tokens");
    special.assign(list.size(), {});
    for (const Json& entry : list) {
      const JsonFields token(entry, "tekken.json: special_tokens");
      const int64_t rank = token.integer("rank", 0, std::ssize(special) - 1);
      special[static_cast<size_t>(rank)] = token.string("token_str");
    }
  }
  const JsonFields config(fields.raw("config"), "tekken.json: config");
  const auto count = static_cast<size_t>(
      config.integer_or("default_num_special_tokens", 0, kMaxTokenId, std::ssize(special)));
  while (special.size() < count) special.push_back(fmt::format("<SPECIAL_{}>", special.size()));
  return special;
}

}  // namespace

TokenizerFile read_tiktoken(std::string_view bytes, std::string_view name, Json& config) {
  const Kind& kind = find_kind(name);
  Ranks ranks(name);
  while (!bytes.empty()) {
    std::string_view line = take_until(bytes, '\n');
    if (line.empty()) continue;
    const std::string_view token = take_until(line, ' ');
    int64_t rank = -1;
    std::from_chars(line.data(), line.data() + line.size(), rank);
    ranks.add(token, rank);
  }
  add_special_tokens(kind, config, ranks);
  set_name(config, "bos_token", kind.bos);
  set_name(config, "eos_token", kind.eos);
  TokenizerFile file = ranks.make(kind.pattern, kind.bos);
  if (kind.nfc) file.config["normalizer"] = {{"type", "NFC"}};
  return file;
}

TokenizerFile read_tekken(std::string_view json, Json& config) {
  TekkenCapture capture;
  const Json tree = parse_large_json(json, "tekken.json",
                                     [&](auto&&... event) { return capture.take(event...); });
  const JsonFields fields(tree, "tekken.json");
  const JsonFields settings(fields.raw("config"), "tekken.json: config");
  const std::vector<std::string> special = tekken_special(fields);
  Ranks ranks("tekken.json");
  const auto first = std::ssize(special);
  // Vocabularies are padded with tokens that are not used.
  const int64_t all = settings.integer_or("default_vocab_size", first, kMaxTokenId, kMaxTokenId);
  for (int64_t i = 0; i < std::min(std::ssize(capture.tokens), all - first); ++i)
    ranks.add(capture.tokens[static_cast<size_t>(i)], first + i);
  for (size_t id = 0; id < special.size(); ++id)
    ranks.add_special(special[id], static_cast<int64_t>(id));
  set_name(config, "bos_token", "<s>");
  set_name(config, "eos_token", "</s>");
  return ranks.make(settings.string("pattern"), "<s>");
}

}  // namespace sluice
