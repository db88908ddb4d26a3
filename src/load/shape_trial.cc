#include "src/load/shape_trial.h"

#include <algorithm>

namespace sluice {

void ShapeTrial::arrived(uint64_t bytes, double seconds, bool busy) {
  constexpr uint64_t kMeasured = 48 << 20;
  const double since = seconds - last_;
  last_ = seconds;
  if (is_over()) return;
  if (settling_ > 0) {
    settling_ -= std::min(settling_, bytes);
    return;
  }
  if (!busy) return;
  bytes_ += bytes;
  seconds_ += since;
  if (bytes_ >= kMeasured && seconds_ > 0) next();
}

void ShapeTrial::next() {
  rates_[round_][shape_] = static_cast<double>(bytes_) / seconds_;
  settling_ = shape().bytes_in_flight();
  bytes_ = 0;
  seconds_ = 0;
  shape_ = (shape_ + 1) % kReadShapes.size();
  if (shape_ != 0 || ++round_ < kRounds) return;
  verdict_ = fastest();
  chosen_ = *verdict_;
}

io::ReadShape ShapeTrial::fastest() const {
  constexpr double kClearly = 1.05;
  // By its slowest round, over the first's of the same round.
  auto gain = [&](size_t shape) {
    double least = rates_[0][shape] / rates_[0][0];
    for (const auto& round : rates_) least = std::min(least, round[shape] / round[0]);
    return least;
  };
  size_t best = 0;
  for (size_t shape = 1; shape < kReadShapes.size(); ++shape) {
    if (gain(shape) > gain(best)) best = shape;
  }
  return kReadShapes[gain(best) >= kClearly ? best : 0];
}

}  // namespace sluice
