#include "src/serve/apis/tokens_json.h"

#include <fmt/format.h>

#include <string_view>

#include "src/base/json_writer.h"

namespace sluice {
namespace {

// A text that grows, and the one that it grew from.
constexpr uint64_t kGrown = 2;

// Returns the bytes of a text in JSON, with its quotes and a comma.
uint64_t quoted_bytes(std::string_view text) {
  constexpr uint64_t kQuotes = 3, kControl = 6, kEscape = 2;  // \u0001, \"
  uint64_t bytes = kQuotes;
  for (char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    bytes += control ? kControl : c == '"' || c == '\\' ? kEscape : 1;
  }
  return bytes;
}

// Makes an answer that is written into a text.
template <class Write>
std::string written(Write write) {
  std::string out;
  append_json(out, [&](JsonWriter& json) {
    json.begin_object();
    write(json);
    json.end_object();
  });
  return out;
}

}  // namespace

std::string tokens_json(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool texts,
                        int64_t max_model_len) {
  return written([&](JsonWriter& json) {
    json.member("count", ids.size());
    json.member("max_model_len", max_model_len);
    json.key("token_strs");
    if (texts) {
      json.array(ids, [&](int32_t id) { json.text({tokenizer.token(id)}); });
    } else {
      json.value(nullptr);
    }
    json.key("tokens");
    json.array(ids);
  });
}

uint64_t tokens_json_bytes(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool texts) {
  const uint64_t id = fmt::formatted_size("{},", tokenizer.vocab_size());
  uint64_t bytes = JsonWriter::kPiece + id * ids.size();
  for (size_t i = 0; texts && i < ids.size(); ++i) bytes += quoted_bytes(tokenizer.token(ids[i]));
  return kGrown * bytes;
}

std::string text_json(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const std::string text = tokenizer.decode(ids, false);
  return written([&](JsonWriter& json) {
    json.key("prompt");
    json.text({text});
  });
}

uint64_t text_json_bytes(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  constexpr uint64_t kReplaced = 3;  // U+FFFD for a byte
  uint64_t bytes = JsonWriter::kPiece;
  for (int32_t id : ids) {
    if (!tokenizer.has(id)) continue;
    const std::string text = tokenizer.bytes(id, false);
    bytes += kReplaced * text.size() + quoted_bytes(text) + kReplaced * text.size();
  }
  return kGrown * bytes;
}

}  // namespace sluice
