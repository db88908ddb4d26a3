// Computes token rows with a model; owns the KV cache, the activations and the kernels' scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "src/engine/step_data.h"
#include "src/engine/step_graphs.h"
#include "src/kv/block_manager.h"
#include "src/kv/prompt_cache.h"
#include "src/kv/sequence.h"
#include "src/kv/storage.h"
#include "src/memory/ledger.h"
#include "src/models/decoder.h"
#include "src/nn/device_group.h"
#include "src/nn/host_side.h"
#include "src/plan/memory_plan.h"

namespace sluice {

// Consecutive tokens of one sequence, in a step with others.
struct StepPart {
  Sequence* sequence = nullptr;
  std::span<const int32_t> ids;
  // The length for length-dependent rope: the whole prompt's for its tokens. 0: each token counts
  // with the sequence's length including it, so that several generated tokens at once have the same
  // result as one after the other.
  int64_t rope_length = 0;
  bool rewindable = false;  // Sequence::truncate() can go back to before them
};

class Runner {
 public:
  // Takes its memory from the ledger as `plan` says. The model is resident while steps run; model,
  // backend (shape.backend), ledger and groups outlive the runner. With Touch::lazily a thread
  // touches the largest of its memory beside the first steps, which need little of it. Of several
  // ranks, which have equally many rows and KV blocks, rank 0's runner has the callers; it tells
  // the others what to do.
  Runner(const CausalLM& model, Ledger& ledger, const MemoryPlan& plan, const RunShape& shape,
         const BlockCosts& costs, const RankGroups& groups,
         Buffer::Touch touch = Buffer::Touch::now);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // A sequence for a prompt of `prompt_tokens`: where rope's frequencies depend on the length,
  // prompts of different lengths share no blocks.
  Sequence new_sequence(int64_t prompt_tokens = 0);
  // Makes it a new one, for as many tokens.
  void begin_again(Sequence& sequence, int64_t tokens) const;
  // Longer sequences begin again (DecoderSpec::keys_end).
  std::optional<int64_t> keys_end() const { return model_.spec().keys_end(); }
  const BlockManager& blocks() const { return blocks_; }
  const Device& device() const { return device_; }
  Ledger& ledger() { return ledger_; }
  int64_t vocab_size() const { return model_.spec().vocab_size; }
  int64_t max_rows() const { return activations_->max_rows(); }

  // Runs the parts, of different sequences and of at most max_rows() tokens together, as the next
  // tokens of each. A sequence's results do not depend on the others. Error(no_fit) when no KV
  // block is free. The result is valid until the next step: the final norm's output, a row a token,
  // in the device's memory; of a pipeline, in that of its last stage.
  Tensor step(std::span<const StepPart> parts);
  Tensor step(Sequence& sequence, std::span<const int32_t> ids, int64_t rope_length) {
    StepPart part{&sequence, ids, rope_length};
    return step({&part, 1});
  }
  Tensor decode(Sequence& sequence, std::span<const int32_t> ids) { return step(sequence, ids, 0); }
  // The next of some draft tokens, which Sequence::truncate() takes back.
  Tensor draft(Sequence& sequence, std::span<const int32_t> ids) {
    StepPart part{&sequence, ids, 0, true};
    return step({&part, 1});
  }

  // A whole prompt, chunk by chunk; the result is its last token's row. Error(runtime) when `stop`
  // is requested between chunks.
  Tensor prefill(Sequence& sequence, std::span<const int32_t> ids, std::stop_token stop);

  // Copies KV blocks before the next step, in this order. With `beside`, restores to the device run
  // beside that step and end before the next copies.
  void copy_blocks(std::span<const BlockCopy> copies, bool beside);

  PromptCache prompt_cache(std::filesystem::path path, const std::string& identity);
  // restore() reads keys and values of the prompt's first blocks from the file, and returns the
  // number of tokens; save() writes those known to the file. The last token is always computed, so
  // that its block, and a window before it, are not needed.
  int64_t restore(PromptCache& cache, std::span<const int32_t> prompt);
  void save(PromptCache& cache, std::span<const int32_t> prompt);

  // Does what rank 0 told this rank: RankCommand::step, copies, logits or row.
  void follow(std::span<const std::byte> message);

  // Moves a row of step's result to the place of another.
  void move_row(Tensor hidden, int64_t from, int64_t to);

  // Copies a row of step's result to host memory: `to` has its columns.
  void copy_row(Tensor hidden, int64_t row, std::span<float> to);

  // Computes the logits of rows of step's result, at most the plan's logits rows. They stay on the
  // device; the accessors below copy what they need to the host. Valid until the next call.
  void compute_logits(Tensor hidden);
  TokenLogit likeliest(int64_t row);  // unless logits_row() was written to
  // The kTop largest logits and those equal to the last of them, unordered, unless logits_row() was
  // written to. Empty where too many are equal.
  static constexpr int64_t kTop = kTopTokens / 2;
  std::span<TokenLogit> top_logits(int64_t row);
  Tensor logits_row(int64_t row) { return host_logits(row, 1); }  // [1, vocab_size]
  // Computes the logits of `hidden` and returns them: [rows, vocab_size].
  Tensor logits(Tensor hidden) {
    compute_logits(hidden);
    return host_logits(0, logits_.rows);
  }
  int64_t max_logits_rows() const { return logits_rows_; }
  GraphStats graphs() const;

