// Encoding gives the bits of encode_reference, by every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/backend.h"

namespace sluice {
namespace {

using test::Backend;
using test::Random;
using test::StoredWeight;

// Rows of a stored tensor, with gaps between them; now and then something that is not finite, tiny
// or large. For the CPU at an odd address; a GPU's source is aligned to its elements.
struct Source {
  Source(const test::Target& target, DType stored_, int64_t rows_, int64_t cols_, bool special,
         Random& random)
      : stored(stored_),
        rows(rows_),
        cols(cols_),
        unit(target.gpu == nullptr ? 1 : dtype_bytes(stored_)),
        stride(cols_ * dtype_bytes(stored_) + random.between(0, 5) * unit),
        bytes(static_cast<size_t>(rows * stride + unit)) {
    const float sigma = std::exp2(static_cast<float>(random.between(-12, 3)));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        float x = random.normal(sigma);
        if (special && random.between(0, 40) == 0) x = special_value(random);
        put(r, c, x);
      }
    }
  }
  const std::byte* begin() const { return bytes.data() + unit; }
  static float special_value(Random& random) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float values[] = {0.0f,     -0.0f,    infinity, -infinity, std::nanf(""), 1e-30f,
                            -6.1e-5f, 65504.0f, 3e-8f,    -1e4f,     1e-41f,        -std::nanf("")};
    return values[random.between(0, 11)];
  }
  void put(int64_t r, int64_t c, float x) {
    std::byte* to = bytes.data() + unit + r * stride + c * dtype_bytes(stored);
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
    a.source = begin();
    a.stored = stored;
    a.source_stride = stride;
    a.rows = rows;
    a.group = group;
    a.to = to;
    a.tensor_amax = absolute_max(a.source, stored, stride, rows, cols);
    return a;
  }
  DType stored;
  int64_t rows, cols, unit, stride;
  std::vector<std::byte> bytes;
};

void expect_same_stats(const EncodeStats& a, const EncodeStats& b) {
  EXPECT_EQ(a.elements, b.elements);
  EXPECT_EQ(a.not_finite, b.not_finite);
  EXPECT_EQ(a.max_error, b.max_error);
  EXPECT_NEAR(a.value_squares, b.value_squares, b.value_squares * 1e-9);
  if (std::isinf(b.error_squares)) {  // of a number that its new type cannot hold
    EXPECT_EQ(a.error_squares, b.error_squares);
  } else {
    EXPECT_NEAR(a.error_squares, b.error_squares, b.error_squares * 1e-6);
  }
}

