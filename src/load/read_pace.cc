#include "src/load/read_pace.h"

#include <algorithm>

namespace sluice {
namespace {

bool has_room_to_try(uint64_t slot_bytes, size_t slots) {
  return slot_bytes >= kReadShapes[0].request_bytes && slot_bytes * slots >= kMostBytesInFlight;
}

}  // namespace

size_t reads_in_flight(const io::ReadShape& shape, uint64_t slot_bytes) {
  constexpr uint64_t kFewest = 2;
  // If a slot needs several reads, half of the next one has arrived, on average.
  const uint64_t halves = slot_bytes >= 2 * shape.request_bytes ? 2 : 1;
  return std::max(kFewest, (2 * shape.bytes_in_flight() + halves * slot_bytes) / (2 * slot_bytes));
}

ReadPace::ReadPace(const io::ReadShape& known, bool tries, uint64_t slot_bytes, size_t slots)
    : slot_bytes_(slot_bytes),
      slots_(slots),
      trial_(known, tries && has_room_to_try(slot_bytes, slots)) {}

// Virtual disks answer all that was asked of them at once, and have nothing to do then: slots that
// are still free are submitted at that moment, before the first that arrived has been encoded.
size_t ReadPace::most_in_flight() const {
  return std::min(slots_ - slots_ / 8, reads_in_flight(trial_.shape(), slot_bytes_));
}

void ReadPace::arrived(uint64_t bytes, double seconds, size_t in_flight) {
  const bool busy = 2 * in_flight >= most_in_flight();
  disk_rate_.arrived(bytes, seconds, busy);
  trial_.arrived(bytes, seconds, busy);
}

}  // namespace sluice
