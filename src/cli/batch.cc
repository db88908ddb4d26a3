// sluice batch: a file of requests to a file of responses, as many at once as the budget allows.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "io/input_file.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/ranks.h"
#include "src/cli/run_report.h"
#include "src/cli/verbs.h"
#include "src/engine/engine.h"
#include "src/memory/system.h"
#include "src/serve/apis/completion.h"
#include "src/serve/batch/batch_file.h"
#include "src/serve/batch/batch_index.h"
#include "src/serve/batch/batch_output.h"
#include "src/serve/batch/batch_width.h"

namespace sluice::cli {
namespace {

constexpr int64_t kWaiting = 256;  // requests in the engine that do not run yet

struct BatchOptions : CommonOptions {
  std::string input;
  std::string output;
  int64_t max_num_seqs = 256;
  std::optional<std::string> max_request_bytes;
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

// A line's request in the engine, and what has come of it.
struct Running {
  BatchLine line;  // without its body
  std::string model;
  Completion asked;
  uint64_t held = 0;                                     // bytes
  std::vector<std::vector<RequestResult>> results = {};  // of each prompt those of its n
  int64_t left = 0;                                      // that have not finished
};

// One of its prompts in the engine.
struct RunningPrompt {
  std::shared_ptr<Running> of;
  size_t index = 0;
};

// The parts that run a batch.
struct Batch {
  const BatchOptions& options;
  Planner& planner;
  BatchOutput& output;
  int64_t longest_token;  // bytes
  Totals totals = {};

