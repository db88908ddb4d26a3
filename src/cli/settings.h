// Options that the command line leaves open: from the environment, then from the file of --config.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

class Settings {
 public:
  // Adds --config to a verb.
  static void add_option(CLI::App& verb);
  // The variable for an option: "SLUICE_MAX_TOKENS" for --max-tokens.
  static std::string variable_of(std::string_view option);

  // `words`: the command line, from the verb on. Returns it with "--option=value" behind the verb
  // for each option of the verb that it does not have, and that the environment or the file sets.
  // Error(usage) for a file that is no TOML, and for keys that are no options; Error(refused) where
  // it cannot be read.
  std::vector<std::string> complete(const CLI::App& app, std::vector<std::string> words);
  // " (set by SLUICE_THREADS)" where a message is about an option that was not on the command line.
  std::string origin(std::string_view message) const;

 private:
  std::map<std::string, std::string> origins_;  // by option
};

}  // namespace sluice::cli