// The same rows where other tensors have them: in runs, or turned over, in slices of columns.
struct Elsewhere {
  Elsewhere(const Source& s, bool transposed, int64_t run_rows, Random& random) : rows(s) {
    const int64_t element = dtype_bytes(s.stored), step = random.between(1, 2) * element;
    form.run_rows = run_rows;
    form.source_stride = transposed ? step : s.cols * element + random.between(0, 5) * s.unit;
    form.run_stride = run_rows * form.source_stride + random.between(0, 3) * element;
    if (transposed) form.column_stride = ceil_div(s.rows, run_rows) * form.run_stride + element;
    form.stored = s.stored;
    form.rows = s.rows;
    form.source_cols = s.cols;
    form.source = s.bytes.data();
    bytes.resize(static_cast<size_t>(form.source_bytes() + s.unit));
    form.source = bytes.data() + s.unit;
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t c = 0; c < s.cols; ++c) {
        std::memcpy(bytes.data() + (form.row(r) - bytes.data()) + c * form.element_stride(),
                    s.begin() + r * s.stride + c * element, static_cast<size_t>(element));
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

// `behind`: bytes behind each plane that are compared, too.
void expect_same_planes(const Weight& actual, const Weight& expected, int64_t rows,
                        uint64_t behind = 0) {
  for (Plane plane : kPlanes) {
    const uint64_t bytes = plane_bytes(expected.format, plane, rows, expected.cols);
    if (bytes == 0) continue;
    ASSERT_EQ(std::memcmp(actual.plane(plane), expected.plane(plane), bytes + behind), 0)
        << "plane " << static_cast<int>(plane);
  }
}

class Encode : public test::EveryTarget {
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
    expect_same_planes(actual.weight, expected.weight, source.rows, 1);
    if (HasFatalFailure()) return;
    expect_same_stats(have, want);
  }
  // Plain rows, and the layout of linear layers.
  static std::set<WeightLayout> layouts(const WeightFormat& format) {
    return {WeightLayout::rows, GetParam().layout(format)};
  }
};

constexpr DType kStored[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr DType kKept[] = {DType::f32, DType::f16, DType::bf16};

TEST_P(Encode, QuantizesAsTheReference) {
  Random random("Encode.QuantizesAsTheReference");
  for (DType stored : kStored) {
    for (const QuantScheme& scheme : quant_schemes()) {
      for (WeightLayout layout : layouts(scheme.format(kept_dtype(stored), WeightLayout::packed))) {
        for (auto [rows, cols] :
             {std::pair<int64_t, int64_t>{1, 1},
              {3, 127},
              {17, 256},
              {129, 136},
              {5, 2056},
              {random.between(1, GetParam().size(150, 40)), random.between(1, 300)}}) {
          if (test::leaves_out(random)) continue;
          Source source(GetParam(), stored, rows, cols, random.between(0, 2) > 0, random);
          expect_equals_reference(source, scheme.group, scheme.format(kept_dtype(stored), layout));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Encode, ZerosHaveAScaleOfOne) {
  Random random("Encode.ZerosHaveAScaleOfOne");
  Source source(GetParam(), DType::bf16, 20, 200, false, random);
  for (int64_t i = 0; i < 20 * 200; ++i) source.put(i / 200, i % 200, 0);
  for (const QuantScheme& scheme : quant_schemes()) {
    const WeightFormat format = scheme.format(DType::bf16, WeightLayout::rows);
    expect_equals_reference(source, scheme.group, format);
    if (format.scales == ScaleKind::grouped) continue;
    StoredWeight w(format, 20, 200);
    Backend(GetParam(), Compute::bf16, {}).encoder->encode(source.args(scheme.group, w.weight));
    EXPECT_EQ(scale_at(w.weight, 19, 199), 1) << scheme.name;
  }
}

TEST_P(Encode, SourcesOfEveryFormBecomeWhatTheirRowsDo) {
  Random random("Encode.SourcesOfEveryFormBecomeWhatTheirRowsDo");
  Backend backend(GetParam(), Compute::bf16, {});
  for (int i = 0; i < GetParam().size(16, 8) * std::ssize(quant_schemes()); ++i) {
    if (test::leaves_out(random)) continue;
    const QuantScheme& scheme = quant_schemes()[static_cast<size_t>(i) % quant_schemes().size()];
    const DType stored = kStored[random.between(0, 3)];
    const bool transposed = random.between(0, 2) > 0;
    const WeightLayout layout = random.between(0, 1) == 0
                                    ? WeightLayout::rows
                                    : GetParam().layout(scheme, kept_dtype(stored));
    const WeightFormat format = scheme.format(kept_dtype(stored), layout);
    Source source(GetParam(), stored, random.between(1, 150), random.between(1, 500), true, random);
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
    expect_same_planes(actual.weight, expected.weight, source.rows);
    if (HasFatalFailure()) return;
    expect_same_stats(have, want);
  }
}

TEST_P(Encode, ConvertsAsTheReference) {
  Random random("Encode.ConvertsAsTheReference");
  for (DType stored : kStored) {
    for (DType dtype : kKept) {
      for (WeightLayout layout : layouts({.dtype = dtype})) {
        // f32 overflows to infinity in f16: no special values there, they would make errors
        // infinite.
        Source source(GetParam(), stored, random.between(1, 40), random.between(1, 150),
                      dtype != DType::f16, random);
        expect_equals_reference(source, ScaleGroup::none, {dtype, layout, ScaleKind::none});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Every bf16 number under every scale that the others give: all ties.
TEST_P(Encode, EveryBf16NumberIsQuantizedAsTheReference) {
  Random random("Encode.EveryBf16NumberIsQuantizedAsTheReference");
  Source source(GetParam(), DType::bf16, 256, 256, false, random);
  for (int64_t i = 0; i < 65536; ++i) {
    source.put(i % 256, i / 256, bf16_to_float(static_cast<uint16_t>(i)));
  }
  for (const QuantScheme& scheme : quant_schemes())
    expect_equals_reference(
        source, scheme.group,
        with_layout(GetParam().matrix_layout(), scheme.format(DType::bf16, WeightLayout::packed)));
}

// Rows of ties between a format's numbers, and of what lies just below and above them; the last
// column, `top`, makes the scale 1.
Source ties(const test::Target& target, std::span<const float> numbers, float top, Random& random) {
  const auto count = static_cast<int64_t>(numbers.size()) - 1;
  Source source(target, DType::f32, 3, count + 1, false, random);
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
  expect_equals_reference(ties(GetParam(), e4m3, 448, random), ScaleGroup::row,
                          {DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_row});
  expect_equals_reference(ties(GetParam(), integers, 127, random), ScaleGroup::row,
                          {DType::i8, WeightLayout::rows, ScaleKind::per_row});
}

TEST_P(Encode, AbsoluteMaxIsTheReferences) {
  Random random("Encode.AbsoluteMaxIsTheReferences");
  Backend backend(GetParam(), Compute::bf16, {});
  for (DType stored : kStored) {
    for (int i = 0; i < 5; ++i) {
      Source s(GetParam(), stored, random.between(1, 20), random.between(1, 90), i > 0, random);
      EXPECT_EQ(backend.encoder->absolute_max(s.begin(), stored, s.stride, s.rows, s.cols),
                absolute_max(s.begin(), stored, s.stride, s.rows, s.cols));
    }
  }
}

// Row groups in any order into one weight, as the loader does it.
TEST_P(Encode, RowGroupsGiveTheWhole) {
  Random random("Encode.RowGroupsGiveTheWhole");
  const int64_t rows = GetParam().size(400, 160), cols = 70;
  Source source(GetParam(), DType::bf16, rows, cols, true, random);
  Backend backend(GetParam(), Compute::bf16, {});
  for (const QuantScheme& scheme : quant_schemes()) {
    const WeightFormat format =
        with_layout(GetParam().matrix_layout(), scheme.format(DType::bf16, WeightLayout::packed));
    StoredWeight whole(format, rows, cols), parts(format, rows, cols);
    EncodeArgs args = source.args(scheme.group, whole.weight);
    const EncodeStats expected = backend.encoder->encode(args);
    EncodeStats sum;
    args.to = parts.weight;
    const int64_t unit = scheme.group == ScaleGroup::block ? 128 : 16;
    for (int64_t end = rows; end > 0;) {
      const int64_t units = random.between(1, 3);
      const int64_t begin = std::max<int64_t>(0, ((end - 1) / unit - units + 1) * unit);
      args.source = source.begin() + begin * source.stride;
      args.rows = end - begin;
      args.first_row = begin;
      sum.add(backend.encoder->encode(args));
      end = begin;
    }
    expect_same_planes(parts.weight, whole.weight, rows);
    expect_same_stats(sum, expected);
  }
}

SLUICE_OVER_EVERY_TARGET(Encode);

}  // namespace
}  // namespace sluice
