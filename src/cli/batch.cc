// sluice batch: a file of requests to a file of responses, as many at once as the budget allows.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <ranges>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/report_summary.h"
#include "src/cli/verbs.h"
#include "src/engine/engine.h"
#include "src/memory/system.h"
#include "src/serve/batch_file.h"
#include "src/serve/batch_width.h"
#include "src/serve/completion.h"

namespace sluice::cli {
namespace {

constexpr int64_t kWaiting = 256;  // requests in the engine that do not run yet

struct BatchOptions : CommonOptions {
  std::string input;
  std::string output;
  int64_t max_num_seqs = 256;
};

// What a line asks for, and what has come of it.
struct Running {
  const BatchLine* line = nullptr;
  Completion asked;
  std::vector<std::vector<RequestResult>> results;  // of each prompt those of its n
  int64_t left = 0;                                 // that have not finished
};

// One of its prompts in the engine.
struct RunningPrompt {
  std::shared_ptr<Running> of;
  size_t index = 0;
};

struct Totals {
  int64_t requests = 0;  // of the file
  int64_t before = 0;    // had a line already
  int64_t failed = 0;
  int64_t completed = 0;
};

// A line on stderr now and then; on a terminal always the same one.
class BatchProgress {
 public:
  BatchProgress(const Totals& totals, const Engine& engine, bool quiet)
      : totals_(totals), engine_(engine), quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {}
  ~BatchProgress() {
    if (terminal_ && shown_) log::show("\n");
  }

