#include "src/text/sentence_piece.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <protozero/pbf_reader.hpp>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"
#include "src/text/conversion.h"

namespace sluice {
namespace {

constexpr std::string_view kSpace = "\u2581";

enum class PieceType : int64_t { normal = 1, unknown, control, user_defined, unused, byte };
enum class ModelType : int64_t { unigram = 1, bpe, word, character };

struct Piece {
  std::string text;
  double score = 0;
  PieceType type = PieceType::normal;
};

// The fields of a ModelProto that decide ids. The values are those of absent fields.
struct Proto {
  std::vector<Piece> pieces;
  ModelType type = ModelType::unigram;
  bool byte_fallback = false;
  bool suffix = false;  // the space of a word stands behind it
  int64_t bos = 1, eos = 2;
  std::string_view charsmap;
  bool prefix = true, squeeze = true, escape = true;
};

// Tags of fields of sentencepiece_model.proto.
template <class Number>
constexpr uint32_t text_field(Number number) {
  return protozero::tag_and_type(number, protozero::pbf_wire_type::length_delimited);
}
template <class Number>
constexpr uint32_t number_field(Number number) {
  return protozero::tag_and_type(number, protozero::pbf_wire_type::varint);
}
constexpr uint32_t kScore = protozero::tag_and_type(2U, protozero::pbf_wire_type::fixed32);

// A view of the message.
std::string_view text_of(protozero::pbf_reader& field) {
  const protozero::data_view text = field.get_view();
  return {text.data(), text.size()};
}

Piece read_piece(protozero::pbf_reader message, const std::string& where) {
  Piece piece;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case text_field(1U):
        piece.text = text_of(message);
        break;
      case kScore:
        piece.score = message.get_float();
        break;
      case number_field(3U):
        piece.type = static_cast<PieceType>(message.get_int64());
        break;
      default:
        message.skip();
    }
  }
  if (piece.text.empty()) fail(ErrorKind::refused, "{}: is damaged: a piece is empty", where);
  if (!std::isfinite(piece.score))
    fail(ErrorKind::refused, "{}: piece '{}' has no finite score", where, piece.text);
  return piece;
}

void read_trainer_spec(protozero::pbf_reader message, Proto& proto) {
  while (message.next()) {
    switch (message.tag_and_type()) {
      case number_field(3U):
        proto.type = static_cast<ModelType>(message.get_int64());
        break;
      case number_field(24U):
        proto.suffix = message.get_uint64() != 0;
        break;
      case number_field(35U):
        proto.byte_fallback = message.get_uint64() != 0;
        break;
      case number_field(41U):
        proto.bos = message.get_int64();
        break;
      case number_field(42U):
        proto.eos = message.get_int64();
        break;
      default:
        message.skip();
    }
  }
}

void read_normalizer_spec(protozero::pbf_reader message, Proto& proto) {
  while (message.next()) {
    switch (message.tag_and_type()) {
      case text_field(2U):
        proto.charsmap = text_of(message);
        break;
      case number_field(3U):
        proto.prefix = message.get_uint64() != 0;
        break;
      case number_field(4U):
        proto.squeeze = message.get_uint64() != 0;
        break;
      case number_field(5U):
        proto.escape = message.get_uint64() != 0;
        break;
      default:
        message.skip();
    }
  }
}

// Reads the messages of a ModelProto. Throws what protozero does where they are damaged.
Proto read_messages(std::string_view bytes, const std::string& where) {
  Proto proto;
  protozero::pbf_reader message(bytes.data(), bytes.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case text_field(1U):
        proto.pieces.push_back(read_piece(message.get_message(), where));
        break;
      case text_field(2U):
        read_trainer_spec(message.get_message(), proto);
        break;
      case text_field(3U):
        read_normalizer_spec(message.get_message(), proto);
        break;
      default:
        message.skip();
    }
    if (std::ssize(proto.pieces) > kMaxTokenId)
      fail(ErrorKind::refused, "{}: has too many pieces", where);
  }
  return proto;
}

Proto read_proto(std::string_view bytes, const std::string& where) {
  Proto proto;
  try {
    proto = read_messages(bytes, where);
  } catch (const protozero::exception& e) {
    fail(ErrorKind::refused, "{}: is damaged: Protocol Buffers: {}", where, e.what());
  }
  if (proto.pieces.empty()) fail(ErrorKind::refused, "{}: has no pieces", where);
  if (proto.suffix)
    fail(ErrorKind::refused, "{}: treat_whitespace_as_suffix is not supported", where);
  if (proto.type != ModelType::bpe && proto.type != ModelType::unigram) {
    fail(ErrorKind::refused, "{}: model_type {} is not supported; supported: unigram (1), bpe (2)",
         where, static_cast<int64_t>(proto.type));
  }
  return proto;
}

