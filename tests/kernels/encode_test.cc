#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/backend.h"

namespace sluice {
namespace {

using test::Backend;
using test::Random;
using test::StoredWeight;

// Rows of a stored tensor: odd address, gaps between rows, now and then something that is not
// finite, tiny or large.
struct Source {
  Source(DType stored_, int64_t rows_, int64_t cols_, bool special, Random& random)
      : stored(stored_),
        rows(rows_),
        cols(cols_),
        stride(cols_ * dtype_bytes(stored_) + random.between(0, 5)),
        bytes(static_cast<size_t>(rows * stride + 1)) {
    const float sigma = std::exp2(static_cast<float>(random.between(-12, 3)));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        float x = random.normal(sigma);
        if (special && random.between(0, 40) == 0) x = special_value(random);
        put(r, c, x);
      }
    }
  }
  static float special_value(Random& random) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float values[] = {0.0f,     -0.0f,    infinity, -infinity, std::nanf(""), 1e-30f,
                            -6.1e-5f, 65504.0f, 3e-8f,    -1e4f,     1e-41f,        -std::nanf("")};
    return values[random.between(0, 11)];
  }
  void put(int64_t r, int64_t c, float x) {
    std::byte* to = bytes.data() + 1 + r * stride + c * dtype_bytes(stored);
    const uint16_t half = stored == DType::f16 ? float_to_f16(x) : float_to_bf16(x);
    // A double is seldom a float: it lies beside one, or in the middle between two.
    const double wide = static_cast<double>(x) * (1 + (c % 3) * 0x1p-24);
    if (stored == DType::f64) {
      std::memcpy(to, &wide, 8);
    } else if (stored == DType::f32) {
      std::memcpy(to, &x, 4);
    } else {
      std::memcpy(to, &half, 2);
    }
  }
  EncodeArgs args(ScaleGroup group, const Weight& to) const {
    EncodeArgs a;
    a.source = bytes.data() + 1;
    a.stored = stored;
    a.source_stride = stride;
    a.rows = rows;
    a.group = group;
    a.to = to;
    a.tensor_amax = absolute_max(a.source, stored, stride, rows, cols);
    return a;
  }
  DType stored;
  int64_t rows, cols, stride;
  std::vector<std::byte> bytes;
};

void expect_same_stats(const EncodeStats& a, const EncodeStats& b) {
  EXPECT_EQ(a.elements, b.elements);
  EXPECT_EQ(a.not_finite, b.not_finite);
  EXPECT_EQ(a.max_error, b.max_error);
  EXPECT_NEAR(a.value_squares, b.value_squares, b.value_squares * 1e-9);
  EXPECT_NEAR(a.error_squares, b.error_squares, b.error_squares * 1e-6);
}

// The same rows where other tensors have them: in runs, or turned over, in slices of columns.
struct Elsewhere {
  Elsewhere(const Source& s, bool transposed, int64_t run_rows, Random& random) : rows(s) {
    const int64_t element = dtype_bytes(s.stored), step = random.between(1, 2) * element;
    form.run_rows = run_rows;
    form.source_stride = transposed ? step : s.cols * element + random.between(0, 5);
    form.run_stride = run_rows * form.source_stride + random.between(0, 3) * element;
    if (transposed) form.column_stride = ceil_div(s.rows, run_rows) * form.run_stride + element;
    form.stored = s.stored;
    form.rows = s.rows;
    form.source_cols = s.cols;
    form.source = s.bytes.data();
    bytes.resize(static_cast<size_t>(form.source_bytes() + 1));
    form.source = bytes.data() + 1;
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t c = 0; c < s.cols; ++c) {
        std::memcpy(bytes.data() + (form.row(r) - bytes.data()) + c * form.element_stride(),
                    s.bytes.data() + 1 + r * s.stride + c * element, static_cast<size_t>(element));
      }
    }
    amax.resize(static_cast<size_t>(s.rows));
    add_row_amax(form, amax.data());
  }
  // Columns [first, end).
  EncodeArgs args(ScaleGroup group, const Weight& to, int64_t first, int64_t end) {
    EncodeArgs a = form;
    a.source += first * form.element_stride();
    a.first_col = first;
    a.source_cols = end - first;
    a.group = group;
    a.to = to;
    a.tensor_amax = *std::ranges::max_element(amax);
    scales.clear();
    for (float x : amax) scales.push_back(code_scale(to.format.dtype, x));
    if (group == ScaleGroup::row) a.row_scales = scales.data();
    return a;
  }
  const Source& rows;
  EncodeArgs form;
  std::vector<std::byte> bytes;
  std::vector<float> amax, scales;
};

