#include "src/memory/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/memory/system.h"

namespace sluice {
namespace {

TEST(Buffer, IsZeroedAlignedAndLeased) {
  Ledger ledger;
  for (uint64_t size : {uint64_t{1}, uint64_t{4096}, 5 * MiB + 1}) {
    Buffer buffer(ledger, Use::weights, "test", size, Buffer::Touch::now);
    EXPECT_EQ(buffer.bytes().size(), Buffer::charged_bytes(size));
    EXPECT_EQ(ledger.used(Place::host), Buffer::charged_bytes(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
    EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
    Buffer moved = std::move(buffer);
    EXPECT_TRUE(buffer.bytes().empty());  // NOLINT(bugprone-use-after-move): what is left is tested
    moved.bytes().back() = std::byte{1};
  }
  EXPECT_EQ(ledger.used(Place::host), 0u);
}

TEST(Buffer, RefusesBeyondTheBudgetAndBeyondTheSystem) {
  Ledger ledger;
  EXPECT_THROW(Buffer(ledger, Use::weights, "absurd", uint64_t{1} << 60, Buffer::Touch::lazily),
               Error);
  EXPECT_EQ(ledger.used(Place::host), 0u);
  ledger.set_budget(Place::host, MiB);
  EXPECT_THROW(Buffer(ledger, Use::weights, "too large", 2 * MiB, Buffer::Touch::lazily), Error);
}

// The ledger agrees with what the process holds: touched buffers are there, ended ones are gone.
TEST(Buffer, MemoryReturnsToTheSystem) {
  Ledger ledger;
  uint64_t before = process_rss();
  {
    Buffer buffer(ledger, Use::weights, "test", 64 * MiB, Buffer::Touch::now);
    EXPECT_GT(process_rss(), before + 60 * MiB);
  }
  EXPECT_LT(process_rss(), before + 8 * MiB);
}

}  // namespace
}  // namespace sluice
