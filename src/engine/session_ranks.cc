// Messages between the ranks of a model about their sessions: the requests of rank 0, and what all
// agree on.
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/engine/session.h"

namespace sluice {
namespace {

// The memory that rank 0's requests ask every rank for.
struct SharedShape {
  int64_t max_tokens = 0;
  int64_t longest_prompt = 0;
  int64_t least_rows = 1;
  int64_t logits_rows = 1;
  int64_t sequences = 1;
  int64_t longest_sequence = 0;
};

}  // namespace

Session::~Session() {
  if (!leads() || group_.is_over()) return;
  const std::array end{static_cast<std::byte>(RankCommand::end)};
  group_.tell(end);
  group_.end();
}

void Session::need_one_rank(std::string_view what) const {
  if (rank().size > 1)
    fail(ErrorKind::usage, "{}: works on one rank only, and the model is on {}", what, rank().size);
}

void Session::follow(const std::stop_token& stop) {
  std::vector<std::byte> message;
  try {
    while (true) {
      group_.hear(message, stop);
      if (static_cast<RankCommand>(message.at(0)) == RankCommand::end) break;
      follow_command(message, stop);
    }
    group_.end();
  } catch (const Error& e) {
    if (group_.is_over() && !group_.is_broken()) throw;  // rank 0 has it, too
    throw Error(e.kind(), fmt::format("rank {}: {}", rank().rank, e.what()));
  }
}

void Session::follow_command(std::span<const std::byte> message, const std::stop_token& stop) {
  MessageReader reader(message);
  switch (reader.get<RankCommand>()) {
    case RankCommand::place: {
      const auto s = reader.get<SharedShape>();
      RunShape shape = run_shape(s.max_tokens, s.longest_prompt, s.logits_rows, s.sequences);
      shape.least_rows = s.least_rows;
      shape.longest_sequence = s.longest_sequence;
      return place_here(shape);
    }
    case RankCommand::load: {
      LoadProgress progress;
      return load_here(progress, stop);
    }
    default:
      runner().follow(message);
  }
}

MemoryPlan Session::place(const RunShape& shape) {
  if (leads()) {
    MessageWriter message;
    message.put(RankCommand::place);
    message.put(SharedShape{shape.max_tokens, shape.longest_prompt, shape.least_rows,
                            shape.logits_rows, shape.sequences, shape.longest_sequence});
    group_.tell(message.bytes());
  }
  place_here(shape);
  return memory_plan();
}

// Gives every rank's plan as many rows and blocks as all ranks have room for. Each was counted with
// no fewer.
void Session::equal_ranks(MemoryPlan& plan) const {
  struct Figures {
    int64_t chunk_rows, kv_blocks, swap_blocks, disk_blocks;
    uint64_t groups;  // checksum of the sizes of their blocks
  };
  std::vector<int64_t> sizes;
  for (const KvGroup& group : kv_layout(*model().root, placed_->shape).groups)
    sizes.push_back(group.block_size);
  const Figures own{plan.chunk_rows, plan.kv_blocks, plan.swap_blocks, plan.disk_blocks,
                    checksum64(std::as_bytes(std::span(sizes)))};
  const std::span<const std::byte> all = group_.all_gather(std::as_bytes(std::span(&own, 1)));
  for (size_t r = 0; r < static_cast<size_t>(rank().size); ++r) {
    Figures other{};
    std::memcpy(&other, all.data() + r * sizeof(other), sizeof(other));
    plan.chunk_rows = std::min(plan.chunk_rows, other.chunk_rows);
    plan.kv_blocks = std::min(plan.kv_blocks, other.kv_blocks);
    plan.swap_blocks = std::min(plan.swap_blocks, other.swap_blocks);
    plan.disk_blocks = std::min(plan.disk_blocks, other.disk_blocks);
    if (other.groups == own.groups) continue;
    fail(ErrorKind::usage,
         "--tensor-parallel-size {}: ranks {} and {} would have KV blocks of different sizes; "
         "choose a number that divides the heads",
         rank().size, rank().rank, r);
  }
}

void Session::place_here(const RunShape& shape) {
  group_.together([&] { placed_ = placed(shape, budget()); });
  if (rank().size > 1) {
    group_.together([&] {
      auto equal = std::make_shared<Placed>(*placed_);
      equal_ranks(equal->memory);
      placed_ = std::move(equal);
    });
  }
  malloc_trim(0);  // returns what planning freed: the plan counts with the process as it was
  lease_runtime();
}

void Session::load(LoadProgress& progress, std::stop_token stop) {
  if (leads()) {
    const std::array load{static_cast<std::byte>(RankCommand::load)};
    group_.tell(load);
  }
  load_here(progress, stop);
}

void Session::load_here(LoadProgress& progress, const std::stop_token& stop) {
  ledger_.begin_phase("load");
  if (target_ != nullptr)
    runtime_ = ledger_.lease(Place::host, Use::runtime, "process", memory_plan().runtime);
  is_loaded_ = true;
  reserve_device();
  group_.together([&] { fill(progress, stop); });
  if (rank().size == 1) return;
  const RankLoad own{load_report().io.bytes_read, memory_plan().all_weights()};
  const std::span<const std::byte> all = group_.all_gather(std::as_bytes(std::span(&own, 1)));
  rank_loads_.resize(static_cast<size_t>(rank().size));
  std::memcpy(rank_loads_.data(), all.data(), all.size());
}

}  // namespace sluice
