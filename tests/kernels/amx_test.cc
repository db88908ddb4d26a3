// Linear layers on AMX tiles: real ones where the machine has them, and emulated ones anywhere.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>
#include <vector>

#include "kernels/cpu/instruction_sets.h"
#include "quant/float8.h"
#include "tests/kernels/attention_problem.h"
#include "tests/kernels/cpu_targets.h"
#include "tests/kernels/linear_support.h"

namespace sluice {
namespace {

using test::Backend;
using test::Kind;
using test::Matrix;
using test::Random;
using test::StoredWeight;
using test::Target;

// Kinds that run on tiles.
const Kind kTileKinds[] = {{DType::bf16, ScaleGroup::none},
                           {DType::bf16, ScaleGroup::row},
                           {DType::bf16, ScaleGroup::block},
                           {DType::bf16, ScaleGroup::row, DType::f8_e4m3, true},
                           {DType::bf16, ScaleGroup::block, DType::f8_e4m3, true},
                           {DType::bf16, ScaleGroup::row, DType::i8}};

WorkspaceNeeds needs(int64_t rows, int64_t cols) { return {rows, cols, 8}; }

// Blocks of each panel with scales of their own, which encoding gives to 8 panels at a time.
StoredWeight tile_weight(const Kind& kind, int64_t outputs, int64_t cols, Random& random) {
  StoredWeight w = test::random_weight(kind, WeightLayout::packed, outputs, cols, random);
  w.weight.format.whole_blocks = false;
  const int64_t scales = w.weight.rows / kPanelRows * ceil_div(cols, kScaleBlock);
  for (int64_t i = 0; w.weight.format.scales == ScaleKind::per_block && i < scales; ++i)
    w.weight.scales[i] *= 1 + 0.1f * static_cast<float>(random.between(0, 9));
  return w;
}

struct Layer {
  Layer(const Kind& kind, int64_t outputs, int64_t cols, Random& random)
      : w(tile_weight(kind, outputs, cols, random)), bias(static_cast<size_t>(w.weight.rows)) {
    for (float& b : bias) b = random.normal();
  }
  // The first `rows` rows of x. Its workspace is what so many rows ask for.
  Matrix product(const Target& target, Matrix& x, int64_t rows, int threads) const {
    Matrix y(rows, w.weight.rows);
    Backend backend(target, Compute::bf16, needs(rows, x.cols()), threads);
    backend->linear(x.tensor().rows_from(0, rows), w.weight, bias.data(), y.tensor());
    EXPECT_TRUE(y.gaps_untouched());
    return y;
  }
  StoredWeight w;
  std::vector<float> bias;
};

void expect_first_rows(const Matrix& some, const Matrix& all) {
  for (int64_t r = 0; r < some.rows(); ++r) {
    for (int64_t o = 0; o < some.cols(); ++o) {
      ASSERT_EQ(std::bit_cast<uint32_t>(some.at(r, o)), std::bit_cast<uint32_t>(all.at(r, o)))
          << "row " << r << " of " << some.rows() << ", output " << o;
    }
  }
}

class Amx : public test::EveryTarget {};

// Every number of rows of one tile and of the first blocks, and those around a block's end; panels
// that are not a multiple of what is taken together; columns that end within a tile or on its end.
TEST_P(Amx, EveryNumberOfRowsGivesTheSameBits) {
  Random random("Amx.EveryNumberOfRowsGivesTheSameBits");
  std::vector<int64_t> every(40);
  std::iota(every.begin(), every.end(), 1);
  every.insert(every.end(), {64, 65, 257, 513});
  const std::vector<int64_t> some{1, 2, 15, 16, 17, 32, 33, 40, 65, 257, 513};
  for (const Kind& kind : kTileKinds) {
    for (int64_t cols : {37, 128, 1090}) {
      if (test::leaves_out(random)) continue;
      const int64_t outputs = cols == 1090 ? 11 * 16 : 5 * 16 - 3;
      const Layer layer(kind, outputs, cols, random);
      const std::vector<int64_t>& counts = cols == 1090 ? some : every;
      Matrix x = Matrix::random(counts.back(), cols, random);
      const Matrix all = layer.product(GetParam(), x, x.rows(), 3);
      SCOPED_TRACE(fmt::format("{} {} cols {}", dtype_name(layer.w.weight.format.dtype),
                               static_cast<int>(kind.group), cols));
      expect_product(test::rounded(x, layer.w.weight.format, Compute::bf16), layer.w.weight,
                     layer.bias.data(), all);
      for (int64_t rows : counts) {
        expect_first_rows(layer.product(GetParam(), x, rows, rows % 2 == 0 ? 1 : 2), all);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Bytes that end where nothing may be read.
class AtPageEnd {
 public:
  AtPageEnd(const std::byte* from, uint64_t bytes) : size_(round_up(bytes, kPage) + kPage) {
    void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED, "mmap");
    mapped_ = static_cast<std::byte*>(p);
    check(mprotect(mapped_ + size_ - kPage, kPage, PROT_NONE) == 0, "mprotect");
    std::memcpy(data(bytes), from, bytes);
  }
  ~AtPageEnd() { munmap(mapped_, size_); }
  AtPageEnd(const AtPageEnd&) = delete;
  AtPageEnd& operator=(const AtPageEnd&) = delete;
  std::byte* data(uint64_t bytes) const { return mapped_ + size_ - kPage - bytes; }

 private:
  static constexpr uint64_t kPage = 4096;
  uint64_t size_;
  std::byte* mapped_ = nullptr;
};

// Steps are decoded ahead, and columns may end within one.
TEST_P(Amx, NothingBehindTheWeightsIsRead) {
  Random random("Amx.NothingBehindTheWeightsIsRead");
  for (const Kind& kind : kTileKinds) {
    for (int64_t cols : {8, 40, 96, 1000}) {
      if (test::leaves_out(random)) continue;
      Layer layer(kind, 5 * 16, cols, random);
      const uint64_t bytes = plane_bytes(layer.w.weight.format, Plane::codes, 5 * 16, cols);
      Matrix x = Matrix::random(97, cols, random);
      const Matrix all = layer.product(GetParam(), x, x.rows(), 1);
      const AtPageEnd end(layer.w.weight.data, bytes);
      layer.w.weight.data = end.data(bytes);
      for (int64_t rows : {1, 16, 20, 40, 64, 97})
        expect_first_rows(layer.product(GetParam(), x, rows, 1), all);
      if (HasFatalFailure()) return;
    }
  }
}

// More panels than a thread takes at a time.
TEST_P(Amx, GroupsOfPanelsMeet) {
  Random random("Amx.GroupsOfPanelsMeet");
  for (const Kind& kind : kTileKinds) {
    if (test::leaves_out(random, 4)) continue;
    const Layer layer(kind, 69 * 16, 420, random);
    Matrix x = Matrix::random(97, 420, random);
    const Matrix all = layer.product(GetParam(), x, 97, 1);
    for (int64_t rows : {1, 30, 60, 70})
      expect_first_rows(layer.product(GetParam(), x, rows, rows == 60 ? 1 : 3), all);
    if (HasFatalFailure()) return;
  }
}

// The order that kernels/cpu/amx/linear.h states, written down once more.
float sum_on_tiles(const Matrix& x, int64_t row, const Weight& w, int64_t output) {
  std::vector<float> codes(static_cast<size_t>(w.cols));
  Weight unscaled = w;
  unscaled.format.scales = ScaleKind::none;
  decode_row(unscaled, output, codes.data());
  const bool blocks = w.format.scales == ScaleKind::per_block;
  float total = 0, sum = 0;
  for (int64_t step = 0; step < w.cols; step += 32) {
    float parts[2] = {};
    for (int64_t c = step; c < std::min(step + 32, w.cols); ++c) {
      parts[c % 2] = std::fma(x.at(row, c), codes[static_cast<size_t>(c)], parts[c % 2]);
    }
    sum += parts[0] + parts[1];
    if (blocks && (step + 32) % 128 == 0) {
      total += sum * scale_at(w, output, step);
      sum = 0;
    }
  }
  return total + (w.cols % 128 == 0 && blocks ? 0 : sum * scale_at(w, output, w.cols - 1));
}

TEST_P(Amx, SumsAreTakenInTheStatedOrder) {
  Random random("Amx.SumsAreTakenInTheStatedOrder");
  for (const Kind& kind : kTileKinds) {
    if (kind.codes == DType::i8 || kind.quantized_input) continue;  // scaled at the end
    for (int64_t cols : {8, 128, 700, 1280}) {
      if (test::leaves_out(random)) continue;
      const StoredWeight w = tile_weight(kind, 48, cols, random);
      for (int64_t rows : {3, 37}) {
        Matrix x = Matrix::random(rows, cols, random), y(rows, 48);
        Backend(GetParam(), Compute::bf16, needs(rows, cols), 2)
            ->linear(x.tensor(), w.weight, nullptr, y.tensor());
        const Matrix narrow = test::rounded(x, w.weight.format, Compute::bf16);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t o = 0; o < 48; ++o) {
            ASSERT_EQ(y.at(r, o), sum_on_tiles(narrow, r, w.weight, o))
                << "row " << r << ", output " << o << ", cols " << cols;
          }
        }
      }
    }
  }
}

// Denormals count as zero and are never a result, alone or among others.
TEST_P(Amx, DenormalsAreZero) {
  StoredWeight w({DType::bf16, WeightLayout::packed, ScaleKind::none}, 16, 64);
  std::fill_n(w.weight.data, plane_bytes(w.weight.format, Plane::codes, 16, 64), std::byte{0});
  const uint16_t one = float_to_bf16(1), tiny = float_to_bf16(0x1p-130f);
  for (int64_t o = 0; o < 16; ++o) {
    std::memcpy(w.weight.data + element_offset(w.weight, o, 0), o == 0 ? &tiny : &one, 2);
  }
  for (int64_t rows : {1, 17}) {
    Matrix x(rows, 64), y(rows, 16);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < 64; ++c) x.at(r, c) = c == 0 ? 0x1p100f : 0x1p120f;
    }
    x.at(0, 0) = 0x1p-130f;
    Backend(GetParam(), Compute::bf16, needs(rows, 64))
        ->linear(x.tensor(), w.weight, nullptr, y.tensor());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < 16; ++o)
        EXPECT_EQ(y.at(r, o), r == 0 || o == 0 ? 0.0f : 0x1p100f) << r << ' ' << o;
    }
  }
}

