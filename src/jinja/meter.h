// Limits of what rendering a template may use. Templates come with checkpoints: one may have been
// written to never end, or to fill the memory.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "src/base/units.h"

namespace sluice::jinja {

struct Limits {
  int64_t steps = 5'000'000;         // expressions, statements, elements, and 64 bytes of text each
  int depth = 1000;                  // of evaluation within evaluation
  uint64_t bytes = 192 * MiB;        // held at once, by values and output
  uint64_t output_bytes = 32 * MiB;  // of the text
};

class Meter {
 public:
  // Called before more memory is used than ever before, with the bytes in all; throws where there
  // is no room for them.
  using Reserve = std::function<void(uint64_t bytes)>;

  explicit Meter(Limits limits = {}, Reserve reserve = {})
      : limits_(limits), reserve_(std::move(reserve)) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  const Limits& limits() const { return limits_; }
  // Each throws Fault where the limit is passed.
  void step(int64_t count = 1) {
    if ((steps_ += count) > limits_.steps) too_many_steps();
  }
  void text_steps(uint64_t bytes) { step(1 + static_cast<int64_t>(bytes / 64)); }
  void enter() {
    if (++depth_ > limits_.depth) too_deep();
  }
  void leave() { --depth_; }
  void take(uint64_t bytes);
  void give(uint64_t bytes) { bytes_ -= bytes; }
  uint64_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void too_many_steps() const;
  [[noreturn]] void too_deep();

  Limits limits_;
  Reserve reserve_;
  int64_t steps_ = 0;
  int depth_ = 0;
  uint64_t bytes_ = 0;
  uint64_t asked_ = 0;  // bytes that `reserve_` has agreed to
};

// One level of evaluation.
class Level {
 public:
  explicit Level(Meter& meter) : meter_(meter) { meter_.enter(); }
  ~Level() { meter_.leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Meter& meter_;
};

// Bytes that are given back with this.
class Charge {
 public:
  explicit Charge(Meter& meter) : meter_(meter) {}
  ~Charge() { meter_.give(bytes_); }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  void add(uint64_t bytes) {
    meter_.take(bytes);
    bytes_ += bytes;
  }
  Meter& meter() const { return meter_; }

 private:
  Meter& meter_;
  uint64_t bytes_ = 0;
};

}  // namespace sluice::jinja
