// Packed weights, as the CPU has them in host memory, in the layout of the device's matrices.
#include "kernels/cuda/unpack.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "quant/blocks.h"
#include "quant/groups.h"
#include "quant/matrix_layout.h"
#include "tests/kernels/cuda/mirrored.h"
#include "tests/quant/grouped_weights.h"

namespace sluice {
namespace {

using test::Random;
using test::StoredWeight;

// Formats that a device has in rows: of schemes, of stored integers in groups, and of blocks.
std::vector<WeightFormat> every_unpacked_format() {
  std::vector<WeightFormat> formats;
  for (const QuantScheme& scheme : quant_schemes()) {
    for (const DType stored : {DType::bf16, DType::f16, DType::f32}) {
      const WeightFormat format = scheme.format(stored, WeightLayout::packed);
      if (formats.empty() || !(formats.back() == format)) formats.push_back(format);
    }
  }
  for (const int bits : {2, 3, 4, 8}) {
    for (const DType scales : {DType::f16, DType::bf16, DType::f32}) {
      WeightFormat format{.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = 32};
      format.bits = bits;
      format.scale_type = scales;
      formats.push_back(format);
      format.symmetric = true;
      format.ordered = bits == 4;
      formats.push_back(format);
    }
  }
  WeightFormat outers = find_quant_scheme("nvfp4")->format(DType::bf16, WeightLayout::packed);
  outers.outer_groups = 3;
  formats.push_back(outers);
  for (const DType type : test::kBlockTypes) {
    formats.push_back({.dtype = type});
    formats.push_back({.dtype = type, .scales = ScaleKind::per_row});
  }
  std::erase_if(formats, [](const WeightFormat& format) {
    return layout_of(MatrixLayout::by_codes, format) == WeightLayout::packed;
  });
  return formats;
}

int64_t random_cols(const WeightFormat& format, Random& random) {
  if (is_block(format.dtype)) return block_layout(format.dtype).cols * random.between(1, 3);
  return random.between(1, 300);
}

// Any bytes, but for the order, which names columns.
void fill(Weight& w, Random& random) {
  for (Plane plane : kPlanes) {
    const uint64_t bytes = plane_bytes(w.format, plane, w.rows, w.cols);
    if (plane == Plane::order) {
      for (int64_t c = 0; w.order != nullptr && c < w.cols; ++c)
        w.order[c] = static_cast<int32_t>(w.cols - 1 - c);
      continue;
    }
    for (uint64_t i = 0; i < bytes; ++i)
      w.plane(plane)[i] = static_cast<std::byte>(random.between(0, 255));
  }
}

TEST(CudaUnpack, EveryFormatHasTheValuesThatItHad) {
  Random random("CudaUnpack.EveryFormatHasTheValuesThatItHad");
  for (const WeightFormat& format : every_unpacked_format()) {
    const int64_t rows = kPanelRows * random.between(1, 3), cols = random_cols(format, random);
    SCOPED_TRACE(testing::Message() << dtype_name(format.dtype) << ", " << format.bits << " bits, "
                                    << rows << " x " << cols);
    WeightFormat by_rows = format;
    by_rows.layout = WeightLayout::rows;
    StoredWeight packed(format, rows, cols), plain(by_rows, rows, cols);
    fill(packed.weight, random);
    test::Mirror m;
    const Weight from = m.read(packed.weight), to = m.write(plain.weight);
    for (Plane plane : kPlanes) {  // as the backend copies them
      if (packed.weight.plane(plane) == nullptr || cuda::is_interleaved(format, plane)) continue;
      std::copy_n(packed.weight.plane(plane), plane_bytes(by_rows, plane, rows, cols),
                  plain.weight.plane(plane));
    }
    m.run_in_turn([&] { cuda::unpack(from, to, test::stream()); });
    std::vector<float> expected(static_cast<size_t>(cols)), found(expected);
    for (int64_t r = 0; r < rows; ++r) {
      decode_row(packed.weight, r, expected.data());
      decode_row(plain.weight, r, found.data());
      for (size_t c = 0; c < expected.size(); ++c)
        ASSERT_TRUE(std::bit_cast<uint32_t>(found[c]) == std::bit_cast<uint32_t>(expected[c]) ||
                    (found[c] != found[c] && expected[c] != expected[c]))
            << r << ", " << c << ": " << found[c] << " for " << expected[c];
    }
  }
}

}  // namespace
}  // namespace sluice
