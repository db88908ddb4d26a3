// The memory that a load must leave, from the checkpoint's tensors as a test wrote them: the rows
// and columns that a rank has of each, one after another, each encoded by encode_reference as a
// whole.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "quant/encode.h"
#include "quant/float8.h"
#include "quant/groups.h"
#include "src/plan/compile.h"
#include "tests/support/checkpoint.h"

namespace sluice::test {

// Random elements of `dtype`, row-major. Rows differ in magnitude, so that scales do.
inline std::string random_elements(Random& random, const std::vector<int64_t>& shape, DType dtype) {
  const int64_t cols = shape.back(), rows = shape.size() > 1 ? shape.front() : 1;
  std::string bytes;
  for (int64_t r = 0; r < rows; ++r) {
    auto sigma = static_cast<float>(std::exp2(random.between(-6, 0)));
    for (int64_t c = 0; c < cols; ++c) {
      float x = random.normal(sigma);
      uint16_t half = dtype == DType::f16 ? float_to_f16(x) : float_to_bf16(x);
      if (dtype == DType::f32) {
        bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
      } else {
        bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
      }
    }
  }
  return bytes;
}

// A rank's part of a stored tensor; a vector is one row.
struct Part {
  const TinyTensor* tensor = nullptr;
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  int64_t at = 0;  // the row of the parameter where it begins; of a vector, the column
};

// A part, encoded in plain rows.
struct EncodedPart {
  Part part;
  WeightFormat format;
  std::vector<std::byte> storage;

  Weight encoded() const {
    return weight_in(format, part.rows, part.cols, const_cast<std::byte*>(storage.data()));
  }
};

struct ExpectedParam {
  std::string path;
  WeightFormat format;
  bool vector = false;
  int64_t rows = 0;  // with padding
  int64_t cols = 0;
  std::vector<EncodedPart> parts;
};

// Schemes that rules give to parts of linear layers, by their names.
using Schemes = std::map<std::string, QuantScheme>;

class ExpectedParams {
 public:
  ExpectedParams(const Json& config, const std::vector<TinyTensor>& tensors, Rank rank,
                 const QuantizeRequest& quantize, const Schemes& schemes)
      : config_(config), rank_(rank), quantize_(quantize), schemes_(schemes) {
    for (const TinyTensor& t : tensors) by_name_[t.name] = &t;
    // Heads and inner columns of this rank. There are fewer KV heads than ranks only where whole
    // groups of ranks share one.
    const int64_t dim = n("head_dim"), heads = n("num_attention_heads"),
                  kv_heads = n("num_key_value_heads"), size = rank.size;
    q_ = {heads / size * rank.rank * dim, heads / size * dim};
    kv_ = kv_heads >= size ? Range{kv_heads / size * rank.rank * dim, kv_heads / size * dim}
                           : Range{rank.rank / (size / kv_heads) * dim, dim};
    int64_t begin = n("intermediate_size") * rank.rank / size;
    inner_ = {begin, n("intermediate_size") * (rank.rank + 1) / size - begin};
    // Whole panels; a vocabulary that is large enough is cut at blocks of scales instead.
    const int64_t tokens = n("vocab_size"), panels = (tokens + 15) / 16;
    begin = panels * rank.rank / size * 16;
    vocab_ = {begin, std::min(panels * (rank.rank + 1) / size * 16, tokens) - begin};
    add_all();
  }

  std::vector<ExpectedParam> params;

 private:
  struct Range {
    int64_t begin = 0, count = 0;
  };
  struct Source {
    std::string name;  // without ".weight"
    Range rows;
  };

  int64_t n(const char* key) const { return config_.at(key).get<int64_t>(); }

  void add_all() {
    const Range hidden{0, n("hidden_size")};
    const bool tied = config_.at("tie_word_embeddings").get<bool>();
    add_matrix("model.embed_tokens", ParamRole::embedding, {{"model.embed_tokens", vocab_}}, hidden,
               tied);
    for (int64_t l = 0; l < n("num_hidden_layers"); ++l) {
      const std::string layer = "model.layers." + std::to_string(l) + ".";
      const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
      add_vector(layer + "input_layernorm.weight", ParamRole::norm,
                 {{layer + "input_layernorm.weight", hidden}});
      add_linear(
          attention + "qkv_proj",
          {{attention + "q_proj", q_}, {attention + "k_proj", kv_}, {attention + "v_proj", kv_}},
          hidden, "attention_bias");
      add_linear(attention + "o_proj", {{attention + "o_proj", hidden}}, q_, "attention_bias");
      add_vector(layer + "post_attention_layernorm.weight", ParamRole::norm,
                 {{layer + "post_attention_layernorm.weight", hidden}});
      add_linear(mlp + "gate_up_proj", {{mlp + "gate_proj", inner_}, {mlp + "up_proj", inner_}},
                 hidden, "mlp_bias");
      add_linear(mlp + "down_proj", {{mlp + "down_proj", hidden}}, inner_, "mlp_bias");
    }
    add_vector("model.norm.weight", ParamRole::norm, {{"model.norm.weight", hidden}});
    if (!tied) add_matrix("lm_head", ParamRole::head, {{"lm_head", vocab_}}, hidden, true);
  }

