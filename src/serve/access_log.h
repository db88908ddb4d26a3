// A line of JSON for each request that was answered, or given up. Nothing of prompts and answers is
// in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "io/file.h"

namespace sluice {

struct AccessEntry {
  std::string request_id = {};
  std::string method = {};
  std::string path = {};  // without its query, which may hold what nobody should read
  int status = 0;         // 499: the client had gone before the answer was whole
  bool failed = false;    // the stream ended with an error
  // Numbers of requests that generate, or make vectors.
  struct Tokens {
    int64_t prompt = 0;
    int64_t cached = 0;  // of these, found in the KV cache; of what ended before its time 0
    int64_t completion = 0;
  };
  std::optional<Tokens> tokens = {};
  using Clock = std::chrono::steady_clock;
  Clock::time_point began = Clock::now();  // the head of the request had come
  std::optional<Clock::time_point> first_token = {};
  uint64_t bytes = 0;  // of the response, its head included
};

// One line, with its end, at most 4 KiB, of a request that has ended `now`. `time`: the same in
// seconds of Unix time.
std::string access_line(const AccessEntry& entry, AccessEntry::Clock::time_point now, double time);

// Lines are added to the file's end, so that it may be moved or cut while the server runs.
class AccessLog {
 public:
  // "-": standard output. Error(runtime) where the file cannot be written.
  explicit AccessLog(const std::string& path);
  // On one thread, in which SIGPIPE is blocked from then on. Never waits: what a pipe has no room
  // for is dropped. Of the first failure there is a warning.
  void add(const AccessEntry& entry);

 private:
  std::string name_;
  io::Fd file_;
  bool failed_ = false;
};

}  // namespace sluice
