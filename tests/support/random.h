// Randomness for tests: from SLUICE_TEST_SEED, which tools/test sets, else from a new seed, which
// is printed; or from a seed that the test chooses.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace sluice::test {

class Random {
 public:
  explicit Random(const char* what) : engine_(seed_for(what)) {}
  explicit Random(uint64_t seed) : engine_(seed) {}

  int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  // True for one, at random, of each `n` calls in a row.
  bool one_of(int64_t n) {
    if (calls_ % n == 0) chosen_ = between(0, n - 1);
    return calls_++ % n == chosen_;
  }
  float normal(float sigma = 1) { return std::normal_distribution<float>(0, sigma)(engine_); }
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(engine_); }
  std::mt19937_64& engine() { return engine_; }

 private:
  static uint64_t seed_for(const char* what) {
    const char* given = std::getenv("SLUICE_TEST_SEED");
    uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::cout << "[ seed     ] " << what << ": SLUICE_TEST_SEED=" << seed << "\n";
    return seed;
  }
  std::mt19937_64 engine_;
  int64_t calls_ = 0, chosen_ = 0;  // of one_of()
};

}  // namespace sluice::test
