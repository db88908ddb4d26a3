#include "src/load/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "src/base/checksum.h"
#include "src/plan/rows_in_file.h"

namespace sluice {

LoadingRanks::~LoadingRanks() {
  if (!is_over_) static_cast<void>(tell(Word::failed));
}

LoadingRanks::Word LoadingRanks::tell(Word own, uint64_t key) {
  struct Said {
    Word word = Word::ready;
    uint64_t key = 0;
  } said{own, key};
  const std::span<const std::byte> all = group_.meet(std::as_bytes(std::span(&said, 1)));
  Word worst = own;
  are_alike_ = true;
  for (size_t at = 0; at < all.size(); at += sizeof(said)) {
    std::memcpy(&said, all.data() + at, sizeof(said));
    worst = std::max(worst, said.word);
    are_alike_ = are_alike_ && said.key == key;
  }
  if (worst == Word::failed) {
    is_over_ = true;
    if (own != Word::failed) throw OtherRankFailed();
  }
  return worst;
}

bool LoadingRanks::begin(uint64_t key) {
  check(tell(Word::ready, key) == Word::ready, "ranks begin an attempt together");
  return are_alike_;
}

bool LoadingRanks::meet() {
  is_again_ = tell(Word::ready) == Word::again;
  return !is_again_;
}

bool LoadingRanks::end(bool complete) {
  if (std::exchange(is_again_, false)) return false;
  is_over_ = tell(complete ? Word::ready : Word::again) == Word::ready;
  return is_over_;
}

uint64_t exchange_key(const ReadPlan& plan, const SpillLayout* packed) {
  std::vector<uint64_t> all;
  for (const Span& span : plan.spans) {
    if (span.reader < 0) continue;
    if (packed != nullptr && packed->find(plan.moves[span.first_move].tensor) != nullptr) continue;
    all.insert(all.end(), {span.file, span.offset, span.length, span.encode});
  }
  return checksum64(std::as_bytes(std::span(all)));
}

std::optional<io::ReadResult> RowExchange::run(const Fetch& fetch, const io::ReadResult& read) {
  if (!ranks_.meet()) return std::nullopt;
  const std::span<const Move> bands = moves_of(plan_, fetch);
  const TensorPlan& tensor = plan_.tensors[bands.front().tensor];
  const Param& param = *plan_.params[tensor.param].param;
  const Rank rank = plan_.rank;
  std::vector<std::span<const std::byte>> to;
  std::vector<std::span<std::byte>> from;
  std::byte* at = memory_.data();
  const auto rows = static_cast<uint64_t>(bands[static_cast<size_t>(rank.rank)].rows);
  for (int r = 0; r < rank.size; ++r) {
    const RowShare share = *row_share(param, tensor, {r, rank.size});
    to.emplace_back(at, rows * share.bytes);
    const std::byte* row = read.bytes.data() + share.begin;
    for (uint64_t i = 0; i < rows; ++i, row += tensor.rows.row_bytes, at += share.bytes)
      std::memcpy(at, row, share.bytes);
  }
  const uint64_t own = row_share(param, tensor, rank)->bytes;
  const uint64_t slot_bytes = plan_.slot_bytes;
  std::byte* const slot = slots_.data() + read.slot * slot_bytes;
  uint64_t received = 0;
  for (const Move& band : bands) {
    from.emplace_back(slot + received, static_cast<uint64_t>(band.rows) * own);
    received += from.back().size();
  }
  check(at <= memory_.data() + memory_.size() && received <= slot_bytes, "an exchange has room");
  ranks_.group().all_to_all(to, from);
  io::ReadResult result = read;
  result.bytes = {slot, received};
  return result;
}

}  // namespace sluice
