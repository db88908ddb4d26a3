#include "src/ranks/exchange_speed.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace sluice {
namespace {

double gather_seconds(const Group& group, std::span<const std::byte> own) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  group.all_gather(own);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median_seconds(const Group& group, std::span<const std::byte> own) {
  constexpr double kPatience = 0.02;  // [s]
  constexpr int kFewest = 3, kMost = 31;
  gather_seconds(group, own);
  // All ranks gather as often: as the slowest has time for.
  const double slowest = std::ranges::max(group.gather(gather_seconds(group, own)));
  const auto repeats =
      static_cast<int>(std::clamp(kPatience / slowest, 1.0 * kFewest, 1.0 * kMost));
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(gather_seconds(group, own));
  const auto middle = seconds.begin() + repeats / 2;
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

}  // namespace

ExchangeSpeed measure_exchange(const Group& group) {
  constexpr size_t kFew = 64, kMany = Group::kMostGathered;
  const std::vector<std::byte> bytes(kMany);
  const double few = median_seconds(group, std::span(bytes).first(kFew));
  const double many = median_seconds(group, bytes);
  const double sent = static_cast<double>(kMany - kFew) * (group.rank().size - 1);
  constexpr double kLeastPart = 0.25;  // of the time that many take, where few take as long
  return {1 / few, sent / std::max(many - few, kLeastPart * many)};
}

}  // namespace sluice
