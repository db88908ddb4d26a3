// Encoding on the device gives the bits of encode_reference, for every scheme and stored type.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/cuda/device.h"

namespace sluice {
namespace {

using test::Buffer;
using test::DeviceWeight;
using test::Random;
using test::stream;

void put(std::byte* at, DType dtype, float x) {
  const uint16_t half = dtype == DType::bf16 ? float_to_bf16(x) : float_to_f16(x);
  const double wide = static_cast<double>(x) * (1 + 0x1p-24);  // in the middle between two floats
  if (dtype == DType::f64) {
    std::memcpy(at, &wide, sizeof wide);
  } else if (dtype == DType::f32) {
    std::memcpy(at, &x, sizeof x);
  } else {
    std::memcpy(at, &half, sizeof half);
  }
}

// Stored rows, `gap` bytes apart; the last one ends where the memory does.
struct Source {
  Source(DType dtype_, int64_t rows_, int64_t cols_, int64_t gap, Random& random)
      : dtype(dtype_),
        rows(rows_),
        cols(cols_),
        stride(cols_ * dtype_bytes(dtype_) + gap),
        bytes(static_cast<size_t>(rows_ * stride - gap)) {
    for (int64_t r = 0; r < rows; ++r) {
      const float sigma = std::exp(random.normal(3));  // scales that differ
      for (int64_t c = 0; c < cols; ++c) set(r, c, random.normal(sigma));
    }
  }
  void set(int64_t r, int64_t c, float x) {
    put(bytes.host() + r * stride + c * dtype_bytes(dtype), dtype, x);
  }
  DType dtype;
  int64_t rows, cols, stride;
  Buffer<std::byte> bytes;
};

struct Encoded {
  Encoded(WeightFormat format, int64_t rows, int64_t cols)
      : weight(format, rows, cols), stats(1), amax(1) {
    stats[0] = {};
    amax[0] = 0;
  }
  DeviceWeight weight;
  Buffer<EncodeStats> stats;
  Buffer<float> amax;
};

// Groups of rows `first` to `end` of `source`, of a weight of s.rows rows.
EncodeArgs arguments(const Source& s, const std::byte* source, const QuantScheme& scheme, Weight to,
                     int64_t first, int64_t end) {
  EncodeArgs args;
  args.source = source + first * s.stride;
  args.stored = s.dtype;
  args.source_stride = s.stride;
  args.rows = end - first;
  args.group = scheme.group;
  args.to = to;
  args.first_row = first;
  return args;
}

// Sums of float64 in another order. A number that its new type cannot hold has an infinite error.
void expect_sum(double sum, double expected) {
  if (std::isinf(expected)) {
    EXPECT_EQ(sum, expected);
  } else {
    EXPECT_NEAR(sum, expected, expected * 1e-9);
  }
}

// Encodes in two row groups, the second of which begins a block.
void compare(const Source& s, const QuantScheme& scheme, WeightFormat format) {
  Encoded device(format, s.rows, s.cols), host(format, s.rows, s.cols);
  cuda::absolute_max(s.bytes.data(), s.dtype, s.stride, s.rows, s.cols, device.amax.data(),
                     stream());
  const float amax = absolute_max(s.bytes.host(), s.dtype, s.stride, s.rows, s.cols);
  EXPECT_EQ(std::bit_cast<uint32_t>(device.amax[0]), std::bit_cast<uint32_t>(amax));
  const int64_t middle = std::min(s.rows, kScaleBlock);
  EncodeStats expected;
  for (auto [first, end] : {std::pair{int64_t{0}, middle}, {middle, s.rows}}) {
    if (first == end) continue;
    cuda::encode(arguments(s, s.bytes.data(), scheme, device.weight.weight, first, end),
                 device.amax.data(), device.stats.data(), stream());
    EncodeArgs args = arguments(s, s.bytes.host(), scheme, host.weight.host(), first, end);
    args.tensor_amax = amax;
    expected.add(encode_reference(args));
  }
  EXPECT_EQ(device.weight.data.copy(), host.weight.data.copy());
  const std::vector<float> scales = device.weight.scales.copy(), right = host.weight.scales.copy();
  EXPECT_TRUE(scales.empty() || std::memcmp(scales.data(), right.data(), scales.size() * 4) == 0);
  const EncodeStats& stats = device.stats[0];
  expect_sum(stats.error_squares, expected.error_squares);
  expect_sum(stats.value_squares, expected.value_squares);
  EXPECT_EQ(stats.max_error, expected.max_error);
  EXPECT_EQ(stats.not_finite, expected.not_finite);
  EXPECT_EQ(stats.elements, expected.elements);
}

TEST(CudaEncode, GivesTheBitsOfTheReference) {
  Random random("CudaEncode.GivesTheBitsOfTheReference");
  struct Size {
    int64_t rows, cols, gap;  // gap in elements
  };
  for (const Size& size :
       {Size{1, 1, 0}, Size{3, 127, 3}, Size{17, 256, 0}, Size{129, 136, 8}, Size{5, 2056, 0},
        Size{random.between(1, 40), random.between(1, 300), 5}}) {
    for (DType stored : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      if (test::leaves_out(random)) continue;
      Source source(stored, size.rows, size.cols, size.gap * dtype_bytes(stored), random);
      source.set(size.rows - 1, 0, -0.0f);
      if (size.cols > 4) {
        source.set(0, 1, std::numeric_limits<float>::quiet_NaN());
        source.set(0, 2, -std::numeric_limits<float>::infinity());
        source.set(size.rows - 1, 3, 1e-30f);
      }
      for (const QuantScheme& scheme : quant_schemes()) {
        SCOPED_TRACE(testing::Message() << scheme.name << " from " << dtype_name(stored) << ", "
                                        << size.rows << " x " << size.cols);
        compare(source, scheme, scheme.format(kept_dtype(stored), WeightLayout::rows));
      }
      for (DType to : {DType::f32, DType::f16, DType::bf16}) {
        compare(source, {"none"}, {to, WeightLayout::rows, ScaleKind::none});
      }
    }
  }
}

// In runs of `run_rows` rows, or turned over and then in two slices of columns.
void compare_elsewhere(const Source& s, const QuantScheme& scheme, int64_t run_rows,
                       bool transposed) {
  const int64_t element = dtype_bytes(s.dtype);
  EncodeArgs form;
  form.source = s.bytes.host();
  form.stored = s.dtype;
  form.rows = s.rows;
  form.run_rows = run_rows;
  form.source_stride = transposed ? element : s.cols * element;
  form.run_stride = run_rows * form.source_stride + 2 * element;
  if (transposed) form.column_stride = ceil_div(s.rows, run_rows) * form.run_stride;
  form.group = scheme.group;
  form.source_cols = s.cols;
  Buffer<std::byte> bytes(static_cast<size_t>(form.source_bytes()));
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t c = 0; c < s.cols; ++c) {
      std::copy_n(s.bytes.host() + r * s.stride + c * element, element,
                  bytes.host() + (form.row(r) - form.source) + c * form.element_stride());
    }
  }
  const WeightFormat format = scheme.format(kept_dtype(s.dtype), WeightLayout::rows);
  Encoded device(format, s.rows, s.cols), host(format, s.rows, s.cols);
  device.amax[0] = absolute_max(s.bytes.host(), s.dtype, s.stride, s.rows, s.cols);
  const int64_t step = transposed ? kScaleBlock : s.cols;
  for (int64_t first = 0; first < s.cols; first += step) {
    EncodeArgs args = form;
    args.source = bytes.data() + first * form.element_stride();
    args.to = device.weight.weight;
    args.first_col = first;
    args.source_cols = std::min(step, s.cols - first);
    // Any that is not null: the encoder has copied them to where they belong.
    const float there = 0;
    if (transposed && scheme.group == ScaleGroup::row) {
      args.row_scales = &there;
      for (int64_t r = 0; r < s.rows; ++r) {
        const float amax =
            absolute_max(s.bytes.host() + r * s.stride, s.dtype, s.stride, 1, s.cols);
        device.weight.scales[static_cast<size_t>(r)] = code_scale(format.dtype, amax);
      }
    }
    cuda::encode(args, device.amax.data(), device.stats.data(), stream());
  }
  EncodeArgs args = arguments(s, s.bytes.host(), scheme, host.weight.host(), 0, s.rows);
  args.tensor_amax = device.amax[0];
  const EncodeStats expected = encode_reference(args);
  EXPECT_EQ(device.weight.data.copy(), host.weight.data.copy());
  const std::vector<float> scales = device.weight.scales.copy(), right = host.weight.scales.copy();
  EXPECT_TRUE(scales.empty() || std::memcmp(scales.data(), right.data(), scales.size() * 4) == 0);
  EXPECT_EQ(device.stats[0].elements, expected.elements);
  expect_sum(device.stats[0].value_squares, expected.value_squares);
}

