#include "io/lanes_output.h"

#include <algorithm>
#include <cstring>
#include <stop_token>
#include <string_view>
#include <utility>

#include "io/input_file.h"
#include "io/reader.h"
#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

LanesOutput::LanesOutput(const std::filesystem::path& path, std::vector<OutputLane> lanes,
                         std::span<std::byte> memory)
    : file_(NewFile::create_output(path, lanes.back().end)) {
  const uint64_t block = round_down(memory.size() / lanes.size(), kDirectAlignment);
  check(block > 0, "memory for each lane");
  for (size_t i = 0; i < lanes.size(); ++i) {
    check(i == 0 || lanes[i].begin == lanes[i - 1].end, "lanes follow one another");
    lanes_.push_back({.range = lanes[i],
                      .block = memory.subspan(i * block, block),
                      .written = lanes[i].begin,
                      .at = lanes[i].begin});
  }
}

void LanesOutput::write(size_t lane, std::span<const std::byte> bytes) {
  Lane& to = lanes_[lane];
  check(bytes.size() <= to.range.end - to.at, "a lane has room for its bytes");
  to.checksum.add(text_of(bytes));
  while (!bytes.empty()) {
    const uint64_t place = to.at % to.block.size();
    const size_t part = std::min<uint64_t>(bytes.size(), to.block.size() - place);
    std::memcpy(to.block.data() + place, bytes.data(), part);
    to.at += part;
    bytes = bytes.subspan(part);
    if (to.at % to.block.size() == 0) flush(to);
  }
}

void LanesOutput::flush(Lane& lane) {
  if (lane.at == lane.written) return;
  file_.write(lane.written,
              lane.block.subspan(lane.written % lane.block.size(), lane.at - lane.written));
  lane.written = lane.at;
}

std::string LanesOutput::finish() {
  TextChecksum all;
  for (Lane& lane : lanes_) {
    check(lane.at == lane.range.end, "a lane is full");
    flush(lane);
    all.add(lane.checksum.digits());
  }
  file_.publish();
  return all.digits();
}

std::string lanes_checksum(const std::filesystem::path& path, std::span<const OutputLane> lanes,
                           std::span<std::byte> block, const std::stop_token& stop) {
  const InputFile file(path, path.parent_path(), stop);
  if (file.size() != lanes.back().end)
    fail(ErrorKind::runtime, "{}: has {} bytes, and {} were written", printable(path.string()),
         file.size(), lanes.back().end);
  TextChecksum all;
  for (const OutputLane& lane : lanes) {
    TextChecksum checksum;
    for (uint64_t at = lane.begin; at < lane.end; at += block.size()) {
      const auto part = block.first(std::min<uint64_t>(block.size(), lane.end - at));
      file.read(at, {reinterpret_cast<char*>(part.data()), part.size()});
      checksum.add(text_of(part));
    }
    all.add(checksum.digits());
  }
  return all.digits();
}

}  // namespace sluice::io
