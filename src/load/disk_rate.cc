#include "src/load/disk_rate.h"

#include <algorithm>

#include "src/base/units.h"

namespace sluice {

void DiskRate::arrived(uint64_t bytes, double seconds, bool busy) {
  constexpr uint64_t kStretch = 64 * MiB;
  const double since = seconds - last_;
  last_ = seconds;
  if (!busy) return;
  bytes_ += bytes;
  seconds_ += since;
  if (bytes_ < kStretch || seconds_ <= 0) return;
  rates_.push_back(static_cast<double>(bytes_) / seconds_);
  measured_ += bytes_;
  bytes_ = 0;
  seconds_ = 0;
}

std::optional<double> DiskRate::sustained() const {
  if (measured_ < 256 * MiB) return std::nullopt;
  std::vector<double> rates = rates_;
  auto middle = rates.begin() + std::ssize(rates) / 2;
  std::ranges::nth_element(rates, middle);
  return *middle;
}

}  // namespace sluice
