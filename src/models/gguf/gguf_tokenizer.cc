// The tokenizer that a GGUF file carries, as a tokenizer.json: `model` llama is SentencePiece's
// byte-pair encoding, whose scores are turned into merges, and `model` gemma4 the same with merges;
// `model` gpt2 is byte-level, and `pre` names how its text is split first (gguf_splits.cc).
#include <algorithm>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/models/gguf/gguf_export.h"
#include "src/text/conversion.h"
#include "src/text/sentence_piece.h"
#include "src/text/tokenizer_file.h"

namespace sluice {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kBos = "tokenizer.ggml.bos_token_id";
constexpr const char* kEos = "tokenizer.ggml.eos_token_id";
constexpr std::string_view kSpace = "\u2581";  // SentencePiece's

// Makes a tokenizer.json of the metadata.
class Conversion {
 public:
  explicit Conversion(const io::GgufHeader& header)
      : header_(header), fields_(header.values, io::printable(header.file.path.string())) {}

  void make();
  const TokenizerFile& file() const { return file_; }
  // The bos and eos tokens, as tokenizer_config.json has them.
  Json special_tokens() const {
    return {{"bos_token", special_token(kBos)}, {"eos_token", special_token(kEos)}};
  }

 private:
  void read_tokens();
  std::vector<double> numbers(const char* key) const;
  void byte_level();
  void sentence_piece(bool has_merges);
  void read_merges();
  void merges_of_scores();
  void add_tokens();
  void add_post_processor(bool adds_bos, bool is_sure = false);
  std::optional<int32_t> special_id(const char* key) const;
  bool takes_space_behind(std::string_view token) const;
  bool is_sentence_piece() const { return fields_.string(kModel) == "llama"; }
  Json special_token(const char* key) const;
  GgufTokenType type(size_t id) const { return static_cast<GgufTokenType>(types_[id]); }

