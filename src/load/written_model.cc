#include "src/load/written_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"
#include "src/formats/stored_format.h"
#include "src/plan/lay_out.h"

namespace sluice {
namespace {

constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kQuantization = "quantization_config";
constexpr std::string_view kSpaces = " \t\r\n";

// Why a matrix cannot be written as a quantized linear layer; empty: it can.
std::string refusal_of(const WrittenFormat& format, const Param& param, const Piece& piece,
                       const io::StoredTensor& stored) {
  if (stored.bytes == 0) return "it has no elements";
  if (param.role == ParamRole::embedding) return "it is a table of embeddings";
  if (stored.shape.size() != 2 || piece.view.index)
    return "it has the matrices of several layers in one tensor";
  if (piece.view.transposed != stored.column_major) return "it is stored as [inputs, outputs]";
  if (!stored.name.ends_with(".weight")) return "its name does not end with .weight";
  return format.refusal(matrix_shape(stored)[1]);
}

// ".down_proj" of a layer's down_proj.
std::string last_part(const std::string& module) {
  const size_t dot = module.rfind('.');
  return dot == std::string::npos ? module : module.substr(dot);
}

// The formats of stored matrices.
class FormatChoice {
 public:
  FormatChoice(const QuantizeRequest& request, WrittenMethod method, std::deque<WrittenFormat>& all)
      : request_(request), method_(method), all_(all) {}

  void add(const Param& param, const TensorPlan& t) {
    const Piece& piece = param.pieces[t.piece];
    if (t.matrix->kept)
      fail(ErrorKind::refused,
           "{}: is quantized already; quantize the checkpoint that it was made "
           "from",
           t.stored->name);
    const WrittenFormat* format = nullptr;
    if (t.group != ScaleGroup::none) format = &format_of(scheme_of(request_, param, piece));
    const std::string refusal =
        format != nullptr ? refusal_of(*format, param, piece, *t.stored) : "";
    if (!refusal.empty())
      fail(ErrorKind::refused,
           "{}: has no {} form, as {}; leave it as it is by a rule before the scheme: "
           "--quantization '*{}=none,{}'",
           t.stored->name, format->scheme().name, refusal, last_part(stem_of(t.stored->name)),
           format->scheme().name);
    const auto [at, is_new] = chosen_.try_emplace(t.stored, format);
    if (!is_new && at->second != format)
      fail(ErrorKind::refused, "{}: parts of it have different schemes; give a rule for all of it",
           t.stored->name);
  }
  const WrittenFormat* find(const io::StoredTensor& stored) const {
    const auto found = chosen_.find(&stored);
    return found == chosen_.end() ? nullptr : found->second;
  }

 private:
  const WrittenFormat& format_of(const QuantScheme& scheme) {
    const auto found =
        std::ranges::find_if(all_, [&](const WrittenFormat& f) { return f.scheme() == scheme; });
    return found != all_.end() ? *found : all_.emplace_back(method_, scheme);
  }

  const QuantizeRequest& request_;
  WrittenMethod method_;
  std::deque<WrittenFormat>& all_;
  std::unordered_map<const io::StoredTensor*, const WrittenFormat*> chosen_;
};

// Modules by their formats. Those without one are all layers that may be linear ones; a head that
// is the table of embeddings has no tensor.
std::vector<WrittenModules> modules_of(const WrittenModel& written) {
  std::vector<WrittenModules> modules(1);
  for (const WrittenFormat& format : written.formats) modules.push_back({&format, {}});
  bool has_head = false;
  for (const TensorToStore& t : written.tensors) {
    const std::string name = stem_of(t.stored->name);
    if (t.stored->shape.size() != 2 || name == t.stored->name) continue;
    has_head = has_head || name == kHead;
    std::ranges::find(modules, t.format, &WrittenModules::format)->names.push_back(name);
  }
  if (!has_head) modules.front().names.emplace_back(kHead);
  return modules;
}

// The place of a member's value in the text, from `at` on; npos: there is no such member.
size_t value_after(std::string_view json, std::string_view key, size_t at) {
  const std::string quoted = fmt::format("\"{}\"", key);
  for (at = json.find(quoted, at); at != std::string_view::npos; at = json.find(quoted, at)) {
    at = json.find_first_not_of(kSpaces, at + quoted.size());
    if (at == std::string_view::npos || json[at] != ':') continue;
    return json.find_first_not_of(kSpaces, at + 1);
  }
  return at;
}

// The text without members of that name whose value is null.
std::string without_nulls(std::string json, std::string_view key) {
  constexpr std::string_view kNull = "null";
  for (size_t at = value_after(json, key, 0); at != std::string::npos;
       at = value_after(json, key, at)) {
    if (json.compare(at, kNull.size(), kNull) != 0) continue;
    size_t begin = json.rfind(fmt::format("\"{}\"", key), at);
    size_t end = json.find_first_not_of(kSpaces, at + kNull.size());
    const size_t before = json.find_last_not_of(kSpaces, begin - 1);
    if (json[end] == ',') {
      end = json.find_first_not_of(kSpaces, end + 1);
    } else if (json[before] == ',') {
      begin = before;
    }
    json.erase(begin, end - begin);
    at = begin;
  }
  return json;
}

}  // namespace

WrittenModel converted_model(const io::CheckpointIndex& index, bool to_bf16) {
  if (index.tensors().empty()) fail(ErrorKind::refused, "the checkpoint holds no tensors");
  WrittenModel written;
  for (const io::StoredTensor& stored : index.tensors())
    written.tensors.push_back({.stored = &stored, .to_bf16 = to_bf16});
  return written;
}

WrittenModel quantized_model(Model& model, const io::CheckpointIndex& index,
                             const QuantizeRequest& request, WrittenMethod method) {
  WrittenModel written;
  FormatChoice choice(request, method, written.formats);
  const ReadPlan plan = lay_out(model, index, request);
  for (const TensorPlan& t : plan.tensors)
    if (!plan.params[t.param].param->pieces[t.piece].vector)
      choice.add(*plan.params[t.param].param, t);
  for (const io::StoredTensor& stored : index.tensors())
    written.tensors.push_back({.stored = &stored, .format = choice.find(stored)});
  if (written.formats.empty())
    fail(ErrorKind::usage, "--quantization {}: quantizes no matrix of the model", request.name());
  written.quantization = quantization_config(method, modules_of(written));
  return written;
}

std::string with_quantization(std::string config, const Json& quantization) {
  config = without_nulls(std::move(config), kQuantization);
  const size_t end = config.rfind('}');
  check(end != std::string::npos && end > 0, "config.json is an object");
  config.erase(config.find_last_not_of(kSpaces, end - 1) + 1);
  const std::string comma = config.back() == '{' ? "" : ",";
  std::string value;
  for (const char c : quantization.dump(2)) value += c == '\n' ? "\n  " : std::string(1, c);
  return fmt::format("{}{}\n  \"{}\": {}\n}}\n", config, comma, kQuantization, value);
}

std::string with_bf16(std::string config) {
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    for (size_t at = value_after(config, key, 0); at != std::string::npos;
         at = value_after(config, key, at)) {
      const size_t end = config[at] == '"' ? config.find('"', at + 1) : std::string::npos;
      if (end != std::string::npos) config.replace(at, end + 1 - at, "\"bfloat16\"");
    }
  }
  return config;
}

}  // namespace sluice