  // Writes the response of a request that cannot run.
  void refuse(const BatchLine& line, const std::string& why) {
    output.add(line, 400, [&](JsonWriter& json) { json.value(api_error_json(why)); });
    ++totals.failed;
  }
  // Throws what is wrong with the line.
  Running parse(BatchLine line) const {
    Completion asked = parse_completion(
        line.body, line.where,
        {.checkpoint = planner.checkpoint(), .max_model_len = planner.max_model_len()});
    std::string model = OrderedFields(line.body, line.where)
                            .string_or("model", planner.options().model.filename().string());
    line.body = nullptr;
    uint64_t held = held_bytes(asked, longest_token, asked.request.max_tokens) +
                    4 * (line.id.size() + model.size());  // ids and copies
    return {std::move(line), std::move(model), std::move(asked), held};
  }
  void add(const Running& request, uint64_t parse_bytes, BatchNeeds& needs) const {
    const Completion& asked = request.asked;
    needs.add(asked.request, asked.longest_prompt(), std::ssize(asked.prompts), request.held,
              planner);
    needs.add_parse(parse_bytes);
  }
};

// A prompt that fills the context, as ids or as text, several times over.
uint64_t largest_request(const BatchOptions& o, const Planner& planner) {
  constexpr uint64_t kLeast = MiB, kToken = 32, kMost = GiB;
  if (!o.max_request_bytes)
    return std::clamp(static_cast<uint64_t>(planner.max_model_len()) * kToken, kLeast, kMost);
  uint64_t bytes = parse_size("--max-request-bytes", *o.max_request_bytes);
  if (bytes == 0 || bytes > kMost) {
    fail(ErrorKind::usage, "--max-request-bytes {}: must be more than 0 and at most 1GiB",
         *o.max_request_bytes);
  }
  return bytes;
}

// Returns the place of a copy of an input that cannot be read twice: on the disk that is to be
// written anyway.
std::filesystem::path copy_directory(const std::string& output) {
  std::error_code ignored;
  std::filesystem::file_status status = std::filesystem::status(output, ignored);
  bool file = output != "-" &&
              (std::filesystem::is_regular_file(status) || !std::filesystem::exists(status));
  if (file) return std::filesystem::absolute(output).parent_path();
  const std::string_view temporary = environment("TMPDIR");
  return temporary.empty() ? "/var/tmp" : temporary;
}

// Reads the file of requests; `needs` are those of the requests that can run. Those that cannot get
// their responses. Where the budget has no room even without requests, it is refused with one that
// has room for them, too; to find that, as much memory may be used as is free.
BatchIndex read_requests(Batch& batch, const io::InputFile& input, BatchNeeds& needs) {
  Planner& planner = batch.planner;
  size_t lines = count_batch_lines(input);
  needs.set_index(lines * sizeof(BatchEntry));
  const bool hopeless = !planner.fitting_plan(needs.shape(planner, 1));
  uint64_t taken =
      process_rss() + planner.machine().ledger().used(Place::host) + lines * sizeof(BatchEntry);
  uint64_t room = planner.machine().budget();
  if (hopeless) {
    room = std::max(room, planner.machine().free_memory().budget);
    planner.machine().ledger().set_budget(Place::host, room);
  }
  RequestLimits limits{.bytes = largest_request(batch.options, planner),
                       .parse_bytes = room - std::min(room, taken)};
  BatchIndex index(input, lines, limits, planner.machine().ledger(), batch.output,
                   [&](const BatchLine& line) {
                     Running request = batch.parse(line);
                     batch.add(request, line.parse_bytes, needs);
                     return request.asked.request.priority;
                   });
  if (hopeless) {
    const RunShape shape = needs.shape(planner, needs.widest());
    planner.plan_within(shape, planner.machine().budget(),
                        planner.options().quantize);  // says which would do
    planner.machine().ledger().set_budget(Place::host, planner.machine().budget());
  }
  batch.totals.requests = index.lines();
  batch.totals.before = index.done();
  batch.output.forget_done();
  index.remove_if([&](const BatchEntry& entry) {
    if (entry.state == BatchEntry::State::runs) return false;
    BatchLine line = index.read(entry);
    try {
      if (line.fault.empty()) batch.parse(line);
    } catch (const Error& e) {
      line.fault = e.what();
    }
    batch.refuse(line, line.fault);
    return true;
  });
  needs.set_index(index.bytes());
  return index;
}

// Returns whether a run of `a` needs no more than one of `b`.
bool within(const RunShape& a, const RunShape& b) {
  return a.max_tokens <= b.max_tokens && a.longest_prompt <= b.longest_prompt &&
         a.sequences <= b.sequences && a.sampling_bytes <= b.sampling_bytes &&
         a.output_bytes <= b.output_bytes;
}

// Requests for which the budget has no room, though nothing else runs, get their responses, so that
// the others can run: there may be none. Returns the others' needs.
BatchNeeds refuse_without_room(Batch& batch, BatchIndex& index) {
  BatchNeeds needs;
  needs.set_index(index.bytes());
  std::optional<RunShape> fitting;
  std::vector<RunShape> too_large;
  auto fits = [&](const RunShape& shape) {
    if (fitting && within(shape, *fitting)) return true;
    if (std::ranges::any_of(too_large, [&](const RunShape& s) { return within(s, shape); }))
      return false;
    bool found = batch.planner.fitting_plan(shape).has_value();
    if (found) fitting = shape;
    if (!found) too_large.push_back(shape);
    return found;
  };
  index.remove_if([&](const BatchEntry& entry) {
    BatchLine line = index.read(entry);
    uint64_t parse_bytes = line.parse_bytes;
    Running request = batch.parse(std::move(line));
    BatchNeeds more = needs;
    batch.add(request, parse_bytes, more);
    if (fits(more.shape(batch.planner, more.widest()))) {
      needs = std::move(more);
      return false;
    }
    const Request& r = request.asked.request;
    int64_t tokens = request.asked.longest_prompt() + r.max_tokens;
    const uint64_t sampling = sampling_bytes(r, batch.planner.checkpoint().spec().vocab_size);
    batch.refuse(
        request.line,
        fmt::format("{}: the budget has no room for {} of {} tokens, {} for the request and its "
                    "results, {} to sample{}, and {} to parse it; raise --memory",
                    request.line.where,
                    r.beams.width > 1 ? fmt::format("{} beams", r.beams.width) : "a sequence",
                    tokens, format_size(request.held), format_size(sampling),
                    r.sampling.grammar ? " by its grammar" : "", format_size(parse_bytes)));
    return true;
  });
  return needs;
}

BatchWidth choose_width(Batch& batch, BatchIndex& index, BatchNeeds& needs) {
  Planner& planner = batch.planner;
  const int64_t most = batch.options.max_num_seqs;
  try {
    return choose_batch_width(planner, needs, most, BatchAim::speed);
  } catch (const Error& e) {
    BatchNeeds nothing;
    nothing.set_index(index.bytes());
    if (e.kind() != ErrorKind::no_fit || !planner.fitting_plan(nothing.shape(planner, 1))) throw;
  }
  needs = refuse_without_room(batch, index);
  return index.pending().empty() ? BatchWidth{}
                                 : choose_batch_width(planner, needs, most, BatchAim::speed);
}

// The requests in the engine, and those that follow them.
class BatchRun {
 public:
  // Holds at most `room` bytes of requests.
  BatchRun(Batch& batch, const LoadedModel& model, const BatchIndex& index, Engine& engine,
           uint64_t room)
      : batch_(batch),
        model_(model),
        index_(index),
        engine_(engine),
        pending_(index.pending()),
        room_(room) {}

