// The standard forms in which a quantized matrix is written to a checkpoint: the tensors that it is
// made of, their bytes, and what config.json says of them. The forms are those that src/formats
// reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/format.h"
#include "quant/scheme.h"
#include "src/base/dtype.h"
#include "src/base/json.h"
#include "src/base/shape.h"

namespace sluice {

// The writers of --format, and the names of their `quant_method`.
enum class WrittenMethod : uint8_t { compressed_tensors, fp8, bitsandbytes };
std::span<const std::string_view> written_methods();
// The name of --format; none: another one.
std::optional<WrittenMethod> find_written_method(std::string_view name);

// The matrix as it was stored.
struct WrittenMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  DType stored = DType::bf16;
};

struct WrittenPlane {
  std::string suffix;  // of the layer's name: ".weight_scale"
  DType dtype = DType::f32;
  Shape shape;
};

// The form of a scheme's matrices. Weights are in plain rows.
class WrittenFormat {
 public:
  // Error(usage) where the method has no form for the scheme.
  WrittenFormat(WrittenMethod method, const QuantScheme& scheme);

  const QuantScheme& scheme() const { return scheme_; }
  // The tensors of a matrix, in the order of put().
  std::vector<WrittenPlane> planes(const WrittenMatrix& matrix) const;
  // Why such a matrix has no form; empty: it has one.
  std::string refusal(int64_t cols) const;

  // Gives `write` the bytes of the planes for rows [first, first + rows) of a matrix. `weight`
  // begins with the first, which begins a block, and its codes are changed in place. A plane's
  // bytes come in order.
  using Write = std::function<void(size_t plane, std::span<const std::byte> bytes)>;
  void put(const Weight& weight, int64_t first, int64_t rows, const WrittenMatrix& matrix,
           const Write& write) const;

  std::string_view format() const { return format_; }
  // A group of modules of compressed-tensors.
  Json group(const Json& targets) const;

 private:
  bool is_packed_ints() const { return format_ == "pack-quantized"; }
  void put_groups(const Weight& weight, int64_t rows, const Write& write) const;
  void put_constants(const Weight& weight, const WrittenMatrix& matrix, const Write& write) const;
  uint64_t code_row_bytes(int64_t cols) const;

  WrittenMethod method_;
  QuantScheme scheme_;
  WeightFormat memory_;
  std::string_view format_;  // of compressed-tensors
};

// Modules that have a format; null: they are as they were stored.
struct WrittenModules {
  const WrittenFormat* format = nullptr;
  std::vector<std::string> names;
};

// The quantization_config of modules.
Json quantization_config(WrittenMethod method, std::span<const WrittenModules> modules);

}  // namespace sluice
