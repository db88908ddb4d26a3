#include "io/joined_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "src/base/error.h"

namespace sluice::io {
namespace {

constexpr size_t kMostDestinations = 512;  // of one call; Linux takes 1024

// Collects places of one strip that are filled by one call.
class Destinations {
 public:
  Destinations(uint32_t part, const std::function<void(const Scatter&)>& read)
      : part_(part), read_(read) {}

  // The part's bytes from `offset` on, which follow those that were added before.
  void add(uint64_t offset, std::span<std::byte> to) {
    if (count_ > 0) {
      iovec& last = all_[count_ - 1];
      if (static_cast<std::byte*>(last.iov_base) + last.iov_len == to.data()) {
        last.iov_len += to.size();
        return;
      }
    }
    if (count_ == kMostDestinations) flush();
    if (count_ == 0) offset_ = offset;
    all_[count_++] = {to.data(), to.size()};
  }
  void flush() {
    if (count_ > 0) read_({part_, offset_, std::span(all_).first(count_)});
    count_ = 0;
  }

 private:
  uint32_t part_;
  const std::function<void(const Scatter&)>& read_;
  std::array<iovec, kMostDestinations> all_;
  size_t count_ = 0;
  uint64_t offset_ = 0;
};

// Bytes [begin, end) of a band; `column`: where the rows of its strip begin in its rows; `to`: the
// memory of byte `begin`.
void scatter_strip(const JoinedFile::Band& band, const JoinedFile::Strip& strip, uint64_t column,
                   uint64_t begin, uint64_t end, std::byte* to,
                   const std::function<void(const Scatter&)>& read) {
  const uint64_t row_bytes = band.row_bytes();
  Destinations places(strip.part, read);
  for (uint64_t row = begin / row_bytes; row * row_bytes < end; ++row) {
    const uint64_t at = row * row_bytes + column;
    const uint64_t first = std::max(begin, at), last = std::min(end, at + strip.row_bytes);
    if (first >= last) continue;
    places.add(strip.offset + row * strip.row_bytes + (first - at),
               {to + (first - begin), last - first});
  }
  places.flush();
}

}  // namespace

uint64_t JoinedFile::Band::row_bytes() const {
  uint64_t sum = 0;
  for (const Strip& strip : strips) sum += strip.row_bytes;
  return sum;
}

CheckpointFile joined_file(std::string name, JoinedFile file) {
  CheckpointFile joined;
  joined.name = std::move(name);
  joined.path = file.parts.front().path;
  joined.device = file.parts.front().device;
  joined.size = file.bands.empty() ? 0 : file.bands.back().end();
  joined.joined = std::make_shared<const JoinedFile>(std::move(file));
  return joined;
}

void scatter(const JoinedFile& file, uint64_t offset, std::span<std::byte> to,
             const std::function<void(const Scatter&)>& read) {
  const uint64_t end = offset + to.size();
  auto band = std::ranges::upper_bound(file.bands, offset, {}, &JoinedFile::Band::begin);
  if (band != file.bands.begin()) --band;
  for (; band != file.bands.end() && band->begin < end; ++band) {
    const uint64_t first = std::max(offset, band->begin), last = std::min(end, band->end());
    if (first >= last) continue;
    uint64_t column = 0;
    for (const JoinedFile::Strip& strip : band->strips) {
      scatter_strip(*band, strip, column, first - band->begin, last - band->begin,
                    to.data() + (first - offset), read);
      column += strip.row_bytes;
    }
  }
}

void read_scattered(const Scatter& read, int fd, const std::string& path,
                    const SystemCalls& calls) {
  std::span<iovec> to = read.to;
  uint64_t offset = read.offset;
  while (!to.empty()) {
    const int64_t result = calls.preadv(fd, to, offset);
    if (result == -EINTR || result == -EAGAIN) continue;
    if (result < 0)
      fail_errno(static_cast<int>(-result), "{}: cannot be read at offset {}", path, offset);
    if (result == 0)
      fail(ErrorKind::runtime, "{}: changed while it was being read: it ends at offset {} now",
           path, offset);
    offset += static_cast<uint64_t>(result);
    for (auto left = static_cast<size_t>(result); left > 0;) {
      iovec& place = to.front();
      const size_t taken = std::min(left, place.iov_len);
      place = {static_cast<std::byte*>(place.iov_base) + taken, place.iov_len - taken};
      left -= taken;
      if (place.iov_len == 0) to = to.subspan(1);
    }
  }
}

}  // namespace sluice::io
