#include "src/load/exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "src/base/checksum.h"
#include "src/plan/rows_in_file.h"

namespace sluice {

LoadingRanks::~LoadingRanks() {
  if (is_over_ || group_.is_broken()) return;
  try {
    static_cast<void>(tell(Word::failed));
  } catch (const std::exception&) {  // the fault that ends the load is told
  }
}

LoadingRanks::Heard LoadingRanks::tell(Word own, ExchangeKeys keys) {
  struct Said {
    Word word = Word::ready;
    ExchangeKeys keys;
  } said{own, keys};
  is_over_ = true;  // where the ranks do not meet, there is nobody to tell anything
  const std::span<const std::byte> all = group_.meet(std::as_bytes(std::span(&said, 1)));
  is_over_ = false;
  Heard heard{.worst = own};
  for (size_t at = 0; at < all.size(); at += sizeof(said)) {
    std::memcpy(&said, all.data() + at, sizeof(said));
    heard.worst = std::max(heard.worst, said.word);
    heard.loads_are_alike = heard.loads_are_alike && said.keys.load == keys.load;
    heard.sweeps_are_alike = heard.sweeps_are_alike && said.keys.sweep == keys.sweep;
  }
  if (heard.worst == Word::failed) {
    is_over_ = true;
    if (own != Word::failed) throw OtherRankFailed();
  }
  return heard;
}

bool LoadingRanks::begin(ExchangeKeys keys) {
  const Heard heard = tell(Word::ready, keys);
  check(heard.worst == Word::ready, "ranks begin an attempt together");
  sweeps_are_alike_ = heard.sweeps_are_alike;
  return heard.loads_are_alike;
}

bool LoadingRanks::meet() {
  is_again_ = tell(Word::ready).worst == Word::again;
  return !is_again_;
}

bool LoadingRanks::end(bool complete) {
  if (std::exchange(is_again_, false)) return false;
  is_over_ = tell(complete ? Word::ready : Word::again).worst == Word::ready;
  return is_over_;
}

ExchangeKeys exchange_keys(const ReadPlan& plan, const SpillLayout* packed) {
  std::vector<uint64_t> load, sweep;
  for (const Span& span : plan.spans) {
    if (span.reader < 0) continue;
    if (packed != nullptr && packed->find(plan.moves[span.first_move].tensor) != nullptr) continue;
    load.insert(load.end(), {span.file, span.offset, span.length, span.encode});
  }
  for (const TiledTensor& tiled : plan.sweep) {
    const io::StoredTensor& stored = *plan.tensors[tiled.tensor].stored;
    if (tiled.exchanged)
      sweep.insert(sweep.end(), {stored.file, stored.offset, static_cast<uint64_t>(tiled.tile_rows),
                                 static_cast<uint64_t>(plan.bands.begin(tiled.tile_rows, 1))});
  }
  return {checksum64(std::as_bytes(std::span(load))), checksum64(std::as_bytes(std::span(sweep)))};
}

io::ReadResult exchange_rows(const ReadPlan& plan, const Group& group, const Fetch& fetch,
                             const io::ReadResult& read, std::span<std::byte> sent,
                             std::span<std::byte> received) {
  const Rank rank = plan.rank;
  std::vector<Move> bands;
  for (int r = 0; r < rank.size; ++r)
    bands.push_back(fetch.moves > 0 ? moves_of(plan, fetch)[static_cast<size_t>(r)]
                                    : band_of(plan, fetch.move, r));
  const TensorPlan& tensor = plan.tensors[bands.front().tensor];
  const Param& param = *plan.params[tensor.param].param;
  std::vector<std::span<const std::byte>> to;
  std::vector<std::span<std::byte>> from;
  uint64_t end = 0;
  const auto rows = static_cast<uint64_t>(bands[static_cast<size_t>(rank.rank)].rows);
  for (int r = 0; r < rank.size; ++r) {
    const RowShare share = *row_share(param, tensor, {r, rank.size});
    std::byte* at = sent.data() + end;
    end += rows * share.bytes;
    check(end <= sent.size(), "an exchange has room for what it sends");
    to.emplace_back(at, rows * share.bytes);
    const std::byte* row = read.bytes.data() + share.begin;
    for (uint64_t i = 0; i < rows; ++i, row += tensor.rows.row_bytes, at += share.bytes)
      std::memcpy(at, row, share.bytes);
  }
  const uint64_t own = row_share(param, tensor, rank)->bytes;
  uint64_t all = 0;
  for (const Move& band : bands) {
    const uint64_t bytes = static_cast<uint64_t>(band.rows) * own;
    check(all + bytes <= received.size(), "an exchange has room for what it receives");
    from.push_back(received.subspan(all, bytes));
    all += bytes;
  }
  group.all_to_all(to, from);
  io::ReadResult result = read;
  result.bytes = received.first(all);
  return result;
}

std::optional<io::ReadResult> RowExchange::run(const Fetch& fetch, const io::ReadResult& read) {
  if (!ranks_.meet()) return std::nullopt;
  const std::span slot = slots_.subspan(read.slot * plan_.slot_bytes, plan_.slot_bytes);
  return exchange_rows(plan_, ranks_.group(), fetch, read, memory_, slot);
}

}  // namespace sluice
