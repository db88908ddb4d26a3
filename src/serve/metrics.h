// Counters of a server, as Prometheus reads them. prometheus-cpp keeps a family, a lock and a
// lookup for each of them; these are plain members of the service, under its mutex. Names are
// vLLM's where it has them, so that its dashboards show them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "src/engine/engine_loop.h"

namespace sluice {

// Counts of seconds, or of tokens, up to each of `bounds`, which rise.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}
  void add(double value, uint64_t times = 1);
  // Mean of all; 0: there are none.
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  void write(std::string& out, std::string_view name, std::string_view help,
             std::string_view label) const;

 private:
  std::span<const double> bounds_;  // of static arrays
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
};

// Facts about the KV cache and the program, which do not change.
struct ServedFacts {
  int64_t block_size = 0;  // tokens
  std::string cache_dtype = {};
  std::string version = {};
  int64_t max_model_len = 0;
};

// Figures of the server itself, at a moment.
struct ServerGauges {
  int64_t connections = 0;
  uint64_t request_memory = 0;  // bytes
  uint64_t memory_used = 0;     // of the ledger
  uint64_t memory_budget = 0;
  bool sleeping = false;
};

// Not thread-safe.
class Metrics {
 public:
  Metrics();
  // Before the first result.
  void set_facts(ServedFacts facts);
  // Counts a result after a prompt of so many tokens, that was allowed so many.
  void add_result(const RequestResult& result, int64_t prompt_tokens, const Request& asked);
  void add_abort() { ++ended_["abort"]; }
  void add_refusal(int status) { ++refused_[status]; }
  // Counts an answer after so many seconds. Paths and methods are a server's own, and so few.
  void add_response(std::string_view path, std::string_view method, int status, double seconds);
  double mean_seconds() const { return whole_.mean(); }  // of a request

  std::string text(std::string_view model, const LoopStatus& loop,
                   const ServerGauges& server) const;

 private:
  void write_process(std::string& out) const;
  void write_responses(std::string& out) const;
  static void write_steps(const std::string& label, const EngineStats& s, std::string& out);
  void write_histograms(const std::string& label, std::string& out) const;

  std::map<std::string, uint64_t, std::less<>> ended_;  // by finish_reason
  std::map<int, uint64_t, std::less<>> refused_;        // by status
  // By path, method and status / 100.
  std::map<std::tuple<std::string, std::string, int>, uint64_t> responses_;
  struct Duration {
    uint64_t count = 0;
    double sum = 0;  // seconds
  };
  std::map<std::string, Duration> durations_;  // by path
  Histogram first_token_, each_token_, between_tokens_, whole_, queue_, prefill_, decode_,
      computed_;
  Histogram prompt_, generated_, allowed_, choices_;
  ServedFacts facts_;
  double started_;  // Unix time, seconds
};

}  // namespace sluice
