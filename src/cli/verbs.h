// The verbs of the command line. Each file defines one: its options, its help with examples, and
// what it does. Help texts, the man page and the shell completions all come from these definitions.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <stop_token>

namespace sluice::cli {

class SignalWatch;

// Adds the verb to `app`; its work runs in the verb's callback, after the whole line has been
// parsed. `stop` is requested by SIGINT and SIGTERM. Faults are thrown as Error; results go to
// stdout, everything else to stderr.
// `shrink` counts requests to use less memory (SIGUSR1); it outlives the verb.
void define_run(CLI::App& app, SignalWatch& signals);
void define_chat(CLI::App& app, SignalWatch& signals);
void define_batch(CLI::App& app, std::stop_token stop, const std::atomic<int>& shrink);
void define_serve(CLI::App& app, std::stop_token stop, const std::atomic<int>& shrink);
void define_plan(CLI::App& app, std::stop_token stop);
void define_inspect(CLI::App& app, std::stop_token stop);
void define_logits(CLI::App& app, std::stop_token stop);
void define_eval(CLI::App& app, std::stop_token stop);
void define_tokenize(CLI::App& app, std::stop_token stop);
void define_detokenize(CLI::App& app, std::stop_token stop);
void define_render(CLI::App& app, std::stop_token stop);
void define_report(CLI::App& app, std::stop_token stop);
void define_shard(CLI::App& app, std::stop_token stop);
void define_quantize(CLI::App& app, std::stop_token stop);
void define_convert(CLI::App& app, std::stop_token stop);
void define_spill(CLI::App& app, std::stop_token stop);
// Models of the hub: fetched, listed, shown, removed.
void define_pull(CLI::App& app, std::stop_token stop);
void define_list(CLI::App& app, std::stop_token stop);
void define_show(CLI::App& app, std::stop_token stop);
void define_rm(CLI::App& app, std::stop_token stop);
void define_bench(CLI::App& app, std::stop_token stop);
void define_docs(CLI::App& app, std::stop_token stop);  // man page and completions; hidden

}  // namespace sluice::cli
