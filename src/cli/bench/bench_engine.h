// sluice bench engine: many requests at once, beside one alone.
#pragma once

#include <CLI/CLI.hpp>
#include <stop_token>

namespace sluice::cli {

void define_bench_engine(CLI::App& bench, std::stop_token stop);

}  // namespace sluice::cli
