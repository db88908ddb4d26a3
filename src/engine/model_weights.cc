#include "src/engine/model_weights.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/load/spill_writer.h"

namespace sluice {
namespace {

void enforce_quant_error(const LoadReport& report, double bound) {
  for (const TensorReport& t : report.tensors) {
    if (t.quantized && t.relative_rms_error() > bound) {
      fail(ErrorKind::refused,
           "{}: quantization changes it by {:.4f} (relative RMS), above --max-quant-error {}; "
           "choose a finer scheme or raise the bound",
           t.name(), t.relative_rms_error(), bound);
    }
  }
}

}  // namespace

ModelWeights::ModelWeights(CausalLM& root, Backend& backend, ThreadPool& pool, Ledger& ledger,
                           DiskTimeline& timeline)
    : root_(root), backend_(backend), pool_(pool), ledger_(ledger), timeline_(timeline) {}

void ModelWeights::fill(std::shared_ptr<const Placed> placed, const io::CheckpointIndex& index,
                        const FillOptions& options, LoadProgress& progress,
                        const std::stop_token& stop) {
  check(!filled_, "a model is filled that is not empty");
  placed_ = std::move(placed);
  index_ = &index;
  options_ = options;
  stop_ = stop;
  try {
    fill_all(options, progress);
  } catch (const Error& e) {
    fault_ = e.what();
    give_back();
    throw;
  } catch (...) {
    give_back();
    throw;
  }
  filled_ = true;
  fault_.clear();
  if (runner_) runner_->use_new_weights();
}

void ModelWeights::fill_all(const FillOptions& options, LoadProgress& progress) {
  make_encoder();
  const bool needs_spill = placed_->memory.origin == Origin::spill;
  if ((needs_spill || placed_->memory.reads_disk()) && !options.spill.directories.empty()) {
    spilled_ = placed_;
    spill_ =
        std::make_unique<Spill>(*placed_->read, *index_, options.spill_key, options.spill, ledger_);
  }
  if (needs_spill && !spill_->ready()) write_needed_spill();
  Streamer streamer(*placed_->read, *index_, backend_.device(), *encoder_, ledger_, measured_,
                    load_options());
  report_ = {};
  residents_ = streamer.load_all(report_, progress, stop_);
  for (const TensorReport& t : report_.tensors) refuse_damaged(*index_, *t.tensor, t.stats);
  if (report_.fastest && report_.io.bytes_direct == report_.io.bytes_read)
    options_.read = *report_.fastest;
  // A measurement ends on each rank by itself, so that none may wait for another in it.
  sweep_ranks_ =
      options_.ranks != nullptr && options_.ranks->sweeps_are_alike() && !options.max_quant_error
          ? &options_.ranks->group()
          : nullptr;
  options_.ranks = nullptr;  // only a load has them
  open_streams();
  if (stream_ && options.max_quant_error) measure_streamed();
  if (options.max_quant_error) enforce_quant_error(report_, *options.max_quant_error);
}

// Writes it in memory that the load or the run need later, as far as matrices have use for it: in
// whole pages of it.
void ModelWeights::write_needed_spill() {
  constexpr uint64_t kPage = 4096;
  const ReadPlan& plan = *placed_->read;
  uint64_t most = 0;
  for (const ParamPlan& p : plan.params) most = std::max(most, p.storage);
  const uint64_t useful = 4 * (most + MiB);
  Buffer memory(ledger_, Use::staging, "spill cache",
                std::min(round_down(placed_->memory.room_to_write(), kPage),
                         std::max(placed_->memory.spill_writing, useful)),
                Buffer::Touch::lazily);
  write_spill({plan, *index_, load_options(), memory.bytes(), stop_});
}

void ModelWeights::make_encoder() {
  const uint64_t slot_bytes = placed_->read->slot_bytes;
  WorkspaceBytes bytes = backend_.encoder_bytes(slot_bytes);
  encoder_memory_ =
      backend_.device().memory(ledger_, Use::staging, "encoder", bytes.device, Buffer::Touch::now);
  encoder_host_ = Buffer(ledger_, Use::staging, "encoder", bytes.host, Buffer::Touch::now);
  encoder_pinned_ = backend_.device().pin(encoder_host_.bytes());
  encoder_ = backend_.encoder(slot_bytes, {encoder_memory_.bytes(), encoder_host_.bytes()});
}

LoadOptions ModelWeights::load_options() const {
  return {.reader = options_.reader,
          .threads = pool_.size(),
          .spill = spill_.get(),
          .timeline = &timeline_,
          .read = options_.read,
          .try_shapes = options_.try_shapes,
          .ranks = options_.ranks,
          .sweep_ranks = sweep_ranks_,
          .calls = options_.calls};
}

void ModelWeights::open_streams() {
  if (placed_->memory.has(Tier::host))
    host_tiles_ = std::make_unique<HostTiles>(*placed_->read, backend_, ledger_);
  if (placed_->memory.reads_disk()) {
    slice_ = ask_scheduler_slice(options_.scheduler_slice);
    stream_ = std::make_unique<TileStream>(*placed_->read, *index_, backend_.device(), *encoder_,
                                           ledger_, measured_, load_options(), stop_);
  }
}

// One sweep without a forward pass, for what encoding does to the tensors that do not stay.
void ModelWeights::measure_streamed() {
  const ReadPlan& plan = *placed_->read;
  for (uint32_t t = 0; t < plan.sweep_tiles(); ++t) {
    if (stop_.stop_requested())
      fail(ErrorKind::runtime, "interrupted while measuring quantization");
    Tile tile = plan.tile(t);
    const TensorPlan& tensor = plan.tensors[tile.move.tensor];
    stream_->tile(*plan.params[tensor.param].param, plan.tile_row(tile), host_stream());
  }
  stream_->add_stats(report_);
}

std::optional<StreamReport> ModelWeights::stream_report() const {
  if (!stream_ && !host_tiles_) return std::nullopt;
  StreamReport report = past_streams_;
  if (stream_) report += stream_->report();
  if (host_tiles_) report.host_bytes += host_tiles_->bytes_copied();
  return report;
}

void ModelWeights::shrink(std::shared_ptr<const Placed> placed) {
  check(filled_, "a model is shrunk that is empty");
  if (stream_) past_streams_ += stream_->report();
  stream_.reset();
  for (size_t i = 0; i < placed->memory.placement.size(); ++i) {
    const Tier tier = placed->memory.placement[i];
    if (tier != Tier::disk && tier != Tier::cached) continue;
    for (Resident& r : residents_) r.release(*placed->read->params[i].param);
  }
  // The spill cache knows the old plan, whose tensors are the same; but not in the same tiles.
  if (spill_ && !spill_->ready()) spill_->stop_using("the budget was lowered", false);
  if (spill_) spill_->stop_growing();
  placed_ = std::move(placed);
  malloc_trim(0);
  open_streams();
}

Runner& ModelWeights::make_runner(const BlockCosts& costs, const RankGroups& groups) {
  if (!filled_) fail_empty();
  ledger_.begin_phase("run");
  runner_ = std::make_unique<Runner>(root_, ledger_, placed_->memory, placed_->shape, costs, groups,
                                     options_.touch);
  return *runner_;
}

Runner* ModelWeights::runner() {
  if (!filled_) fail_empty();
  return runner_.get();
}

// Returns the reason for the missing weights in one sentence.
std::string ModelWeights::emptiness() const {
  return fmt::format("the model has no weights{}; load some before it runs",
                     fault_.empty() ? "" : fmt::format(", as loading them failed ({})", fault_));
}

void ModelWeights::fail_empty() const { fail(ErrorKind::runtime, "{}", emptiness()); }

void ModelWeights::empty() {
  fault_.clear();
  report_ = {};  // names tensors of the index, which may go now
  give_back();
}

void ModelWeights::give_back() {
  filled_ = false;
  if (runner_) runner_->stop_steps(emptiness());
  stream_.reset();
  host_tiles_.reset();
  spill_.reset();
  spilled_.reset();
  residents_.clear();
  encoder_.reset();
  encoder_pinned_.reset();
  encoder_memory_ = {};
  encoder_host_ = {};
}

void ModelWeights::release() {
  runner_.reset();
  give_back();
}

}  // namespace sluice
