// The tile operations themselves: what the emulated ones refuse, and that both kinds compute what
// Intel's SDM says.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/emulated_tiles.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using cpu::SLUICE_ISA::EmulatedTiles;
using cpu::SLUICE_ISA::TileConfig;

// C is tile 0, [rows][cols] words; A tile 1, [rows][depth] words; B tile 2, [depth][cols] words.
TileConfig shapes(int rows, int cols, int depth) {
  TileConfig config;
  config.rows[0] = config.rows[1] = static_cast<uint8_t>(rows);
  config.rows[2] = static_cast<uint8_t>(depth);
  config.line_bytes[0] = config.line_bytes[2] = static_cast<uint16_t>(cols * 4);
  config.line_bytes[1] = static_cast<uint16_t>(depth * 4);
  return config;
}

template <class Tiles>
class TileOperations : public testing::Test {
 protected:
  void SetUp() override {
    if constexpr (!std::is_same_v<Tiles, EmulatedTiles>) {
      if (const std::string missing = isa_missing(Isa::amx); !missing.empty())
        GTEST_SKIP() << "no tiles here: " << missing;
    }
  }
  void TearDown() override { cpu::SLUICE_ISA::emulated = {}; }

  // c += a b, with lines of 64 bytes apart by 80.
  template <bool kBytes>
  static void product(const TileConfig& config, std::vector<std::byte>& c,
                      const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    Tiles::configure(config);
    Tiles::template load<0>(c.data(), 80);
    Tiles::template load<1>(a.data(), 80);
    Tiles::template load<2>(b.data(), 80);
    if constexpr (kBytes) {
      Tiles::template add_product_i8<0, 1, 2>();
    } else {
      Tiles::template add_product_bf16<0, 1, 2>();
    }
    Tiles::template store<0>(c.data(), 80);
    Tiles::release();
  }
};

#if defined(__x86_64__)
using Kinds = testing::Types<EmulatedTiles, cpu::SLUICE_ISA::HardwareTiles>;
#else
using Kinds = testing::Types<EmulatedTiles>;
#endif
TYPED_TEST_SUITE(TileOperations, Kinds);

template <class T>
T& word(std::vector<std::byte>& tile, int line, int index) {
  return reinterpret_cast<T*>(tile.data() + line * 80)[index];
}

TYPED_TEST(TileOperations, BytesHaveASignInTheFirstMatrixOnly) {
  test::Random random("TileOperations.Bytes");
  for (int i = 0; i < 20; ++i) {
    const int rows = static_cast<int>(random.between(1, 16));
    const int cols = static_cast<int>(random.between(1, 16));
    const int depth = static_cast<int>(random.between(1, 16));
    std::vector<std::byte> a(16 * 80), b(16 * 80), c(16 * 80);
    for (auto* tile : {&a, &b, &c}) {
      for (std::byte& byte : *tile) byte = static_cast<std::byte>(random.between(0, 255));
    }
    std::vector<std::byte> expected = c;
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < cols; ++n) {
        for (int k = 0; k < 4 * depth; ++k) {
          word<uint32_t>(expected, m, n) += static_cast<uint32_t>(
              int{word<int8_t>(a, m, k)} * int{word<uint8_t>(b, k / 4, 4 * n + k % 4)});
        }
      }
    }
    this->template product<true>(shapes(rows, cols, depth), c, a, b);
    EXPECT_EQ(c, expected) << rows << ' ' << cols << ' ' << depth;
  }
}

// Sums of even and odd columns from zero, then both, then C; 2^24 + 1 is not a float.
TYPED_TEST(TileOperations, EvenAndOddColumnsAreSummedApart) {
  const auto bf16 = [](float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); };
  std::vector<std::byte> a(16 * 80), b(16 * 80), c(16 * 80);
  const float x[4] = {0x1p24f, 1, 1, 1};
  for (int k = 0; k < 4; ++k) {
    word<uint16_t>(a, 0, k) = bf16(x[k]);
    word<uint16_t>(b, k / 2, k % 2) = bf16(1);
  }
  word<float>(c, 0, 0) = 1;
  this->template product<false>(shapes(1, 1, 2), c, a, b);
  // Even: 2^24 + 1 = 2^24. Odd: 2. Both: 2^24 + 2. And 1: 2^24 + 3 rounds to the even 2^24 + 4.
  EXPECT_EQ(word<float>(c, 0, 0), 0x1p24f + 4);
}

