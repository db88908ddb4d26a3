#include "tests/support/kv_scales.h"

#include <string_view>
#include <utility>

#include "quant/float8.h"

namespace sluice::test {

TinyTensor scale_tensor(std::string name, float value, const char* dtype,
                        std::vector<int64_t> shape) {
  TinyTensor tensor{std::move(name), std::move(shape), dtype, {}};
  if (std::string_view(dtype) == "F32") {
    tensor.bytes.assign(reinterpret_cast<const char*>(&value), 4);
  } else {
    uint16_t code = std::string_view(dtype) == "BF16" ? float_to_bf16(value) : float_to_f16(value);
    tensor.bytes.assign(reinterpret_cast<const char*>(&code), 2);
  }
  return tensor;
}

std::string attention_path(int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".self_attn.";
}

float key_scale(int64_t layer) { return 0.01f * static_cast<float>(layer + 1); }
float value_scale(int64_t layer) { return 0.005f * static_cast<float>(layer + 3); }

void add_kv_scales(std::vector<TinyTensor>& tensors, int64_t layers) {
  for (int64_t l = 0; l < layers; ++l) {
    tensors.push_back(scale_tensor(attention_path(l) + "k_scale", key_scale(l)));
    tensors.push_back(scale_tensor(attention_path(l) + "v_scale", value_scale(l)));
  }
}

}  // namespace sluice::test
