// Ways to split text before byte-level encoding, which tokenizer.ggml.pre names. The patterns are
// those of the models' own tokenizer.json.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/models/gguf/gguf_export.h"
#include "src/text/conversion.h"

namespace sluice {
namespace {

using Pattern = std::string_view;

constexpr Pattern kThreeDigits[]{split_patterns::kThreeDigits};
constexpr Pattern kOneDigit[]{split_patterns::kOneDigit};
constexpr Pattern kCasedOneDigit[]{split_patterns::kCasedOneDigit};
constexpr Pattern kCasedThreeDigits[]{split_patterns::kCasedThreeDigits};
constexpr Pattern kHanCasedThreeDigits[]{split_patterns::kHanCasedThreeDigits};
constexpr Pattern kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr Pattern kGroupsOfDigits = R"(\p{N}{1,3})";
constexpr Pattern kIdeographs = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";

// Words with marks; a sign of ASCII begins one.
constexpr Pattern kDeepseekV3[]{
    kGroupsOfDigits, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Words of scripts with cases, signs, ideographs, and numbers.
constexpr Pattern kDeepseek[]{R"([\r\n])",
                              R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)",
                              "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                              R"(\s+$)",
                              kIdeographs,
                              R"(\p{N}+)"};
constexpr Pattern kDeepseekCoder[]{R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kIdeographs,
                                   R"(\p{N})"};
constexpr Pattern kFalcon[]{R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"};
constexpr Pattern kQwen35[]{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Pattern kBailing[]{
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Pattern kSeed[]{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Pattern kExaoneMoe[]{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
// Digits in threes from the right, then words of scripts without spaces.
constexpr Pattern kAfmoe[]{
    R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))",
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-"
    "\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-"
    "\ud7af\u1100-\u11ff]+",
    kDeepseekV3[2]};
constexpr Pattern kYoutu[]{
    "[\uac00-\ud7a3\u3131-\u318e]+|["
    "\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|["
    "\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Pattern kMiniCpm5[]{
    kGroupsOfDigits,
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Runs of white space are cut into powers of two.
constexpr Pattern kJais2[]{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"};
// Digits in threes from the right.
constexpr Pattern kCohere2Moe[]{R"(\d{1,3}(?=(?:\d{3})*\b))", split_patterns::kCasedThreeDigits};
constexpr Pattern kLaguna[]{R"([^\n]+|[\n]+)", split_patterns::kOneDigit};
constexpr Pattern kBloom[]{" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"};
constexpr Pattern kViking[]{kBloom[0], R"(\p{N})"};

constexpr GgufSplit kOfLlama3{.patterns = kThreeDigits, .ignore_merges = true, .add_bos = true};
constexpr GgufSplit kOfQwen2{.patterns = kOneDigit, .nfc = true};
constexpr GgufSplit kSingleDigits{.single_digits = true};

struct NamedSplit {
  std::string_view name;
  GgufSplit split;
};
constexpr auto kSplits = std::to_array<NamedSplit>({
    {"gpt-2", {}},
    {"phi-2", {}},
    {"olmo", {}},
    {"mpt", {}},
    {"jais", {}},
    {"exaone4", {}},
    {"mellum", {}},
    {"gigachat", {}},
    {"a.x-4.0", {}},
    {"trillion", {}},
    {"granite-docling", {}},
    {"starcoder", kSingleDigits},
    {"refact", kSingleDigits},
    {"smollm", kSingleDigits},
    {"command-r", kSingleDigits},
    {"exaone", kSingleDigits},
    {"codeshell", kSingleDigits},
    {"minerva-7b", kSingleDigits},
    {"mellum2", kSingleDigits},
    {"llama-bpe", kOfLlama3},
    {"llama3", kOfLlama3},
    {"llama-v3", kOfLlama3},
    {"falcon3", kOfLlama3},
    {"falcon-h1", kOfLlama3},
    {"pixtral", kOfLlama3},
    {"lfm2", kOfLlama3},
    {"midm-2.0", kOfLlama3},
    {"dbrx", {.patterns = kThreeDigits}},
    {"smaug-bpe", {.patterns = kThreeDigits}},
    {"glm4", {.patterns = kThreeDigits}},
    {"glm5", {.patterns = kThreeDigits}},
    {"chatglm-bpe", {.patterns = kThreeDigits}},
    {"qwen2", kOfQwen2},
    {"kormo", kOfQwen2},
    {"megrez", kOfQwen2},
    {"f2llmv2", kOfQwen2},
    {"qwen35", {.patterns = kQwen35, .nfc = true}},
    {"stablelm2", {.patterns = kOneDigit}},
    {"hunyuan", {.patterns = kOneDigit}},
    {"solar-open", {.patterns = kOneDigit}},
    {"grok-2", {.patterns = kOneDigit}},
    {"deepseek-r1-qwen", {.patterns = kOneDigit}},
    {"deepseek-llm", {.patterns = kDeepseek}},
    {"deepseek-coder", {.patterns = kDeepseekCoder}},
    {"deepseek-v3", {.patterns = kDeepseekV3}},
    {"hunyuan-dense", {.patterns = kDeepseekV3}},
    {"joyai-llm", {.patterns = kDeepseekV3}},
    {"kimi-k2", {.patterns = kHanCasedThreeDigits}},
    {"tekken", {.patterns = kCasedOneDigit, .ignore_merges = true, .add_bos = true}},
    {"gpt-4o", {.patterns = kCasedThreeDigits}},
    {"llama4", {.patterns = kCasedThreeDigits}},
    {"kanana2", {.patterns = kCasedThreeDigits}},
    {"minimax-m2", {.patterns = kCasedThreeDigits}},
    {"tiny_aya", {.patterns = kCohere2Moe}},
    {"cohere2moe", {.patterns = kCohere2Moe}},
    {"falcon", {.patterns = kFalcon}},
    {"bailingmoe", {.patterns = kBailing}},
    {"bailingmoe2", {.patterns = kBailing}},
    {"llada-moe", {.patterns = kBailing}},
    {"seed-coder", {.patterns = kSeed}},
    {"exaone-moe", {.patterns = kExaoneMoe}},
    {"jais-2", {.patterns = kJais2}},
    {"laguna", {.patterns = kLaguna}},
    {"bloom", {.patterns = kBloom}},
    {"gpt3-finnish", {.patterns = kBloom}},
    {"poro-chat", {.patterns = kBloom}},
    {"viking", {.patterns = kViking}},
    {"afmoe", {.patterns = kAfmoe}},
    {"youtu", {.patterns = kYoutu, .ignore_merges = true}},
    {"minicpm5", {.patterns = kMiniCpm5, .ignore_merges = true}},
});

// The steps of a pre_tokenizer.
std::vector<Json> steps_of(const Json& pre_tokenizer) {
  if (!pre_tokenizer.is_object()) return {};
  if (pre_tokenizer.value("type", "") != "Sequence") return {pre_tokenizer};
  std::vector<Json> steps;
  for (const Json& inner : pre_tokenizer.value("pretokenizers", Json::array()))
    std::ranges::copy(steps_of(inner), std::back_inserter(steps));
  return steps;
}

// The steps of a byte-level tokenizer.json before a text is encoded; nullopt: more than a name of
// GGUF can say.
struct Splits {
  std::vector<std::string> patterns;
  bool single_digits = false;
  bool gpt2 = false;  // the byte-level step splits, too
  bool ignore_merges = false;
  bool nfc = false;
  bool operator==(const Splits&) const = default;
};

std::optional<Splits> splits_of(const Json& tokenizer) {
  Splits found;
  const Json& model = tokenizer.at("model");
  found.ignore_merges = field_or(model, "ignore_merges", false);
  const Json normalizer = tokenizer.value("normalizer", Json());
  if (!normalizer.is_null() && normalizer.value("type", "") != "NFC") return std::nullopt;
  found.nfc = !normalizer.is_null();
  bool bytes = false;
  for (const Json& step : steps_of(tokenizer.value("pre_tokenizer", Json()))) {
    const std::string type = step.value("type", "");
    if (bytes) return std::nullopt;
    if (type == "ByteLevel") {
      bytes = true;
      found.gpt2 = field_or(step, "use_regex", true);
    } else if (type == "Digits" && found.patterns.empty() && !found.single_digits) {
      if (!field_or(step, "individual_digits", false)) return std::nullopt;
      found.single_digits = true;
    } else if (type == "Split" && step.value("behavior", "") == "Isolated" &&
               !field_or(step, "invert", false) && step["pattern"].contains("Regex")) {
      found.patterns.push_back(step["pattern"]["Regex"].get<std::string>());
    } else {
      return std::nullopt;
    }
  }
  return bytes ? std::optional(found) : std::nullopt;
}

}  // namespace

std::string_view find_gguf_pre(const Json& tokenizer) {
  const std::optional<Splits> wanted = splits_of(tokenizer);
  if (!wanted) return {};
  for (const auto& [name, split] : kSplits) {
    const Splits own{.patterns = {split.patterns.begin(), split.patterns.end()},
                     .single_digits = split.single_digits,
                     .gpt2 = split.patterns.empty(),
                     .ignore_merges = split.ignore_merges,
                     .nfc = split.nfc};
    if (own == *wanted) return name;
  }
  return {};
}

const GgufSplit& find_gguf_split(const JsonFields& fields) {
  constexpr const char* kKey = "tokenizer.ggml.pre";
  std::string name = fields.string_or(kKey, "default");
  if (name == "default") {
    log::warning("{}: {} does not say how text is split; GPT-2's way is taken", fields.where(),
                 kKey);
    name = "gpt-2";
  }
  auto found = std::ranges::find(kSplits, name, &NamedSplit::name);
  if (found != kSplits.end()) return found->split;
  std::vector<std::string_view> known;
  for (const NamedSplit& split : kSplits) known.push_back(split.name);
  fail(ErrorKind::refused, "{}: unknown {} {}; known: {}", fields.where(), kKey,
       io::printable(name), fmt::join(known, ", "));
}

}  // namespace sluice
