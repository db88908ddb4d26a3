// A compiled grammar of bytes: a pushdown automaton that is not deterministic.
//
// Nodes are its places. A region is the code of a rule or of what a counted repetition repeats; it
// is entered with a frame on a stack that says where to go on, and how many repetitions are left.
// Counts are kept in frames, so that {0,1000000} takes one node.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::grammar {

using ByteSet = std::bitset<256>;

// Limits, beyond which a grammar is refused.
inline constexpr size_t kMaxNodes = size_t{1} << 18;
inline constexpr size_t kMaxTextBytes = size_t{1} << 19;  // of its source
// Frames on a stack. What would need more is not matched: rules that end within it always find
// their end.
inline constexpr uint32_t kMaxDepth = 512;

enum class Op : uint8_t {
  ret,     // the region has matched
  fail,    // matches nothing
  bytes,   // a byte of the set `to`, then `next`
  split,   // `to` or `next`
  call,    // the region `to`, then `next`
  repeat,  // the region `to` from `low` to `high` times, then `next`
};

// The first two nodes of each grammar.
inline constexpr uint32_t kRet = 0;
inline constexpr uint32_t kFail = 1;
// A count that does not fall.
inline constexpr uint32_t kEndless = UINT32_MAX;

struct Node {
  Op op = Op::fail;
  bool nullable = false;  // its region may end here without a byte
  uint32_t to = 0;
  uint32_t next = 0;
  uint32_t low = 0;
  uint32_t high = 0;
  uint32_t depth = 0;  // frames that matching to the region's end takes at least
};

struct Region {
  uint32_t start = 0;  // a node
  uint32_t begin = 0;  // its nodes: [begin, end)
  uint32_t end = 0;
  std::string name;  // of the rule that it is in
};

// Immutable; threads may share it.
struct Grammar {
  std::vector<Node> nodes;
  std::vector<Region> regions;  // the first one is the root
  std::vector<ByteSet> sets;
  // Bytes that no set tells apart have the same class.
  uint8_t byte_class[256] = {};
  uint32_t classes = 0;

  uint64_t bytes() const;  // of memory
};

}  // namespace sluice::grammar
