#include "src/serve/metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "src/text/utf8.h"

namespace sluice {
namespace {

// vLLM's [seconds].
constexpr double kFirstToken[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kEachToken[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                 0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
constexpr double kWhole[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

// vLLM's of tokens, up to the longest sequence; and of continuations.
constexpr double kTokens[] = {1,   2,   5,   10,  20,  50,  100, 200, 500, 1e3, 2e3,
                              5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7};
constexpr double kChoices[] = {1, 2, 5, 10, 20};

std::span<const double> token_bounds(int64_t longest) {
  const std::span<const double> all(kTokens);
  const auto end = std::ranges::upper_bound(all, static_cast<double>(longest));
  return all.first(static_cast<size_t>(end - all.begin()));
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Seconds of all threads, in user mode and the kernel.
double processor_seconds() {
  constexpr double kMicrosecond = 1e-6;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + kMicrosecond * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct MemoryBytes {
  uint64_t all = 0, resident = 0;
};

MemoryBytes memory_bytes() {
  std::ifstream in("/proc/self/statm");
  MemoryBytes pages;
  in >> pages.all >> pages.resident;
  const auto size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {.all = pages.all * size, .resident = pages.resident * size};
}

// Descriptors that the process has open, and the most that it may have.
int64_t open_descriptors() {
  std::error_code failed;
  const std::filesystem::directory_iterator all("/proc/self/fd", failed);
  return failed ? 0 : std::distance(begin(all), end(all)) - 1;  // less the one that lists them
}
uint64_t most_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// `text` within the quotes of a label. One that is not UTF-8 would make all figures useless.
std::string escaped(std::string_view text) {
  std::string out;
  for (char c : to_valid_utf8(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void describe(std::string& out, std::string_view name, std::string_view type,
              std::string_view help) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

class Writer {
 public:
  explicit Writer(std::string label) : label_(std::move(label)) {}

  template <class Number>
  void add(std::string_view type, std::string_view name, std::string_view help, Number value) {
    describe(out, name, type, help);
    fmt::format_to(std::back_inserter(out), "{}{{{}}} {}\n", name, label_, value);
  }
  // Adds a constant: 1, with labels.
  void add_info(std::string_view name, std::string_view help, std::string_view labels) {
    describe(out, name, "gauge", help);
    fmt::format_to(std::back_inserter(out), "{}{{{},{}}} 1\n", name, label_, labels);
  }
  // Adds a number for each value of the label `key`.
  using Each = std::pair<std::string_view, int64_t>;
  template <class Numbers = std::array<Each, 2>>
  void add_each(std::string_view type, std::string_view name, std::string_view help,
                std::string_view key, const Numbers& numbers) {
    describe(out, name, type, help);
    for (const auto& [value, number] : numbers)
      fmt::format_to(std::back_inserter(out), "{}{{{},{}=\"{}\"}} {}\n", name, label_, key, value,
                     number);
  }

  std::string out;

 private:
  std::string label_;
};

}  // namespace

void Histogram::add(double value, uint64_t times) {
  const auto at = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[static_cast<size_t>(at)] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help,
                      std::string_view label) const {
  describe(out, name, "histogram", help);
  uint64_t below = 0;
  auto to = std::back_inserter(out);
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    // The bound as Prometheus' clients write it, "1.0": boards select by it.
    fmt::format_to(to, "{}_bucket{{{},le=\"{:#}\"}} {}\n", name, label, bounds_[i], below);
  }
  fmt::format_to(to, "{}_bucket{{{},le=\"+Inf\"}} {}\n{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name,
                 label, count_, name, label, sum_, name, label, count_);
}

Metrics::Metrics()
    : first_token_(kFirstToken),
      each_token_(kEachToken),
      between_tokens_(kEachToken),
      whole_(kWhole),
      queue_(kWhole),
      prefill_(kWhole),
      decode_(kWhole),
      computed_(kWhole),
      prompt_(kTokens),
      generated_(kTokens),
      allowed_(kTokens),
      choices_(kChoices),
      started_(unix_time()) {
  for (const char* reason : {"stop", "length", "abort", "error"}) ended_[reason] = 0;
}

void Metrics::set_facts(ServedFacts facts) {
  facts_ = std::move(facts);
  for (Histogram* tokens : {&prompt_, &generated_, &allowed_})
    *tokens = Histogram(token_bounds(facts_.max_model_len));
}

void Metrics::add_response(std::string_view path, std::string_view method, int status,
                           double seconds) {
  constexpr int kClass = 100;
  const std::string handler(path);
  ++responses_[{handler, std::string(method), status / kClass}];
  auto& [count, sum] = durations_[handler];
  ++count;
  sum += seconds;
}

void Metrics::write_responses(std::string& out) const {
  auto to = std::back_inserter(out);
  describe(out, "http_requests_total", "counter", "Answered requests, by path and status.");
  for (const auto& [key, count] : responses_) {
    const auto& [handler, method, status] = key;
    fmt::format_to(to, "http_requests_total{{handler=\"{}\",method=\"{}\",status=\"{}xx\"}} {}\n",
                   handler, method, status, count);
  }
  constexpr std::string_view kName = "http_request_duration_seconds";
  describe(out, kName, "summary", "Time to answer a request, its whole stream included [seconds].");
  for (const auto& [handler, duration] : durations_)
    fmt::format_to(to, "{0}_count{{handler=\"{1}\"}} {2}\n{0}_sum{{handler=\"{1}\"}} {3}\n", kName,
                   handler, duration.count, duration.sum);
}

// Writes the steps of the engine as a histogram without bounds: vLLM's boards ask for its sum and
// count.
void Metrics::write_steps(const std::string& label, const EngineStats& s, std::string& out) {
  constexpr std::string_view kName = "vllm:iteration_tokens_total";
  describe(out, kName, "histogram", "Tokens of each pass over the model.");
  fmt::format_to(std::back_inserter(out),
                 "{0}_bucket{{{1},le=\"+Inf\"}} {2}\n{0}_sum{{{1}}} {3}\n{0}_count{{{1}}} {2}\n",
                 kName, label, s.steps, s.rows);
}

void Metrics::add_result(const RequestResult& r, int64_t prompt_tokens, const Request& asked) {
  ++ended_[r.finish_reason];
  if (r.finish_reason == "error") return;
  const int64_t tokens = std::ssize(r.ids);
  first_token_.add(r.queue_seconds + r.prefill_seconds);
  whole_.add(r.queue_seconds + r.prefill_seconds + r.decode_seconds);
  queue_.add(r.queue_seconds);
  prefill_.add(r.prefill_seconds);
  decode_.add(r.decode_seconds);
  computed_.add(r.prefill_seconds + r.decode_seconds);
  prompt_.add(static_cast<double>(prompt_tokens));
  generated_.add(static_cast<double>(tokens));
  allowed_.add(static_cast<double>(asked.max_tokens));
  choices_.add(static_cast<double>(asked.n));
  if (tokens <= 1) return;
  const double each = r.decode_seconds / static_cast<double>(tokens - 1);
  each_token_.add(each);
  between_tokens_.add(each, static_cast<uint64_t>(tokens - 1));
}

// Writes what the clients of Prometheus tell of each process.
void Metrics::write_process(std::string& out) const {
  auto add = [&](std::string_view type, std::string_view name, std::string_view help, auto value) {
    describe(out, name, type, help);
    fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
  };
  add("gauge", "process_start_time_seconds", "Start of the process, in seconds of Unix time.",
      started_);
  add("counter", "process_cpu_seconds_total", "Processor time.", processor_seconds());
  const MemoryBytes memory = memory_bytes();
  add("gauge", "process_resident_memory_bytes", "Resident memory.", memory.resident);
  add("gauge", "process_virtual_memory_bytes", "Virtual memory.", memory.all);
  add("gauge", "process_open_fds", "Open file descriptors.", open_descriptors());
  add("gauge", "process_max_fds", "Most file descriptors that may be open.", most_descriptors());
}

std::string Metrics::text(std::string_view model, const LoopStatus& loop,
                          const ServerGauges& server) const {
  const std::string label = fmt::format("model_name=\"{}\",engine=\"0\"", escaped(model));
  const EngineStats& s = loop.stats;
  Writer w(label);
  w.add("gauge", "vllm:num_requests_running", "Running sequences.", loop.running);
  w.add("gauge", "vllm:num_requests_waiting", "Waiting sequences.", loop.waiting);
  w.add("gauge", "vllm:kv_cache_usage_perc", "Used share of the KV cache, 0 to 1.",
        loop.blocks == 0
            ? 0
            : static_cast<double>(loop.blocks_used) / static_cast<double>(loop.blocks));
  w.add("gauge", "sluice:kv_blocks_used", "KV blocks that sequences hold.", loop.blocks_used);
  w.add("counter", "vllm:prompt_tokens_total", "Prompt tokens.", s.prompt_tokens);
  w.add("counter", "vllm:generation_tokens_total", "Generated tokens.", s.generated_tokens);
  w.add("counter", "vllm:prefix_cache_queries_total", "Tokens looked for in the KV cache.",
        s.prompt_tokens);
  w.add("counter", "vllm:prefix_cache_hits_total", "Tokens found in the KV cache.",
        s.prefix_tokens);
  w.add("counter", "vllm:prompt_tokens_cached_total", "Prompt tokens found in the KV cache.",
        s.prefix_tokens);
  w.add_each("counter", "vllm:prompt_tokens_by_source_total",
             "Prompt tokens, by where their keys came from.", "source",
             {{{"local_cache_hit", s.prefix_tokens},
               {"local_compute", std::max<int64_t>(0, s.prompt_tokens - s.prefix_tokens)}}});
  w.add("counter", "vllm:spec_decode_num_draft_tokens_total", "Draft tokens.", s.drafted);
  w.add("counter", "vllm:spec_decode_num_accepted_tokens_total", "Accepted draft tokens.",
        s.accepted);
  w.add("counter", "vllm:num_preemptions_total", "Preemptions of sequences.", s.preemptions);
  w.add("counter", "sluice:steps_total", "Passes over the model.", s.steps);
  w.add("gauge", "sluice:connections", "Open connections.", server.connections);
  w.add("gauge", "sluice:request_memory_bytes", "Memory of connections and requests [bytes].",
        server.request_memory);
  w.add("gauge", "sluice:memory_used_bytes", "Memory leased from the budget [bytes].",
        server.memory_used);
  w.add("gauge", "sluice:memory_budget_bytes", "Memory budget [bytes].", server.memory_budget);
  w.add_each("gauge", "vllm:num_requests_waiting_by_reason", "Waiting sequences, by reason.",
             "reason", {{{"capacity", loop.waiting}, {"deferred", 0}}});
  w.add_each("gauge", "vllm:engine_sleep_state", "1: the state that the model is in.",
             "sleep_state", {{{"awake", !server.sleeping}, {"discard_all", server.sleeping}}});
  w.add_each("counter", "vllm:request_success_total", "Finished sequences, by reason.",
             "finished_reason", ended_);
  w.add_each("counter", "sluice:requests_refused_total", "Refused requests, by HTTP status.",
             "status", refused_);
  w.add_info("vllm:cache_config_info", "Size of the KV cache.",
             fmt::format("block_size=\"{}\",cache_dtype=\"{}\",enable_prefix_caching=\"True\","
                         "num_gpu_blocks=\"{}\"",
                         facts_.block_size, escaped(facts_.cache_dtype), loop.blocks));
  w.add_info("sluice:build_info", "Version of the program.",
             fmt::format("version=\"{}\"", escaped(facts_.version)));
  write_process(w.out);
  write_responses(w.out);
  write_steps(label, s, w.out);
  write_histograms(label, w.out);
  return std::move(w.out);
}

void Metrics::write_histograms(const std::string& label, std::string& out) const {
  first_token_.write(out, "vllm:time_to_first_token_seconds", "Time to the first token [seconds].",
                     label);
  each_token_.write(out, "vllm:request_time_per_output_token_seconds",
                    "Time of each token after the first, mean of a request [seconds].", label);
  between_tokens_.write(out, "vllm:inter_token_latency_seconds",
                        "Time between two tokens, mean of their request [seconds].", label);
  whole_.write(out, "vllm:e2e_request_latency_seconds", "Time to the last token [seconds].", label);
  queue_.write(out, "vllm:request_queue_time_seconds", "Time in the queue [seconds].", label);
  prefill_.write(out, "vllm:request_prefill_time_seconds", "Time to compute the prompt [seconds].",
                 label);
  decode_.write(out, "vllm:request_decode_time_seconds",
                "Time to generate all tokens after the first [seconds].", label);
  computed_.write(out, "vllm:request_inference_time_seconds",
                  "Time to compute the prompt and all tokens [seconds].", label);
  prompt_.write(out, "vllm:request_prompt_tokens", "Prompt tokens of each request.", label);
  generated_.write(out, "vllm:request_generation_tokens", "Generated tokens of each sequence.",
                   label);
  for (const char* name :
       {"vllm:request_max_num_generation_tokens", "vllm:request_params_max_tokens"})
    allowed_.write(out, name, "Most tokens that a request allowed.", label);
  choices_.write(out, "vllm:request_params_n", "Continuations that a request asked for (n).",
                 label);
}

}  // namespace sluice
