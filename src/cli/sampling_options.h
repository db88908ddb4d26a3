// The options of verbs that generate: how the next token is chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "src/engine/sampling_params.h"

namespace sluice::cli {

// Options as given; sampling_params() reads the lists.
struct SamplingOptions {
  SamplingParams params;
  std::optional<std::string> logit_bias;
  std::optional<std::string> allowed_token_ids;
  std::optional<std::string> banned_token_ids;
  std::optional<std::string> stop_token_ids;
};

void add_sampling_options(CLI::App& verb, SamplingOptions& options);

// Error(usage) for lists that are none. Values and ids are checked with the request.
SamplingParams sampling_params(const SamplingOptions& options);

}  // namespace sluice::cli
