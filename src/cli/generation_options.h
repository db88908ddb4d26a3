// The options of `run` that change its memory. `plan` takes them too, and both follow them in the
// same way.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "src/cli/sampling_options.h"
#include "src/engine/planner.h"
#include "src/engine/request.h"

namespace sluice::cli {

struct GenerationOptions {
  SamplingOptions sampling;
  std::string speculation = "auto";
  std::optional<std::string> draft_model;
  std::string prompt_cache;
};

void add_generation_options(CLI::App& verb, GenerationOptions& options);
void check_speculation(const GenerationOptions& options);  // Error(usage)

// A draft model beside the model, not placed yet; null without --draft-model. Where the model's
// sequences are to be as long as fits, they are so with the draft.
std::unique_ptr<Planner> open_draft(Planner& planner, const GenerationOptions& options);

// Bytes that a result with log probabilities holds until it is printed.
uint64_t result_bytes(const Request& request);

struct RunShapes {
  RunShape shape;       // to place
  RunShape least;       // what it must have room for at least
  bool lookup = false;  // tokens are to be drafted ahead
};
// Shapes for `sequences` requests like `request`; only the length of the prompt counts.
// `input_bytes`: room for Machine::hold_input() during the run.
RunShapes run_shapes(Planner& planner, const GenerationOptions& options, const Request& request,
                     int64_t prompt_tokens, int64_t sequences = 1, uint64_t input_bytes = 0);

}  // namespace sluice::cli
