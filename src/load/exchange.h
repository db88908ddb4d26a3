// Ranks that load together. A row of a matrix whose inputs are divided has a part for each rank, so
// that ranks which read by themselves would read all of it as often as there are ranks. Instead
// each reads some of the rows (Span::reader), and they exchange the parts, in the order of the
// plan.
//
// Ranks may fail, or begin their load again from another copy of a file, at any moment. So before
// each exchange, and at the end, they meet and tell how it goes; whoever fails in between tells it
// at the next meeting, where the others wait.
//
// A sweep exchanges in the same way, as compute comes to the rows, which it does in one order on
// all ranks, until a rank has its parts in its spill cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "io/reader.h"
#include "src/load/fetch.h"
#include "src/nn/group.h"

namespace sluice {

// Checksums of all that the load exchanges, and the sweeps after it.
struct ExchangeKeys {
  uint64_t load = 0;
  uint64_t sweep = 0;
};
ExchangeKeys exchange_keys(const ReadPlan& plan, const SpillLayout* packed);

// The meetings of one load. All throw OtherRankFailed.
class LoadingRanks {
 public:
  explicit LoadingRanks(const Group& group) : group_(group) {}
  // Tells the others that this rank has failed, unless the load is over.
  ~LoadingRanks();
  LoadingRanks(const LoadingRanks&) = delete;
  LoadingRanks& operator=(const LoadingRanks&) = delete;

  const Group& group() const { return group_; }
  // Begins an attempt. Returns whether the loads of all ranks exchange the same, so that they can.
  [[nodiscard]] bool begin(ExchangeKeys keys);
  // Returns whether their sweeps do.
  bool sweeps_are_alike() const { return sweeps_are_alike_; }
  // Before an exchange: returns false where a rank begins again, and all with it.
  [[nodiscard]] bool meet();
  // Ends an attempt: returns whether it was `complete` on all ranks.
  [[nodiscard]] bool end(bool complete);

 private:
  enum class Word : uint64_t { ready, again, failed };
  struct Heard {
    Word worst = Word::ready;
    bool loads_are_alike = true, sweeps_are_alike = true;
  };
  Heard tell(Word own, ExchangeKeys keys = {});

  const Group& group_;
  bool is_over_ = false;   // nobody waits for this rank
  bool is_again_ = false;  // another rank has ended the attempt, and waits for the next
  bool sweeps_are_alike_ = false;
};

// Exchanges the rows that have arrived for an exchanged fetch. Returns this rank's parts of all of
// its rows, in `received`, which may be where they have arrived. `sent`: memory for what other
// ranks get.
io::ReadResult exchange_rows(const ReadPlan& plan, const Group& group, const Fetch& fetch,
                             const io::ReadResult& read, std::span<std::byte> sent,
                             std::span<std::byte> received);

class RowExchange {
 public:
  // `memory`: of plan.exchange_bytes. `slots`: where reads arrive. All outlive this.
  RowExchange(const ReadPlan& plan, LoadingRanks& ranks, std::span<std::byte> memory,
              std::span<std::byte> slots)
      : plan_(plan), ranks_(ranks), memory_(memory), slots_(slots) {}

  LoadingRanks& ranks() { return ranks_; }
  // The same, in the fetch's slot; none where a rank begins again.
  std::optional<io::ReadResult> run(const Fetch& fetch, const io::ReadResult& read);

 private:
  const ReadPlan& plan_;
  LoadingRanks& ranks_;
  std::span<std::byte> memory_;
  std::span<std::byte> slots_;
};

}  // namespace sluice