  const io::GgufHeader& header_;
  JsonFields fields_;
  TokenizerFile file_;
  std::vector<int> types_;
};

std::vector<double> Conversion::numbers(const char* key) const {
  std::vector<double> numbers = io::read_gguf_numbers(header_, key);
  if (numbers.size() != file_.tokens.size()) {
    fail(ErrorKind::refused, "{}: {} has {} elements, but there are {} tokens", fields_.where(),
         key, numbers.size(), file_.tokens.size());
  }
  return numbers;
}

void Conversion::read_tokens() {
  io::each_gguf_string(header_, kTokens, [&](std::string_view token) {
    if (std::ssize(file_.ids) > kMaxTokenId)
      fail(ErrorKind::refused, "{}: {} has too many tokens", fields_.where(), kTokens);
    // Tokens without a text have llama.cpp's names, which differ.
    const std::string name = token.empty() ? fmt::format("[EMPTY_{}]", file_.ids.size()) : "";
    file_.ids.push_back(static_cast<int32_t>(file_.ids.size()));
    file_.tokens.push_back(token.empty() ? std::string_view(name) : token);
  });
  file_.has_vocabulary = true;
  types_.assign(file_.tokens.size(), static_cast<int>(GgufTokenType::normal));
  if (header_.arrays.contains(kTypes)) {
    std::ranges::transform(numbers(kTypes), types_.begin(),
                           [](double type) { return static_cast<int>(std::clamp(type, 0., 99.)); });
  }
}

// SentencePiece's own ids where the file names none.
std::optional<int32_t> Conversion::special_id(const char* key) const {
  if (!fields_.has(key)) {
    const size_t own = std::string_view(key) == kBos ? 1 : 2;
    if (!is_sentence_piece() || own >= types_.size() || type(own) != GgufTokenType::control)
      return std::nullopt;
    return static_cast<int32_t>(own);
  }
  const int64_t id = fields_.integer(key, INT32_MIN, UINT32_MAX);
  if (id < 0 || id >= std::ssize(file_.ids)) return std::nullopt;
  return static_cast<int32_t>(id);
}

Json Conversion::special_token(const char* key) const {
  const std::optional<int32_t> id = special_id(key);
  return id ? Json(file_.tokens[static_cast<size_t>(*id)]) : Json();
}

void Conversion::byte_level() {
  const GgufSplit& split = find_gguf_split(fields_);
  file_.config["model"] = {{"type", "BPE"}, {"ignore_merges", split.ignore_merges}};
  read_merges();
  Json steps = Json::array();
  if (split.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (std::string_view pattern : split.patterns) steps.push_back(split_by(pattern));
  steps.push_back(
      {{"type", "ByteLevel"},
       {"add_prefix_space", fields_.boolean_or("tokenizer.ggml.add_space_prefix", false)},
       {"use_regex", split.patterns.empty()}});
  file_.config["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  if (split.nfc) file_.config["normalizer"] = {{"type", "NFC"}};
  file_.config["decoder"] = {{"type", "ByteLevel"}};
  add_post_processor(split.add_bos);
}

void Conversion::read_merges() {
  file_.has_merges = true;
  io::each_gguf_string(header_, kMerges, [&](std::string_view merge) {
    const size_t space = merge.find(' ', 1);
    if (merge.empty() || space == std::string_view::npos || space + 1 == merge.size()) {
      fail(ErrorKind::refused, "{}: {}: '{}' must be two tokens with a space between",
           fields_.where(), kMerges, io::printable(merge));
    }
    file_.merges.push_back(merge.substr(0, space));
    file_.merges.push_back(merge.substr(space + 1));
  });
}

void Conversion::sentence_piece(bool has_merges) {
  Json model{{"type", "BPE"}, {"byte_fallback", true}, {"fuse_unk", true}};
  for (size_t id = 0; id < types_.size(); ++id)
    if (type(id) == GgufTokenType::unknown) model["unk_token"] = file_.tokens[id];
  file_.config["model"] = model;
  has_merges ? read_merges() : merges_of_scores();
  const bool prefix = fields_.boolean_or("tokenizer.ggml.add_space_prefix", !has_merges);
  use_sentence_piece_rules({.prefix = prefix}, file_.config);
  add_post_processor(true, has_merges);
}

// SentencePiece joins the two neighbours whose token has the highest score.
void Conversion::merges_of_scores() {
  std::vector<double> order = numbers(kScores);
  for (double& score : order) score = -score;
  std::vector<bool> joins;
  for (size_t id = 0; id < types_.size(); ++id)
    joins.push_back(type(id) != GgufTokenType::unknown && type(id) != GgufTokenType::control &&
                    type(id) != GgufTokenType::byte);
  add_merges(file_, order, joins, fields_.where());
}

// No file says it, but tokens of some models take the white space behind them along.
bool Conversion::takes_space_behind(std::string_view token) const {
  constexpr std::string_view kOthers[]{"<unk>", "<s>", "<|endoftext|>"};
  if (!is_sentence_piece() || std::ranges::find(kOthers, token) != std::end(kOthers)) return false;
  const std::vector<GgufArchitecture>& all = gguf_architectures();
  const auto row = std::ranges::find(all, fields_.string_or("general.architecture", ""),
                                     &GgufArchitecture::name);
  return row != all.end() && row->tokens_take_space;
}

// Tokens that are found in a text as they stand, before anything else.
void Conversion::add_tokens() {
  Json added = Json::array();
  for (size_t id = 0; id < types_.size(); ++id) {
    const bool special = type(id) == GgufTokenType::control || type(id) == GgufTokenType::unknown;
    const std::string_view token = file_.tokens[id];
    // Runs of spaces are joined from single ones: a text has no SentencePiece space to find.
    const bool user = type(id) == GgufTokenType::user_defined && token.find(kSpace) == token.npos;
    if (!special && !user) continue;
    added.push_back(added_token(static_cast<int64_t>(id), token, special));
    if (takes_space_behind(token)) added.back()["rstrip"] = true;
  }
  file_.config["added_tokens"] = std::move(added);
}

// `is_sure`: the first files of Gemma 4 say that there is no bos, which every text begins with.
void Conversion::add_post_processor(bool adds_bos, bool is_sure) {
  const auto added = [&](const char* flag, bool otherwise, const char* key) {
    return fields_.boolean_or(flag, otherwise) ? special_id(key) : std::nullopt;
  };
  add_around_text(
      file_, is_sure ? special_id(kBos) : added("tokenizer.ggml.add_bos_token", adds_bos, kBos),
      added("tokenizer.ggml.add_eos_token", false, kEos));
}

void Conversion::make() {
  read_tokens();
  file_.config = Json::object();
  const std::string model = fields_.string(kModel);
  add_tokens();
  if (model == "gpt2") {
    byte_level();
  } else if (model == "llama") {
    sentence_piece(false);
  } else if (model == "gemma4") {
    sentence_piece(true);
  } else {
    fail(ErrorKind::refused, "{}: {} {} is not supported; supported: gpt2, llama, gemma4",
         fields_.where(), kModel, io::printable(model));
  }
}

}  // namespace

std::optional<Tokenizer> gguf_tokenizer(const io::GgufHeader& header) {
  if (!header.arrays.contains(kTokens)) return std::nullopt;
  Conversion conversion(header);
  conversion.make();
  try {
    return Tokenizer::load(conversion.file(), conversion.special_tokens());
  } catch (const Error& e) {  // speaks of a tokenizer.json that nobody has
    fail(e.kind(), "{}: its tokenizer, as a tokenizer.json: {}",
         io::printable(header.file.path.string()), e.what());
  }
}

std::vector<MadeFile> gguf_tokenizer_files(const io::GgufHeader& header) {
  if (!header.arrays.contains(kTokens)) return {};
  Conversion conversion(header);
  conversion.make();
  Json config = conversion.special_tokens();
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["clean_up_tokenization_spaces"] = false;
  const ChatFiles chat = gguf_chat_files(header);
  for (const auto& [name, token] : chat.special) config[name] = token;
  std::erase_if(config.get_ref<Json::object_t&>(),
                [](const auto& member) { return member.second.is_null(); });
  Json templates = Json::array();
  for (const ChatTemplateText& t : chat.templates)
    templates.push_back({{"name", t.name}, {"template", t.text}});
  if (chat.templates.size() == 1 && chat.find("default") != nullptr)
    config["chat_template"] = chat.templates.front().text;
  else if (!templates.empty())
    config["chat_template"] = templates;
  return {{std::string(kTokenizerFile), tokenizer_json(conversion.file())},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace sluice
