#include "src/text/conversion.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/text/vocabulary.h"

namespace sluice {
namespace {

struct Merge {
  int32_t token, left, right;  // places in the file
};

// All ways to make a token of two others.
std::vector<Merge> find_merges(const TokenizerFile& file, const std::vector<double>& order,
                               const std::vector<bool>& joins, std::string_view where) {
  constexpr uint64_t kMostWork = uint64_t{1} << 33;  // bytes looked at
  constexpr size_t kMostMerges = size_t{1} << 24;
  std::vector<int32_t> places(file.tokens.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i);
  const Vocabulary vocabulary(file.tokens, places, where);
  const auto find = [&](std::string_view text) {
    const int32_t at = vocabulary.find(text).value_or(-1);
    return at >= 0 && joins[static_cast<size_t>(at)] ? at : -1;
  };
  uint64_t work = 0;
  std::vector<Merge> merges;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string_view token = file.tokens[i];
    if (!joins[i]) continue;
    if (!std::isfinite(order[i]))
      fail(ErrorKind::refused, "{}: token '{}' has no finite score", where, token);
    work += uint64_t{token.size()} * token.size();
    if (work > kMostWork || merges.size() > kMostMerges)
      fail(ErrorKind::refused, "{}: its tokens are absurdly long, or absurdly many", where);
    for (size_t at = 1; at < token.size(); ++at) {
      if ((static_cast<unsigned char>(token[at]) & 0xC0) == 0x80) continue;  // inside a character
      const int32_t left = find(token.substr(0, at));
      const int32_t right = left < 0 ? -1 : find(token.substr(at));
      if (right >= 0) merges.push_back({places[i], left, right});
    }
  }
  return merges;
}

int64_t parse_id(const std::string& text, const std::string& where) {
  const auto id = parse_number<int64_t>(text);
  if (!id || *id < 0 || *id > kMaxTokenId)
    fail(ErrorKind::refused, "{}: added_tokens_decoder: '{}' is not a token id", where, text);
  return *id;
}

}  // namespace

void add_merges(TokenizerFile& file, const std::vector<double>& order,
                const std::vector<bool>& joins, std::string_view where) {
  std::vector<Merge> merges = find_merges(file, order, joins, where);
  const auto order_of = [&](const Merge& m) { return order[static_cast<size_t>(m.token)]; };
  std::ranges::sort(merges, {}, [&](const Merge& m) {
    return std::tuple(order_of(m), m.token, m.left, m.right);
  });
  file.has_merges = true;
  int32_t rank = 0;
  for (size_t i = 0; i < merges.size(); ++i) {
    if (i > 0 && order_of(merges[i]) != order_of(merges[i - 1])) ++rank;
    file.merge_ranks.push_back(rank);
    file.merges.push_back(file.tokens[static_cast<size_t>(merges[i].left)]);
    file.merges.push_back(file.tokens[static_cast<size_t>(merges[i].right)]);
  }
}

void add_around_text(TokenizerFile& file, std::optional<int32_t> before,
                     std::optional<int32_t> after) {
  if (!before && !after) return;
  Json single = Json::array(), tokens = Json::object();
  const auto add = [&](std::optional<int32_t> place) {
    if (!place) return;
    const std::string name(file.tokens[static_cast<size_t>(*place)]);
    const auto id = static_cast<uint32_t>(file.ids[static_cast<size_t>(*place)]);
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  add(before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(after);
  file.config["post_processor"] = {
      {"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
}

Json split_by(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

void use_byte_level(TokenizerFile& file, std::string_view pattern) {
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  file.config["pre_tokenizer"] = {{"type", "Sequence"},
                                  {"pretokenizers", Json::array({split_by(pattern), bytes})}};
  file.config["decoder"] = {{"type", "ByteLevel"}};
}

Json added_token(int64_t id, std::string_view content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

std::optional<std::string> token_content(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return std::nullopt;
  auto content = value.find("content");
  if (content == value.end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

std::vector<Json> described_tokens(const Json& config, Names names) {
  constexpr const char* kDecoder = "added_tokens_decoder";
  const JsonFields fields(config, "tokenizer_config.json");
  const bool takes_names = names == Names::always || fields.has("chat_template");
  std::vector<Json> tokens;
  const auto take = [&](const Json& value, std::optional<int64_t> id, bool special) {
    const std::optional<std::string> content = token_content(value);
    if (!content || content->empty() || (!value.is_object() && !takes_names && !id)) return;
    Json token = added_token(0, *content, special);
    token.erase("id");
    for (const char* flag : {"lstrip", "rstrip", "single_word"})
      if (value.is_object() && value.contains(flag)) token[flag] = value[flag];
    if (id) token["id"] = *id;
    tokens.push_back(std::move(token));
  };
  if (fields.has(kDecoder)) {
    std::map<int64_t, const Json*> by_id;
    const Json& decoder = fields.raw(kDecoder);
    if (!decoder.is_object())
      fail(ErrorKind::refused, "{}: {} must be an object", fields.where(), kDecoder);
    for (const auto& [key, value] : decoder.items()) by_id[parse_id(key, fields.where())] = &value;
    for (const auto& [id, value] : by_id) {
      const auto special = value->is_object() ? value->find("special") : value->end();
      take(*value, id, special != value->end() && *special == true);
    }
  }
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) take(value, std::nullopt, true);
    if (!value.is_structured() || !key.ends_with("_special_tokens")) continue;
    for (const Json& token : value) take(token, std::nullopt, true);  // also of {NAME: token}
  }
  return tokens;
}

}  // namespace sluice
