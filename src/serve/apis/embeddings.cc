#include "src/serve/apis/embeddings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/serve/apis/request_fields.h"
#include "src/text/base64.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 8> kRead{
    "add_special_tokens",     "dimensions", "encoding_format", "input", "model", "priority",
    "truncate_prompt_tokens", "user"};

void check_keys(const OrderedJson& body, const std::string& where, UnknownParameters* unknown) {
  for (const auto& [key, value] : body.items()) {
    if (value.is_null() || std::ranges::find(kRead, key) != kRead.end()) continue;
    if (unknown != nullptr && !unknown->strict()) {
      unknown->pass_over(key);
      continue;
    }
    fail(ErrorKind::refused, "{}: unknown parameter: {}", where, key);
  }
}

void normalize(std::vector<float>& vector) {
  double sum = 0;
  for (float x : vector) sum += static_cast<double>(x) * static_cast<double>(x);
  if (sum == 0) return;
  const double length = std::sqrt(sum);
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) / length);
}

// The number with the fewest digits that are this float32.
double shortest(float x) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), x).ptr;
  double same = 0;
  std::from_chars(text.data(), end, same);
  return same;
}

std::string as_base64(const std::vector<float>& vector) {
  std::string bytes;
  for (float x : vector) {
    const auto bits = std::bit_cast<uint32_t>(x);
    for (int shift : {0, 8, 16, 24}) bytes += static_cast<char>(bits >> shift & 0xFF);
  }
  return encode_base64(bytes);
}

class EmbeddingsAnswer : public Answer {
 public:
  EmbeddingsAnswer(EmbeddingsRequest asked, CompletionHead head)
      : Answer(std::move(asked.asked), std::move(head), nullptr),
        base64_(asked.base64),
        normalized_(asked.normalized) {}

  void finish(std::string& out) override {
    append_json(out, [&](JsonWriter& json) {
      json.begin_object();
      json.member("created", head_.created);
      json.key("data");
      json.array([&] {
        for (size_t i = 0; i < results_.size(); ++i) write(json, i, results_[i].front().embedding);
      });
      json.member("id", head_.id);
      json.member("model", head_.model);
      json.member("object", "list");
      json.key("usage");
      write_usage(json, usage());
      json.end_object();
    });
  }

 protected:
  void stream(Choice, const StreamPart&, std::string&) override {}

 private:
  void write(JsonWriter& json, size_t index, std::vector<float>& vector) const {
    if (normalized_) normalize(vector);
    json.begin_object();
    json.key("embedding");
    if (base64_) {
      json.text({as_base64(vector)});
    } else {
      json.array(vector, [&](float x) { json.value(shortest(x)); });
    }
    json.member("index", index);
    json.member("object", "embedding");
    json.end_object();
  }

  bool base64_;
  bool normalized_;
};

}  // namespace

EmbeddingsRequest parse_embeddings(const OrderedJson& json, const std::string& where,
                                   const RequestContext& context) {
  const OrderedFields body(json, where);
  check_keys(json, where, context.unknown);
  if (!context.embedding.refusal.empty())
    fail(ErrorKind::refused, "{} (--pooling takes another way)", context.embedding.refusal);
  EmbeddingsRequest asked;
  const std::string format = body.string_or("encoding_format", "float");
  if (format != "float" && format != "base64")
    fail(ErrorKind::refused, "{}: encoding_format must be \"float\" or \"base64\"", where);
  asked.base64 = format == "base64";
  const int64_t size = context.checkpoint.spec().output_size();
  if (body.integer_or("dimensions", 1, INT32_MAX, size) != size) {
    fail(ErrorKind::refused, "{}: dimensions: this model's vectors have {} and cannot be shortened",
         where, size);
  }
  if (body.integer_or("truncate_prompt_tokens", -1, INT32_MAX, -1) != -1)
    fail(ErrorKind::refused, "{}: truncate_prompt_tokens is not supported", where);
  asked.asked.request.pooling = context.embedding.pooling;
  asked.normalized = context.embedding.normalized;
  asked.asked.request.priority = body.integer_or("priority", -1'000'000, 1'000'000, 0);
  asked.asked.prompts = read_prompts(body, "input", context.checkpoint);
  check_prompts(asked.asked, where, context);
  return asked;
}

// Each number as a sum, a value, a copy of it, and its text.
uint64_t vectors_bytes(const Completion& asked, int64_t hidden_size) {
  constexpr uint64_t kNumber = sizeof(double) + 2 * sizeof(float) + 16;
  if (!asked.request.pooling) return 0;
  return asked.prompts.size() * static_cast<uint64_t>(hidden_size) * kNumber;
}

std::unique_ptr<Answer> embeddings_answer(EmbeddingsRequest asked, CompletionHead head) {
  return std::make_unique<EmbeddingsAnswer>(std::move(asked), std::move(head));
}

}  // namespace sluice
