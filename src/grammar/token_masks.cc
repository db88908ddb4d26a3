#include "src/grammar/token_masks.h"

#include <functional>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMasks = 256;                // that are kept
constexpr uint64_t kStates = 2 * MiB;         // of what walks have been through
constexpr uint64_t kOfKeys = 2 * MiB;         // states that masks are kept for
constexpr uint64_t kMostFrames = 20'000'000;  // of a walk
// In Known::next.
constexpr uint32_t kUnknown = UINT32_MAX;
constexpr uint32_t kDead = UINT32_MAX - 1;

uint64_t bytes_of(const State& state) {
  constexpr uint64_t kOfTables = 128;  // that it is a key of
  return kOfTables + state.bytes();
}

}  // namespace

size_t TokenMasks::KeyHash::operator()(const Key& key) const {
  return key.state.hash() ^ std::hash<const void*>()(key.address) ^ (key.first ? 1 : 0);
}

TokenMasks::TokenMasks(std::shared_ptr<const TokenTable> table)
    : table_(std::move(table)), path_(table_->longest() + 1) {}

uint64_t TokenMasks::bytes(int64_t vocab_size) {
  return kMasks * static_cast<uint64_t>(ceil_div(vocab_size, 64)) * sizeof(uint64_t) + kStates +
         kOfKeys;
}

TokenBits TokenMasks::find(const std::shared_ptr<const Grammar>& grammar, const State& state,
                           bool first) {
  Key key{grammar, state.within(table_->longest()), first, grammar.get()};
  if (auto known = by_key_.find(key); known != by_key_.end()) {
    ++stats_.found;
    entries_.splice(entries_.begin(), entries_, known->second);
    return entries_.front().bits;
  }
  ++stats_.walks;
  std::vector<uint64_t> bits(static_cast<size_t>(ceil_div(table_->vocab_size(), 64)));
  if (walked_ != grammar) forget_states();
  walked_ = grammar;
  budget_ = StepBudget(kMostFrames);
  walk(table_->anywhere(), key.state, bits);
  if (first) {
    for (int32_t id : table_->not_at_start())
      bits[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << (id % 64));
    walk(table_->at_start(), key.state, bits);
  }
  while (!entries_.empty() && entries_.size() >= kMasks) {
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  // A state so large that a cache of such would have no room is not found again.
  if (bytes_of(key.state) > kOfKeys / kMasks) key.state = State();
  entries_.push_front({std::move(key), std::move(bits)});
  if (!entries_.front().key.state.dead()) by_key_.emplace(entries_.front().key, entries_.begin());
  return entries_.front().bits;
}

void TokenMasks::forget_states() {
  known_.clear();
  numbers_.clear();
  known_bytes_ = 0;
}

uint32_t TokenMasks::number_of(const State& state) {
  auto [entry, fresh] = numbers_.try_emplace(state, static_cast<uint32_t>(known_.size()));
  if (fresh) {
    known_.push_back({state, std::vector<uint32_t>(walked_->classes, kUnknown)});
    known_bytes_ += bytes_of(state) + walked_->classes * sizeof(uint32_t);
  }
  return entry->second;
}

uint32_t TokenMasks::step(uint32_t from, uint8_t byte) {
  const uint8_t byte_class = walked_->byte_class[byte];
  uint32_t to = known_[from].next[byte_class];
  if (to != kUnknown) return to;
  State state = known_[from].state.next(*walked_, byte, budget_);
  to = state.dead() ? kDead : number_of(state);
  known_[from].next[byte_class] = to;
  return to;
}

// Forgets all states but those of the path.
void TokenMasks::make_room() {
  std::vector<State> kept;
  for (size_t i = 0; i < path_size_; ++i) kept.push_back(known_[path_[i]].state);
  forget_states();
  for (size_t i = 0; i < path_size_; ++i) path_[i] = number_of(kept[i]);
  if (known_bytes_ > kStates)
    fail(ErrorKind::refused,
         "the grammar is too ambiguous: to follow one token takes too much room");
}

void TokenMasks::walk(const TokenTrie& trie, const State& from, std::vector<uint64_t>& bits) {
  std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::span<const int32_t> ids = trie.ids();
  path_size_ = 0;
  path_[path_size_++] = number_of(from);
  for (size_t n = 0; n + 1 < nodes.size();) {
    const TokenTrie::Node& node = nodes[n];
    path_size_ = node.depth;
    if (known_bytes_ > kStates) make_room();
    uint32_t to = step(path_[node.depth - 1], node.byte);
    if (to == kDead) {
      n = node.end;
      continue;
    }
    path_[node.depth] = to;
    path_size_ = node.depth + size_t{1};
    for (uint32_t i = node.ids; i < nodes[n + 1].ids; ++i)
      bits[static_cast<size_t>(ids[i]) / 64] |= uint64_t{1} << (ids[i] % 64);
    ++n;
  }
}

}  // namespace sluice::grammar
