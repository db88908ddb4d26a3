#include "src/load/gguf_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "io/file.h"
#include "quant/make_blocks.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/formats/formats.h"
#include "src/load/gguf_tensors.h"
#include "src/plan/lay_out.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Numbers of general.file_type, as the gguf package has them (LlamaFileType).
constexpr auto kSchemes = std::to_array<GgufScheme>({
    {"q8_0", 7, DType::q8_0, DType::q8_0, DType::q8_0, DType::q8_0, DType::q8_0},
    {"q6_k", 18, DType::q6_k, DType::q6_k, DType::q6_k, DType::q6_k, DType::q6_k},
    {"q5_k_m", 17, DType::q5_k, DType::q5_k, DType::q5_k, DType::q6_k, DType::q6_k},
    {"q5_k", 16, DType::q5_k, DType::q5_k, DType::q5_k, DType::q6_k, DType::q5_k},
    {"q4_k_m", 15, DType::q4_k, DType::q4_k, DType::q4_k, DType::q6_k, DType::q6_k},
    {"q4_k", 14, DType::q4_k, DType::q4_k, DType::q4_k, DType::q6_k, DType::q4_k},
    {"q4_0", 2, DType::q4_0, DType::q4_0, DType::q4_0, DType::q6_k, DType::q4_0},
    {"mxfp4", 38, DType::q8_0, DType::e2m1_e8m0, DType::q8_0, DType::q8_0, DType::q8_0},
});
constexpr uint32_t kAllF32 = 0, kMostlyF16 = 1, kMostlyBf16 = 32;

bool is_mxfp4(const WeightFormat& format) {
  return format.scales == ScaleKind::grouped && format.table == CodeTable::e2m1 &&
         format.scale_type == DType::f8_e8m0 && format.scale_cols == 32;
}

// The type of a matrix that nobody quantizes.
DType kept_type(const ReadPlan& plan, const GgufTensor& tensor, std::optional<DType> numbers) {
  if (numbers) return *numbers;
  if (tensor.whole != nullptr) return kept_dtype(tensor.whole->dtype);
  const TensorPlan& first = plan.tensors[tensor.rows.front().tensor];
  const WeightFormat& format = plan.params[first.param].format;
  if (first.matrix->kept) return is_mxfp4(format) ? DType::e2m1_e8m0 : DType::bf16;
  const DType kept = kept_dtype(first.stored->dtype);
  return is_float_weight(kept) ? kept : DType::bf16;
}

// The type for rows that are no whole blocks of the one that is wanted.
DType fitting(DType type, int64_t cols) {
  for (const DType fits : {type, DType::q8_0})
    if (cols % stored_type(fits).block_elements == 0) return fits;
  return DType::f16;
}

class TypeChoice {
 public:
  TypeChoice(const GgufOrigin& origin, const ReadPlan& plan, const GgufScheme* scheme,
             std::optional<DType> numbers)
      : origin_(origin), plan_(plan), scheme_(scheme), numbers_(numbers) {}
  // Matrices with one column a row, and routers, stay exact.
  DType of(const GgufTensor& tensor) const {
    if (tensor.is_vector() || tensor.shape.size() == 1) return DType::f32;
    const ParamRole role = role_of(tensor);
    if (role == ParamRole::router) return DType::f32;
    const DType kept = kept_type(plan_, tensor, numbers_);
    if (scheme_ == nullptr || role == ParamRole::norm || tensor.whole != nullptr) return kept;
    return fitting(wanted(tensor, role), tensor.shape[tensor.shape.size() - 1]);
  }

 private:
  ParamRole role_of(const GgufTensor& tensor) const {
    if (tensor.rows.empty()) return ParamRole::linear;
    return plan_.params[plan_.tensors[tensor.rows.front().tensor].param].param->role;
  }
  bool is_expert(const GgufTensor& tensor) const {
    if (tensor.rows.empty()) return tensor.shape.size() > 2;
    return plan_.params[plan_.tensors[tensor.rows.front().tensor].param].param->expert >= 0;
  }
  DType wanted(const GgufTensor& tensor, ParamRole role) const {
    const bool tied = origin_.model.root->spec().tie_word_embeddings;
    if (role == ParamRole::head || (role == ParamRole::embedding && tied)) return scheme_->head;
    if (role == ParamRole::embedding) return scheme_->embedding;
    if (scheme_->better != scheme_->linear && is_better(tensor.name)) return scheme_->better;
    return is_expert(tensor) ? scheme_->experts : scheme_->linear;
  }
  // The first and the last eighth of the layers, and each third between, as llama.cpp has it.
  bool is_better(std::string_view name) const {
    constexpr std::string_view kLayer = "blk.";
    const size_t dot = name.find('.', kLayer.size());
    if (!name.starts_with(kLayer) || dot == std::string_view::npos) return false;
    const std::string_view rest = name.substr(dot + 1);
    if (!rest.starts_with("attn_v.") && !rest.starts_with("ffn_down")) return false;
    const auto layers = static_cast<int64_t>(origin_.model.root->spec().layers.size());
    const int64_t layer =
        parse_number<int64_t>(name.substr(kLayer.size(), dot - kLayer.size())).value_or(0);
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
  }

