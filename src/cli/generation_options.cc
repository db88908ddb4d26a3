#include "src/cli/generation_options.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/help.h"
#include "src/hub/cache.h"

namespace sluice::cli {

void add_generation_options(CLI::App& verb, GenerationOptions& o) {
  begin_group(verb, kGenerationGroup);
  add_sampling_options(verb, o.sampling);
  verb.add_option("--speculation", o.speculation,
                  "Guess tokens ahead and verify several in one pass, with the same result: auto "
                  "(where weights are streamed), none, prompt_lookup");
  verb.add_option(
          "--draft-model", o.draft_model,
          "Guess tokens with this smaller model of the same vocabulary, resident within the budget")
      ->type_name("MODEL");
  verb.add_option("--prompt-cache", o.prompt_cache,
                  "Keep the prompt's keys and values in this file, and reuse those of the prompt's "
                  "beginning")
      ->type_name("FILE");
}

void check_speculation(const GenerationOptions& o) {
  if (o.speculation != "auto" && o.speculation != "none" && o.speculation != "prompt_lookup") {
    fail(ErrorKind::usage, "--speculation {}: must be auto, none or prompt_lookup", o.speculation);
  }
  if (o.draft_model && o.speculation == "none")
    fail(ErrorKind::usage, "--draft-model contradicts --speculation none; leave one of them out");
}

std::unique_ptr<Planner> open_draft(Planner& planner, const GenerationOptions& o) {
  if (!o.draft_model) return nullptr;
  ModelOptions options = planner.options();
  options.model = find_model(*o.draft_model, options.outside_links);
  options.mirrors.clear();
  options.dummy_weights = false;
  options.place.clear();
  options.kv_bytes = 0;
  options.swap = {};
  options.prompt_cache = false;
  options.ranks.reset();  // rank 0 drafts for all
  options.pipeline_parallel_size = 1;
  options.max_model_len.reset();
  options.longest_model_len = false;
  auto draft = std::make_unique<Planner>(options, planner);
  if (draft->checkpoint().spec().vocab_size != planner.checkpoint().spec().vocab_size) {
    fail(ErrorKind::refused,
         "--draft-model {}: has a vocabulary of {} tokens, and the model one of {}", *o.draft_model,
         draft->checkpoint().spec().vocab_size, planner.checkpoint().spec().vocab_size);
  }
  if (planner.options().longest_model_len) {
    planner.use_longest([&](int64_t tokens) {
      return draft->least_beside(DraftModel::shape(*draft, tokens, tokens), {}).draft;
    });
  }
  return draft;
}

// Returns the bytes of a result that are kept until the end, beyond a few bytes a token.
uint64_t result_bytes(const Request& request) {
  return logprob_bytes(request.sampling.logprobs, static_cast<uint64_t>(request.max_tokens));
}

// A pass over streamed weights costs the same for several tokens.
RunShapes run_shapes(Planner& planner, const GenerationOptions& o, const Request& request,
                     int64_t prompt_tokens, int64_t sequences, uint64_t input_bytes) {
  const int64_t tokens = (prompt_tokens + request.max_tokens) * sequences;
  RunShape plain = planner.run_shape(tokens, prompt_tokens, 1, sequences);
  RunShape wide = planner.run_shape(tokens, std::max(prompt_tokens, kSpeculativeRows),
                                    kSpeculativeRows, sequences);
  for (RunShape* shape : {&plain, &wide}) {
    shape->sampling_bytes = sampling_bytes(request, planner.checkpoint().spec().vocab_size);
    shape->input_bytes = input_bytes;
    shape->output_bytes = static_cast<uint64_t>(sequences) * result_bytes(request);
  }
  if (o.speculation == "prompt_lookup" || o.draft_model) return {wide, wide, true};
  bool lookup = o.speculation == "auto" && !planner.can_be_resident(plain) &&
                planner.smallest(wide).needed() <= planner.machine().budget();
  return {lookup ? wide : plain, plain, lookup};
}

}  // namespace sluice::cli
