#include "src/load/spill_writer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/load/load_pass.h"
#include "src/plan/compile.h"
#include "src/plan/spill_window.h"

namespace sluice {
namespace {

class SpillWriter {
 public:
  explicit SpillWriter(const SpillWriting& w)
      : w_(w), spill_(*w.options.spill), options_(w.options) {
    options_.spill = nullptr;
    options_.try_shapes = false;
  }

  // Writes all tensors, or as many as the spill takes.
  void write() {
    const std::vector<SpilledTensor> tensors = spill_.layout().tensors;
    for (const SpilledTensor& s : tensors) write(s.tensor);
  }

 private:
  void write(uint32_t tensor);
  void write_rows(uint32_t tensor, int64_t first, int64_t rows, const SpillWindow& window);
  float measured(uint32_t tensor, int64_t rows, const SpillWindow& window);
  EncodeStats load(const ReadPlan& part, std::span<const Weight> weights, Measured& measured,
                   const SpillWindow& window, std::span<std::byte> row_amax);

  const SpillWriting& w_;
  Spill& spill_;
  LoadOptions options_;
  std::unique_ptr<Encoder> encoder_ = make_cpu_encoder(Isa::automatic);
  std::optional<float> amax_;  // of a tensor that has one scale
};

void SpillWriter::write(uint32_t tensor) {
  const TensorPlan& t = w_.plan.tensors[tensor];
  const ParamPlan& param = w_.plan.params[t.param];
  const int64_t all = param.param->pieces[t.piece].cut.rows;
  const SpillWindow window = spill_window(w_.plan, tensor, w_.memory.size());
  if (window.rows == 0)
    fail(ErrorKind::no_fit, "{}: writing it to the spill cache takes {} of memory, and there is {}",
         t.stored->name, format_size(window.least_memory), format_size(w_.memory.size()));
  amax_.reset();
  if (has_tensor_scale(t.group)) amax_ = measured(tensor, all, window);
  for (int64_t first = 0; first < all && spill_.wants(tensor); first += window.rows)
    write_rows(tensor, first, std::min(window.rows, all - first), window);
}

// The largest value of all rows, which are measured without memory for them.
float SpillWriter::measured(uint32_t tensor, int64_t rows, const SpillWindow& window) {
  Param part;
  ReadPlan plan = lay_out_part(w_.plan, tensor, 0, rows, part);
  plan = compile(std::move(plan), window.staging, {Tier::disk});
  const Weight nowhere{plan.params[0].format, part.rows, part.cols};
  Measured measured;
  measured.amax.resize(plan.tensors.size());
  load(plan, {&nowhere, 1}, measured, window,
       w_.memory.subspan(window.ring_bytes).first(plan.row_amax.bytes()));
  return measured.amax.front().value_or(0);
}

void SpillWriter::write_rows(uint32_t tensor, int64_t first, int64_t rows,
                             const SpillWindow& window) {
  Param part;
  ReadPlan plan = lay_out_part(w_.plan, tensor, first, rows, part);
  plan.tensors.front().amax_known = amax_.has_value();
  plan = compile(std::move(plan), window.staging);
  Measured measured;
  measured.amax.resize(plan.tensors.size());
  measured.amax.front() = amax_;
  const std::span<std::byte> storage =
      w_.memory.subspan(window.ring_bytes).first(plan.params[0].storage);
  std::memset(storage.data(), 0, storage.size());  // rows behind the last one
  const Weight weight = plan.weight(plan.params[0], storage.data());
  const EncodeStats stats =
      load(plan, {&weight, 1}, measured, window,
           w_.memory.subspan(window.ring_bytes + storage.size()).first(plan.row_amax.bytes()));
  refuse_damaged(w_.index, *w_.plan.tensors[tensor].stored, stats);
  spill_.add({tensor, first, rows, 0},
             {.encoded = weight, .stats = stats, .amax = amax_.value_or(0)}, {});
}

// Loads a plan of one matrix, again where a source fails.
EncodeStats SpillWriter::load(const ReadPlan& part, std::span<const Weight> weights,
                              Measured& measured, const SpillWindow& window,
                              std::span<std::byte> row_amax) {
  Fetcher fetcher({.plan = part,
                   .index = w_.index,
                   .encoder = *encoder_,
                   .weights = weights,
                   .measured = measured,
                   .options = options_,
                   .fills_spill = false,
                   .row_amax = row_amax});
  EncodeStats sum;
  const uint64_t slot = part.slot_bytes;
  const std::span<std::byte> ring = w_.memory.first(round_down(window.ring_bytes, slot));
  for (bool loaded = false; !loaded;) {
    ReadPace pace(options_.read, false, slot, ring.size() / slot);
    LoadProgress progress;
    fetcher.open({ring, slot, pace.least_request_bytes()});
    loaded =
        LoadPass(load_order(part, nullptr, false), fetcher, pace, progress, nullptr).run(w_.stop);
  }
  for (const EncodeStats& stats : fetcher.queue().take_stats()) sum.add(stats);
  return sum;
}

}  // namespace

void write_spill(const SpillWriting& writing) {
  Spill* spill = writing.options.spill;
  if (!needs_spill(writing.options)) return;
  while (!spill->ready()) {
    if (spill->state() == Spill::State::off) spill->begin_again();
    if (spill->state() == Spill::State::filling)
      log::info("writing {} of weights to the spill cache", format_size(spill->layout().codes_end));
    if (!spill->ready()) SpillWriter(writing).write();
  }
}

}  // namespace sluice