  const GgufOrigin& origin_;
  const ReadPlan& plan_;
  const GgufScheme* scheme_;
  std::optional<DType> numbers_;
};

uint32_t file_type(const GgufScheme* scheme, const std::vector<GgufTensor>& tensors) {
  if (scheme != nullptr) return scheme->file_type;
  const auto has = [&](DType type) {
    return std::ranges::any_of(
        tensors, [&](const GgufTensor& t) { return t.type == type && t.shape.size() > 1; });
  };
  if (has(DType::bf16)) return kMostlyBf16;
  return has(DType::f16) ? kMostlyF16 : kAllF32;
}

// The file without its weights.
void write_trial(const GgufModel& model, const fs::path& path) {
  std::vector<io::TensorToWrite> tensors;
  for (const GgufTensor& t : model.tensors) tensors.push_back(t.written());
  const io::GgufLayout layout = io::lay_out_gguf(model.metadata, {}, tensors);
  {
    std::ofstream file(path, std::ios::binary);
    file << layout.header;
    for (size_t t = 0; t < model.tensors.size() && !model.tensors[t].numbers.empty(); ++t) {
      const std::vector<float>& numbers = model.tensors[t].numbers;
      file.write(reinterpret_cast<const char*>(numbers.data()),
                 static_cast<std::streamsize>(numbers.size() * sizeof(float)));
      file << std::string(layout.padding[t], '\0');
    }
    file.close();
    if (file.fail())
      fail(ErrorKind::runtime, "{}: cannot be written", io::printable(path.string()));
  }
  std::error_code error;
  fs::resize_file(path, layout.file_bytes, error);
  if (error)
    fail(ErrorKind::runtime, "{}: cannot be written: {}", io::printable(path.string()),
         error.message());
}

bool are_near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max(1., std::abs(a)); }

// Returns whether two ropes rotate alike, whatever their fields are.
bool rotate_alike(const RopeConfig& a, const RopeConfig& b) {
  if (a.dim != b.dim || !are_near(a.attention_factor, b.attention_factor) ||
      a.depends_on_length() != b.depends_on_length())
    return false;
  constexpr float kStands = 1e-12f;  // a pair that no length turns
  for (const int64_t length : {int64_t{1}, a.usable_positions()}) {
    const std::vector<float> of_a = rope_frequencies(a, length), of_b = rope_frequencies(b, length);
    for (size_t i = 0; i < of_a.size(); ++i)
      if (std::abs(of_a[i] - of_b[i]) > 1e-5f * of_a[i] + kStands) return false;
  }
  return true;
}

// Gives each layer a kind of its own, without what no layer computes.
void use_own_kinds(DecoderSpec& spec) {
  std::vector<LayerSpec> kinds;
  for (size_t& kind : spec.layers) {
    kinds.push_back(spec.kinds[kind]);
    for (MlpBranch& branch : kinds.back().mlps)
      if (branch.experts) branch.mlp = {};  // they are in its place
    kind = kinds.size() - 1;
  }
  spec.kinds = std::move(kinds);
}

// Returns whether both compute the same of the same weights.
bool are_same(DecoderSpec a, DecoderSpec b) {
  if (a.ropes.size() != b.ropes.size()) return false;
  for (size_t i = 0; i < a.ropes.size(); ++i)
    if (!rotate_alike(a.ropes[i], b.ropes[i])) return false;
  for (DecoderSpec* spec : {&a, &b}) {
    spec->ropes.clear();
    spec->prefixes.clear();
    spec->ignorable.clear();
    spec->other_names.clear();
    use_own_kinds(*spec);
    spec->vocab_size = std::max(spec->vocab_size, std::exchange(spec->table_rows, 0));
  }
  return a == b;
}

// Texts that tokenizers cut in many ways.
constexpr auto kTexts = std::to_array<std::string_view>({
    "Hello, world! It's 2024-05-17, and I've 1234567 reasons.",
    "  two  spaces\n\n\nand lines\r\n\tand tabs   ",
    "na\u00efve caf\u00e9 \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f "
    "\u041f\u0440\u0438\u0432\u0435\u0442 \U0001F600 \u0967\u0968",
    "def f(x):\n    return x**2  # CamelCaseWords snake_case ALLCAPS 3.14e-5",
    "",
});

bool cut_alike(const Tokenizer& a, const Tokenizer& b, std::string_view text) {
  return a.encode(text, false) == b.encode(text, false) &&
         a.encode(text, true) == b.encode(text, true);
}