// A pattern that matches just `text`.
std::string escaped(std::string_view text) {
  std::string pattern;
  for (char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Makes a tokenizer.json of a model.
class Conversion {
 public:
  Conversion(std::string_view bytes, std::string_view where, Json& config)
      : where_(where), proto_(read_proto(bytes, where_)), config_(config) {
    for (const Piece& piece : proto_.pieces)
      places_.emplace(piece.text, static_cast<int32_t>(&piece - proto_.pieces.data()));
  }

  TokenizerFile make();

 private:
  void rename_pieces();
  void add_pieces();
  void make_bpe();
  void make_unigram();
  void add_tokens();
  std::optional<int32_t> place_of(const std::string& token) const;
  void name(const char* key, int64_t id);
  std::optional<int32_t> around(const char* flag, bool otherwise, const char* key) const;

  std::string where_;
  Proto proto_;
  std::unordered_map<std::string, int32_t> places_;  // of pieces
  Json& config_;
  TokenizerFile file_;
  std::string whole_;  // a pattern
};

// Placeholders that tokenizer_config.json gives a meaning.
void Conversion::rename_pieces() {
  for (const Json& token : described_tokens(config_)) {
    if (!token.contains("id")) continue;
    const auto id = token["id"].get<uint64_t>();
    const auto content = token["content"].get<std::string>();
    if (id >= proto_.pieces.size() || place_of(content)) continue;
    places_.erase(proto_.pieces[id].text);
    places_.emplace(content, static_cast<int32_t>(id));
    proto_.pieces[id] = {.text = content, .type = PieceType::control};
  }
}

void Conversion::add_pieces() {
  for (const Piece& piece : proto_.pieces) {
    file_.ids.push_back(static_cast<int32_t>(file_.ids.size()));
    file_.tokens.push_back(piece.text);
    const bool is_text = piece.type != PieceType::unknown && piece.type != PieceType::control &&
                         piece.type != PieceType::byte;
    file_.never_in_text.push_back(!is_text);
  }
}

// Pieces that are defined by the user are found first, and stay whole.
void Conversion::make_bpe() {
  std::vector<double> order;
  std::vector<bool> joins;
  std::vector<std::string_view> whole;
  Json model{{"type", "BPE"}, {"byte_fallback", proto_.byte_fallback}, {"fuse_unk", true}};
  for (const Piece& piece : proto_.pieces) {
    order.push_back(-piece.score);
    joins.push_back(piece.type == PieceType::normal);
    if (piece.type == PieceType::user_defined) whole.push_back(piece.text);
    if (piece.type == PieceType::unknown) model["unk_token"] = piece.text;
  }
  model["ignore_merges"] = !whole.empty();
  file_.has_vocabulary = true;
  file_.config["model"] = std::move(model);
  add_merges(file_, order, joins, where_);
  if (whole.empty()) return;
  std::ranges::stable_sort(whole, std::greater<>(), &std::string_view::size);
  for (std::string_view text : whole) {
    if (!whole_.empty()) whole_ += '|';
    whole_ += escaped(text);
  }
}

void Conversion::make_unigram() {
  Json model{{"type", "Unigram"}, {"byte_fallback", proto_.byte_fallback}};
  double best = 0;
  bool first = true;
  for (const Piece& piece : proto_.pieces) {
    if (piece.type != PieceType::normal) continue;
    best = std::exchange(first, false) ? piece.score : std::max(best, piece.score);
  }
  file_.has_scores = file_.single_precision = true;
  for (const Piece& piece : proto_.pieces) {
    if (piece.type == PieceType::unknown) model["unk_id"] = file_.scores.size();
    // User-defined pieces win over all others.
    const bool wins = piece.type == PieceType::user_defined;
    file_.scores.push_back(wins ? static_cast<double>(piece.text.size()) * best - 0.1
                                : piece.score);
  }
  file_.config["model"] = std::move(model);
}

void Conversion::add_tokens() {
  Json added = Json::array();
  std::set<std::string, std::less<>> found;
  auto next = file_.ids.size();
  for (Json& token : described_tokens(config_)) {
    const auto& content = token["content"].get_ref<const std::string&>();
    if (!found.insert(content).second) continue;
    const std::optional<int32_t> place = place_of(content);
    token["id"] = place ? static_cast<size_t>(*place) : next++;
    added.push_back(std::move(token));
  }
  for (size_t id = 0; id < proto_.pieces.size(); ++id) {
    const auto& [text, score, type] = proto_.pieces[id];
    if (type != PieceType::control && type != PieceType::unknown) continue;
    if (found.contains(text)) continue;
    added.push_back(added_token(static_cast<int64_t>(id), text, true));
    added.back()["in_text"] = false;
  }
  file_.config["added_tokens"] = std::move(added);
}

std::optional<int32_t> Conversion::place_of(const std::string& token) const {
  auto found = places_.find(token);
  if (found == places_.end()) return std::nullopt;
  return found->second;
}

// The name of a special token that tokenizer_config.json does not name.
void Conversion::name(const char* key, int64_t id) {
  if (config_.contains(key) || id < 0 || id >= std::ssize(proto_.pieces)) return;
  config_[key] = proto_.pieces[static_cast<size_t>(id)].text;
}

std::optional<int32_t> Conversion::around(const char* flag, bool otherwise, const char* key) const {
  if (!JsonFields(config_, where_).boolean_or(flag, otherwise)) return std::nullopt;
  const auto name = config_.find(key);
  const auto token = name == config_.end() ? std::nullopt : token_content(*name);
  return token ? place_of(*token) : std::nullopt;
}

TokenizerFile Conversion::make() {
  file_.config = Json::object();
  rename_pieces();
  add_pieces();
  proto_.type == ModelType::bpe ? make_bpe() : make_unigram();
  const bool legacy = JsonFields(config_, "tokenizer_config.json").boolean_or("legacy", true);
  use_sentence_piece_rules({.charsmap = proto_.charsmap,
                            .squeeze = proto_.squeeze,
                            .escape = proto_.escape,
                            .prefix = proto_.prefix,
                            .prefix_once = !legacy,
                            .byte_fallback = proto_.byte_fallback,
                            .whole = whole_},
                           file_.config);
  add_tokens();
  name("bos_token", proto_.bos);
  name("eos_token", proto_.eos);
  add_around_text(file_, around("add_bos_token", proto_.type == ModelType::bpe, "bos_token"),
                  around("add_eos_token", false, "eos_token"));
  return std::move(file_);
}

}  // namespace

void use_sentence_piece_rules(const SentencePieceRules& rules, Json& config) {
  const auto replace = [](Json pattern, std::string_view by) {
    return Json{{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", by}};
  };
  const std::string_view space = rules.escape ? kSpace : " ";
  Json normalizers = Json::array(), cuts = Json::array(), decoders = Json::array();
  if (!rules.charsmap.empty()) {
    const std::vector<uint8_t> bytes(rules.charsmap.begin(), rules.charsmap.end());
    normalizers.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", Json::binary(bytes)}});
  }
  if (rules.squeeze) {
    normalizers.push_back(replace({{"Regex", " {2,}"}}, " "));
    normalizers.push_back(replace({{"Regex", R"(\A )"}}, ""));
  }
  if (rules.escape) normalizers.push_back(replace({{"String", " "}}, kSpace));
  if (rules.prefix && !rules.prefix_once)
    normalizers.push_back({{"type", "Prepend"}, {"prepend", space}});
  if (rules.squeeze)
    normalizers.push_back(replace({{"Regex", fmt::format(R"((?<!{0}){0}+\z)", space)}}, ""));
  if (rules.prefix && rules.prefix_once)
    cuts.push_back({{"type", "Metaspace"}, {"prepend_scheme", "first"}, {"split", false}});
  if (!rules.whole.empty()) cuts.push_back(split_by(rules.whole));
  decoders.push_back(replace({{"String", kSpace}}, " "));
  if (rules.byte_fallback) decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  // Spaces that encoding adds or removes at the beginning are not shown there.
  const int strips = rules.squeeze ? INT32_MAX : rules.prefix ? 1 : 0;
  if (strips > 0)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", strips}, {"stop", 0}});
  config["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
  if (!cuts.empty())
    config["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(cuts)}};
  config["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
}

bool is_sentence_piece(std::string_view bytes) {
  constexpr char kFirstPiece = 0x0A;  // the tag of the first field
  return bytes.starts_with(kFirstPiece);
}

TokenizerFile read_sentence_piece(std::string_view bytes, std::string_view where, Json& config) {
  return Conversion(bytes, where, config).make();
}

}  // namespace sluice
