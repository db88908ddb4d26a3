#include "src/plan/kv_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "io/checkpoint/read_tensors.h"
#include "quant/float8.h"
#include "src/base/log.h"
#include "src/plan/bind.h"

namespace sluice {
namespace {

using io::StoredTensor;

struct LayerScales {
  const StoredTensor* key = nullptr;
  const StoredTensor* value = nullptr;
};

float to_float(DType dtype, const std::string& bytes) {
  if (dtype == DType::f64) {
    double value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return static_cast<float>(value);
  }
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  uint16_t code;
  std::memcpy(&code, bytes.data(), sizeof code);
  return dtype == DType::bf16 ? bf16_to_float(code) : f16_to_float(code);
}

class ScaleReader {
 public:
  explicit ScaleReader(const io::CheckpointIndex& index) : index_(index) {}

  LayerScales find(const KvScaleNames& names) {
    LayerScales layer{find_one(names.key), find_one(names.value)};
    if (layer.key != nullptr && layer.value == nullptr) {
      fault(*layer.key, "is there without {}, the scale of the values", names.value.front());
    } else if (layer.key == nullptr && layer.value != nullptr) {
      fault(*layer.value, "is there without {}, the scale of the keys", names.key.front());
    }
    return layer;
  }

  void read(const std::vector<LayerScales>& layers) {
    // The index has its tensors in disk order: so are their addresses.
    std::set<const StoredTensor*> wanted;
    for (const LayerScales& l : layers) wanted.insert({l.key, l.value});
    std::erase_if(wanted, [&](const StoredTensor* t) { return t == nullptr || !fits(*t); });
    std::vector<const StoredTensor*> tensors(wanted.begin(), wanted.end());
    std::vector<std::string> bytes = io::read_tensors(index_, tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
      float value = values_[tensors[i]] = to_float(tensors[i]->dtype, bytes[i]);
      if (!std::isfinite(value) || value <= 0)
        fault(*tensors[i], "is {}, but must be finite and above 0", value);
    }
  }
  float value(const StoredTensor* tensor) const { return values_.at(tensor); }
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  template <class... Args>
  void fault(const StoredTensor& tensor, fmt::format_string<Args...> text, Args&&... args) {
    faults_.push_back(fmt::format("{}: {} {}", index_.files()[tensor.file].name, tensor.name,
                                  fmt::format(text, std::forward<Args>(args)...)));
  }

  const StoredTensor* find_one(const std::vector<std::string>& names) {
    const StoredTensor* found = nullptr;
    for (const std::string& name : names) {
      const StoredTensor* tensor = index_.find(name);
      if (tensor == nullptr) continue;
      if (found != nullptr) fault(*tensor, "is there beside {}, which is the same", found->name);
      found = tensor;
    }
    return found;
  }

  bool fits(const StoredTensor& tensor) {
    bool is_float = is_float_weight(tensor.dtype), is_one = tensor.shape.elements() == 1;
    if (!is_float) {
      fault(tensor, "has dtype {}, but must be BF16, F16, F32 or F64", dtype_name(tensor.dtype));
    } else if (!is_one) {
      fault(tensor, "has shape {}, but must be one number", tensor.shape.str());
    }
    return is_float && is_one;
  }

  const io::CheckpointIndex& index_;
  std::map<const StoredTensor*, float> values_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<KvScales> read_kv_scales(const CausalLM& model, const io::CheckpointIndex& index) {
  ScaleReader reader(index);
  std::vector<LayerScales> layers;
  const std::vector<KvScaleNames> names = model.kv_scale_names();
  for (const KvScaleNames& of_mixer : names) layers.push_back(reader.find(of_mixer));
  reader.read(layers);
  if (!reader.faults().empty()) {
    refuse(
        "the checkpoint's scales of the KV cache cannot be used (--kv-cache-dtype bfloat16 "
        "needs none)",
        reader.faults());
  }
  const auto states = std::ranges::count(names, true, [](auto& n) { return n.key.empty(); });
  const auto without = std::ranges::count(layers, nullptr, &LayerScales::key) - states;
  if (without > 0 && without + states < std::ssize(layers)) {
    log::warning(
        "{} of {} layers have no scales of the KV cache in the checkpoint; those of the "
        "others are not used: each token and head has its own",
        without, std::ssize(layers) - states);
  }
  std::vector<KvScales> scales;
  if (without > 0) return scales;
  for (const LayerScales& l : layers) {
    KvScales& mixer = scales.emplace_back();
    if (l.key != nullptr) mixer = {reader.value(l.key), reader.value(l.value)};
  }
  return scales;
}

}  // namespace sluice
