// One attempt at a load: fetches in the order of the disk, as many in flight as it is fastest with.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/checkpoint/index.h"
#include "quant/encode.h"
#include "src/load/exchange.h"
#include "src/load/fetcher.h"
#include "src/load/read_pace.h"

namespace sluice {

// Progress of a load; written by the load, read by any thread.
struct LoadProgress {
  std::atomic<uint64_t> bytes_total{0};
  std::atomic<uint64_t> bytes_done{0};
  std::atomic<uint32_t> units_total{0};
  std::atomic<uint32_t> units_done{0};
};

// A NaN spreads to every logit: throws Error(refused) where there is one, or the Error of
// CheckpointIndex::refuse_changes() where a changed file is the cause.
void refuse_damaged(const io::CheckpointIndex& index, const io::StoredTensor& tensor,
                    const EncodeStats& stats);

class LoadPass {
 public:
  // `order` is for the fetcher, which is open; it and the rest outlive this.
  // `exchange`: of several ranks that load together; null: this one loads alone.
  LoadPass(std::vector<Fetch> order, Fetcher& fetcher, ReadPace& pace, LoadProgress& progress,
           RowExchange* exchange);

  std::span<const Fetch> order() const { return order_; }
  // Returns false where a source has failed, of any rank: the load begins again from what remains.
  // Error(runtime) where `stop` is requested.
  [[nodiscard]] bool run(const std::stop_token& stop);

 private:
  bool read_all(const std::stop_token& stop);
  void submit();
  bool receive();
  bool exchange_arrived();
  double seconds() const;

  std::vector<Fetch> order_;
  Fetcher& fetcher_;
  ReadPace& pace_;
  LoadProgress& progress_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<size_t> fetches_left_;  // of each unit
  size_t submitted_ = 0;
  RowExchange* exchange_;
  // The next of the order to exchange, and later reads that have arrived before it.
  size_t next_exchange_ = 0;
  std::unordered_map<size_t, io::ReadResult> arrived_;
};

}  // namespace sluice
