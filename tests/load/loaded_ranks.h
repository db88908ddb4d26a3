// Ranks that load together, each in a thread.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "src/device/host_device.h"
#include "src/load/exchange.h"
#include "src/load/streamer.h"
#include "tests/support/thread_group.h"

namespace sluice::test {

struct LoadedRank {
  Model model;
  ReadPlan plan = {};
  std::unique_ptr<Device> device = make_host_device();
  std::unique_ptr<Encoder> encoder = make_cpu_encoder(Isa::automatic);
  Ledger ledger = {};
  Measured measured = {};
  std::vector<Resident> residents = {};
  LoadReport report = {};

  // Returns how many of the plan's spans are read for other ranks, too.
  size_t exchanged(const auto& is_counted) const {
    size_t count = 0;
    for (const Span& span : plan.spans)
      count += span.reader >= 0 && is_counted(plan.tensors[plan.moves[span.first_move].tensor]);
    return count;
  }
};

using LoadedRanks = std::vector<std::unique_ptr<LoadedRank>>;

// Carries out the plans of all ranks.
inline void load_together(LoadedRanks& ranks, const io::CheckpointIndex& index,
                          const LoadOptions& like) {
  const int size = static_cast<int>(ranks.size());
  Meeting meeting(size);
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      LoadedRank& own = *ranks[static_cast<size_t>(r)];
      const ThreadGroup group({r, size}, meeting);
      LoadingRanks loading(group);
      LoadOptions options = like;
      options.ranks = &loading;
      LoadProgress progress;
      own.residents =
          Streamer(own.plan, index, *own.device, *own.encoder, own.ledger, own.measured, options)
              .load_all(own.report, progress, {});
    });
  }
}

}  // namespace sluice::test
