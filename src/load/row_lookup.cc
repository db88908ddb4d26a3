#include "src/load/row_lookup.h"

#include <algorithm>
#include <vector>

#include "src/load/load_pass.h"
#include "src/plan/read_plan.h"

namespace sluice {
namespace {

// The thread that looks rows up encodes them, too.
LoadOptions without_threads(LoadOptions options) {
  options.threads = 0;
  return options;
}

}  // namespace

RowLookup::RowLookup(const ReadPlan& plan, const io::CheckpointIndex& index, Ledger& ledger,
                     Measured& measured, const LoadOptions& options)
    : plan_(plan),
      index_(index),
      shape_(lookup_shape(plan)),
      fetcher_({.plan = plan,
                .index = index,
                .encoder = *encoder_,
                .weights = {},
                .measured = measured,
                .options = without_threads(options),
                .fills_spill = false}) {
  if (shape_.slot_bytes == 0) return;
  memory_ =
      Buffer(ledger, Use::staging, "embedding rows", lookup_bytes(shape_), Buffer::Touch::now);
}

void RowLookup::embed(const Param& table, std::span<const int32_t> ids, Tensor out,
                      DeviceStream& stream) {
  auto found = std::ranges::find_if(
      plan_.tensors, [&](const TensorPlan& t) { return plan_.params[t.param].param == &table; });
  const auto tensor = static_cast<uint32_t>(found - plan_.tensors.begin());
  do {
    if (fetcher_.is_outdated()) {
      fetcher_.open({.memory = memory_.bytes().first(shape_.slot_bytes * kLookupSlots),
                     .slot_bytes = shape_.slot_bytes,
                     .request_bytes = io::ReaderOptions().chunk_bytes});
    }
  } while (!embed_rows(table, tensor, ids, out, stream));
}

namespace {

// The row of one of a table's tensors that a row of the table is.
struct TensorRow {
  uint32_t tensor = 0;
  int64_t row = 0;
};
TensorRow tensor_row(const Param& table, uint32_t first, int64_t id) {
  const auto behind = std::ranges::upper_bound(table.pieces, id, {}, &Piece::offset);
  const auto piece = behind - table.pieces.begin() - 1;
  return {first + static_cast<uint32_t>(piece),
          id - table.pieces[static_cast<size_t>(piece)].offset};
}

}  // namespace

bool RowLookup::embed_rows(const Param& table, uint32_t first, std::span<const int32_t> ids,
                           Tensor out, DeviceStream& stream) {
  std::byte* row = memory_.data() + shape_.slot_bytes * kLookupSlots + shape_.tile_bytes;
  auto fetch_of = [&](size_t i) {
    const TensorRow at = tensor_row(table, first, ids[i]);
    Fetch fetch = row_fetch(plan_, fetcher_.packed(), at.tensor, at.row);
    fetch.tag = i;
    return fetch;
  };
  for (size_t submitted = 0, done = 0; done < ids.size(); ++done) {
    for (; submitted < ids.size() && fetcher_.free_slots() > 0; ++submitted)
      fetcher_.submit(fetch_of(submitted));
    const auto [kind, read] = fetcher_.wait();
    if (kind == Fetcher::Arrival::Kind::restarted) return false;
    const int64_t own = tensor_row(table, first, ids[read.tag]).row;
    if (!decode(fetch_of(read.tag), read, own, reinterpret_cast<float*>(row))) return false;
    fetcher_.release(read);
    // Memory that is not pinned: it has been read when this returns.
    stream.copy(out.rows_from(static_cast<int64_t>(read.tag), 1).data, row,
                static_cast<uint64_t>(out.cols) * sizeof(float));
  }
  return true;
}

// Decodes row `own` of a tensor, of its rows that have arrived.
bool RowLookup::decode(const Fetch& fetch, const io::ReadResult& read, int64_t own, float* out) {
  const int64_t row = own - fetch.move.first_row;
  if (fetch.form == Fetch::Form::packed) {
    const std::optional<Weight> codes = fetcher_.in_place(fetch.move, read);
    if (codes) decode_row(*codes, row, out);
    return codes.has_value();
  }
  const TensorPlan& tensor = plan_.tensors[fetch.move.tensor];
  Fetch encoded = fetch;
  encoded.tile = tile_view(plan_.params[tensor.param], fetch.move.rows,
                           memory_.data() + shape_.slot_bytes * kLookupSlots);
  fetcher_.encode(encoded, read);
  const auto finished = fetcher_.take_encoded(true);
  if (!finished) return false;
  for (const ArrivedFetch& f : *finished) refuse_damaged(index_, *tensor.stored, f.stats);
  decode_row(encoded.tile, row, out);
  return true;
}

}  // namespace sluice