class Encode : public test::EveryIsa {
 protected:
  void expect_equals_reference(const Source& source, ScaleGroup group, WeightFormat format) {
    StoredWeight expected(format, source.rows, source.cols);
    StoredWeight actual(format, source.rows, source.cols);
    Backend backend(GetParam(), Compute::bf16, {});
    const EncodeStats want = encode_reference(source.args(group, expected.weight));
    const EncodeStats have = backend.encoder->encode(source.args(group, actual.weight));
    SCOPED_TRACE(fmt::format("{} to {}, group {}, layout {}, {} x {}", dtype_name(source.stored),
                             dtype_name(format.dtype), static_cast<int>(group),
                             static_cast<int>(format.layout), source.rows, source.cols));
    // One byte more than the weight has: nothing is written behind it.
    ASSERT_EQ(std::memcmp(actual.weight.data, expected.weight.data,
                          plane_bytes(format, Plane::codes, source.rows, source.cols) + 1),
              0);
    ASSERT_EQ(std::memcmp(actual.weight.scales, expected.weight.scales,
                          plane_bytes(format, Plane::scales, source.rows, source.cols) + 1),
              0);
    expect_same_stats(have, want);
  }
};

constexpr DType kStored[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr DType kKept[] = {DType::f32, DType::f16, DType::bf16};
constexpr WeightLayout kLayouts[] = {WeightLayout::rows, WeightLayout::packed};

TEST_P(Encode, QuantizesAsTheReference) {
  Random random("Encode.QuantizesAsTheReference");
  for (DType stored : kStored) {
    for (const QuantScheme& scheme : quant_schemes()) {
      for (WeightLayout layout : kLayouts) {
        for (int i = 0; i < 3; ++i) {
          Source source(stored, random.between(1, 150), random.between(1, 300), i > 0, random);
          expect_equals_reference(source, scheme.group, scheme.format(kept_dtype(stored), layout));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Encode, SourcesOfEveryFormBecomeWhatTheirRowsDo) {
  Random random("Encode.SourcesOfEveryFormBecomeWhatTheirRowsDo");
  Backend backend(GetParam(), Compute::bf16, {});
  for (int i = 0; i < 4 * std::ssize(quant_schemes()) * 4; ++i) {
    const QuantScheme& scheme = quant_schemes()[static_cast<size_t>(i) % quant_schemes().size()];
    const DType stored = kStored[random.between(0, 3)];
    const bool transposed = random.between(0, 2) > 0;
    const WeightFormat format = scheme.format(kept_dtype(stored), kLayouts[random.between(0, 1)]);
    Source source(stored, random.between(1, 150), random.between(1, 500), true, random);
    Elsewhere elsewhere(source, transposed, random.between(1, source.rows), random);
    StoredWeight expected(format, source.rows, source.cols),
        actual(format, source.rows, source.cols);
    const EncodeStats want = encode_reference(source.args(scheme.group, expected.weight));
    EncodeStats have;
    const int64_t step = transposed ? kScaleBlock * random.between(1, 2) : source.cols;
    for (int64_t first = 0; first < source.cols; first += step) {
      EncodeArgs args =
          elsewhere.args(scheme.group, actual.weight, first, std::min(first + step, source.cols));
      have.add(backend.encoder->encode(args));
    }
    SCOPED_TRACE(fmt::format("{} from {}, {} x {}, {} runs of {}", scheme.name, dtype_name(stored),
                             source.rows, source.cols, transposed ? "transposed" : "rows",
                             elsewhere.form.run_rows));
    for (Plane plane : kPlanes) {
      if (expected.weight.plane(plane) == nullptr) continue;
      ASSERT_EQ(std::memcmp(actual.weight.plane(plane), expected.weight.plane(plane),
                            plane_bytes(format, plane, source.rows, source.cols)),
                0);
    }
    expect_same_stats(have, want);
  }
}

TEST_P(Encode, ConvertsAsTheReference) {
  Random random("Encode.ConvertsAsTheReference");
  for (DType stored : kStored) {
    for (DType dtype : kKept) {
      for (WeightLayout layout : kLayouts) {
        // f32 overflows to infinity in f16: no special values there, they would make errors
        // infinite.
        Source source(stored, random.between(1, 40), random.between(1, 150), dtype != DType::f16,
                      random);
        expect_equals_reference(source, ScaleGroup::none, {dtype, layout, ScaleKind::none});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Every bf16 number under every scale that the others give: all ties.
TEST_P(Encode, EveryBf16NumberIsQuantizedAsTheReference) {
  Random random("Encode.EveryBf16NumberIsQuantizedAsTheReference");
  Source source(DType::bf16, 256, 256, false, random);
  for (int64_t i = 0; i < 65536; ++i) {
    source.put(i % 256, i / 256, bf16_to_float(static_cast<uint16_t>(i)));
  }
  for (DType codes : {DType::f8_e4m3, DType::i8}) {
    expect_equals_reference(source, ScaleGroup::row,
                            {codes, WeightLayout::packed, ScaleKind::per_row});
  }
}

// Rows of ties between a format's numbers, and of what lies just below and above them; the last
// column, `top`, makes the scale 1.
Source ties(std::span<const float> numbers, float top, Random& random) {
  const auto count = static_cast<int64_t>(numbers.size()) - 1;
  Source source(DType::f32, 3, count + 1, false, random);
  for (int64_t c = 0; c < count; ++c) {
    const auto i = static_cast<size_t>(c);
    const float tie = (numbers[i] + numbers[i + 1]) / 2;
    source.put(0, c, tie);
    source.put(1, c, -std::nextafter(tie, 0.0f));
    source.put(2, c, std::nextafter(tie, 1e9f));
  }
  for (int64_t r = 0; r < 3; ++r) source.put(r, count, top);
  return source;
}

// Each float32 near a tie, a subnormal or the largest code rounds as the scalar conversion does.
TEST_P(Encode, TiesOfFloat32RoundToEven) {
  Random random("Encode.TiesOfFloat32RoundToEven");
  std::vector<float> e4m3, integers;
  for (int code = 0; code <= 126; ++code) e4m3.push_back(e4m3_to_float(static_cast<uint8_t>(code)));
  for (int code = 0; code <= 127; ++code) integers.push_back(static_cast<float>(code));
  expect_equals_reference(ties(e4m3, 448, random), ScaleGroup::row,
                          {DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_row});
  expect_equals_reference(ties(integers, 127, random), ScaleGroup::row,
                          {DType::i8, WeightLayout::rows, ScaleKind::per_row});
}

TEST_P(Encode, AbsoluteMaxIsTheReferences) {
  Random random("Encode.AbsoluteMaxIsTheReferences");
  Backend backend(GetParam(), Compute::bf16, {});
  for (DType stored : kStored) {
    for (int i = 0; i < 5; ++i) {
      Source s(stored, random.between(1, 20), random.between(1, 90), i > 0, random);
      EXPECT_EQ(backend.encoder->absolute_max(s.bytes.data() + 1, stored, s.stride, s.rows, s.cols),
                absolute_max(s.bytes.data() + 1, stored, s.stride, s.rows, s.cols));
    }
  }
}

// Row groups in any order into one weight, as the loader does it.
TEST_P(Encode, RowGroupsGiveTheWhole) {
  Random random("Encode.RowGroupsGiveTheWhole");
  const int64_t rows = 400, cols = 70;
  Source source(DType::bf16, rows, cols, true, random);
  Backend backend(GetParam(), Compute::bf16, {});
  for (const QuantScheme& scheme : quant_schemes()) {
    const WeightFormat format = scheme.format(DType::bf16, WeightLayout::packed);
    StoredWeight whole(format, rows, cols), parts(format, rows, cols);
    EncodeArgs args = source.args(scheme.group, whole.weight);
    const EncodeStats expected = backend.encoder->encode(args);
    EncodeStats sum;
    args.to = parts.weight;
    const int64_t unit = scheme.group == ScaleGroup::block ? 128 : 16;
    for (int64_t end = rows; end > 0;) {
      const int64_t units = random.between(1, 3);
      const int64_t begin = std::max<int64_t>(0, ((end - 1) / unit - units + 1) * unit);
      args.source = source.bytes.data() + 1 + begin * source.stride;
      args.rows = end - begin;
      args.first_row = begin;
      sum.add(backend.encoder->encode(args));
      end = begin;
    }
    EXPECT_EQ(std::memcmp(whole.weight.data, parts.weight.data,
                          plane_bytes(format, Plane::codes, rows, cols)),
              0);
    EXPECT_EQ(std::memcmp(whole.weight.scales, parts.weight.scales,
                          plane_bytes(format, Plane::scales, rows, cols)),
              0);
    expect_same_stats(sum, expected);
  }
}

SLUICE_OVER_EVERY_ISA(Encode);

}  // namespace
}  // namespace sluice
