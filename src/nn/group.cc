#include "src/nn/group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "src/device/device.h"

namespace sluice {
namespace {

constexpr int64_t kMostFloats = Group::kMostGathered / sizeof(float);

// A rank's answer to agree().
struct Fault {
  uint8_t kind = 0;  // of the error; 0: none
  std::array<char, 2047> text{};
};

// Adds up `count` floats of each rank, which lie one rank after another.
void add_ranks(std::span<const std::byte> all, int ranks, int64_t count, float* y) {
  const auto* from = reinterpret_cast<const float*>(all.data());
  std::copy_n(from, count, y);
  for (int r = 1; r < ranks; ++r) {
    from += count;
    for (int64_t i = 0; i < count; ++i) y[i] += from[i];
  }
}

}  // namespace

void Group::sum(Tensor y, const Kernels& kernels) const {
  const int ranks = rank().size;
  if (ranks == 1) return;
  kernels.stream().synchronize();
  const bool dense = y.stride == y.cols;
  const int64_t rows = dense ? 1 : y.rows, cols = dense ? y.rows * y.cols : y.cols;
  for (int64_t r = 0; r < rows; ++r) {
    float* row = y.row<float>(r);
    for (int64_t at = 0; at < cols; at += kMostFloats) {
      const int64_t count = std::min(kMostFloats, cols - at);
      const std::span<float> own(row + at, static_cast<size_t>(count));
      add_ranks(all_gather(std::as_bytes(own)), ranks, count, own.data());
    }
  }
}

void Group::gather_columns(Tensor part, Tensor whole, std::span<const Share> shares,
                           const Kernels& kernels) const {
  kernels.stream().synchronize();
  int64_t widest = 0;
  for (const Share& share : shares) widest = std::max(widest, share.count);
  check(part.stride >= widest, "room for the widest share");
  for (int64_t row = 0; row < part.rows; ++row) {
    for (int64_t at = 0; at < widest; at += kMostFloats) {
      const int64_t count = std::min(kMostFloats, widest - at);
      const std::span<const float> own(part.row<float>(row) + at, static_cast<size_t>(count));
      const std::span<const std::byte> all = all_gather(std::as_bytes(own));
      if (rank().rank != 0) continue;
      const auto* from = reinterpret_cast<const float*>(all.data());
      for (const Share& share : shares) {
        const int64_t columns = std::clamp<int64_t>(share.count - at, 0, count);
        std::copy_n(from, columns, whole.row<float>(row) + share.begin + at);
        from += count;
      }
    }
  }
}

std::span<const std::byte> PartGroup::all_gather(std::span<const std::byte> own) const {
  const auto ranks = static_cast<size_t>(ranks_.count);
  gathered_.resize(own.size() * ranks);
  std::vector<std::span<const std::byte>> to(ranks, own);
  std::vector<std::span<std::byte>> from;
  for (size_t r = 0; r < ranks; ++r)
    from.push_back(std::span(gathered_).subspan(r * own.size(), own.size()));
  all_to_all(to, from);
  return gathered_;
}

void PartGroup::all_to_all(std::span<const std::span<const std::byte>> to,
                           std::span<const std::span<std::byte>> from) const {
  const int self = rank().rank;
  for (int r = 0; r < rank().size; ++r) {
    const auto other = static_cast<size_t>(r);
    if (r == self) {
      std::ranges::copy(to[other], from[other].begin());
    } else if (self < r) {
      send(r, to[other]);
      receive(r, from[other]);
    } else {
      receive(r, from[other]);
      send(r, to[other]);
    }
  }
}

void Group::agree(const Error* own) const {
  if (rank().size == 1) {
    if (own != nullptr) throw *own;
    return;
  }
  Fault fault;
  if (own != nullptr) {
    fault.kind = static_cast<uint8_t>(own->kind());
    const std::string_view text = own->what();
    std::copy_n(text.begin(), std::min(text.size(), fault.text.size() - 1), fault.text.begin());
  }
  const std::span<const std::byte> all = meet(std::as_bytes(std::span(&fault, 1)));
  for (int r = 0; r < rank().size; ++r) {
    std::memcpy(&fault, all.data() + static_cast<size_t>(r) * sizeof(fault), sizeof(fault));
    if (fault.kind == 0) continue;
    end();
    const std::string text = fault.text.data();
    throw Error(static_cast<ErrorKind>(fault.kind),
                r == 0 ? text : fmt::format("rank {}: {}", r, text));
  }
}

}  // namespace sluice
