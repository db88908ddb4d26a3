// Weights in groups on the device: encoded to the reference's bits, multiplied and looked up as by
// the reference.
#include "kernels/cuda/grouped.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/kernels/cuda/device.h"
#include "tests/quant/grouped_weights.h"

namespace sluice {
namespace {

using test::Buffer;
using test::DeviceMatrix;
using test::GptqLayer;
using test::kBlockTypes;
using test::Matrix;
using test::Random;
using test::stream;

// The planes of a weight in device memory.
struct DeviceGroups {
  DeviceGroups(const WeightFormat& format, int64_t rows, int64_t cols)
      : codes(plane_bytes(format, Plane::codes, rows, cols)),
        scales(plane_bytes(format, Plane::scales, rows, cols)),
        zeros(plane_bytes(format, Plane::zeros, rows, cols)),
        order(plane_bytes(format, Plane::order, rows, cols) / sizeof(int32_t)) {
    weight = {.format = format, .rows = rows, .cols = cols, .data = codes.data()};
    if (scales.size() > 0) weight.group_scales = scales.data();
    if (zeros.size() > 0) weight.zeros = zeros.data();
    if (order.size() > 0) weight.order = order.data();
  }
  explicit DeviceGroups(const Weight& w) : DeviceGroups(w.format, w.rows, w.cols) {
    std::copy_n(w.data, codes.size(), codes.host());
    std::copy_n(w.group_scales, scales.size(), scales.host());
    std::copy_n(w.zeros, zeros.size(), zeros.host());
    std::copy_n(w.order, order.size(), order.host());
  }
  bool equals(const Weight& w) {
    return std::equal(w.data, w.data + codes.size(), codes.host()) &&
           std::equal(w.group_scales, w.group_scales + scales.size(), scales.host()) &&
           std::equal(w.zeros, w.zeros + zeros.size(), zeros.host());
  }
  Buffer<std::byte> codes, scales;
  Buffer<uint8_t> zeros;
  Buffer<int32_t> order;
  Weight weight;
};

Matrix device_linear(const Weight& w, const Matrix& x, Compute compute) {
  DeviceMatrix from(x, 1), to(x.rows(), w.rows, 3);
  Buffer<std::byte> workspace(cuda::few_rows_workspace_bytes(w.cols));
  cuda::linear_few_rows(from.tensor(), w, nullptr, compute, workspace.data(), to.tensor(),
                        stream());
  EXPECT_TRUE(to.gaps_untouched());
  return to.copy();
}

// `packed` is the same weight for the reference.
void expect_product(const Weight& rows, const Weight& packed, Random& random) {
  DeviceGroups on_device(rows);
  for (int64_t tokens : {1, 3, 16}) {
    Matrix x = Matrix::random(tokens, rows.cols, random);
    for (Compute compute : {Compute::bf16, Compute::f32}) {
      const Matrix y = device_linear(on_device.weight, x, compute);
      Matrix all(tokens, packed.rows), expected(tokens, rows.rows);
      ReferenceKernels(compute).linear(x.tensor(), packed, nullptr, all.tensor());
      for (int64_t r = 0; r < tokens; ++r)
        for (int64_t c = 0; c < rows.rows; ++c) expected.at(r, c) = all.at(r, c);
      test::expect_near(y, expected, test::product_rounding(x, packed), 1e-6f);
    }
  }
}

void expect_rows(const Weight& rows) {
  DeviceGroups on_device(rows);
  Buffer<int32_t> ids(2);
  ids[0] = static_cast<int32_t>(rows.rows - 1);
  ids[1] = 3;
  DeviceMatrix out(2, rows.cols, 1);
  cuda::embed(on_device.weight, ids.data(), out.tensor(), stream());
  const Matrix found = out.copy();
  std::vector<float> row(static_cast<size_t>(rows.cols));
  for (int64_t r : {0, 1}) {
    decode_row(rows, ids.host()[r], row.data());
    for (int64_t c = 0; c < rows.cols; ++c) EXPECT_EQ(found.at(r, c), row[static_cast<size_t>(c)]);
  }
}

TEST(CudaGrouped, BlocksLikeTheReference) {
  Random random("CudaGrouped.BlocksLikeTheReference");
  for (DType type : kBlockTypes) {
    SCOPED_TRACE(dtype_name(type));
    const int64_t cols = block_layout(type).cols == 32 ? 96 : 512;
    const auto blocks = test::random_blocks(type, 19, cols, random);
    const auto rows = test::block_weight(type, WeightLayout::rows, 19, cols, blocks);
    const auto packed = test::block_weight(type, WeightLayout::packed, 19, cols, blocks);
    expect_product(rows.weight, packed.weight, random);
    expect_rows(rows.weight);
  }
}

TEST(CudaGrouped, CodesLikeTheReference) {
  Random random("CudaGrouped.CodesLikeTheReference");
  for (int bits : {2, 3, 4, 8}) {
    for (bool act_order : {false, true}) {
      const GptqLayer layer(bits, 32, 192, 64, act_order, random);
      const auto rows = layer.weight(WeightLayout::rows, 1, 2);
      expect_product(rows.weight, layer.weight(WeightLayout::packed, 1, 2).weight, random);
      expect_rows(rows.weight);
    }
  }
}

template <class T>
const std::byte* on_device(Buffer<std::byte>& memory, const std::vector<T>& source) {
  std::memcpy(memory.host(), source.data(), source.size() * sizeof(T));
  return memory.data();
}

TEST(CudaGrouped, EncodesAsTheReference) {
  Random random("CudaGrouped.EncodesAsTheReference");
  for (int bits : {2, 3, 4, 8}) {
    for (bool act_order : {false, true}) {
      const GptqLayer layer(bits, 64, 128, 32, act_order, random);
      const auto expected = layer.weight(WeightLayout::rows, 1, 4);
      DeviceGroups to(expected.weight.format, 64, 128);
      std::vector<int32_t> places(128);
      if (act_order) std::copy_n(expected.weight.order, 128, to.order.host());
      EncodeArgs args;
      args.to = to.weight;
      args.outputs = 64;
      const auto encode = [&](Plane plane, DType stored, const auto& source, int64_t rows) {
        Buffer<std::byte> memory(source.size() * sizeof source[0]);
        args.plane = plane;
        args.stored = stored;
        args.source = on_device(memory, source);
        args.rows = rows;
        args.source_stride = static_cast<int64_t>(memory.size()) / rows;
        args.places = act_order ? places.data() : nullptr;
        cuda::encode_grouped(args, stream());
        test::stream();
        memory.host();
      };
      encode(Plane::codes, gptq_type(bits), layer.qweight, 4 * bits);
      encode(Plane::zeros, gptq_type(bits), layer.qzeros, 4);
      encode(Plane::scales, DType::f16, layer.scales, 4);
      EXPECT_TRUE(to.equals(expected.weight)) << bits << " bits";

      DeviceGroups from_rows(expected.weight.format, 64, 128);
      args = {.stored = DType::grouped_row, .rows = 64, .to = from_rows.weight};
      const std::vector<std::byte> rows = test::grouped_rows(expected.weight);
      Buffer<std::byte> memory(rows.size());
      args.source = on_device(memory, rows);
      args.source_stride = std::ssize(rows) / 64;
      cuda::encode_grouped(args, stream());
      test::stream();
      EXPECT_TRUE(from_rows.equals(expected.weight)) << bits << " bits, by rows";
    }
  }
}

}  // namespace
}  // namespace sluice
