#include "src/cli/bench/bench_engine.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/run_report.h"
#include "src/engine/engine.h"
#include "src/serve/batch/batch_width.h"

namespace sluice::cli {
namespace {

struct EngineOptions : CommonOptions {
  std::optional<int64_t> requests;
  int64_t max_num_seqs = 16;
  int64_t prompt_tokens = 128;
  int64_t tokens = 32;
  std::optional<int64_t> num_beams;
};

// Lengths between a half and one and a half of the mean, the same in every run.
int64_t some_length(int64_t mean, int64_t i) {
  return std::max<int64_t>(1, mean / 2 + i * 7919 % (mean + 1));
}

Request some_request(int64_t i, int64_t prompt, int64_t tokens, int64_t vocab_size) {
  Request request;
  for (int64_t t = 0; t < prompt; ++t)
    request.prompt.push_back(static_cast<int32_t>((i * 131 + t * 7919 + 13) % vocab_size));
  request.max_tokens = tokens;
  return request;
}

struct Outcome {
  double seconds = 0;
  std::vector<double> first_token;  // seconds from when it was added, of each request
  std::vector<double> each_token;   // of those after it
  EngineStats stats;

  double rate() const { return static_cast<double>(stats.generated_tokens) / seconds; }
};

Outcome run_all(Runner& runner, const std::vector<Request>& requests, int64_t max_num_seqs,
                const std::stop_token& stop) {
  Engine engine(runner, nullptr, max_num_seqs);
  Outcome outcome;
  auto start = std::chrono::steady_clock::now();
  for (const Request& r : requests) engine.add(r);
  while (!engine.idle()) {
    for (const Output& out : engine.step(stop)) {
      if (!out.finished) continue;
      RequestResult r = engine.take(out.id);
      outcome.first_token.push_back(r.queue_seconds + r.prefill_seconds);
      if (r.ids.size() > 1)
        outcome.each_token.push_back(r.decode_seconds / static_cast<double>(r.ids.size() - 1));
    }
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  outcome.stats = engine.stats();
  return outcome;
}

Json percentiles_json(std::vector<double> values) {
  if (values.empty()) return Json::object();
  std::ranges::sort(values);
  auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  return {{"p50", at(0.5)}, {"p90", at(0.9)}, {"p99", at(0.99)}};
}

void bench_engine(const EngineOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  check_report_path(o);
  const int64_t beams = o.num_beams.value_or(0);
  if (beams > o.max_num_seqs) {
    fail(ErrorKind::usage,
         "--num-beams {}: a request's beams run together, and --max-num-seqs is {}", beams,
         o.max_num_seqs);
  }
  Planner planner(model_options(o));
  int64_t vocab = planner.checkpoint().spec().vocab_size;
  int64_t count = o.requests.value_or(2 * o.max_num_seqs);
  std::vector<Request> requests;
  requests.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    requests.push_back(
        some_request(i, some_length(o.prompt_tokens, i), some_length(o.tokens, i), vocab));
    requests.back().beams.width = beams;
  }
  BatchNeeds needs;
  for (const Request& r : requests) needs.add(r, std::ssize(r.prompt), 1, 0, planner);
  LoadedModel model =
      load_with_progress(planner, planner.place(needs.shape(planner, o.max_num_seqs)), o, stop);
  Runner& runner = model.runner();
  Request single = some_request(count, o.prompt_tokens, o.tokens, vocab);
  Outcome alone = run_all(runner, {single}, 1, stop);
  Outcome all = run_all(runner, requests, o.max_num_seqs, stop);
  model.learn_pass(alone.stats.pass_seconds);
  const EngineStats& s = all.stats;
  double waste = 1 - static_cast<double>(s.slots_filled) / static_cast<double>(s.slots_held);
  double overhead = s.schedule_seconds / all.seconds;
  Json result{{"tokens_per_second", all.rate()},
              {"tokens_per_second_alone", alone.rate()},
              {"ratio", all.rate() / alone.rate()},
              {"requests", count},
              {"max_num_seqs", o.max_num_seqs},
              {"num_beams", beams},
              {"most_running", s.most_running},
              {"prompt_tokens", s.prompt_tokens},
              {"generated_tokens", s.generated_tokens},
              {"steps", s.steps},
              {"preemptions", s.preemptions},
              {"kv_waste", waste},
              {"kv_swaps", swaps_json(s.blocks)},
              {"schedule_share", overhead},
              {"first_token_seconds", percentiles_json(all.first_token)},
              {"each_token_seconds", percentiles_json(all.each_token)}};
  RunReport("bench engine", o, model, result).save(stop);
  if (o.json) return print_json(result);
  print(fmt::format(
      "{:.2f} tokens/s of up to {} sequences, {:.2f} alone: {:.2f} times as many\n"
      "first token after {:.2f} s (p50), {:.2f} s (p90); each further {:.3f} s, {:.3f} s\n"
      "KV slots held without a token {:.1f} %, scheduling {:.3f} % of the time, {} preemptions\n"
      "KV blocks swapped out {}, and in again {}; lost {}\n",
      all.rate(), s.most_running, alone.rate(), all.rate() / alone.rate(),
      result["first_token_seconds"].value("p50", 0.0),
      result["first_token_seconds"].value("p90", 0.0),
      result["each_token_seconds"].value("p50", 0.0),
      result["each_token_seconds"].value("p90", 0.0), 100 * waste, 100 * overhead, s.preemptions,
      s.blocks.stored, s.blocks.restored, s.blocks.lost));
}

}  // namespace

void define_bench_engine(CLI::App& bench, std::stop_token stop) {
  auto o = std::make_shared<EngineOptions>();
  CLI::App* verb = bench.add_subcommand("engine", "Run many requests at once, beside one alone");
  add_model_options(*verb, *o, stop);
  verb->add_option("--max-num-seqs", o->max_num_seqs, "Run this many sequences at once")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--requests", o->requests,
                   "Run this many requests in all (default: twice --max-num-seqs)")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--prompt-tokens", o->prompt_tokens,
                   "Give prompts of this many tokens in the mean")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--tokens", o->tokens, "Generate this many tokens a request in the mean")
      ->check(CLI::Range(2, 1 << 20));
  verb->add_option("--num-beams", o->num_beams,
                   "Search with this many beams in each request (default: greedy)")
      ->check(CLI::Range(int64_t{1}, kMostBeams));
  verb->callback([o, stop] { bench_engine(*o, stop); });
}

}  // namespace sluice::cli
