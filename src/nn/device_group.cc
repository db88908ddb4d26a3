#include "src/nn/device_group.h"

#include <algorithm>

#include "src/nn/host_side.h"

namespace sluice {
namespace {

constexpr auto kFloats = static_cast<int64_t>(DeviceGroup::kPart / sizeof(float));

bool is_on_host(const Kernels& kernels) { return kernels.stream().handle() == nullptr; }

}  // namespace

// Gathers some rows after others, without what lies between them, and gives them to
// take(first row, rows of each rank).
template <class Take>
void DeviceGroup::each_part(Tensor y, const Kernels& kernels, const Take& take) const {
  check(y.cols <= kFloats, "a row has room in what is gathered");
  const int64_t most = kFloats / y.cols;
  std::vector<Tensor> parts(static_cast<size_t>(rank().size));
  for (int64_t first = 0; first < y.rows; first += most) {
    Tensor own = y.rows_from(first, std::min(most, y.rows - first));
    const auto bytes = static_cast<uint64_t>(own.rows * own.cols) * sizeof(float);
    for (size_t r = 0; r < parts.size(); ++r)
      parts[r] = {memory_.data() + r * bytes, DType::f32, own.rows, own.cols, own.cols};
    if (own.rows > 1 && own.stride > own.cols) {
      const Tensor& dense = parts[static_cast<size_t>(rank().rank)];
      copy_rows(dense, own, kernels.stream());
      own = dense;
    }
    link_.all_gather(own.data, memory_.data(), bytes, kernels.stream());
    take(first, parts);
  }
}

void DeviceGroup::sum(Tensor y, const Kernels& kernels) const {
  if (is_on_host(kernels)) return host_.sum(y, kernels);
  each_part(y, kernels, [&](int64_t first, std::span<const Tensor> parts) {
    for (const Tensor& part : parts.subspan(1)) kernels.add(parts.front(), part);
    copy_rows(y.rows_from(first, parts.front().rows), parts.front(), kernels.stream());
  });
}

void DeviceGroup::gather_columns(Tensor part, Tensor whole, std::span<const Share> shares,
                                 const Kernels& kernels) const {
  if (is_on_host(kernels)) return host_.gather_columns(part, whole, shares, kernels);
  part.cols = std::ranges::max(shares, {}, &Share::count).count;  // the same on all ranks
  check(part.stride >= part.cols, "room for the widest share");
  each_part(part, kernels, [&](int64_t first, std::span<const Tensor> parts) {
    if (rank().rank > 0) return;
    const Tensor rows = whole.rows_from(first, parts.front().rows);
    for (size_t r = 0; r < parts.size(); ++r)
      copy_rows(rows.columns(shares[r].begin, shares[r].count),
                parts[r].columns(0, shares[r].count), kernels.stream());
  });
}

}  // namespace sluice