  void update() {
    auto now = Clock::now();
    if (quiet_ ||
        now - last_ < (terminal_ ? std::chrono::milliseconds(300) : std::chrono::seconds(10)))
      return;
    last_ = now;
    double seconds = std::chrono::duration<double>(now - start_).count();
    int64_t done = totals_.before + totals_.failed + totals_.completed;
    double rate = static_cast<double>(engine_.stats().generated_tokens) / seconds;
    double eta = seconds / static_cast<double>(std::max<int64_t>(totals_.completed, 1)) *
                 static_cast<double>(totals_.requests - done);
    std::string text = fmt::format(
        "batch {} of {} requests, {} running, {:.1f} tokens/s, memory {}{}", done, totals_.requests,
        engine_.running(), rate, format_size(process_rss()),
        totals_.completed > 0 ? fmt::format(", about {:.0f} s left", eta) : std::string());
    log::show(fmt::format("{}{}{}", terminal_ ? "\r\033[K" : "", text, terminal_ ? "" : "\n"));
    shown_ = true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Totals& totals_;
  const Engine& engine_;
  bool quiet_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

// The requests that can run, those of a lower priority number first, and their lines.
struct Pending {
  std::vector<Completion> completions;
  std::vector<const BatchLine*> lines;
};

std::vector<const Request*> requests_of(const Pending& pending) {
  std::vector<const Request*> requests;
  for (const Completion& c : pending.completions) {
    for (const Request& r : c.requests) requests.push_back(&r);
  }
  return requests;
}

// What cannot run gets its response at once.
void refuse(const BatchLine& line, const std::string& why, BatchOutput& output, Totals& totals) {
  output.add(line, 400, api_error_json(why));
  ++totals.failed;
}

Pending parse_all(const std::vector<BatchLine>& lines, const Session& session, BatchOutput& output,
                  Totals& totals) {
  std::vector<std::pair<const BatchLine*, Completion>> parsed;
  for (const BatchLine& line : lines) {
    if (output.done(line)) {
      ++totals.before;
      continue;
    }
    std::string fault = line.fault;
    try {
      if (fault.empty())
        parsed.emplace_back(&line, parse_completion(line.body, line.where, session));
    } catch (const Error& e) {
      fault = e.what();
    }
    if (!fault.empty()) refuse(line, fault, output, totals);
  }
  std::ranges::stable_sort(parsed, {},
                           [](const auto& p) { return p.second.requests.front().priority; });
  Pending pending;
  for (auto& [line, completion] : parsed) {
    pending.lines.push_back(line);
    pending.completions.push_back(std::move(completion));
  }
  return pending;
}

// The longest sequence that the budget has room for; 0 where the model has none.
int64_t longest_that_fits(Session& session) {
  auto fits = [&](int64_t tokens) {
    return session.fitting_plan(session.run_shape(tokens, 1, 1)).has_value();
  };
  auto lengths = std::views::iota(int64_t{1}, session.max_model_len() + 1);
  return static_cast<int64_t>(std::ranges::partition_point(lengths, fits) - lengths.begin());
}

// Why the budget has no room for what a line asks for, though nothing else runs; empty where it
// has. `most`: longest_that_fits().
std::string no_room(Session& session, const Completion& completion, int64_t most) {
  for (const Request& r : completion.requests) {
    int64_t tokens = std::ssize(r.prompt) + r.max_tokens;
    if (tokens > most) {
      return fmt::format(
          "the prompt and max_tokens are {} tokens, and the budget has room for {}; raise --memory",
          tokens, most);
    }
    const Request* alone = &r;
    if (r.beams.width > 1 &&
        !session.fitting_plan(batch_shape(session, {&alone, 1}, r.beams.width))) {
      return fmt::format("the budget has no room for {} beams of {} tokens; raise --memory",
                         r.beams.width, tokens);
    }
  }
  return {};
}

// Requests for which the budget has no room get their responses, so that the others can run: there
// may be none.
BatchWidth choose_width(Session& session, Pending& pending, const BatchOptions& o,
                        BatchOutput& output, Totals& totals) {
  try {
    return choose_batch_width(session, requests_of(pending), o.max_num_seqs);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::no_fit) throw;
    int64_t most = longest_that_fits(session);
    if (most == 0) throw;
    Pending rest;
    for (size_t i = 0; i < pending.lines.size(); ++i) {
      std::string why = no_room(session, pending.completions[i], most);
      if (why.empty()) {
        rest.lines.push_back(pending.lines[i]);
        rest.completions.push_back(std::move(pending.completions[i]));
      } else {
        refuse(*pending.lines[i], fmt::format("{}: {}", pending.lines[i]->where, why), output,
               totals);
      }
    }
    if (rest.lines.size() == pending.lines.size()) throw;
    pending = std::move(rest);
    if (pending.lines.empty()) return {};
    return choose_batch_width(session, requests_of(pending), o.max_num_seqs);
  }
}

// A fault is the request's own, and ends no other; but what cannot be written ends them all.
void write_response(Running& r, const Session& session, BatchOutput& output, Totals& totals) {
  std::string fault;
  Json body;
  for (const RequestResult& result : std::views::join(r.results)) {
    if (result.finish_reason == "error") fault = result.error;
  }
  try {
    CompletionHead head{"cmpl-" + r.line->custom_id.get<std::string>(),
                        JsonFields(r.line->body, r.line->where)
                            .string_or("model", session.options().model.filename().string()),
                        static_cast<int64_t>(std::time(nullptr))};
    if (fault.empty())
      body = completion_json(head, r.asked, std::move(r.results), session.tokenizer());
  } catch (const Error& e) {
    fault = e.what();
  }
  if (!fault.empty()) {
    refuse(*r.line, fault, output, totals);
    return;
  }
  output.add(*r.line, 200, body);
  ++totals.completed;
}

// Gives a line's prompts to the engine: all of them, or none and the line its response.
void begin(const BatchLine& line, Completion asked, const Session& session, Engine& engine,
           std::map<int64_t, RunningPrompt>& running, BatchOutput& output, Totals& totals) {
  auto begun = std::make_shared<Running>(Running{&line, std::move(asked), {}, 0});
  std::vector<int64_t> ids;
  try {
    for (Request request : begun->asked.requests) {
      request.lookup = session.memory_plan().streams();
      begun->results.emplace_back(static_cast<size_t>(request.n));
      begun->left += request.n;
      ids.push_back(engine.add(std::move(request)));
    }
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::runtime) throw;
    for (int64_t id : ids) engine.cancel(id);
    refuse(line, fmt::format("{}: {}", line.where, e.what()), output, totals);
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) running.emplace(ids[i], RunningPrompt{begun, i});
}

void run_all(Session& session, Engine& engine, Pending& pending, BatchOutput& output,
             Totals& totals, const BatchOptions& o, const std::stop_token& stop,
             const std::atomic<int>& shrink) {
  BatchProgress progress(totals, engine, o.quiet);
  std::map<int64_t, RunningPrompt> running;
  int followed = 0;
  size_t next = 0;
  while (next < pending.lines.size() || !engine.idle()) {
    // A few wait, so that whoever ends is followed at once.
    while (next < pending.lines.size() && engine.waiting() < kWaiting) {
      begin(*pending.lines[next], std::move(pending.completions[next]), session, engine, running,
            output, totals);
      ++next;
    }
    for (const Output& out : engine.step(stop)) {
      if (!out.finished) continue;
      const RunningPrompt prompt = running.at(out.id.request);
      std::vector<RequestResult>& results = prompt.of->results[prompt.index];
      results[static_cast<size_t>(out.id.index)] = engine.take(out.id);
      if (std::ranges::none_of(results, &std::string::empty, &RequestResult::finish_reason))
        running.erase(out.id.request);
      if (--prompt.of->left == 0) write_response(*prompt.of, session, output, totals);
    }
    progress.update();
    follow_limits(session, shrink, followed);
  }
}

Json counts_json(const Totals& totals) {
  return {{"requests", totals.requests},
          {"done_before", totals.before},
          {"completed", totals.completed},
          {"failed", totals.failed}};
}

Json timings_json(const Engine& engine, const Totals& totals, const BatchWidth& width,
                  double seconds) {
  EngineStats s = engine.stats();
  auto share = [](auto part, auto whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  Json json = counts_json(totals);
  json.update({{"seconds", seconds},
               {"prompt_tokens", s.prompt_tokens},
               {"prefix_tokens", s.prefix_tokens},
               {"generated_tokens", s.generated_tokens},
               {"guessed_tokens", s.guessed},
               {"accepted_tokens", s.accepted},
               {"tokens_per_second", share(s.generated_tokens, seconds)},
               {"predicted_tokens_per_second", width.tokens_per_second},
               {"max_num_seqs", width.sequences},
               {"most_running", s.most_running},
               {"steps", s.steps},
               {"preemptions", s.preemptions},
               {"kv_waste", 1 - share(s.slots_filled, s.slots_held)},
               {"kv_swaps", swaps_json(s.blocks)},
               {"schedule_seconds", s.schedule_seconds},
               {"model_seconds", s.model_seconds},
               {"sample_seconds", s.sample_seconds}});
  return json;
}

void run(const BatchOptions& o, const std::stop_token& stop, const std::atomic<int>& shrink) {
  apply_log_level(o);
  check_report_path(o);
  std::vector<BatchLine> lines = read_batch(o.input, stop);
  std::error_code missing;
  if (std::filesystem::is_regular_file(o.output, missing) &&
      std::filesystem::equivalent(o.input, o.output, missing))
    fail(ErrorKind::usage, "--output {}: is the input", o.output);
  Session session(session_options(o));
  BatchOutput output(o.output, stop);
  Totals totals;
  totals.requests = std::ssize(lines);
  Pending pending = parse_all(lines, session, output, totals);
  BatchWidth width;
  if (!pending.lines.empty()) width = choose_width(session, pending, o, output, totals);
  if (pending.lines.empty()) {
    if (o.json) print_json({{"timings", counts_json(totals)}});
    log::info("nothing to run: {} of {} requests were done before, {} failed", totals.before,
              totals.requests, totals.failed);
    return;
  }
  place_and_load(session, o, width.shape, stop);
  log::info("{} requests, up to {} sequences at once with {} of KV cache", pending.lines.size(),
            width.sequences, format_size(session.memory_plan().all_kv_cache()));

  Engine engine(session.runner(), session.tokenizer(), width.sequences);
  auto start = std::chrono::steady_clock::now();
  run_all(session, engine, pending, output, totals, o, stop, shrink);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  session.learn_pass(engine.stats().pass_seconds);
  Json timings = timings_json(engine, totals, width, seconds);
  Json report = make_report("batch", o, session, timings);
  write_report(o, report, stop);
  if (o.json)
    print_json({{"timings", timings},
                {"memory", report.at("memory")},
                {"scheduler", report.at("scheduler")}});
  log::info(
      "{}\nbatch      {} completed, {} failed, {} done before; {} tokens in {:.1f} s: {:.1f} "
      "tokens/s",
      summary_text(report), totals.completed, totals.failed, totals.before,
      engine.stats().generated_tokens, seconds, timings.at("tokens_per_second").get<double>());
}

}  // namespace

void define_batch(CLI::App& app, std::stop_token stop, const std::atomic<int>& shrink) {
  auto o = std::make_shared<BatchOptions>();
  CLI::App* verb = app.add_subcommand("batch", "Run a file of requests");
  verb->footer(
      "A request a line, as OpenAI's batch API has them:\n"
      "  {\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/completions\",\n"
      "   \"body\": {\"prompt\": \"Once upon a time\", \"max_tokens\": 50}}\n"
      "Responses are added to the output as they come; the same command goes on after an "
      "interrupt.\n"
      "Example:\n"
      "  sluice batch MODEL -i requests.jsonl -o responses.jsonl --memory 8GiB");
  add_model_options(*verb, *o);
  verb->add_option("-i,--input", o->input, "Run the requests in this file")->required();
  verb->add_option("-o,--output", o->output,
                   "Add the responses to this file; those in it are not asked again")
      ->required();
  verb->add_option("--max-num-seqs", o->max_num_seqs,
                   "Run so many sequences at once at most; the budget may allow fewer")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  verb->callback([o, stop, &shrink] { run(*o, stop, shrink); });
}

}  // namespace sluice::cli
