#include "src/memory/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>

#include "src/memory/buffer.h"

namespace sluice {
namespace {

int policy_of(const std::byte* at) {
  int policy = -1;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, at, MPOL_F_ADDR) != 0) return -1;
  return policy;
}

TEST(Numa, PagesComeFromTheNodesInTurns) {
  const auto nodes = nodes_to_choose_from();
  if (!nodes) GTEST_SKIP() << "memory policies are forbidden here, or one is set";
  Ledger ledger;
  Buffer buffer(ledger, Use::weights, "test", 4 << 20, Buffer::Touch::lazily);
  ASSERT_TRUE(interleave(buffer.bytes(), *nodes));
  EXPECT_EQ(policy_of(buffer.data()), MPOL_INTERLEAVE);
  buffer.data()[4096] = std::byte{1};
  EXPECT_FALSE(interleave(buffer.bytes(), NodeMask{}));  // of no node
}

TEST(Numa, LargeBuffersLieOnAllNodes) {
  const auto nodes = nodes_to_choose_from();
  if (!nodes) GTEST_SKIP() << "memory policies are forbidden here, or one is set";
  int count = 0;
  for (unsigned long word : *nodes) count += std::popcount(word);
  ASSERT_GE(count, 1);
  Ledger ledger;
  Buffer buffer(ledger, Use::weights, "test", 64 << 20, Buffer::Touch::now);
  EXPECT_EQ(policy_of(buffer.data()), count > 1 ? MPOL_INTERLEAVE : MPOL_DEFAULT);
}

}  // namespace
}  // namespace sluice
