// A model from its directory to the point where it can run. Every verb uses the steps it
// needs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "src/base/thread_pool.h"
#include "src/engine/checkpoint.h"
#include "src/engine/loaded_model.h"
#include "src/engine/machine_rates.h"
#include "src/grammar/grammars.h"
#include "src/memory/system.h"
#include "src/nn/group.h"
#include "src/plan/memory_plan.h"

namespace sluice {

enum class DtypeChoice : uint8_t { automatic, bf16, f32 };

struct SessionOptions {
  std::filesystem::path model;
  std::vector<std::filesystem::path> mirrors;  // directories with some or all of its weight files
  bool dummy_weights = false;                  // of `model` only the config counts
  bool needs_head = true;                      // else a model without one makes embeddings
  std::optional<std::string> memory;           // as given: "2GiB", "75%"; none: the free memory
  std::shared_ptr<Backend> backend;            // computes the model; null: the CPU, as `isa` says
  std::optional<std::string> device_memory;    // as `memory`, of a device with memory of its own
  // Rows of a step up to which the CPU multiplies weights in host memory beside a device (0: it
  // never does); none: as the plan computes it from the machine's rates (src/plan/host_rows.h).
  std::optional<int64_t> cpu_rows;
  QuantizeRequest quantize;
  DtypeChoice dtype = DtypeChoice::automatic;
  std::optional<DType> kv_dtype;  // of the KV cache (kernels/kv_cache.h); none: as computed
  std::optional<double> max_quant_error;
  io::ReaderKind reader = io::ReaderKind::automatic;
  Isa isa = Isa::automatic;
  int threads = 0;  // 0: as many as the process may use
  ThreadPool::Pin pin_threads = ThreadPool::Pin::no;
  int64_t scheduler_slice = 0;  // requested while weights stream [microseconds]; 0: none
  int64_t block_size = 16;
  std::optional<int64_t> max_model_len;
  bool longest_model_len = false;  // as long as the budget allows
  std::vector<PlaceRule> place;
  SpillOptions spill;                        // for what is streamed
  uint64_t kv_bytes = 0;                     // limit of the KV cache; 0: as much as is needed
  SwapShape swap;                            // room for evicted KV blocks
  bool prompt_cache = false;                 // a prompt cache will be used
  Buffer::Touch touch = Buffer::Touch::now;  // of the memory to run, but for small parts
  std::shared_ptr<const Group> ranks;        // that compute the model together; null: one alone
  const io::SystemCalls* calls = nullptr;    // of weights' reads, for tests; null: the real ones
};

// A rank's part of a load.
struct RankLoad {
  uint64_t bytes_read = 0;
  uint64_t weights = 0;  // in memory [bytes]
};

class Session {
 public:
  // Headers only: config.json, the checkpoint's index, the tokenizer when there is one. Throws
  // Error(refused). Of several ranks, each makes a session of the same options; those of other
  // ranks than 0 then follow() it.
  explicit Session(SessionOptions options) : Session(std::move(options), nullptr) {}
  // A draft model in the same process: in the ledger of `target`, which outlives
  // it, computed by the same threads or on the same device. It stays in memory whole.
  Session(SessionOptions options, Session& target) : Session(std::move(options), &target) {}

  // Tells the other ranks the end, on rank 0.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const SessionOptions& options() const { return options_; }
  Rank rank() const { return group_.rank(); }
  // Does what rank 0's session and runner do, until that one ends.
  void follow(const std::stop_token& stop);
  // Each rank's part of the last load; on rank 0 of several.
  std::span<const RankLoad> rank_loads() const { return rank_loads_; }
  // Error(usage) that begins with `what`, where there are several ranks.
  void need_one_rank(std::string_view what) const;
  Model& model() { return checkpoint_.model(); }
  const Model& model() const { return checkpoint_.model(); }
  const DecoderSpec& spec() const { return model().root->spec(); }
  const io::CheckpointIndex& index() const { return checkpoint_.index(); }
  // Null when the directory has none, or one that cannot be used; need_tokenizer() then says why as
  // Error(refused).
  const Tokenizer* tokenizer() const { return checkpoint_.tokenizer(); }
  const Tokenizer& need_tokenizer() const { return checkpoint_.need_tokenizer(); }
  // Compiles grammars for the tokenizer's tokens; errors as need_tokenizer().
  grammar::Grammars& grammars() const {
    need_tokenizer();
    return *grammars_;
  }
  Ledger& ledger() { return ledger_; }
  // The model's chat templates. Error(refused) for files that are none.
  ChatFiles chat_files() const { return checkpoint_.chat_files(); }
  EmbeddingRules embedding_rules() const { return checkpoint_.embedding_rules(); }
  std::optional<Json> generation_config() const { return checkpoint_.generation_config(); }
  // Leases bytes for input beside the plan, in place of the earlier lease: long words of a text
  // (TokenStream::Room), or token ids before place() counts them. Error(no_fit) that begins with
  // `what` where the budget has no room.
  void hold_input(std::string_view what, uint64_t bytes);
  ThreadPool& pool() { return *pool_; }
  SchedulerSlice scheduler_slice() const { return loaded_->scheduler_slice(); }
  const Backend& backend() const { return *backend_; }
  // Rows of a step up to which the CPU beside the device multiplies what lies in host memory.
  int64_t cpu_rows() const { return cpu_rows_; }
  // Budget of the device's memory; 0: its memory is the host's.
  uint64_t device_budget() const { return device_budget_; }
  Compute compute() const { return compute_; }
  DType kv_dtype() const;
  uint64_t budget() const { return budget_; }
  const FreeMemory& system_memory() const { return free_; }
  // Tokens that a sequence may have: --max-model-len, else the model's own limit.
  int64_t max_model_len() const { return max_model_len_; }

