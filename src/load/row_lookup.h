// Rows of tables that stay on disk, read on look-up by the calling thread.
#pragma once

#include <cstdint>
#include <span>

#include "src/load/fetcher.h"
#include "src/memory/buffer.h"
#include "src/memory/ledger.h"
#include "src/nn/param.h"
#include "src/plan/sweep.h"

namespace sluice {

class RowLookup {
 public:
  // All arguments outlive it. Leases memory if a table of the plan is streamed.
  RowLookup(const ReadPlan& plan, const io::CheckpointIndex& index, Ledger& ledger,
            Measured& measured, const LoadOptions& options);

  // Does the same as WeightStream::embed.
  void embed(const Param& table, std::span<const int32_t> ids, Tensor out, DeviceStream& stream);
  io::ReaderStats stats() const { return fetcher_.stats(); }

 private:
  // Return false where a source has failed. `first`: the tensor of the table's first piece.
  bool embed_rows(const Param& table, uint32_t first, std::span<const int32_t> ids, Tensor out,
                  DeviceStream& stream);
  bool decode(const Fetch& fetch, const io::ReadResult& read, int64_t own, float* out);

  const ReadPlan& plan_;
  const io::CheckpointIndex& index_;
  LookupShape shape_;
  Buffer memory_;  // slots, encoded rows, a decoded row
  std::unique_ptr<Encoder> encoder_ = make_cpu_encoder(Isa::automatic);
  Fetcher fetcher_;
};

}  // namespace sluice