  bool done() const { return pending_.empty() && !next_ && engine_.idle(); }

  // A few wait, so that whoever ends is followed at once.
  void admit() {
    while (engine_.waiting() < kWaiting && (next_ || !pending_.empty())) {
      if (!next_) {
        next_ = batch_.parse(index_.read(pending_.front()));
        pending_ = pending_.subspan(1);
      }
      if (held_ > 0 && held_ + next_->held > room_) return;
      begin(*std::exchange(next_, std::nullopt));
    }
  }

  void take(const Output& out) {
    if (!out.finished) return;
    const RunningPrompt prompt = running_.at(out.id.request);
    std::vector<RequestResult>& results = prompt.of->results[prompt.index];
    results[static_cast<size_t>(out.id.index)] = engine_.take(out.id);
    if (std::ranges::none_of(results, &std::string::empty, &RequestResult::finish_reason))
      running_.erase(out.id.request);
    if (--prompt.of->left > 0) return;
    held_ -= prompt.of->held;
    write_response(*prompt.of);
  }

 private:
  // Gives a line's prompts to the engine: all of them, or none and the line its response.
  void begin(Running&& request) {
    const BatchLine& line = request.line;
    if (request.held > room_)
      fail(ErrorKind::runtime, "{}: has changed while the batch ran", line.where);
    auto begun = std::make_shared<Running>(std::move(request));
    std::vector<int64_t> ids;
    try {
      for (size_t i = 0; i < begun->asked.prompts.size(); ++i) {
        Request prompt = begun->asked.request_of(i);
        prompt.lookup = model_.memory_plan().streams();
        begun->results.emplace_back(static_cast<size_t>(prompt.n));
        begun->left += prompt.n;
        ids.push_back(engine_.add(std::move(prompt)));
      }
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::runtime) throw;
      for (int64_t id : ids) engine_.cancel(id);
      batch_.refuse(begun->line, fmt::format("{}: {}", begun->line.where, e.what()));
      return;
    }
    held_ += begun->held;
    for (size_t i = 0; i < ids.size(); ++i) running_.emplace(ids[i], RunningPrompt{begun, i});
  }

  // A fault is the request's own, and ends no other; but what cannot be written ends them all.
  void write_response(Running& r) {
    for (const RequestResult& result : std::views::join(r.results))
      if (result.finish_reason == "error") return batch_.refuse(r.line, result.error);
    CompletionHead head{"cmpl-" + r.line.custom_id.get<std::string>(), r.model,
                        static_cast<int64_t>(std::time(nullptr)), false};
    batch_.output.add(r.line, 200, [&](JsonWriter& json) {
      write_completion(json, head, r.asked, std::move(r.results),
                       batch_.planner.checkpoint().tokenizer());
    });
    ++batch_.totals.completed;
  }

