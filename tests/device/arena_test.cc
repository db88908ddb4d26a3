#include "src/device/arena.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/random.h"

namespace sluice {
namespace {

TEST(Arena, GivesTheFirstGapThatIsWideEnough) {
  Arena arena(100);
  EXPECT_EQ(arena.take(40), 0u);
  EXPECT_EQ(arena.take(30), 40u);
  EXPECT_EQ(arena.take(31), std::nullopt);
  EXPECT_EQ(arena.take(30), 70u);
  EXPECT_EQ(arena.take(1), std::nullopt);
  arena.give_back(40, 30);
  EXPECT_EQ(arena.take(10), 40u);
  EXPECT_EQ(arena.widest_gap(), 20u);
  EXPECT_FALSE(arena.empty());
}

TEST(Arena, PiecesNeverOverlapAndAllComesBack) {
  test::Random random("Arena.PiecesNeverOverlapAndAllComesBack");
  constexpr uint64_t kBytes = 1000;
  Arena arena(kBytes);
  std::map<uint64_t, uint64_t> pieces;
  for (int i = 0; i < 3000; ++i) {
    if (!pieces.empty() && random.between(0, 1) == 0) {
      auto piece = pieces.begin();
      std::advance(piece, random.between(0, std::ssize(pieces) - 1));
      arena.give_back(piece->first, piece->second);
      pieces.erase(piece);
      continue;
    }
    auto bytes = static_cast<uint64_t>(random.between(1, 200));
    std::optional<uint64_t> offset = arena.take(bytes);
    EXPECT_TRUE(offset || arena.widest_gap() < bytes);
    if (!offset) continue;
    auto next = pieces.lower_bound(*offset);
    EXPECT_TRUE(next == pieces.end() || *offset + bytes <= next->first);
    if (next != pieces.begin()) {
      --next;
      EXPECT_LE(next->first + next->second, *offset);
    }
    EXPECT_LE(*offset + bytes, kBytes);
    pieces.emplace(*offset, bytes);
  }
  for (const auto& [offset, bytes] : pieces) arena.give_back(offset, bytes);
  EXPECT_TRUE(arena.empty());
  EXPECT_EQ(arena.take(kBytes), 0u);
}

}  // namespace
}  // namespace sluice
