// Completions for shells, from the definitions of the verbs and their options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace sluice::cli {

// The verbs that help texts show.
std::vector<const CLI::App*> shown_verbs(const CLI::App& app);

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace sluice::cli
