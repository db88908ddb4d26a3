#include "src/serve/apis/token_text.h"

#include <utility>

namespace sluice {
namespace {

std::string id_text(int32_t id) { return fmt::format("token_id:{}", id); }

OrderedJson logprob_json(const Logprob& l, const Tokenizer* tokenizer) {
  const bool known = tokenizer != nullptr && tokenizer->has(l.token_id);
  const std::string bytes = known ? tokenizer->bytes(l.token_id, false) : std::string();
  OrderedJson list = OrderedJson::array();
  for (char c : bytes) list.push_back(static_cast<uint8_t>(c));
  return {{"token", known ? to_valid_utf8(bytes) : token_text(l.token_id, tokenizer)},
          {"logprob", l.logprob},
          {"bytes", known ? list : OrderedJson()}};
}

}  // namespace

std::string token_text(int32_t id, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr || !tokenizer->has(id)) return id_text(id);
  std::string bytes = tokenizer->bytes(id, false);
  if (to_valid_utf8(bytes) == bytes) return bytes;
  std::string text = "bytes:";
  for (char c : bytes) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return text;
}

int64_t TextOffsets::add(int32_t id) {
  bool shown = tokenizer_ != nullptr && tokenizer_->has(id) &&
               !(skip_special_tokens_ && tokenizer_->is_special(id));
  if (!shown) return next_;
  std::string bytes = tokenizer_->bytes(id, std::exchange(first_, false));
  // A byte that does not continue a character that has begun ends it: U+FFFD.
  bool goes_on = bytes.empty() || (bytes[0] & 0xC0) == 0x80;
  int64_t at = next_ + (utf8_.incomplete() && !goes_on ? 1 : 0);
  std::string text;
  utf8_.append(bytes, text);
  next_ += static_cast<int64_t>(character_count(text));
  return at;
}

Json top_logprobs_json(const TokenLogprobs* t, const Tokenizer* tokenizer) {
  if (t == nullptr) return nullptr;
  Json top = Json::object();
  for (const Logprob& l : t->top) {  // likeliest first: of equal texts it has the text
    if (!top.emplace(token_text(l.token_id, tokenizer), l.logprob).second)
      top.emplace(id_text(l.token_id), l.logprob);
  }
  return top;
}

OrderedJson token_logprobs_json(const TokenLogprobs& t, const Tokenizer* tokenizer) {
  OrderedJson entry = logprob_json(t.token, tokenizer);
  entry["top_logprobs"] = OrderedJson::array();
  for (const Logprob& top : t.top) entry["top_logprobs"].push_back(logprob_json(top, tokenizer));
  return entry;
}

}  // namespace sluice