// One row has loops of its own. Products and sums here are denormals, and zeros of both signs, as
// often as not.
TEST_P(Amx, OneRowOfTinyNumbersHasTheBitsOfABlock) {
  Random random("Amx.OneRowOfTinyNumbersHasTheBitsOfABlock");
  for (int64_t cols : {32, 40, 700}) {
    Layer layer({DType::bf16, ScaleGroup::none}, 5 * 16, cols, random);
    for (float& b : layer.bias) b = 0;
    Matrix x = Matrix::random(17, cols, random);
    for (int64_t o = 0; o < 5 * 16; ++o) {
      for (int64_t c = 0; c < cols; ++c) {
        const uint16_t tiny = float_to_bf16(random.normal() * 0x1p-63f);
        std::memcpy(layer.w.weight.data + element_offset(layer.w.weight, o, c), &tiny, 2);
      }
    }
    for (int64_t c = 0; c < cols; ++c) x.at(0, c) *= 0x1p-63f;
    const Matrix all = layer.product(GetParam(), x, x.rows(), 1);
    expect_first_rows(layer.product(GetParam(), x, 1, 1), all);
  }
}

// peak_operations counts tile products, each of 16 x 16 sums.
TEST_P(Amx, PeakCountsEveryMultiplicationAndAddition) {
  const cpu::Ops& ops = *GetParam().table();
  uint64_t seen = 0;
  EXPECT_EQ(ops.multiply_add(cpu::Units::bf16_tiles, 16, &seen), 2 * 4 * 2 * 16 * 16 * 32);
  EXPECT_EQ(ops.multiply_add(cpu::Units::i8_tiles, 16, &seen), 2 * 4 * 2 * 16 * 16 * 64);
  EXPECT_EQ(seen, 0);  // of zeros
  EXPECT_GT(ops.multiply_add(cpu::Units::f32, 16, &seen), 0);
}

