// The engine's state of each continuation. Private to engine.cc and engine_beams.cc.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/constraint.h"
#include "src/engine/engine.h"
#include "src/engine/row_pool.h"

namespace sluice {

inline double seconds_between(auto from, auto to) {
  return std::chrono::duration<double>(to - from).count();
}

// The samplers' scratch, in memory that is counted.
struct Engine::SamplingMemory {
  explicit SamplingMemory(Runner& runner)
      : bytes(runner.ledger(), Use::activations, "sampling",
              Sampler::Scratch::bytes(runner.vocab_size()), Buffer::Touch::now),
        resource(bytes.data(), bytes.bytes().size(), std::pmr::null_memory_resource()),
        scratch(&resource) {
    scratch.reserve(runner.vocab_size());
  }
  static std::shared_ptr<Sampler::Scratch> take(Runner& runner) {
    auto memory = std::make_shared<SamplingMemory>(runner);
    return {memory, &memory->scratch};
  }

  Buffer bytes;
  std::pmr::monotonic_buffer_resource resource;
  Sampler::Scratch scratch;
};

// Memory of grammars, leased from the ledger.
struct Engine::GrammarMemory {
  GrammarMemory(Ledger& ledger, const Request& request, int64_t vocab_size)
      : lease(ledger.lease(Place::host, Use::activations, "grammars",
                           grammar_bytes(request, vocab_size))),
        masks(request.sampling.grammar->tokens) {}

  Lease lease;
  grammar::TokenMasks masks;
};

// A source of draft tokens for one sequence, and its recent success.
struct Engine::Source {
  DraftLength length;
  double seconds = 0;  // that the last ones took
};

// The beams of one request.
struct Engine::BeamGroup {
  int64_t id = 0;
  Request request;
  Clock::time_point added;
  Clock::time_point begun;
  int64_t found = 0;           // tokens of the prompt found in the KV cache
  std::vector<Active*> beams;  // best first
  int64_t next_index = 1;      // of an OutputId
  struct Ended {
    double score = 0;
    RequestResult result;
  };
  std::vector<Ended> ended;  // at most as many as there are beams, best first
  std::string error;         // why there are no next tokens
};

// A continuation that is being generated.
struct Engine::Active : Job {
  // The prompt moves to the job's ids.
  Active(OutputId number, Request asked, Sequence kv, const Tokenizer* tokenizer,
         std::shared_ptr<Sampler::Scratch> scratch)
      : Job(std::move(kv), std::exchange(asked.prompt, {})),
        id(number),
        request(std::move(asked)),
        sampler(request.sampling, request.eos_ids, std::move(scratch)) {
    priority = request.priority;
    if (request.sampling.grammar) {
      constraint.emplace(request.sampling.grammar, end_ids(request));
    }
    if (tokenizer != nullptr) text.emplace(*tokenizer, request.skip_special_tokens, request.stop);
    if (request.pooling) pool.emplace(*request.pooling, prompt_tokens);
    limit_findable();
  }

  // The rows whose logprobs are not known yet, or that a vector needs, have to be computed.
  void limit_findable() {
    auto known = std::ssize(result.prompt_logprobs);
    bool all = !request.sampling.prompt_logprobs || known == prompt_tokens - 1;
    findable = all ? INT64_MAX : known;
    if (pool && !pool->done()) findable = std::min(findable, pool->next());
  }

  OutputId id;
  Request request;
  Sampler sampler;
  std::optional<OutputText> text;
  std::optional<Constraint> constraint;  // none: there is no grammar
  RequestResult result;
  std::optional<RowPool> pool;  // of its vector, where one is wanted
  Source lookup;
  Source draft;
  BeamGroup* beams = nullptr;  // the group of this beam; null: its tokens are sampled
  BeamState beam;              // its next tokens are empty until they are known
  Clock::time_point added = Clock::now();
  std::optional<Clock::time_point> begun;
  Clock::time_point first_token;
  // State of the current step.
  Source* drafted_by = nullptr;
  int64_t drafted = 0;
  int64_t right = 0;
  bool sampled = false;    // it got a token, or several
  bool first = false;      // of these the first of all
  bool verifying = false;  // the next row is of its sequence
  bool ended = false;
  Output* output = nullptr;
};

}  // namespace sluice
