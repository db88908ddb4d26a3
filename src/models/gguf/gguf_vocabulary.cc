// A tokenizer.json as keys of GGUF's metadata: the inverse of gguf_tokenizer.cc.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "src/base/error.h"
#include "src/models/gguf/gguf_export.h"
#include "src/text/conversion.h"

namespace sluice {
namespace {

bool is_byte(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

class VocabularyKeys {
 public:
  VocabularyKeys(const TokenizerFiles& files, const Tokenizer& tokenizer, int64_t rows,
                 io::GgufMetadata& metadata)
      : files_(files), tokenizer_(tokenizer), rows_(rows), metadata_(metadata) {}

  void add();

 private:
  bool has_byte_level() const;
  void read_tokens(bool byte_level);
  void add_byte_level();
  void add_sentence_piece();
  std::vector<float> scores() const;
  bool has_prefix() const;
  void add_special(std::string_view key, std::optional<int32_t> id);
  std::optional<int32_t> named(const char* key) const;
  void add_around();
  [[noreturn]] void refuse(std::string_view why) const {
    fail(ErrorKind::refused, "{}: {}; without it a file without a tokenizer is written",
         files_.name, why);
  }

  const TokenizerFiles& files_;
  const Tokenizer& tokenizer_;
  int64_t rows_;
  io::GgufMetadata& metadata_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
};

bool mentions(const Json& config, std::string_view type) {
  if (config.is_object() && config.value("type", "") == type) return true;
  if (!config.is_structured()) return false;
  return std::ranges::any_of(config, [&](const Json& inner) { return mentions(inner, type); });
}

bool VocabularyKeys::has_byte_level() const {
  return mentions(files_.file.config.value("pre_tokenizer", Json()), "ByteLevel");
}

// Ids without a token have one that no text has, as the table has rows for them.
void VocabularyKeys::read_tokens(bool byte_level) {
  if (tokenizer_.vocab_size() > rows_)
    refuse(fmt::format("it has {} tokens, and the embedding has {} rows, which GGUF cannot have",
                       tokenizer_.vocab_size(), rows_));
  std::map<int32_t, bool> added;  // whether they are special
  for (const Json& token : files_.file.config.value("added_tokens", Json::array()))
    if (token.contains("content") && token["content"].is_string())
      if (const auto id = tokenizer_.id_of(token["content"].get<std::string>()))
        added[*id] = field_or(token, "special", false);
  const Json& model = files_.file.config["model"];
  const std::string unknown =
      model.contains("unk_token") && model["unk_token"].is_string() ? model["unk_token"] : "";
  for (int32_t id = 0; id < rows_; ++id) {
    const bool has = tokenizer_.has(id);
    tokens_.push_back(has ? std::string(tokenizer_.token(id)) : fmt::format("[PAD{}]", id));
    GgufTokenType type = has ? GgufTokenType::normal : GgufTokenType::unused;
    const auto found = added.find(id);
    if (has && !byte_level && is_byte(tokens_.back())) type = GgufTokenType::byte;
    if (found != added.end())
      type = found->second ? GgufTokenType::control : GgufTokenType::user_defined;
    if (has && !byte_level && tokens_.back() == unknown) type = GgufTokenType::unknown;
    types_.push_back(static_cast<int32_t>(type));
  }
}

void VocabularyKeys::add_byte_level() {
  const std::string_view pre = find_gguf_pre(files_.file.config);
  if (pre.empty()) refuse("it splits texts in a way that no tokenizer.ggml.pre of GGUF names");
  std::vector<std::string> merges;
  for (size_t i = 0; i + 1 < files_.file.merges.size(); i += 2)
    merges.push_back(fmt::format("{} {}", files_.file.merges[i], files_.file.merges[i + 1]));
  metadata_.add_string("tokenizer.ggml.model", "gpt2");
  metadata_.add_string("tokenizer.ggml.pre", pre);
  metadata_.add_strings("tokenizer.ggml.tokens", tokens_);
  metadata_.add_integers("tokenizer.ggml.token_type", types_);
  metadata_.add_strings("tokenizer.ggml.merges", merges);
}

// Two tokens become the third with the highest score: that of the first merge that makes it.
std::vector<float> VocabularyKeys::scores() const {
  constexpr float kLeast = -1e6;
  std::vector<float> scores(tokens_.size(), kLeast);
  std::vector<bool> made(tokens_.size());
  const TokenizerFile& file = files_.file;
  for (size_t i = 0; i + 1 < file.merges.size(); i += 2) {
    const auto id = tokenizer_.id_of(fmt::format("{}{}", file.merges[i], file.merges[i + 1]));
    if (!id || *id >= rows_) continue;
    const auto place = static_cast<size_t>(*id);
    const size_t rank =
        file.merge_ranks.empty() ? i / 2 : static_cast<size_t>(file.merge_ranks[i / 2]);
    const auto score = -static_cast<float>(rank);
    scores[place] = made[place] ? std::max(scores[place], score) : score;
    made[place] = true;
  }
  return scores;
}

// A space before the text.
bool VocabularyKeys::has_prefix() const {
  const Json& config = files_.file.config;
  if (mentions(config.value("normalizer", Json()), "Prepend")) return true;
  const std::string cuts = config.value("pre_tokenizer", Json()).dump();
  return cuts.find("\"Metaspace\"") != std::string::npos &&
         cuts.find("\"prepend_scheme\":\"never\"") == std::string::npos;
}

void VocabularyKeys::add_sentence_piece() {
  metadata_.add_string("tokenizer.ggml.model", "llama");
  metadata_.add_string("tokenizer.ggml.pre", "default");
  metadata_.add_strings("tokenizer.ggml.tokens", tokens_);
  metadata_.add_numbers("tokenizer.ggml.scores", scores());
  metadata_.add_integers("tokenizer.ggml.token_type", types_);
  metadata_.add_boolean("tokenizer.ggml.add_space_prefix", has_prefix());
}

void VocabularyKeys::add_special(std::string_view key, std::optional<int32_t> id) {
  if (id && *id < rows_)
    metadata_.add_integer(fmt::format("tokenizer.ggml.{}_token_id", key),
                          static_cast<uint32_t>(*id));
}

std::optional<int32_t> VocabularyKeys::named(const char* key) const {
  const Json& config = files_.config;
  if (!config.is_object() || !config.contains(key)) return std::nullopt;
  const std::optional<std::string> token = token_content(config[key]);
  return token ? tokenizer_.id_of(*token) : std::nullopt;
}

// Tokens that the post_processor puts around a text; the one before it is bos in GGUF.
void VocabularyKeys::add_around() {
  const std::vector<int32_t> without = tokenizer_.encode("a", false),
                             with = tokenizer_.encode("a", true);
  const auto found = std::ranges::search(with, without);
  const std::vector<int32_t> before(with.begin(), found.begin()), behind(found.end(), with.end());
  std::optional<int32_t> bos = tokenizer_.bos_id(), eos = tokenizer_.eos_id();
  if (before.size() > 1 || behind.size() > 1)
    refuse("it puts several tokens around a text, which GGUF cannot say");
  if (!before.empty()) bos = before[0];
  if (!behind.empty() && behind[0] != eos)
    refuse("it puts another token than eos_token behind a text, which GGUF cannot say");
  add_special("bos", bos);
  add_special("eos", eos);
  add_special("unknown", named("unk_token"));
  add_special("padding", named("pad_token"));
  metadata_.add_boolean("tokenizer.ggml.add_bos_token", !before.empty());
  metadata_.add_boolean("tokenizer.ggml.add_eos_token", !behind.empty());
}

void VocabularyKeys::add() {
  const Json& model = files_.file.config["model"];
  const bool byte_level = has_byte_level();
  const std::string type = field_or(model, "type", std::string("BPE"));
  const bool is_bpe = type == "BPE" && files_.file.has_merges;
  if (!is_bpe || (!byte_level && !field_or(model, "byte_fallback", false)))
    refuse(
        fmt::format("it is of the type {}, and GGUF can have byte-level BPE, and BPE that falls "
                    "back to bytes",
                    type));
  read_tokens(byte_level);
  byte_level ? add_byte_level() : add_sentence_piece();
  add_around();
}

}  // namespace

void describe_tokenizer(const TokenizerFiles& files, const Tokenizer& tokenizer, int64_t rows,
                        const ChatFiles& chat, io::GgufMetadata& metadata) {
  VocabularyKeys(files, tokenizer, rows, metadata).add();
  constexpr const char* kTemplate = "tokenizer.chat_template";
  std::vector<std::string> names;
  for (const ChatTemplateText& text : chat.templates) {
    if (text.name != "default") names.push_back(text.name);
    metadata.add_string(
        text.name == "default" ? kTemplate : fmt::format("{}.{}", kTemplate, text.name), text.text);
  }
  if (!names.empty()) metadata.add_strings("tokenizer.chat_templates", names);
}

}  // namespace sluice