  RunShape run_shape(int64_t max_tokens, int64_t longest_prompt, int64_t logits_rows,
                     int64_t sequences = 1) const;
  // Makes the plans; Error(no_fit) when the budget is too small.
  MemoryPlan place(const RunShape& shape);
  // Places a draft model before its target: everything is resident, in half of the budget if both
  // have room. Returns `target_shape` with the draft model's memory. Counts with the least if there
  // is no room; the target is refused then.
  RunShape place_beside(Session& target, const RunShape& shape, RunShape target_shape);
  // Returns `target_shape` with the least memory that a draft model of `shape` takes.
  RunShape least_beside(const RunShape& shape, RunShape target_shape);
  // Peak of the whole process, draft models included [bytes].
  uint64_t predicted_peak() const { return std::max(past_peak_, memory_plan().peak()); }
  uint64_t predicted_device_peak() const { return memory_plan().device.peak(); }
  // Sets --max-model-len auto. `draft`: memory of the draft model for sequences of so many tokens.
  void use_longest(const std::function<DraftMemory(int64_t tokens)>& draft) {
    max_model_len_ = longest_sequence(draft);
  }
  // Plans without placing: the plan of place() if the budget has room; the plan, fitting or not;
  // and the plan with the least memory that works.
  std::optional<MemoryPlan> fitting_plan(const RunShape& shape);
  MemoryPlan predict(const RunShape& shape);
  MemoryPlan smallest(const RunShape& shape);
  bool fits(const MemoryPlan& plan) const {
    return plan.needed() <= budget() && plan.device.peak() <= device_budget();
  }
  // The plans of place() for another budget and scheme; throws as it does.
  std::pair<MemoryPlan, ReadPlan> what_if(const RunShape& shape, uint64_t budget,
                                          const QuantizeRequest& quantize);
  // The reads of a plan for that scheme.
  ReadPlan read_plan_for(const MemoryPlan& plan, const QuantizeRequest& quantize);
  std::shared_ptr<const Placed> placed() const { return placed_; }
  const MemoryPlan& memory_plan() const { return placed_->memory; }
  const ReadPlan& read_plan() const { return *placed_->read; }

  const MachineRates& rates() const { return rates_; }
  // Remembers the rates that a run observed, from the median seconds of its passes of a few rows;
  // 0: there were none. (load() remembers those of a load.)
  void learn_pass(double seconds);

  // Loads the weights; after place(), also of the target.
  void load(LoadProgress& progress, std::stop_token stop);
  // Loads the weights of another directory, of a model of the same shape, into the same
  // memory; no step may run. Error (refused, usage or no_fit), without any change,
  // where the models differ or the load has no room beside the run's memory. If the
  // load fails, the model is empty, and steps fail. The runner stays, without its KV
  // blocks.
  void refill(const std::filesystem::path& model, LoadProgress& progress, std::stop_token stop);
  const LoadReport& load_report() const { return loaded_->report(); }
  std::optional<StreamReport> stream_report() const { return loaded_->stream_report(); }
  const Spill* spill() const { return loaded_->spill(); }
  const DiskTimeline& timeline() const { return timeline_; }
  // After load(): the memory to run, as placed.
  Runner& runner();
  // A file for the keys and values of a prompt of `prompt_tokens`. Error(refused) where `path` is
  // another file.
  PromptCache prompt_cache(const std::filesystem::path& path, int64_t prompt_tokens);
  // Between steps: evicts weights to go on within a smaller budget. A budget that is too small is
  // met as closely as possible, with a warning.
  void shrink(uint64_t budget);
  // shrink() where the cgroup's limit has been lowered since the last call.
  void follow_cgroup();
  void release();  // the weights and the runner's memory
  // Loads again, as placed, what release() has given up.
  void reload(LoadProgress& progress, const std::stop_token& stop);
  bool has_weights() const { return loaded_->filled(); }