TEST(AmxTiles, RealTilesGiveTheBitsOfEmulatedOnes) {
  if (const std::string missing = isa_missing(Isa::amx); !missing.empty())
    GTEST_SKIP() << "amx does not run here: " << missing;
  Random random("AmxTiles.RealTilesGiveTheBitsOfEmulatedOnes");
  for (const Kind& kind : kTileKinds) {
    for (int64_t rows : {1, 2, 15, 16, 17, 33, 200, 300}) {
      if (test::leaves_out(random)) continue;
      const int64_t cols = random.between(1, 1500);
      const Layer layer(kind, random.between(1, 300), cols, random);
      Matrix x = Matrix::random(rows, cols, random);
      const Matrix real = layer.product({Isa::amx}, x, rows, 2);
      for (const Target& emulated : test::emulated_tiles())
        EXPECT_TRUE(same_bits(layer.product(emulated, x, rows, 2), real)) << emulated.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Amx, testing::Values(Target{Isa::amx}), test::target_name);
INSTANTIATE_TEST_SUITE_P(EmulatedTiles, Amx, testing::ValuesIn(test::emulated_tiles()),
                         test::target_name);

#if defined(__x86_64__)
TEST(AttentionOnTiles, RealTilesGiveTheBitsOfEmulatedOnes) {
  if (const std::string missing = isa_missing(Isa::amx); !missing.empty())
    GTEST_SKIP() << "amx does not run here: " << missing;
  Random random("AttentionOnTiles.RealTilesGiveTheBitsOfEmulatedOnes");
  const test::Target emulated{Isa::avx512_bf16, &cpu::avx512_bf16::kEmulatedAmx};
  for (const test::AttentionShape& shape :
       {test::AttentionShape{64, 2, 3, 16}, {128, 1, 6, 7}, {40, 2, 17, 16}}) {
    for (DType dtype : {DType::bf16, DType::f8_e4m3}) {
      for (int64_t rows : {1, 19, 70}) {
        if (test::leaves_out(random)) continue;
        test::Problem problem(shape, dtype, random.between(500, 700), rows, random);
        const auto needs = problem.needs();
        const Backend real({Isa::amx}, Compute::bf16, needs, 2);
        const Backend same(emulated, Compute::bf16, needs, 2);
        EXPECT_TRUE(same_bits(problem.attend(real), problem.attend(same)))
            << shape.key_dim << ' ' << dtype_name(dtype) << ' ' << rows;
      }
    }
  }
}
#endif

}  // namespace
}  // namespace sluice