  void add_linear(const std::string& path, const std::vector<Source>& sources, Range cols,
                  const char* bias) {
    add_matrix(path, ParamRole::linear, sources, cols, true);
    if (!config_.at(bias).get<bool>()) return;
    std::vector<Source> biases;
    for (const Source& s : sources) biases.push_back({s.name + ".bias", s.rows});
    add_vector(path + ".bias", ParamRole::bias, biases);
  }

  // Returns the scheme of a matrix's part, by its rule or else by its role.
  QuantScheme scheme_of(const std::string& part, ParamRole role, bool multiplied) const {
    if (auto rule = schemes_.find(part); rule != schemes_.end()) return rule->second;
    const bool tied = role == ParamRole::embedding && multiplied;
    const bool codes =
        quantize_.roles.contains(role) || (tied && quantize_.roles.contains(ParamRole::head));
    return codes ? quantize_.scheme : QuantScheme{"none"};
  }

  // Parts of different schemes are matrices of their own.
  void add_matrix(const std::string& path, ParamRole role, const std::vector<Source>& sources,
                  Range cols, bool multiplied) {
    auto scheme = [&](const Source& s) { return scheme_of(s.name, role, multiplied); };
    auto differs = [&](const Source& s) { return scheme(s).name != scheme(sources.front()).name; };
    if (std::ranges::none_of(sources, differs))
      return add_weight(path, scheme(sources.front()), sources, cols, multiplied);
    for (const Source& s : sources)
      add_weight(path + s.name.substr(s.name.rfind('.')), scheme(s), {s}, cols, multiplied);
  }

  // Adds a weight. In a multiplied weight each part begins on a panel's border, and ends with a
  // whole panel.
  void add_weight(const std::string& path, const QuantScheme& scheme,
                  const std::vector<Source>& sources, Range cols, bool multiplied) {
    std::vector<Part> parts;
    int64_t at = 0;
    for (const Source& s : sources) {
      parts.push_back({by_name_.at(s.name + ".weight"), s.rows.begin, s.rows.count, cols.begin,
                       cols.count, at});
      at += multiplied ? (s.rows.count + 15) / 16 * 16 : s.rows.count;
    }
    WeightFormat kept = format(parts, WeightLayout::rows, scheme, false);
    if (multiplied) kept = with_layout(quantize_.matrix_layout, kept);
    add({path + ".weight", kept, false, at, cols.count, {}}, parts, scheme.group);
  }

  // A bias has its parts where its weight has their rows.
  void add_vector(const std::string& path, ParamRole role, const std::vector<Source>& sources) {
    std::vector<Part> parts;
    int64_t at = 0;
    for (const Source& s : sources) {
      parts.push_back({by_name_.at(s.name), 0, 1, s.rows.begin, s.rows.count, at});
      at += role == ParamRole::bias ? (s.rows.count + 15) / 16 * 16 : s.rows.count;
    }
    const bool codes = role != ParamRole::bias && quantize_.roles.contains(role) &&
                       quantize_.scheme.grouped.scales == ScaleKind::none;
    const QuantScheme scheme = codes ? quantize_.scheme : QuantScheme{"none"};
    add({path, format(parts, WeightLayout::rows, scheme, true), true, 1, at, {}}, parts,
        scheme.group);
  }

  WeightFormat format(const std::vector<Part>& parts, WeightLayout layout,
                      const QuantScheme& scheme, bool vector) const {
    if (scheme.group != ScaleGroup::none) return scheme.format(DType::f32, layout);
    DType dtype = *parse_dtype(parts.front().tensor->dtype);
    for (const Part& p : parts)
      if (p.tensor->dtype != parts.front().tensor->dtype) dtype = DType::f32;
    if (quantize_.to_bf16) dtype = DType::bf16;
    if (vector) dtype = DType::f32;
    return {dtype, layout, ScaleKind::none};
  }

  void add(ExpectedParam param, const std::vector<Part>& parts, ScaleGroup group) {
    for (const Part& p : parts) param.parts.push_back(encode(p, param.format, group));
    params.push_back(std::move(param));
  }

  EncodedPart encode(const Part& part, WeightFormat format, ScaleGroup group) const {
    EncodedPart e{part, format, {}};
    e.format.layout = WeightLayout::rows;
    e.storage.resize(storage_bytes(e.format, part.rows, part.cols));
    EncodeArgs args;
    args.stored = *parse_dtype(part.tensor->dtype);
    const int64_t element = dtype_bytes(args.stored);
    std::string source;
    for (int64_t r = part.row; r < part.row + part.rows; ++r) {
      int64_t first = (r * part.tensor->shape.back() + part.col) * element;
      source += part.tensor->bytes.substr(static_cast<size_t>(first),
                                          static_cast<size_t>(part.cols * element));
    }
    args.source = reinterpret_cast<const std::byte*>(source.data());
    args.source_stride = part.cols * element;
    args.rows = part.rows;
    args.group = group;
    args.to = e.encoded();
    args.tensor_amax =
        absolute_max(args.source, args.stored, args.source_stride, part.rows, part.cols);
    encode_reference(args);
    return e;
  }