 private:
  Session(SessionOptions options, Session* target);
  bool leads() const { return rank().size > 1 && rank().rank == 0; }
  void set_limits();
  void follow_command(std::span<const std::byte> message, const std::stop_token& stop);
  void place_here(const RunShape& shape);
  void load_here(LoadProgress& progress, const std::stop_token& stop);
  void equal_ranks(MemoryPlan& plan) const;
  void note_runtime(uint64_t peak_before);
  uint64_t grown() const;
  void set_device_budget();
  void reserve_device();
  void check_place_rules();
  std::shared_ptr<const Placed> placed(const RunShape& shape, uint64_t budget);
  int64_t longest_sequence(const std::function<DraftMemory(int64_t tokens)>& draft);
  void lease_runtime();
  void fill(LoadProgress& progress, const std::stop_token& stop);
  // Returns the laid out plan that all plans for one request and origin begin with; valid until the
  // next call.
  ReadPlan& laid_out(const QuantizeRequest& quantize, Origin origin);
  // Returns the origin of the plans that stream the most.
  Origin streamed_origin() const;
  bool needs_spill() const { return memory_plan().origin == Origin::spill; }
  // Returns the same as read_plan_for() for the session's request, but takes laid_out()'s plan
  // instead of a copy.
  ReadPlan take_read_plan(const MemoryPlan& plan);
  // A request, with what this session takes of its own beside it.
  RunShape counted(RunShape shape) const;
  MemoryPlan plan_within(const RunShape& shape, uint64_t budget, const QuantizeRequest& quantize);
  uint64_t room_to_refill(const std::filesystem::path& model) const;
  RateSetting rate_setting() const;
  BlockCosts block_costs() const;

  SessionOptions options_;
  SoloGroup solo_;
  const Group& group_;
  std::vector<RankLoad> rank_loads_;
  Session* target_;                     // of a draft model: its target's session; null: none
  std::unique_ptr<Ledger> own_ledger_;  // none: the target's
  Ledger& ledger_;
  FreeMemory free_;
  uint64_t peak_before_ = process_peak_rss();
  uint64_t rss_before_ = process_rss();
  Checkpoint checkpoint_;
  uint64_t headers_bytes_ = grown();             // by reading them, at most
  std::unique_ptr<grammar::Grammars> grammars_;  // null without a tokenizer
  bool can_spill_ = false;  // input-major matrices: there are some, and a directory
  bool is_loaded_ = false;  // what is read from where is decided
  struct LaidOut {
    QuantizeRequest quantize;
    Origin origin = Origin::checkpoint;
    ReadPlan plan;
  };
  std::optional<LaidOut> laid_out_;  // of the last question, until place() has decided
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<Backend> backend_;
  MachineRates rates_;
  uint64_t device_budget_ = 0;
  double link_cost_ = 0, host_cost_ = 0;  // RunShape::link_cost and host_cost
  std::shared_ptr<Backend> host_;         // the CPU beside a device; null: the backend is the CPU
  int64_t cpu_rows_ = 0;
  Compute compute_ = Compute::bf16;
  uint64_t budget_ = 0;
  bool device_reserved_ = false;
  uint64_t spill_bytes_ = 0;  // limit of the spill directory
  uint64_t runtime_bytes_ = 0;
  uint64_t start_peak_ = 0;               // of the process, up to that
  std::optional<uint64_t> cgroup_limit_;  // as it was last seen
  int64_t max_model_len_ = 0;
  Lease runtime_;
  Lease input_;
  std::shared_ptr<const Placed> placed_;  // null before place()
  uint64_t past_peak_ = 0;                // predicted for before the budget was lowered
  DiskTimeline timeline_{ledger_.start()};
  std::unique_ptr<LoadedModel> loaded_;
};

// Between steps of a run: shrinks the budget by a quarter for each new request in `shrink`, and to
// a lowered limit of the cgroup. `followed`: requests that earlier calls have answered.
void follow_limits(Session& session, const std::atomic<int>& shrink, int& followed);

}  // namespace sluice
