#include "src/engine/ranks.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/engine/step_data.h"

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

// Returns a checksum of what all ranks must have alike: the config, and what is rounded how.
uint64_t results_key(const Planner& planner) {
  const std::string text =
      fmt::format("{} {} {} {}", planner.checkpoint().config_of_results().dump(),
                  planner.options().quantize.name(), static_cast<int>(planner.compute()),
                  static_cast<int>(planner.kv_dtype()));
  return checksum64(std::as_bytes(std::span(text)));
}

}  // namespace

Planner::~Planner() {
  if (!leads() || group_.is_over()) return;
  const std::array end{static_cast<std::byte>(RankCommand::end)};
  try {
    group_.tell(end);
    group_.end();
  } catch (const Error& e) {  // a rank that does not come any more
    log::warning("{}", e.what());
  }
}

void Planner::need_one_rank(std::string_view what) const {
  if (rank().size > 1)
    fail(ErrorKind::usage, "{}: works on one rank only, and the model is on {}", what, rank().size);
}

std::shared_ptr<const Placed> Planner::place(const RunShape& shape) {
  if (leads()) {
    MessageWriter message;
    message.put(RankCommand::place);
    message.put(SharedShape{shape.max_tokens, shape.longest_prompt, shape.least_rows,
                            shape.logits_rows, shape.sequences, shape.longest_sequence});
    group_.tell(message.bytes());
  }
  std::shared_ptr<const Placed> result;
  group_.together([&] { result = placed(shape, machine_.budget()); });
  if (rank().size > 1) {
    group_.together([&] {
      auto equal = std::make_shared<Placed>(*result);
      equal_ranks(equal->shape, equal->memory);
      result = std::move(equal);
    });
  }
  malloc_trim(0);  // returns what planning freed: the plan counts with the process as it was
  machine_.hold_process(*result);
  return result;
}

// Gives every rank's plan as many rows and blocks as all ranks have room for. Each was counted with
// no fewer.
void Planner::equal_ranks(const RunShape& shape, MemoryPlan& plan) const {
  struct Figures {
    int64_t chunk_rows, kv_blocks, swap_blocks, disk_blocks;
    uint64_t groups;  // checksum of the sizes of their blocks
    uint64_t model;   // and of what is computed
  };
  std::vector<int64_t> sizes;
  for (const KvGroup& group : kv_layout(*checkpoint_.model().root, shape).groups)
    sizes.push_back(group.block_size);
  const Figures own{plan.chunk_rows,
                    plan.kv_blocks,
                    plan.swap_blocks,
                    plan.disk_blocks,
                    checksum64(std::as_bytes(std::span(sizes))),
                    results_key(*this)};
  const std::vector<Figures> all = group_.gather(own);
  for (size_t r = 0; r < all.size(); ++r) {
    const Figures& other = all[r];
    if (other.model != all.front().model)
      fail(ErrorKind::usage,
           "rank {}: has another model than rank 0, or other options that change results (--dtype, "
           "--quantization, --kv-cache-dtype); give all ranks the same",
           r);
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

void LoadedModel::tell(RankCommand command) const {
  if (!planner_.leads()) return;
  const std::array message{static_cast<std::byte>(command)};
  planner_.group().tell(message);
}

std::vector<RankShare> LoadedModel::rank_shares() const {
  const Group& group = planner_.group();
  if (group.rank().size == 1 || group.is_over()) return {};
  tell(RankCommand::shares);
  const std::optional<StreamReport> stream = stream_report();
  return group.gather(RankShare{report().io.bytes_read, stream ? stream->io.bytes_read : 0,
                                memory_plan().all_weights(),
                                planner_.checkpoint().model().root->layers()});
}

namespace {

// Rank 0's model on this rank.
class Follower {
 public:
  Follower(Planner& planner, std::optional<LoadedModel>& model)
      : planner_(planner), model_(model) {}

  void take(std::span<const std::byte> message, const std::stop_token& stop) {
    MessageReader reader(message);
    switch (reader.get<RankCommand>()) {
      case RankCommand::place: {
        const auto s = reader.get<SharedShape>();
        RunShape shape =
            planner_.run_shape(s.max_tokens, s.longest_prompt, s.logits_rows, s.sequences);
        shape.least_rows = s.least_rows;
        shape.longest_sequence = s.longest_sequence;
        placed_ = planner_.place(shape);
        return;
      }
      case RankCommand::load:
        model_.reset();
        model_.emplace(planner_, placed_, stop);
        return;
      case RankCommand::shares:
        static_cast<void>(model_.value().rank_shares());
        return;
      default:
        model_.value().runner().follow(message);
    }
  }

 private:
  Planner& planner_;
  std::shared_ptr<const Placed> placed_;
  std::optional<LoadedModel>& model_;
};

}  // namespace

void follow(Planner& planner, std::optional<LoadedModel>& model, const std::stop_token& stop) {
  const Group& group = planner.group();
  Follower follower(planner, model);
  std::vector<std::byte> message;
  try {
    while (true) {
      group.hear(message, stop);
      if (static_cast<RankCommand>(message.at(0)) == RankCommand::end) break;
      follower.take(message, stop);
    }
    group.end();
  } catch (const Error& e) {
    if (group.is_over() && !group.is_broken()) throw;  // rank 0 has it, too
    throw Error(e.kind(), fmt::format("rank {}: {}", planner.rank().rank, e.what()));
  }
}

}  // namespace sluice
