// Many requests at once through one runner: the scheduler chooses what runs, a pass computes it,
// and the results are sampled. Each request gets the tokens that it would get alone, bit for bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/beam_search.h"
#include "src/engine/output_text.h"
#include "src/engine/request.h"
#include "src/engine/runner.h"
#include "src/engine/sampler.h"
#include "src/engine/scheduler.h"
#include "src/text/tokenizer.h"

namespace sluice {

// A continuation: the request's number, and its index among the request's n.
struct OutputId {
  int64_t request = 0;
  int64_t index = 0;
  auto operator<=>(const OutputId&) const = default;
};

// One step's addition to a continuation. All outputs of a continuation, in order, make up the ids
// and text of its RequestResult. Beams are output at the end, all at once.
struct Output {
  OutputId id;
  std::vector<int32_t> ids;  // several where draft tokens were right; none with an error
  std::string text;          // may be empty, as a stop string or a character may have begun
  std::vector<TokenLogprobs> logprobs;  // of each id, if SamplingParams asked for them
  bool finished = false;                // its result can be taken
  std::string error;  // why it ended without more tokens: the request's fault, no other's
};

struct EngineStats {
  int64_t steps = 0;
  int64_t rows = 0;           // tokens that went through the model
  int64_t prompt_tokens = 0;  // prompt tokens of all requests
  int64_t prefix_tokens = 0;  // prompt tokens found in the KV cache
  int64_t generated_tokens = 0;
  int64_t drafted = 0;  // draft tokens that were verified
  int64_t accepted = 0;
  int64_t preemptions = 0;
  BlockStats blocks;
  int64_t most_running = 0;  // sequences in one step
  // KV slots in blocks that sequences held, summed over steps: all, and those with a token.
  int64_t slots_held = 0;
  int64_t slots_filled = 0;
  double pass_seconds = 0;  // median of the last passes of a few rows, without prompts; 0: none
  double schedule_seconds = 0;
  double model_seconds = 0;
  double sample_seconds = 0;

  EngineStats& operator+=(const EngineStats& later);
};

class Engine {
 public:
  // Takes at most `max_num_seqs` sequences in a step. `tokenizer` may be null: no texts then, and
  // stop strings are an Error(usage). Runner and tokenizer outlive this.
  Engine(Runner& runner, const Tokenizer* tokenizer, int64_t max_num_seqs);
  ~Engine();

  // The number of the request. Error(usage) for what check_request() says; Error(no_fit) where a
  // sequence of that length has no room in the KV cache.
  int64_t add(Request request);
  // The same under a number that no request has had; a caller uses one of the two.
  void add(int64_t number, Request request);
  // Throws what add() throws for a request that can never run. Thread-safe: it looks at nothing
  // that steps change.
  void check_runnable(const Request& request) const;
  // Drops a request at any point. Does nothing where it has ended already.
  void cancel(int64_t request);
  bool idle() const { return scheduler_.idle(); }
  int64_t running() const { return scheduler_.running(); }
  int64_t waiting() const { return scheduler_.waiting(); }

  // One pass over the model; none when idle. A fault of one request ends that request, with an
  // error in its Output. Throws Error(runtime) when `stop` is requested, or the error of the pass:
  // then the requests of failed_pass() have to be cancelled, and others go on. Where it names none,
  // the engine is unusable.
  std::vector<Output> step(std::stop_token stop);
  // The requests that the pass was for, if the last step() has failed in it.
  const std::vector<int64_t>& failed_pass() const { return pass_; }
  // The result of a finished continuation; can be taken once.
  RequestResult take(OutputId id);

  EngineStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Active;
  struct BeamGroup;
  struct Source;
  struct SamplingMemory;
  struct GrammarMemory;

  void take_sampling_memory(const Request& request);
  void renew_keys();
  void draft(const std::stop_token& stop);
  std::vector<int32_t> propose_for(Active& active, int64_t most, const std::stop_token& stop);
  Tensor run_model(std::span<const ScheduledJob> step);
  void sample_all(Tensor hidden, std::span<const ScheduledJob> step, std::vector<Output>& outputs);
  // A row of the model's output whose logits are wanted.
  struct Wanted {
    Active* active = nullptr;
    int64_t row = 0;       // row of the step's output for it
    int64_t position = 0;  // in the sequence
  };
  static void want_rows(Active& active, const ScheduledJob& scheduled, std::vector<Wanted>& wanted);
  void pool(Active& active, Tensor hidden, int64_t first_row, int64_t rows);
  // `row`: row of the logits that the runner computed last.
  void use_logits(const Wanted& wanted, int64_t row);
  void verify(Active& active, int64_t row);
  int32_t sample(Active& active, int64_t row);
  std::optional<int32_t> sample_part(Active& active, int64_t row);
  int32_t sample_row(Active& active, Tensor logits);
  void go_on(Active& active, int32_t id);
  void end(Active& active, const char* reason);
  void end_with_error(Active& active, const std::string& error);
  void finish_forks_with_error(const Active& first, std::vector<Output>& outputs);
  void settle(const ScheduledJob& scheduled, std::vector<Output>& outputs);
  void count_slots(const Sequence& sequence);
  void learn_cost(int64_t rows, double seconds);
  void fork(Active& active);
  Active& add_fork(Active& active, int64_t index, Request request);
  void forget(Active& active);

  // Beam search, in engine_beams.cc.
  void begin_beams(Active& active);
  static void find_beam_tokens(Active& active, Tensor logits);
  void advance_all_beams(std::vector<Output>& outputs);
  bool advance(BeamGroup& group);
  void end_beam(BeamGroup& group, const Active& beam, const BeamChoice* last);
  void replace_beams(BeamGroup& group, std::span<const BeamChoice> next);
  void finish(BeamGroup& group, std::vector<Output>& outputs);
  void finish_failed(const BeamGroup& group, std::vector<Output>& outputs);
  void finish_with_error(OutputId id, const std::string& error, std::vector<Output>& outputs);

  Runner& runner_;
  const Tokenizer* tokenizer_;
  Scheduler scheduler_;
  int64_t next_request_ = 0;
  std::map<OutputId, std::unique_ptr<Active>> active_;
  std::vector<int64_t> pass_;  // requests of the pass that goes on, or has failed
  std::map<int64_t, std::unique_ptr<BeamGroup>> beams_;  // of the requests that ask for them
  std::map<OutputId, RequestResult> finished_;
  std::shared_ptr<Sampler::Scratch> scratch_;  // null until a request needs it
  std::unique_ptr<GrammarMemory> grammars_;    // null until a request has one
  PassCost cost_;
  std::vector<double> few_rows_;  // seconds of passes, round and round
  int64_t few_rows_passes_ = 0;
  EngineStats stats_;
};

// XXH3-64 of a row of logits.
uint64_t hash_logits(Tensor row);

}  // namespace sluice
