// Sentences for faults of the command line; the parser's library has its own words.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace sluice::cli {

// Says in a sentence what is wrong with an argument of `verb`.
std::string plain_sentence(const CLI::App& verb, const CLI::ParseError& error);

// Says what is wrong with the arguments of `verb` (or of the program), and what to type.
std::string usage_sentence(const CLI::App& verb, const CLI::ParseError& error);

}  // namespace sluice::cli