void check_text(const Tokenizer& before, const Tokenizer& made, std::string_view text) {
  if (!cut_alike(before, made, text))
    fail(ErrorKind::refused,
         "the tokenizer: GGUF's keys cannot say all of it: '{}' would become other tokens",
         io::printable(text));
}

// The tokenizer whose added tokens are found in any text, and leave the space around them.
Tokenizer without_stripping(TokenizerFiles files) {
  for (Json& token : files.file.config["added_tokens"])
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) token[flag] = false;
  return Tokenizer::load(files);
}

// GGUF cannot say that an added token takes spaces along; a prompt is seldom other for it.
void check_added_tokens(const TokenizerFiles& files, const Tokenizer& before,
                        const Tokenizer& made) {
  std::optional<Tokenizer> plain;
  std::vector<std::string> stripping;
  for (const Json& token : files.file.config.value("added_tokens", Json::array())) {
    const std::string content = field_or(token, "content", std::string());
    const std::string text = "a " + content + "  b";
    if (content.empty() || cut_alike(before, made, text)) continue;
    if (!plain) plain = without_stripping(files);
    check_text(*plain, made, text);
    stripping.push_back(io::printable(content));
  }
  if (!stripping.empty())
    log::warning("the tokenizer: GGUF cannot say lstrip, rstrip and single_word of {}",
                 fmt::join(stripping, ", "));
}

void check_tokenizer(const TokenizerFiles& files, const Tokenizer& before,
                     const std::optional<Tokenizer>& made) {
  if (!made) fail(ErrorKind::refused, "the tokenizer: GGUF's keys cannot say it");
  for (const std::string_view text : kTexts) check_text(before, *made, text);
  check_added_tokens(files, before, *made);
}

// The key of config.json without which the model would be the one that is read; empty: no single
// one.
std::string odd_key(const GgufArchitecture& row, const Model& of, const DecoderSpec& read) {
  for (const auto& [key, value] : of.files.config.items()) {
    Json config = of.files.config;
    config.erase(key);
    config["architectures"] = {of.files.architecture};
    try {
      DecoderSpec without = read_in_gguf(row, std::move(config)).spec;
      without.tie_word_embeddings = read.tie_word_embeddings;
      if (are_same(std::move(without), read)) return key;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::refused) throw;
    }
  }
  return {};
}

[[noreturn]] void refuse_config(const GgufArchitecture& row, const Model& of,
                                const DecoderSpec& read) {
  const std::string key = odd_key(row, of, read);
  if (!key.empty())
    fail(ErrorKind::refused, "config.json: {} is {}, which no key of GGUF's {} says", key,
         one_line(of.files.config[key].dump()), row.name);
  fail(ErrorKind::refused, "config.json: says of a {} what no keys of GGUF's {} say",
       of.files.architecture, row.name);
}

// The path of the file that is tried is no one's.
[[noreturn]] void refuse_as(const GgufArchitecture& row, const fs::path& trial,
                            const Error& error) {
  const std::string place = io::printable(trial.string()) + ": ", what = error.what();
  if (!what.starts_with(place)) throw error;
  fail(ErrorKind::refused, "config.json: no keys of GGUF's {} say it all: {}", row.name,
       what.substr(place.size()));
}

// Reads the file as it will be, and compares it with what it is made of.
void check_trial(const fs::path& path, const GgufArchitecture& row, const GgufOrigin& origin,
                 const Model& in_gguf, const Tokenizer* tokenizer) {
  const std::unique_ptr<ModelSource> source = open_gguf_model(path, {});
  const io::CheckpointIndex index = source->index();
  Model model = read_model(*source);
  const DecoderSpec spec = model.spec;  // before it follows the tensors
  settle_stored_formats(model.files.config, index);
  build_root(model, {}, &index);
  if (!are_same(in_gguf.root->spec(), model.root->spec())) refuse_config(row, origin.model, spec);
  lay_out(model, index, {*find_quant_scheme("none")});
  for (const int32_t id : origin.model.files.eos_ids)
    if (std::ranges::find(model.files.eos_ids, id) == model.files.eos_ids.end())
      fail(ErrorKind::refused, "config.json: eos_token_id {} cannot be an end of texts in GGUF",
           id);
  if (tokenizer != nullptr) check_tokenizer(*origin.tokenizer, *tokenizer, source->tokenizer());
}

