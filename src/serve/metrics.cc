#include "src/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice {
namespace {

// vLLM's [seconds].
constexpr double kFirstToken[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kEachToken[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                 0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
constexpr double kWhole[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

// `text` within the quotes of a label.
std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
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
  template <class Key>
  void add_each(std::string_view name, std::string_view help, std::string_view key,
                const std::map<Key, uint64_t, std::less<>>& counts) {
    describe(out, name, "counter", help);
    for (const auto& [value, count] : counts)
      fmt::format_to(std::back_inserter(out), "{}{{{},{}=\"{}\"}} {}\n", name, label_, key, value,
                     count);
  }

  std::string out;

 private:
  std::string label_;
};

}  // namespace

void Histogram::add(double seconds) {
  const auto at = std::ranges::lower_bound(bounds_, seconds) - bounds_.begin();
  ++counts_[static_cast<size_t>(at)];
  ++count_;
  sum_ += seconds;
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help,
                      std::string_view label) const {
  describe(out, name, "histogram", help);
  uint64_t below = 0;
  auto to = std::back_inserter(out);
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    fmt::format_to(to, "{}_bucket{{{},le=\"{}\"}} {}\n", name, label, bounds_[i], below);
  }
  fmt::format_to(to, "{}_bucket{{{},le=\"+Inf\"}} {}\n{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name,
                 label, count_, name, label, sum_, name, label, count_);
}

Metrics::Metrics()
    : first_token_(kFirstToken),
      each_token_(kEachToken),
      whole_(kWhole),
      queue_(kWhole),
      prefill_(kWhole),
      decode_(kWhole) {
  for (const char* reason : {"stop", "length", "abort", "error"}) ended_[reason] = 0;
}

void Metrics::add_result(const RequestResult& r) {
  ++ended_[r.finish_reason];
  if (r.finish_reason == "error") return;
  const int64_t tokens = std::ssize(r.ids);
  first_token_.add(r.queue_seconds + r.prefill_seconds);
  whole_.add(r.queue_seconds + r.prefill_seconds + r.decode_seconds);
  queue_.add(r.queue_seconds);
  prefill_.add(r.prefill_seconds);
  decode_.add(r.decode_seconds);
  if (tokens > 1) each_token_.add(r.decode_seconds / static_cast<double>(tokens - 1));
}

std::string Metrics::text(std::string_view model, const LoopStatus& loop,
                          const ServerGauges& server) const {
  const std::string label = fmt::format("model_name=\"{}\"", escaped(model));
  const EngineStats& s = loop.stats;
  Writer w(label);
  w.add("gauge", "vllm:num_requests_running", "Sequences that run.", loop.running);
  w.add("gauge", "vllm:num_requests_waiting", "Sequences that wait.", loop.waiting);
  w.add("gauge", "vllm:kv_cache_usage_perc", "Share of the KV cache in use; 1 is all of it.",
        loop.blocks == 0
            ? 0
            : static_cast<double>(loop.blocks_used) / static_cast<double>(loop.blocks));
  w.add("gauge", "sluice:kv_blocks_used", "KV blocks that sequences hold.", loop.blocks_used);
  w.add("counter", "vllm:prompt_tokens_total", "Tokens of prompts.", s.prompt_tokens);
  w.add("counter", "vllm:generation_tokens_total", "Generated tokens.", s.generated_tokens);
  w.add("counter", "vllm:prefix_cache_queries_total", "Tokens looked for in the KV cache.",
        s.prompt_tokens);
  w.add("counter", "vllm:prefix_cache_hits_total", "Tokens found in the KV cache.",
        s.prefix_tokens);
  w.add("counter", "vllm:num_preemptions_total", "Sequences that made room for others.",
        s.preemptions);
  w.add("counter", "sluice:steps_total", "Passes over the model.", s.steps);
  w.add("gauge", "sluice:connections", "Connections of clients.", server.connections);
  w.add("gauge", "sluice:request_memory_bytes", "Memory of connections and requests.",
        server.request_memory);
  w.add("gauge", "sluice:memory_used_bytes", "Memory that is leased from the budget.",
        server.memory_used);
  w.add("gauge", "sluice:memory_budget_bytes", "The memory budget.", server.memory_budget);
  w.add_each("vllm:request_success_total", "Sequences that ended, by reason.", "finished_reason",
             ended_);
  w.add_each("sluice:requests_refused_total", "Requests that got an error, by HTTP status.",
             "status", refused_);
  first_token_.write(w.out, "vllm:time_to_first_token_seconds", "Until the first token.", label);
  each_token_.write(w.out, "vllm:request_time_per_output_token_seconds",
                    "Of each token after the first.", label);
  whole_.write(w.out, "vllm:e2e_request_latency_seconds", "Until the last token.", label);
  queue_.write(w.out, "vllm:request_queue_time_seconds", "Until a prompt is begun.", label);
  prefill_.write(w.out, "vllm:request_prefill_time_seconds", "Of prompts.", label);
  decode_.write(w.out, "vllm:request_decode_time_seconds", "Of all tokens after the first.", label);
  return std::move(w.out);
}

}  // namespace sluice
