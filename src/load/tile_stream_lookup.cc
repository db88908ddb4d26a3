// Tables that are only looked up: read row group by row group, by the thread that computes.
#include <algorithm>

#include "src/base/units.h"
#include "src/load/fallback.h"
#include "src/load/tile_stream.h"

namespace sluice {

void TileStream::open_lookup_reader() {
  if (lookup_reader_) lookup_io_ += lookup_reader_->stats();
  lookup_reader_.reset();
  lookup_spill_ = offer_spill(options_.spill, lookup_sources_);
  lookup_reader_ = io::open_reader(lookup_sources_.files(), lookup_.bytes().first(lookup_tile_),
                                   {.kind = options_.reader, .slot_bytes = lookup_slot_bytes_});
}

// Row `id` of a table from the row group that was read; false where the spill's copy is damaged.
bool TileStream::decode_looked_up(uint32_t t, const io::ReadResult& read, int32_t id, float* out) {
  const TensorPlan& tensor = plan_.tensors[t];
  if (lookup_spill_ && options_.spill->layout().find(t) != nullptr) {
    int64_t first = id / kPanelRows * kPanelRows;
    std::optional<Weight> panel = options_.spill->weight(t, first, read.bytes);
    if (panel) decode_row(*panel, id - first, out);
    return panel.has_value();
  }
  const RowsInFile& rows = tensor.rows;
  int64_t first = id / rows.group * rows.group;
  EncodeArgs args;
  args.stored = tensor.stored->dtype;
  args.source = read.bytes.data() + rows.skip;
  args.source_stride = static_cast<int64_t>(rows.row_bytes);
  args.rows = std::min(rows.group, rows.rows - first);
  args.group = tensor.group;
  args.to = tile_view(plan_.params[tensor.param], rows.group, lookup_.data() + lookup_tile_);
  if (tensor.group == ScaleGroup::tensor) args.tensor_amax = amax_[t];
  refuse_damaged(index_, tensor.stored->name, lookup_encoder_->encode(args));
  decode_row(args.to, id - first, out);
  return true;
}

void TileStream::embed(const Param& table, std::span<const int32_t> ids, Tensor out,
                       DeviceStream& stream) {
  while (true) {
    try {
      if (!lookup_reader_ || lookup_spill_ != spill_ready()) open_lookup_reader();
      if (embed_rows(table, ids, out, stream)) {
        if (plan_.sweep.empty()) index_.refuse_changes();  // else its last tile follows
        return;
      }
      options_.spill->stop_using(SpillDamaged(table.path).what(), true);
    } catch (const io::ReadError& e) {
      if (!fall_back(e, lookup_sources_, options_.spill)) throw;
      lookup_reader_.reset();
    }
  }
}

// False where the spill's copy is damaged.
bool TileStream::embed_rows(const Param& table, std::span<const int32_t> ids, Tensor out,
                            DeviceStream& stream) {
  auto found = std::ranges::find_if(
      plan_.tensors, [&](const TensorPlan& t) { return plan_.params[t.param].param == &table; });
  auto tensor = static_cast<uint32_t>(found - plan_.tensors.begin());
  const RowsInFile& rows = found->rows;
  std::vector<uint32_t> chosen(ids.size());  // files
  auto request = [&](int32_t id, uint64_t tag) -> io::ReadRequest {
    if (lookup_spill_ && options_.spill->layout().find(tensor) != nullptr) {
      Spill::Extent e = options_.spill->extent(tensor, id / kPanelRows * kPanelRows, kPanelRows);
      chosen[tag] = lookup_sources_.choose(lookup_sources_.extra_file(), e.length);
      return {chosen[tag], e.offset, e.length, tag};
    }
    int64_t first = id / rows.group * rows.group;
    auto count = static_cast<uint64_t>(std::min(rows.group, rows.rows - first));
    uint64_t length = count * rows.row_bytes;
    uint32_t file = lookup_sources_.choose(found->stored->file, length);
    chosen[tag] = file;
    return {file, rows.begin + static_cast<uint64_t>(first) * rows.row_bytes, length, tag};
  };
  for (size_t submitted = 0, done = 0; done < ids.size(); ++done) {
    for (; submitted < ids.size() && lookup_reader_->free_slots() > 0; ++submitted)
      lookup_reader_->submit(request(ids[submitted], submitted));
    io::ReadResult read = lookup_reader_->wait();
    lookup_sources_.arrived(chosen[read.tag], read.bytes.size());
    std::byte* row = lookup_.data() + lookup_row_;
    bool intact = decode_looked_up(tensor, read, ids[read.tag], reinterpret_cast<float*>(row));
    lookup_reader_->release(read);
    if (!intact) return false;
    // Memory that is not pinned: it has been read when this returns.
    stream.copy(out.rows_from(static_cast<int64_t>(read.tag), 1).data, row,
                static_cast<uint64_t>(out.cols) * sizeof(float));
  }
  return true;
}

}  // namespace sluice
