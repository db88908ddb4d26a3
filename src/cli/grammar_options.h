// Options that say what a generated text must match.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "src/engine/checkpoint.h"

namespace sluice::cli {

struct GrammarOptions {
  std::optional<std::string> json_schema;  // a file
  std::optional<std::string> regex;
  std::optional<std::string> grammar;  // a file
};

void add_grammar_options(CLI::App& verb, GrammarOptions& options);

// Null where none is given. Error(usage) for more than one.
std::shared_ptr<const grammar::TokenGrammar> find_grammar(const GrammarOptions& options,
                                                          const Checkpoint& checkpoint,
                                                          const std::stop_token& stop);

}  // namespace sluice::cli
