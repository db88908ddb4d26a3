#include <gtest/gtest.h>

#include "tests/kernels/backend.h"

namespace sluice {
namespace {

TEST(Isa, NamesAreUnderstood) {
  EXPECT_EQ(parse_isa("auto"), Isa::automatic);
  EXPECT_EQ(parse_isa("avx2"), Isa::avx2);
  EXPECT_EQ(parse_isa("amx"), Isa::amx);
  EXPECT_FALSE(parse_isa("emulated amx"));
  EXPECT_FALSE(parse_isa("avx9"));
  EXPECT_FALSE(parse_isa(""));
}

TEST(Isa, AutomaticIsTheBestThatWorksHere) {
  Isa best = Isa::portable;
  for (Isa isa : {Isa::avx2, Isa::avx512_bf16, Isa::amx}) {
    if (isa_supported(isa)) best = isa;
  }
  EXPECT_TRUE(isa_supported(Isa::automatic));
  EXPECT_TRUE(isa_supported(Isa::reference));
  EXPECT_TRUE(isa_supported(Isa::portable));
  test::Backend automatic(Isa::automatic, Compute::bf16, {}), chosen(best, Compute::bf16, {});
  EXPECT_EQ(automatic->name(), chosen->name());
  EXPECT_EQ(parse_isa(automatic->name()), best);
}

TEST(Isa, WorkspaceGrowsWithWhatItIsFor) {
  WorkspaceNeeds small{1, 65536, 64}, rows = small, wide = small;
  rows.max_rows = 64;
  wide.max_cols = 1 << 20;
  EXPECT_GT(cpu_workspace_bytes(rows, 2), cpu_workspace_bytes(small, 2));
  EXPECT_GT(cpu_workspace_bytes(wide, 2), cpu_workspace_bytes(small, 2));
  EXPECT_GT(cpu_workspace_bytes(small, 4), cpu_workspace_bytes(small, 2));
}

}  // namespace
}  // namespace sluice
