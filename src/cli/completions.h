// Completions for shells, from the definitions of the verbs and their options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice::cli {

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace sluice::cli