TEST(CudaEncode, SourcesOfEveryFormBecomeWhatTheirRowsDo) {
  Random random("CudaEncode.SourcesOfEveryFormBecomeWhatTheirRowsDo");
  for (DType stored : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    Source source(stored, random.between(100, 150), random.between(100, 300), 0, random);
    for (const QuantScheme& scheme : quant_schemes()) {
      for (int64_t run_rows : {int64_t{1}, int64_t{24}, source.rows}) {
        if (test::leaves_out(random)) continue;
        for (bool transposed : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << scheme.name << " from " << dtype_name(stored) << ", runs of " << run_rows
                       << (transposed ? ", transposed" : ""));
          compare_elsewhere(source, scheme, run_rows, transposed);
        }
      }
    }
  }
}

TEST(CudaEncode, ZerosHaveAScaleOfOne) {
  Random random("CudaEncode.ZerosHaveAScaleOfOne");
  Source source(DType::bf16, 20, 200, 0, random);
  for (int64_t r = 0; r < 20; ++r) {
    for (int64_t c = 0; c < 200; ++c) source.set(r, c, 0);
  }
  for (const QuantScheme& scheme : quant_schemes()) {
    compare(source, scheme, scheme.format(DType::bf16, WeightLayout::rows));
  }
}

// Every value that rounding could get wrong: all bf16 numbers, by a row scale of 1.
TEST(CudaEncode, RoundsEveryBf16NumberAsTheReference) {
  Random random("CudaEncode.RoundsEveryBf16NumberAsTheReference");
  Source source(DType::bf16, 32, 2048, 0, random);
  for (int r = 0; r < 32; ++r) {
    for (int c = 0; c < 2048; ++c) {
      const auto code = static_cast<uint16_t>(r * 2048 + c);
      std::memcpy(source.bytes.host() + r * source.stride + c * 2, &code, 2);
    }
  }
  for (const QuantScheme& scheme : quant_schemes()) {
    SCOPED_TRACE(scheme.name);
    compare(source, scheme, scheme.format(DType::bf16, WeightLayout::rows));
  }
}

}  // namespace
}  // namespace sluice
