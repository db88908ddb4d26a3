// Random weights in groups, for tests: blocks of GGUF and GPTQ tensors, as files have them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "quant/grouped_columns.h"
#include "quant/groups.h"
#include "quant/order_codes.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"

namespace sluice::test {

inline constexpr std::array kBlockTypes{
    DType::q4_0,    DType::q4_1,   DType::q5_0,      DType::q5_1,      DType::q8_0,
    DType::q2_k,    DType::q3_k,   DType::q4_k,      DType::q5_k,      DType::q6_k,
    DType::iq4_nl,  DType::iq4_xs, DType::e2m1_e8m0, DType::e2m1_e4m3, DType::iq3_s,
    DType::iq3_xxs, DType::iq2_s,  DType::iq2_xs,    DType::iq2_xxs,   DType::iq1_s,
    DType::iq1_m,   DType::tq1_0,  DType::tq2_0,     DType::q1_0,      DType::q2_0};

// Gives a block scales that are finite and small, where random bits may have none.
inline void put_small_scales(DType type, uint8_t* block, Random& random) {
  const auto put = [&](std::initializer_list<int> places) {
    for (int at : places) {
      const uint16_t half = float_to_f16(random.normal(0.01f));
      std::memcpy(block + at, &half, sizeof half);
    }
  };
  switch (type) {
    case DType::q2_k:
      return put({80, 82});
    case DType::q3_k:
      return put({108});
    case DType::q6_k:
      return put({208});
    case DType::tq1_0:
      return put({52});
    case DType::tq2_0:
      return put({64});
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return put({0, 2});
    case DType::e2m1_e8m0:
      block[0] = static_cast<uint8_t>(random.between(115, 122));
      return;
    case DType::e2m1_e4m3:
      return;
    case DType::iq1_m: {  // four bits in each of four places
      const uint16_t half = float_to_f16(random.normal(0.01f));
      for (int i = 0; i < 4; ++i) {
        uint8_t& byte = block[49 + i * 2];
        byte = static_cast<uint8_t>((byte & 15) | (half >> (4 * i) & 15) << 4);
      }
      return;
    }
    default:
      return put({0});
  }
}

// Rows of random blocks whose scales are finite and small.
inline std::vector<uint8_t> random_blocks(DType type, int64_t rows, int64_t cols, Random& random) {
  const BlockLayout layout = block_layout(type);
  const int64_t blocks = rows * cols / layout.cols;
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks * layout.bytes));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.between(0, 255));
  for (int64_t b = 0; b < blocks; ++b)
    put_small_scales(type, bytes.data() + b * layout.bytes, random);
  return bytes;
}

inline void expect_same_planes(const Weight& found, const Weight& expected) {
  for (Plane plane : kPlanes) {
    if (expected.plane(plane) == nullptr) continue;
    EXPECT_EQ(std::memcmp(found.plane(plane), expected.plane(plane),
                          plane_bytes(expected.format, plane, expected.rows, expected.cols)),
              0);
  }
}

using Encode = std::function<EncodeStats(const EncodeArgs&)>;

inline void encode_blocks(const Weight& to, int64_t rows, const std::vector<uint8_t>& blocks,
                          const Encode& encode) {
  EncodeArgs args;
  args.source = reinterpret_cast<const std::byte*>(blocks.data());
  args.stored = to.format.dtype;
  args.source_stride = grouped_row_bytes(to.format, to.cols);
  args.rows = rows;
  args.to = to;
  encode(args);
}
inline StoredWeight block_weight(DType type, WeightLayout layout, int64_t rows, int64_t cols,
                                 const std::vector<uint8_t>& blocks) {
  StoredWeight w({.dtype = type, .layout = layout}, rows, cols);
  encode_blocks(w.weight, rows, blocks, encode_reference);
  return w;
}
// The same with one scale for all rows.
inline StoredWeight scaled_blocks(DType type, WeightLayout layout, int64_t rows, int64_t cols,
                                  const std::vector<uint8_t>& blocks, float scale,
                                  const Encode& encode = encode_reference) {
  StoredWeight w({.dtype = type, .layout = layout, .scales = ScaleKind::per_row}, rows, cols);
  encode_blocks(w.weight, rows, blocks, encode);
  EncodeArgs args;
  args.source = reinterpret_cast<const std::byte*>(&scale);
  args.stored = DType::f32;
  args.source_stride = sizeof scale;
  args.rows = rows;
  args.to = w.weight;
  args.plane = Plane::scales;
  args.sharing = 0;
  encode(args);
  return w;
}