  const Json& config_;
  Rank rank_;
  const QuantizeRequest& quantize_;
  const Schemes& schemes_;
  std::map<std::string, const TinyTensor*> by_name_;
  Range q_, kv_, inner_, vocab_;
};

inline std::vector<ExpectedParam> expected_params(const Json& config,
                                                  const std::vector<TinyTensor>& tensors, Rank rank,
                                                  const QuantizeRequest& quantize,
                                                  const Schemes& schemes = {}) {
  return ExpectedParams(config, tensors, rank, quantize, schemes).params;
}

// The bits of an element, where quant/format.h says that it lies.
inline uint32_t code_at(const Weight& w, int64_t row, int64_t col) {
  const int64_t size = dtype_bytes(w.format.dtype);
  int64_t offset = (row * w.cols + col) * size;
  if (w.format.layout == WeightLayout::packed) {
    const int64_t in_cell = 4 / size, panel = (w.cols + in_cell - 1) / in_cell * 64;
    const int64_t r = row % 16, k = col % in_cell;
    offset = row / 16 * panel + col / in_cell * 64;
    offset += w.format.dtype == DType::f8_e4m3 ? r / 4 * 16 + k / 2 * 8 + r % 4 * 2 + k % 2
                                               : r * 4 + k * size;
  }
  uint32_t code = 0;
  std::memcpy(&code, w.data + offset, static_cast<size_t>(size));
  return code;
}

inline float scale_of(const Weight& w, int64_t row, int64_t col) {
  if (w.format.scales == ScaleKind::none) return 1;
  if (w.format.scales == ScaleKind::per_row) return w.scales[row];
  return w.scales[row / 16 * ((w.cols + 127) / 128) + col / 128];
}

// The same of grouped codes: each row means what its part's row does, and padding is zero.
inline testing::AssertionResult holds_groups(const Weight& w, int64_t first_row,
                                             const ExpectedParam& expected) {
  std::vector<float> have(static_cast<size_t>(w.cols)), want(have.size());
  for (int64_t row = 0; row < w.rows; ++row) {
    auto after = std::ranges::upper_bound(expected.parts, first_row + row, {},
                                          [](const EncodedPart& e) { return e.part.at; });
    const EncodedPart& e = *(after - 1);
    const int64_t r = first_row + row - e.part.at;
    if (r >= e.part.rows && w.format.layout == WeightLayout::rows) continue;
    std::ranges::fill(want, 0.0f);
    if (r < e.part.rows) decode_grouped_row(e.encoded(), r, want.data());
    decode_grouped_row(w, row, have.data());
    if (have != want)
      return testing::AssertionFailure()
             << expected.path << ": row " << first_row + row << " is not row " << e.part.row + r
             << " of " << e.part.tensor->name;
  }
  return testing::AssertionSuccess();
}

// Returns whether the rows of `w` are those of the parameter from `first_row` on, padding included;
// says which are not. Padding has no meaning in plain rows of matrices.
inline testing::AssertionResult holds(const Weight& w, int64_t first_row,
                                      const ExpectedParam& expected) {
  auto wrong = [&](const std::string& what) {
    return testing::AssertionFailure() << expected.path << ": " << what;
  };
  if (w.format.dtype != expected.format.dtype || w.format.layout != expected.format.layout ||
      w.format.scales != expected.format.scales ||
      w.format.quantized_input != expected.format.quantized_input)
    return wrong("another format");
  if (w.cols != expected.cols || first_row + w.rows > expected.rows) return wrong("another shape");
  if (w.format.scales == ScaleKind::grouped) return holds_groups(w, first_row, expected);
  const uint32_t zero = w.format.dtype == DType::i8 ? 128 : 0;
  for (int64_t row = 0; row < w.rows; ++row) {
    for (int64_t col = 0; col < w.cols; ++col) {
      const int64_t at = expected.vector ? col : first_row + row;
      auto after = std::ranges::upper_bound(expected.parts, at, {},
                                            [](const EncodedPart& e) { return e.part.at; });
      const EncodedPart& e = *(after - 1);
      const int64_t r = expected.vector ? 0 : at - e.part.at,
                    c = expected.vector ? at - e.part.at : col;
      const bool padding = r >= e.part.rows || c >= e.part.cols;
      if (padding && !expected.vector && w.format.layout == WeightLayout::rows) continue;
      const uint32_t code = padding ? zero : code_at(e.encoded(), r, c);
      // A block's rows share a scale with the padding of its last panel.
      const bool any_scale = padding && w.format.scales == ScaleKind::per_block;
      const float scale = padding ? 1 : scale_of(e.encoded(), r, c);
      if (code_at(w, row, col) != code || (!any_scale && scale_of(w, row, col) != scale)) {
        return wrong("") << "row " << first_row + row << " column " << col << " is code "
                         << code_at(w, row, col) << " with scale " << scale_of(w, row, col)
                         << ", not code " << code << " with scale " << scale << " of "
                         << e.part.tensor->name << " row " << e.part.row + r << " column "
                         << e.part.col + c;
      }
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace sluice::test