  Batch& batch_;
  const LoadedModel& model_;
  const BatchIndex& index_;
  Engine& engine_;
  std::span<const BatchEntry> pending_;
  std::optional<Running> next_;  // that there was no room for
  std::map<int64_t, RunningPrompt> running_;
  uint64_t held_ = 0;  // bytes, of those that run or wait in the engine
  uint64_t room_;
};

void run_all(const Batch& batch, LoadedModel& model, Engine& engine, BatchRun& requests,
             const std::stop_token& stop, const std::atomic<int>& shrink) {
  BatchProgress progress(batch.totals, engine, batch.options.quiet);
  int followed = 0;
  while (!requests.done()) {
    requests.admit();
    for (const Output& out : engine.step(stop)) requests.take(out);
    progress.update();
    follow_limits(model, shrink, followed);
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
  Json json = counts_json(totals);
  json.update(engine_json(engine.stats(), seconds));
  json.update({{"predicted_tokens_per_second", width.tokens_per_second},
               {"max_num_seqs", width.sequences}});
  return json;
}

void run(const BatchOptions& o, const std::stop_token& stop, const std::atomic<int>& shrink) {
  apply_log_level(o);
  check_report_path(o);
  const io::InputFile input(o.input, copy_directory(o.output), stop);
  std::error_code missing;
  if (std::filesystem::is_regular_file(o.output, missing) &&
      std::filesystem::equivalent(o.input, o.output, missing))
    fail(ErrorKind::usage, "--output {}: is the input", o.output);
  Planner planner(model_options(o));
  BatchOutput output(o.output, planner.machine().budget() / 16, planner.machine().ledger(), stop);
  Batch batch{o, planner, output, longest_token(planner.checkpoint().tokenizer())};
  const Totals& totals = batch.totals;
  BatchNeeds needs;
  BatchIndex index = read_requests(batch, input, needs);
  BatchWidth width;
  if (!index.pending().empty()) width = choose_width(batch, index, needs);
  if (index.pending().empty()) {
    if (o.json) print_json({{"timings", counts_json(totals)}});
    log::info("nothing to run: {} of {} requests were done before, {} failed", totals.before,
              totals.requests, totals.failed);
    return;
  }
  LoadedModel model = load_with_progress(planner, planner.place(width.shape), o, stop);
  const size_t pending = index.pending().size();
  log::info("{} request{}, up to {} sequence{} at once with {} of KV cache", pending,
            pending == 1 ? "" : "s", width.sequences, width.sequences == 1 ? "" : "s",
            format_size(model.memory_plan().all_kv_cache()));

  Lease held = planner.machine().ledger().lease(Place::host, Use::activations, "requests",
                                                needs.request_bytes(width.sequences));
  Engine engine(model.runner(), planner.checkpoint().tokenizer(), width.sequences);
  BatchRun requests(batch, model, index, engine, needs.held_bytes(width.sequences));
  auto start = std::chrono::steady_clock::now();
  run_all(batch, model, engine, requests, stop, shrink);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  model.learn_pass(engine.stats().pass_seconds);
  Json timings = timings_json(engine, totals, width, seconds);
  RunReport report("batch", o, model, timings);
  report.save(stop);
  if (o.json) {
    const Json figures{{"timings", timings}, {"scheduler", report.scheduler()}};
    const MemoryReport& memory = report.memory();
    print_json([&](JsonWriter& json) {
      json.object(figures, {{"memory", [&] { write_json(json, memory); }}});
    });
  }
  log::info(
      "{}\nbatch      {} completed, {} failed, {} done before; {} tokens in {:.1f} s: {:.1f} "
      "tokens/s",
      report.summary(), totals.completed, totals.failed, totals.before,
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
      "Responses are appended to the output as they come. After an interrupt the same\n"
      "command goes on.\n"
      "Example:\n"
      "  sluice batch MODEL -i requests.jsonl -o responses.jsonl --memory 8GiB");
  add_model_options(*verb, *o, stop);
  verb->add_option("-i,--input", o->input, "Run the requests in this file")
      ->type_name("FILE")
      ->required();
  verb->add_option("-o,--output", o->output,
                   "Append the responses to this file; requests with a response in it are skipped")
      ->type_name("FILE")
      ->required();
  verb->add_option("--max-num-seqs", o->max_num_seqs,
                   "Run at most this many sequences at once; the budget may allow fewer")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  verb->add_option("--max-request-bytes", o->max_request_bytes,
                   "Refuse requests longer than this, such as 4MiB (default: 32 bytes for each "
                   "token of a sequence, 1MiB at least)")
      ->type_name("SIZE");
  verb->callback([o, stop, &shrink] { on_ranks(*o, stop, true, [&] { run(*o, stop, shrink); }); });
}

}  // namespace sluice::cli