// All ends of texts; llama.cpp reads two of them.
void describe_ends(std::span<const int32_t> ends, const Tokenizer* tokenizer,
                   io::GgufMetadata& metadata) {
  if (ends.empty()) return;
  metadata.add_integers("tokenizer.ggml.eos_token_ids", ends);
  if (tokenizer == nullptr) return;
  const auto further =
      std::ranges::find_if(ends, [&](int32_t id) { return id != tokenizer->eos_id(); });
  if (further != ends.end())
    metadata.add_integer("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(*further));
}

// Removes a file in the end, if it is there.
struct FileRemoval {
  const fs::path& path;
  ~FileRemoval() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

// The same for each row of the table that is tried.
struct Attempt {
  const GgufOrigin& origin;
  const GgufScheme* scheme = nullptr;
  std::optional<DType> numbers;
  const fs::path& trial;
  const Tokenizer* tokenizer = nullptr;
  const ReadPlan& plan;
};

GgufModel make(const GgufArchitecture& row, const Attempt& attempt, bool names_windows) {
  const GgufOrigin& origin = attempt.origin;
  Model in_gguf = model_in_gguf(row, origin.model);
  GgufModel made;
  std::vector<GgufTensor> tensors =
      gguf_tensors(row, origin.model, in_gguf, attempt.plan, origin.index);
  const TypeChoice choice(origin, attempt.plan, attempt.scheme, attempt.numbers);
  for (GgufTensor& tensor : tensors) tensor.type = choice.of(tensor);
  io::GgufMetadata& metadata = made.metadata;
  metadata.add_string("general.architecture", row.name);
  metadata.add_string("general.type", "model");
  metadata.add_string("general.name", origin.name);
  metadata.add_integer("general.file_type", file_type(attempt.scheme, tensors));
  metadata.add_integer("general.quantization_version", 2);
  for (GgufVector& vector : describe_model(row, origin.model, names_windows, metadata)) {
    const auto elements = static_cast<int64_t>(vector.values.size());
    made.tensors.push_back({.name = std::move(vector.name),
                            .shape = Shape{elements},
                            .numbers = std::move(vector.values)});
  }
  std::ranges::move(tensors, std::back_inserter(made.tensors));
  const DecoderSpec& spec = origin.model.root->spec();
  if (attempt.tokenizer != nullptr) {
    describe_tokenizer(*origin.tokenizer, *attempt.tokenizer,
                       std::max(spec.vocab_size, spec.table_rows), origin.chat, metadata);
  } else {
    metadata.add_string("tokenizer.ggml.model", "none");
  }
  describe_ends(origin.model.files.eos_ids, attempt.tokenizer, metadata);
  write_trial(made, attempt.trial);
  try {
    check_trial(attempt.trial, row, origin, in_gguf, attempt.tokenizer);
  } catch (const Error& e) {
    refuse_as(row, attempt.trial, e);
  }
  return made;
}

// A file may have tensors that the model does not need.
bool has(const GgufModel& made, const std::string& stored) {
  return std::ranges::any_of(made.tensors, [&](const GgufTensor& t) {
    return (t.whole != nullptr && t.whole->name == stored) ||
           std::ranges::any_of(t.elements,
                               [&](const GgufElements& e) { return e.stored->name == stored; });
  });
}

void warn_of_ignored(const ReadPlan& plan, const GgufModel& made) {
  std::vector<std::string> out;
  std::ranges::copy_if(plan.ignored, std::back_inserter(out),
                       [&](const std::string& name) { return !has(made, name); });
  if (out.empty()) return;
  log::warning("{} tensor{} no part of the language model {} left out ({}{})", out.size(),
               out.size() == 1 ? " that is" : "s that are", out.size() == 1 ? "is" : "are",
               io::printable(out.front()), out.size() > 1 ? ", ..." : "");
}

}  // namespace

std::span<const GgufScheme> gguf_schemes() { return kSchemes; }

const GgufScheme& find_gguf_scheme(std::string_view name) {
  const auto found = std::ranges::find(kSchemes, name, &GgufScheme::name);
  if (found != kSchemes.end()) return *found;
  fail(ErrorKind::usage, "--quantization {}: --format gguf has {}", name,
       fmt::join(kSchemes | std::views::transform(&GgufScheme::name), ", "));
}

GgufModel gguf_model(const GgufOrigin& origin, const GgufScheme* scheme,
                     std::optional<DType> numbers, const fs::path& trial) {
  std::optional<Tokenizer> tokenizer;
  if (origin.tokenizer != nullptr) tokenizer = Tokenizer::load(*origin.tokenizer);
  ReadPlan plan = lay_out(origin.model, origin.index, {*find_quant_scheme("none")});
  const Attempt attempt{origin, scheme, numbers, trial, tokenizer ? &*tokenizer : nullptr, plan};
  std::optional<Error> first;
  for (const GgufArchitecture* row : gguf_rows_for(origin.model)) {
    for (const bool names_windows : {false, true}) {
      const FileRemoval removal{trial};
      try {
        GgufModel made = make(*row, attempt, names_windows);
        warn_of_ignored(plan, made);
        made.plan = std::move(plan);
        return made;
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::refused) throw;
        if (!first) first = e;
      }
    }
  }
  throw *first;
}

}  // namespace sluice
