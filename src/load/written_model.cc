#include "src/load/written_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/formats/stored_format.h"

namespace sluice {
namespace {

constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kQuantization = "quantization_config";
constexpr std::string_view kSpaces = " \t\r\n";

// Why a matrix cannot be written as a quantized linear layer; empty: it can.
std::string refusal_of(const WrittenFormat& format, const HubTensor& tensor) {
  if (tensor.shape.elements() == 0) return "it has no elements";
  if (tensor.parts.front().param->role == ParamRole::embedding)
    return "it is a table of embeddings";
  if (tensor.shape.size() != 2) return "it has the matrices of several layers in one tensor";
  if (tensor.is_transposed) return "it is stored as [inputs, outputs]";
  if (!tensor.name.ends_with(".weight")) return "its name does not end with .weight";
  return format.refusal(tensor.inputs);
}

// ".down_proj" of a layer's down_proj.
std::string last_part(const std::string& module) {
  const size_t dot = module.rfind('.');
  return dot == std::string::npos ? module : module.substr(dot);
}

// The formats of matrices.
class FormatChoice {
 public:
  FormatChoice(const QuantizeRequest& request, WrittenMethod method, std::deque<WrittenFormat>& all)
      : request_(request), method_(method), all_(all) {}

  // Null: the tensor stays what it is.
  const WrittenFormat* of(const HubTensor& tensor) {
    if (tensor.is_vector) return nullptr;
    const WrittenFormat* format = format_of(tensor.parts.front());
    for (const HubPart& part : tensor.parts)
      if (format_of(part) != format)
        fail(ErrorKind::refused,
             "{}: parts of it have different schemes; give a rule for all of it", tensor.name);
    const std::string refusal = format != nullptr ? refusal_of(*format, tensor) : "";
    if (!refusal.empty())
      fail(ErrorKind::refused,
           "{}: has no {} form, as {}; leave it as it is by a rule before the scheme: "
           "--quantization '*{}=none,{}'",
           tensor.name, format->scheme().name, refusal, last_part(stem_of(tensor.name)),
           format->scheme().name);
    return format;
  }

 private:
  const WrittenFormat* format_of(const HubPart& part) {
    const QuantScheme& scheme = scheme_of(request_, *part.param, *part.piece);
    if (scheme.group == ScaleGroup::none) return nullptr;
    const auto found =
        std::ranges::find_if(all_, [&](const WrittenFormat& f) { return f.scheme() == scheme; });
    return found != all_.end() ? &*found : &all_.emplace_back(method_, scheme);
  }

  const QuantizeRequest& request_;
  WrittenMethod method_;
  std::deque<WrittenFormat>& all_;
};

// Modules by their formats. Those without one are all layers that may be linear ones; a head that
// is the table of embeddings has no tensor.
std::vector<WrittenModules> modules_of(const WrittenModel& written) {
  std::vector<WrittenModules> modules(1);
  for (const WrittenFormat& format : written.formats) modules.push_back({&format, {}});
  bool has_head = false;
  for (const TensorToStore& t : written.tensors) {
    const std::string name = stem_of(t.name());
    if (t.shape().size() != 2 || name == t.name()) continue;
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

std::string module_of(const std::string& tensor) {
  return tensor.substr(0, std::min(tensor.rfind('.'), tensor.size()));
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

namespace {

// Tensors of a hub's checkpoint that no part of the model has, and that are stored as numbers:
// those of towers, for one.
void add_ignored(const ReadPlan& plan, const io::CheckpointIndex& index, WrittenModel& written) {
  const std::set<std::string_view> ignored(plan.ignored.begin(), plan.ignored.end());
  std::set<std::string> quantized;  // modules
  for (const io::StoredTensor& t : index.tensors())
    if (ignored.contains(t.name) && !is_float_weight(t.dtype)) quantized.insert(module_of(t.name));
  size_t left_out = 0;
  for (const io::StoredTensor& t : index.tensors()) {
    if (!ignored.contains(t.name)) continue;
    if (quantized.contains(module_of(t.name)))
      ++left_out;
    else
      written.tensors.push_back({.stored = &t});
  }
  if (left_out > 0)
    log::warning("{} quantized tensors that are no part of the language model are left out",
                 left_out);
}

// The tensors of another form that no part of the model has, and the hub has no place for. Vectors
// are not worth a word: a format has some of its own.
void warn_of_ignored(const ReadPlan& plan, const io::CheckpointIndex& index) {
  const auto left_out = std::ranges::count_if(plan.ignored, [&](const std::string& name) {
    const io::StoredTensor* stored = index.find(name);
    return stored != nullptr && stored->shape.size() > 1;
  });
  if (left_out > 0)
    log::warning("{} tensors that are no part of the language model are left out", left_out);
}

}  // namespace

WrittenModel made_model(const HubSource& from, const WrittenNumbers& numbers) {
  WrittenModel written;
  written.form = std::make_unique<HubForm>(
      hub_form(from.source, from.model, from.plan, from.index, from.is_hub));
  std::optional<FormatChoice> choice;
  if (numbers.request) choice.emplace(*numbers.request, numbers.method, written.formats);
  for (const HubTensor& tensor : written.form->tensors) {
    TensorToStore to{
        .made = &tensor, .dtype = tensor.dtype, .format = choice ? choice->of(tensor) : nullptr};
    if (!tensor.is_vector) to.dtype = numbers.dtype.value_or(tensor.dtype);
    const io::StoredTensor* stored = from.is_hub ? from.index.find(tensor.name) : nullptr;
    if (stored != nullptr && !tensor.is_quantized &&
        (tensor.is_vector || to.dtype != DType::f32 || stored->dtype == DType::f32))
      to = {.stored = stored, .to_bf16 = numbers.dtype == DType::bf16, .format = to.format};
    written.tensors.push_back(to);
  }
  if (from.is_hub)
    add_ignored(from.plan, from.index, written);
  else
    warn_of_ignored(from.plan, from.index);
  if (!numbers.request) return written;
  if (written.formats.empty())
    fail(ErrorKind::usage, "--quantization {}: quantizes no matrix of the model",
         numbers.request->name());
  written.quantization = quantization_config(numbers.method, modules_of(written));
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

std::string with_dtype(std::string config, DType dtype) {
  const std::string_view name = dtype == DType::bf16 ? "\"bfloat16\"" : "\"float32\"";
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    for (size_t at = value_after(config, key, 0); at != std::string::npos;
         at = value_after(config, key, at)) {
      const size_t end = config[at] == '"' ? config.find('"', at + 1) : std::string::npos;
      if (end != std::string::npos) config.replace(at, end + 1 - at, name);
    }
  }
  return config;
}

std::string without_quantization(const std::string& config) {
  OrderedJson json = parse_ordered(config, "config.json");
  const auto erase = [](OrderedJson& holder) {
    for (const char* key : {"quantization_config", "quantization", "compression_config"})
      holder.erase(key);
  };
  erase(json);
  if (json.contains("text_config") && json["text_config"].is_object()) erase(json["text_config"]);
  return json.dump(2) + "\n";
}

}  // namespace sluice