TYPED_TEST(TileOperations, DenormalsAreZero) {
  const auto bf16 = [](float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); };
  std::vector<std::byte> a(16 * 80), b(16 * 80), c(16 * 80);
  const float x[4] = {0x1p-130f, 0x1p100f, 0x1p-100f, 0x1p-126f};
  const float w[4] = {0x1p100f, 0x1p-130f, 0x1p-40f, 0.5f};
  for (int k = 0; k < 4; ++k) {
    word<uint16_t>(a, k, 0) = bf16(x[k]);
    word<uint16_t>(b, 0, 2 * k) = bf16(w[k]);
    word<float>(c, k, k) = 0x1p-127f;
  }
  this->template product<false>(shapes(4, 4, 1), c, a, b);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(word<float>(c, k, k), 0) << k;
  EXPECT_EQ(word<float>(c, 2, 3), 0x1p-101f);
}

TYPED_TEST(TileOperations, AConfiguredTileIsZero) {
  std::vector<std::byte> c(16 * 80, std::byte{7});
  TypeParam::configure(shapes(3, 5, 2));
  TypeParam::template zero<0>();
  TypeParam::template store<0>(c.data(), 80);
  TypeParam::release();
  for (int line = 0; line < 16; ++line) {
    for (int i = 0; i < 80; ++i) {
      const int expected = line < 3 && i < 20 ? 0 : 7;
      EXPECT_EQ(std::to_integer<int>(c[static_cast<size_t>(line * 80 + i)]), expected);
    }
  }
}

using EmulatedTilesDeathTest = TileOperations<EmulatedTiles>;

TEST_F(EmulatedTilesDeathTest, RefusesWhatTheProcessorRefuses) {
  std::vector<std::byte> c(16 * 80);
  EXPECT_DEATH(EmulatedTiles::zero<0>(), "the tile is configured");
  EXPECT_DEATH(EmulatedTiles::store<0>(c.data(), 80), "the tile is configured");
  EXPECT_DEATH(EmulatedTiles::configure(shapes(17, 1, 1)), "16 rows of 64 bytes");
  EXPECT_DEATH(EmulatedTiles::configure(shapes(1, 17, 1)), "16 rows of 64 bytes");
  EXPECT_DEATH(EmulatedTiles::configure(shapes(0, 1, 1)), "rows and bytes, or neither");
  TileConfig config = shapes(1, 1, 1);
  config.palette = 0;
  EXPECT_DEATH(EmulatedTiles::configure(config), "palette 1");
  config = shapes(1, 1, 1);
  config.reserved[3] = 1;
  EXPECT_DEATH(EmulatedTiles::configure(config), "reserved bytes are zero");
  config = shapes(1, 1, 1);
  config.rows[9] = config.line_bytes[9] = 4;
  EXPECT_DEATH(EmulatedTiles::configure(config), "there are eight tiles");
  EmulatedTiles::configure(shapes(4, 4, 4));
  EXPECT_DEATH(EmulatedTiles::configure(shapes(4, 4, 4)), "released before");
  EXPECT_DEATH((EmulatedTiles::add_product_bf16<0, 1, 2>()), "holds something");
  EXPECT_DEATH(EmulatedTiles::zero<3>(), "the tile is configured");
  EmulatedTiles::load<0>(c.data(), 80);
  EmulatedTiles::load<1>(c.data(), 80);
  EmulatedTiles::load<2>(c.data(), 80);
  EmulatedTiles::add_product_bf16<0, 1, 2>();
  EXPECT_DEATH((EmulatedTiles::add_product_i8<0, 1, 1>()), "three tiles");
  EmulatedTiles::release();
  EXPECT_DEATH((EmulatedTiles::add_product_i8<0, 1, 2>()), "the tile is configured");
  for (TileConfig wrong : {shapes(4, 4, 4), shapes(4, 4, 4), shapes(4, 4, 4)}) {
    static int which = 0;
    ++(which == 0 ? wrong.rows[1] : which == 1 ? wrong.rows[2] : wrong.rows[0]);
    ++which;
    EmulatedTiles::configure(wrong);
    EmulatedTiles::zero<0>();
    EmulatedTiles::zero<1>();
    EmulatedTiles::zero<2>();
    EXPECT_DEATH((EmulatedTiles::add_product_i8<0, 1, 2>()), "shapes that fit");
    EmulatedTiles::release();
  }
}

}  // namespace
}  // namespace sluice
