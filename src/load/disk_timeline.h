// Bytes read so far, sampled over the whole run: what a report draws the disk's rate from.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace sluice {

// Thread-safe. Holds a bounded number of samples: as a run grows longer they become fewer.
class DiskTimeline {
 public:
  struct Sample {
    double seconds = 0;  // since the ledger was made
    uint64_t bytes = 0;  // since the beginning
  };

  explicit DiskTimeline(std::chrono::steady_clock::time_point start) : start_(start) {}

  void add(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_ += bytes;
    double seconds = now();
    if (!samples_.empty() && seconds - samples_.back().seconds < interval_) return;
    samples_.push_back({seconds, bytes_});
    if (samples_.size() < kMostSamples) return;
    for (size_t i = 1; 2 * i < samples_.size(); ++i) samples_[i] = samples_[2 * i];
    samples_.resize(samples_.size() / 2);
    interval_ *= 2;
  }

  uint64_t bytes() const {
    std::lock_guard lock(mutex_);
    return bytes_;
  }

  // The last one is of now.
  std::vector<Sample> samples() const {
    std::lock_guard lock(mutex_);
    std::vector<Sample> all = samples_;
    if (!all.empty()) all.push_back({now(), bytes_});
    return all;
  }

 private:
  double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  static constexpr size_t kMostSamples = 4096;

  std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;
  double interval_ = 0.01;
  uint64_t bytes_ = 0;
  std::vector<Sample> samples_;
};

}  // namespace sluice
