#include "src/text/tokenizer.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/text/detokenizer.h"
#include "src/text/token_stream.h"
#include "src/text/tokenizer_file.h"

namespace sluice {
namespace {

constexpr const char* kConfig = "tokenizer_config.json";

// A component of tokenizer.json; null where it is missing.
const Json& component(const TokenizerFile& file, const char* key) {
  static const Json null;
  auto found = file.config.find(key);
  return found == file.config.end() ? null : *found;
}

}  // namespace

Tokenizer::Tokenizer(const TokenizerFile& file)
    : model_(load_model(file)),
      normalizer_(Normalizer::load(component(file, "normalizer"))),
      added_(
          AddedTokens::load(component(file, "added_tokens"), normalizer_, vocabulary(), warnings_)),
      pre_tokenizer_(PreTokenizer::load(component(file, "pre_tokenizer"))),
      post_processor_(PostProcessor::load(component(file, "post_processor"))),
      decoder_(Decoder::load(component(file, "decoder"))) {}

Tokenizer Tokenizer::load(const TokenizerFile& file, const Json& config) {
  Tokenizer tokenizer(file);
  tokenizer.warn_about_holes();
  tokenizer.load_special_ids(config);
  return tokenizer;
}

Tokenizer::Model Tokenizer::load_model(const TokenizerFile& file) {
  JsonFields model(JsonFields(file.config, "tokenizer.json").raw("model"), "tokenizer.json: model");
  // Files from before 2022 do not name the type: each has fields that no other has.
  std::string type = model.string_or("type", file.has_merges                          ? "BPE"
                                             : file.has_scores                        ? "Unigram"
                                             : model.has("continuing_subword_prefix") ? "WordPiece"
                                             : model.has("unk_token")                 ? "WordLevel"
                                                                                      : "");
  if (type == "BPE") return Bpe::load(file);
  if (type == "Unigram") return Unigram::load(file);
  if (type == "WordLevel") return WordLevel::load(file);
  if (type == "WordPiece") return WordPiece::load(file);
  if (type.empty()) fail(ErrorKind::refused, "tokenizer.json: model: type is missing");
  fail(ErrorKind::refused, "tokenizer.json: unknown model type {}", type);
}

void Tokenizer::warn_about_holes() {
  int64_t tokens = vocabulary().size();
  for (const AddedToken& token : added_.tokens()) tokens += !vocabulary().has(token.id);
  if (vocab_size() <= 2 * tokens) return;
  int32_t last = vocab_size() - 1;
  warnings_.push_back(
      fmt::format("tokenizer.json: token '{}' has id {}, though there are only {} tokens; the "
                  "model's vocab_size must reach beyond it",
                  token(last), last, tokens));
}

void Tokenizer::load_special_ids(const Json& config) {
  JsonFields fields(config, kConfig);
  bos_id_ = special_id(fields, "bos_token");
  eos_id_ = special_id(fields, "eos_token");
  warn_about_flags(fields);
}

// The post-processor alone says what comes around a text, as in transformers since version 5; with
// some classes, earlier ones built it anew from these flags.
void Tokenizer::warn_about_flags(const JsonFields& config) {
  constexpr int32_t kText = -1;
  std::vector<int32_t> ids{kText};
  post_processor_.add_special_tokens(ids);
  auto text = std::ranges::find(ids, kText);
  auto compare = [&](const char* key, std::optional<int32_t> id, auto begin, auto end) {
    if (!id || !config.has(key) || !config.raw(key).is_boolean()) return;
    bool asked = config.raw(key).get<bool>();
    if (asked == (std::find(begin, end, *id) != end)) return;
    warnings_.push_back(
        fmt::format("{}: {} is {}, but the post_processor of tokenizer.json, which is used, {} "
                    "'{}'",
                    config.where(), key, asked, asked ? "does not add" : "adds", token(*id)));
  };
  compare("add_bos_token", bos_id_, ids.begin(), text);
  compare("add_eos_token", eos_id_, text, ids.end());
}

// "bos_token": "<s>", or {"content": "<s>", ...}.
std::optional<int32_t> Tokenizer::special_id(const JsonFields& config, const char* key) {
  if (!config.has(key)) return std::nullopt;
  const Json& value = config.raw(key);
  std::string name =
      value.is_object()
          ? JsonFields(value, fmt::format("{}: {}", config.where(), key)).string("content")
          : config.string(key);
  std::optional<int32_t> id = id_of(name);
  if (!id) {
    warnings_.push_back(
        fmt::format("{}: {} '{}' is not in the vocabulary", config.where(), key, name));
  }
  return id;
}

const Vocabulary& Tokenizer::vocabulary() const {
  return std::visit([](const auto& model) -> const Vocabulary& { return model.vocabulary(); },
                    model_);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::vector<int32_t> ids;
  TokenStream(*this, add_special_tokens).finish(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, skip_special_tokens, Detokenizer::Gives::what_is_final);
  std::string text;
  for (int32_t id : ids) text += detokenizer.add(id);
  return text + detokenizer.finish();
}

int32_t Tokenizer::vocab_size() const {
  int32_t last_added = added_.tokens().empty() ? -1 : added_.tokens().back().id;
  return std::max(vocabulary().end_id(), last_added + 1);
}

bool Tokenizer::has(int32_t id) const { return added_.find(id) != nullptr || vocabulary().has(id); }

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* added = added_.find(token)) return added->id;
  return vocabulary().find(token);
}

std::string_view Tokenizer::token(int32_t id) const {
  if (const AddedToken* added = added_.find(id)) return added->normalized_content;
  if (!vocabulary().has(id)) fail(ErrorKind::usage, "token id {} is not in the vocabulary", id);
  return vocabulary().token(id);
}

// Hugging Face tokenizers looks a token up among the special ones as it would be decoded: one that
// normalizing changed is not found there.
bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr && added->special && added->normalized_content == added->content;
}

std::string Tokenizer::bytes(int32_t id, bool first) const {
  std::string bytes = decoder_.bytes(token(id), {.first = first, .last = false});
  for (const StripEnds& strip : decoder_.text_start()) {
    for (int64_t i = 0; first && i < strip.start && bytes.starts_with(strip.text); ++i)
      bytes.erase(0, strip.text.size());
  }
  return bytes;
}

}  // namespace sluice
