// Ranks that load together. A row of a matrix whose inputs are divided has a part for each rank, so
// that ranks which read by themselves would read all of it as often as there are ranks. Instead
// each reads some of the rows (Span::reader), and they exchange the parts, in the order of the
// plan.
//
// Ranks may fail, or begin their load again from another copy of a file, at any moment. So before
// each exchange, and at the end, they meet and tell how it goes; whoever fails in between tells it
// at the next meeting, where the others wait.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "io/reader.h"
#include "src/load/fetch.h"
#include "src/nn/group.h"

namespace sluice {

// The meetings of one load. All throw OtherRankFailed.
class LoadingRanks {
 public:
  explicit LoadingRanks(const Group& group) : group_(group) {}
  // Tells the others that this rank has failed, unless the load is over.
  ~LoadingRanks();
  LoadingRanks(const LoadingRanks&) = delete;
  LoadingRanks& operator=(const LoadingRanks&) = delete;

  const Group& group() const { return group_; }
  // Begins an attempt. Returns whether all ranks exchange the same (exchange_key()), so that they
  // can.
  [[nodiscard]] bool begin(uint64_t key);
  // Before an exchange: returns false where a rank begins again, and all with it.
  [[nodiscard]] bool meet();
  // Ends an attempt: returns whether it was `complete` on all ranks.
  [[nodiscard]] bool end(bool complete);

 private:
  enum class Word : uint64_t { ready, again, failed };
  [[nodiscard]] Word tell(Word own, uint64_t key = 0);

  const Group& group_;
  bool is_over_ = false;   // nobody waits for this rank
  bool is_again_ = false;  // another rank has ended the attempt, and waits for the next
  bool are_alike_ = true;  // keys of the last meeting
};

// A checksum of all that a load exchanges.
uint64_t exchange_key(const ReadPlan& plan, const SpillLayout* packed);

class RowExchange {
 public:
  // `memory`: of plan.exchange_bytes. `slots`: where reads arrive. All outlive this.
  RowExchange(const ReadPlan& plan, LoadingRanks& ranks, std::span<std::byte> memory,
              std::span<std::byte> slots)
      : plan_(plan), ranks_(ranks), memory_(memory), slots_(slots) {}

  LoadingRanks& ranks() { return ranks_; }
  // Exchanges the rows that have arrived for an exchanged fetch. Returns this rank's parts of all
  // rows of the fetch's moves, in its slot; none where a rank begins again.
  std::optional<io::ReadResult> run(const Fetch& fetch, const io::ReadResult& read);

 private:
  const ReadPlan& plan_;
  LoadingRanks& ranks_;
  std::span<std::byte> memory_;
  std::span<std::byte> slots_;
};

}  // namespace sluice