  // Called while the model has no weights: steps fail with `why`. No sequence may hold
  // blocks.
  void stop_steps(std::string why);
  // Forgets prefixes that were computed with the weights before.
  void use_new_weights();

  // The median seconds of one input row times all these matrices, in the CPU's memory. Overwrites
  // the results of the last step.
  double matrices_seconds(std::span<const Weight> matrices);

 private:
  void find_stretches();
  void open_host(const MemoryPlan& plan, const RunShape& shape);
  Context context() const {
    return {*kernels_, tensor_group(), beside_ ? &*beside_->side : nullptr};
  }
  void touch_memory(const std::stop_token& stop) const;
  // Row `from` of the last step's result to the place of row `to`.
  struct RowMove {
    int64_t from = 0;
    int64_t to = 0;
  };

  const Group& tensor_group() const {
    return device_group_ ? static_cast<const Group&>(*device_group_) : groups_.tensor;
  }
  bool leads() const { return groups_.all.rank().size > 1 && groups_.all.rank().rank == 0; }
  int64_t row_number(Tensor hidden) const;
  void add_part(const StepPart& part);
  void compute_step();
  template <class Work>
  void through_host(std::span<std::byte> bytes, const Work& work);
  void send(int to, std::span<std::byte> bytes);
  void receive(int from, std::span<std::byte> bytes);
  void receive_rows(int64_t rows);
  void send_rows(int64_t rows);
  void compute_own_head(Tensor hidden);
  void pass_logits();
  int first_of_last() const { return groups_.all.rank().size - groups_.tensor.rank().size; }
  void send_row(int64_t row);
  void move_blocks(std::span<const BlockCopy> copies, bool beside);
  void compute_head(Tensor hidden);
  template <class Work>
  void with_ranks(Work work);
  uint64_t root_of(int64_t prompt_tokens) const;
  void fill_rope(const StepData::Part& part);

  uint64_t logits_bytes() const { return sluice::logits_bytes(model_, logits_rows_); }
  // Returns the memory behind the logits, for results found in them.
  std::byte* found_memory() const {
    return logits_memory_.data() +
           static_cast<uint64_t>(logits_rows_ * model_.logits_cols()) * sizeof(float);
  }
  void find_likeliest();
  void find_top();
  template <class T>
  T* bring(const T* found, int64_t count);
  Tensor host_logits(int64_t first_row, int64_t rows);
  Tensor rope_rows(int64_t matrix, int64_t first_row, int64_t rows) const;

  const CausalLM& model_;
  Ledger& ledger_;
  int64_t logits_rows_;
  std::string stopped_;      // why there are no steps; empty: there are
  uint64_t generation_ = 0;  // of the weights
  Device& device_;
  std::unique_ptr<DeviceStream> stream_;
  KvLayout layout_;
  WorkspaceNeeds needs_;
  Buffer workspace_memory_;
  Buffer workspace_host_;
  Buffer activation_memory_;
  Buffer rope_memory_;  // cos, then sin; in host memory
  Buffer logits_memory_;
  Buffer logits_host_;   // none where the device's memory is the host's
  Buffer routing_host_;  // the same
  std::vector<std::unique_ptr<Pinned>> pinned_;
  std::unique_ptr<Kernels> kernels_;
  RankGroups groups_;
  Buffer gathered_memory_;                   // none where ranks have no devices
  std::optional<DeviceGroup> device_group_;  // the same
  // The CPU beside a device; nothing where it multiplies nothing.
  struct Beside {
    Buffer workspace, activation_memory, products;
    std::vector<std::unique_ptr<Pinned>> pinned;
    std::unique_ptr<Kernels> kernels;
    std::optional<Activations> activations;
    std::optional<HostSide> side;
  };
  std::unique_ptr<Beside> beside_;
  // Consecutive units of the model: with `graphs` those whose weights are in the device's memory,
  // so that their work waits for nothing.
  struct Stretch {
    size_t first, last;
    std::unique_ptr<StepGraphs> graphs;
  };
  std::vector<Stretch> stretches_;
  KvStorage kv_;
  BlockManager blocks_;
  std::unique_ptr<Activations> activations_;
  Tensor logits_;  // the last ones, padding included, in the device's memory
  // Results of their rows, in host memory; null until asked for.
  const TokenLogit* likeliest_ = nullptr;
  TopLogits top_;
  // State of the current step.
  StepData step_;
  std::vector<int32_t> positions_;  // of each row in its sequence
  std::vector<KvRows> kv_rows_;
  std::vector<float> alibi_slopes_;  // of this rank's heads, where the model has them
  std::vector<RowMove> moves_;       // of rows of its result
  MessageWriter message_;            // to the other ranks
  bool copies_are_beside_ = false;   // the last copies, which have not been finished
  std::jthread toucher_;             // ends before the memory
};

}  // namespace sluice
