#include "src/text/trie.h"

#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

uint64_t edge_of(uint32_t parent, char byte) {
  return (uint64_t{parent} << 8 | static_cast<uint8_t>(byte)) + 1;
}

}  // namespace

Trie::Trie(const TokenizerFile& file, std::string_view where) : Trie() {
  constexpr uint64_t kMostBytes = 64 * MiB;  // the trie takes forty times as much
  if (file.tokens.bytes() > kMostBytes)
    fail(ErrorKind::refused, "{}: the tokens have more than {} of text", where,
         format_size(kMostBytes));
  for (size_t i = 0; i < file.tokens.size(); ++i)
    if (file.may_be_text(i)) add(file.tokens[i], file.ids[i]);
}

// Returns where the edge is, or the empty slot where it would be.
size_t Trie::slot_of(uint64_t edge) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t hash = edge * 0x9E3779B97F4A7C15u;
  size_t slot = (hash >> 32 ^ hash) & mask;
  while (slots_[slot].edge != 0 && slots_[slot].edge != edge) slot = (slot + 1) & mask;
  return slot;
}

void Trie::grow() {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : old)
    if (slot.edge != 0) slots_[slot_of(slot.edge)] = slot;
}

void Trie::add(std::string_view token, int32_t id) {
  uint32_t parent = 0;
  for (size_t i = 0; i < token.size(); ++i) {
    if (2 * edges_ >= slots_.size()) grow();
    Slot& slot = slots_[slot_of(edge_of(parent, token[i]))];
    if (slot.edge == 0) {
      slot.edge = edge_of(parent, token[i]);
      slot.child = static_cast<uint32_t>(++edges_);
      has_children_[parent] = true;
      has_children_.push_back(false);
    }
    if (i + 1 == token.size()) slot.token = id;
    parent = slot.child;
  }
}

bool Trie::step(Node& node, char byte) const {
  const Slot& slot = slots_[slot_of(edge_of(node.index, byte))];
  if (slot.edge == 0) return false;
  node = {.index = slot.child, .token = slot.token, .is_leaf = !has_children_[slot.child]};
  return true;
}

}  // namespace sluice
