#include "kernels/bench/cuda_ceilings.h"

#include <algorithm>
#include <memory>

#include "kernels/bench/cuda_timing.h"
#include "kernels/bench/read_all.h"

namespace sluice::bench {
namespace {

constexpr uint64_t kDeviceBytes = 4 * GiB, kHostBytes = 64 * MiB;
constexpr uint64_t kPieces[] = {64 * MiB, 2 * MiB};  // 2 MiB: a tile of a streamed weight

}  // namespace

std::map<std::string, double> ceilings(Device& device) {
  Ledger ledger;
  const uint64_t bytes = std::min(kDeviceBytes, device.free_bytes() / 4 / MiB * MiB);
  const std::unique_ptr<DeviceStream> stream = device.stream();
  device.reserve(2 * bytes + MiB);
  std::map<std::string, double> rates;
  {
    auto take = [&](uint64_t size) {
      return device.memory(ledger, Use::workspace, "bench", size, Buffer::Touch::now);
    };
    const Buffer from = take(bytes), to = take(bytes), sum = take(sizeof(uint32_t));
    const Buffer host(ledger, Use::workspace, "bench", kHostBytes, Buffer::Touch::now);
    const std::unique_ptr<Pinned> pinned = device.pin(host.bytes());
    fill(*stream, from.bytes(), ~uint32_t{0}, 0);
    const auto size = static_cast<double>(bytes);
    rates["copy within the device"] =
        2 * size / seconds(*stream, [&] { stream->copy(to.data(), from.data(), bytes); });
    rates["read by a kernel"] =
        size / seconds(*stream, [&] {
          read_all(from.bytes(), reinterpret_cast<uint32_t*>(sum.data()), stream->handle());
        });
    for (uint64_t piece : kPieces) {
      auto in_pieces = [&](std::byte* into, const std::byte* out_of) {
        return static_cast<double>(kHostBytes) / seconds(*stream, [&] {
                 for (uint64_t at = 0; at < kHostBytes; at += piece)
                   stream->copy(into + at, out_of + at, piece);
               });
      };
      const std::string of = " in pieces of " + std::to_string(piece / MiB) + " MiB";
      rates["to the device" + of] = in_pieces(to.data(), host.data());
      rates["from the device" + of] = in_pieces(host.data(), from.data());
    }
  }
  device.reserve(0);
  return rates;
}

}  // namespace sluice::bench
