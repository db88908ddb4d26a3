// The limit of sequences that run and wait.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "src/serve/http/hub.h"

namespace sluice::http {

// Sequences that a request asks for, as long as it is there.
class Place {
 public:
  explicit Place(Hub& hub) : hub_(hub) {}
  ~Place() { hub_.sequences -= count_; }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // Refusal(429) where there is no room for so many now, Refusal(400) where there never is.
  void check(int64_t count) const {
    const int64_t most = hub_.options.max_sequences;
    if (hub_.sequences - count_ + count <= most) return;
    if (count > most) {
      throw Refusal(400, fmt::format("the request asks for {} sequences, and {} may run and wait "
                                     "(--max-num-seqs, --max-queue)",
                                     count, most));
    }
    constexpr double kLongest = 60;
    const double seconds = std::clamp(hub_.service.metrics().mean_seconds(), 1.0, kLongest);
    throw Refusal(429, "too many requests wait already; try again later", "rate_limit_exceeded",
                  static_cast<int>(seconds));
  }
  void take(int64_t count) {
    check(count);
    hub_.sequences += count - count_;
    count_ = count;
  }

 private:
  Hub& hub_;
  int64_t count_ = 0;
};

}  // namespace sluice::http