// The tensors of one GPTQ layer, and what they mean.
struct GptqLayer {
  GptqLayer(int bit_count, int64_t output_count, int64_t input_count, int64_t group, bool act_order,
            Random& random)
      : bits(bit_count), outputs(output_count), inputs(input_count), group_cols(group) {
    const int64_t groups = ceil_div(inputs, group);
    const int most = (1 << bits) - 1;
    g_idx.resize(static_cast<size_t>(inputs));
    for (int64_t i = 0; i < inputs; ++i)
      g_idx[static_cast<size_t>(i)] = static_cast<int32_t>(i / group);
    if (act_order) std::shuffle(g_idx.begin(), g_idx.end(), random.engine());
    codes.resize(static_cast<size_t>(inputs * outputs));
    qweight.resize(static_cast<size_t>(inputs * bits / 32 * outputs));
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t i = 0; i < inputs; ++i) {
        const int code = static_cast<int>(random.between(0, most));
        codes[static_cast<size_t>(o * inputs + i)] = code;
        put(qweight, o, outputs, i * bits, code);
      }
    }
    qzeros.resize(static_cast<size_t>(groups * outputs * bits / 32));
    zeros.resize(static_cast<size_t>(groups * outputs));
    scales.resize(zeros.size());
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t o = 0; o < outputs; ++o) {
        const auto at = static_cast<size_t>(g * outputs + o);
        zeros[at] = static_cast<int>(random.between(0, most));
        put(qzeros, g * outputs * bits / 32, 1, o * bits, zeros[at]);
        scales[at] = float_to_f16(random.normal(0.02f));
      }
    }
  }

  // Puts a code into a stream whose words begin at `first` and are `apart` from one another.
  void put(std::vector<uint32_t>& words, int64_t first, int64_t apart, int64_t bit,
           int code) const {
    for (int b = 0; b < bits; ++b) {
      const int64_t word = first + (bit + b) / 32 * apart;
      words[static_cast<size_t>(word)] |= static_cast<uint32_t>(code >> b & 1) << ((bit + b) % 32);
    }
  }

  // Returns the value of the stored form, with zeros that are `added` more than stored, without
  // what is above their bits.
  float value(int64_t output, int64_t input, int added) const {
    const auto at = static_cast<size_t>(g_idx[static_cast<size_t>(input)] * outputs + output);
    const int code = codes[static_cast<size_t>(output * inputs + input)];
    const int zero = (zeros[at] + added) & ((1 << bits) - 1);
    return static_cast<float>(code - zero) * f16_to_float(scales[at]);
  }

  // Returns the weight in memory, encoded in steps of `runs` runs of inputs, by the reference or
  // another, with scales of F16 or F32.
  StoredWeight weight(
      WeightLayout layout, int added_to_zeros, int64_t runs,
      const std::function<EncodeStats(const EncodeArgs&)>& encode = encode_reference,
      DType scale_type = DType::f16) const {
    const std::vector<int32_t> order = order_by_group(g_idx, group_cols, "g_idx");
    WeightFormat format{.dtype = DType::u8, .layout = layout, .scales = ScaleKind::grouped};
    format.scale_cols = group_cols;
    format.bits = bits;
    format.scale_type = scale_type;
    format.ordered = !order.empty();
    StoredWeight w(format, outputs, inputs);
    EncodeArgs args;
    args.to = w.weight;
    args.outputs = outputs;
    args.stored = DType::u32;
    args.source_stride = outputs * 4;
    for (int64_t first = 0; first < inputs / kRunCols; first += runs) {
      args.source = reinterpret_cast<const std::byte*>(qweight.data() + first * bits * outputs);
      args.rows = std::min(runs, inputs / kRunCols - first) * bits;
      args.first_col = first * kRunCols;
      encode(args);
    }
    if (format.ordered) order_columns(w.weight, 0, w.weight.rows, order.data(), order_codes);
    args.first_col = 0;
    args.rows = ceil_div(inputs, group_cols);
    args.plane = Plane::zeros;
    args.words.added_to_zeros = static_cast<uint8_t>(added_to_zeros);
    args.source = reinterpret_cast<const std::byte*>(qzeros.data());
    args.source_stride = outputs * bits / 32 * 4;
    encode(args);
    args.plane = Plane::scales;
    args.stored = scale_type;
    args.source_stride = outputs * dtype_bytes(scale_type);
    std::vector<float> wide;
    for (uint16_t scale : scales) wide.push_back(f16_to_float(scale));
    args.source = scale_type == DType::f32 ? reinterpret_cast<const std::byte*>(wide.data())
                                           : reinterpret_cast<const std::byte*>(scales.data());
    encode(args);
    return w;
  }

  int bits;
  int64_t outputs, inputs, group_cols;
  std::vector<int32_t> g_idx;
  std::vector<int> codes, zeros;  // [outputs][inputs], [groups][outputs]
  std::vector<uint32_t> qweight, qzeros;
  std::vector<uint16_t> scales;
};

}  // namespace sluice::test
