#include "src/load/shape_trial.h"

#include <algorithm>

namespace sluice {

ShapeTrial::ShapeTrial(const io::ReadShape& known, bool tries) : is_over_(!tries) {
  tried_.push_back({.shape = known});
  for (const io::ReadShape& shape : kReadShapes)
    if (tries && shape != known) tried_.push_back({.shape = shape});
}

uint64_t ShapeTrial::least_request_bytes() const {
  uint64_t least = tried_.front().shape.request_bytes;
  for (const Tried& t : tried_) least = std::min(least, t.shape.request_bytes);
  return least;
}

void ShapeTrial::arrived(uint64_t bytes, double seconds, bool busy) {
  constexpr uint64_t kMeasured = 48 << 20;
  const double since = seconds - last_;
  last_ = seconds;
  if (is_over_) return;
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
  tried_[at_].rate = static_cast<double>(bytes_) / seconds_;
  settling_ = shape().bytes_in_flight();
  bytes_ = 0;
  seconds_ = 0;
  if (++at_ == tried_.size()) end_round();
}

void ShapeTrial::end_round() {
  constexpr size_t kRounds = 3, kMostLeft = 3;
  constexpr double kClearly = 1.05;
  for (Tried& t : tried_) t.least_gain = std::min(t.least_gain, t.rate / tried_.front().rate);
  std::sort(tried_.begin() + 1, tried_.end(),
            [](const Tried& a, const Tried& b) { return a.least_gain > b.least_gain; });
  size_t left = 1;
  while (left < std::min(tried_.size(), 1 + kMostLeft) && tried_[left].least_gain >= kClearly)
    ++left;
  tried_.resize(left);
  at_ = 0;
  if (++rounds_ < kRounds && left > 1) return;
  is_over_ = true;
  at_ = left > 1 ? 1 : 0;
  verdict_ = shape();
}

}  // namespace sluice
