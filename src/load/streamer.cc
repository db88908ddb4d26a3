#include "src/load/streamer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "src/base/error.h"
#include "src/base/thread.h"
#include "src/base/units.h"
#include "src/device/range.h"
#include "src/load/exchange.h"
#include "src/load/read_pace.h"
#include "src/load/spill_writer.h"

namespace sluice {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Has the system bring the pages of a load's storage, in the order in which it is filled, while the
// first bytes are still on their way: encoding need not wait for them then. A hypervisor that takes
// free memory back has not yet taken what was free for a moment only.
void touch_ahead(std::span<const Fetch> order, std::span<const Resident> units,
                 const std::stop_token& stop) {
  std::vector<bool> touched(units.size());
  for (const Fetch& f : order) {
    if (touched[f.unit]) continue;
    touched[f.unit] = true;
    units[f.unit].touch(stop);
  }
}

std::vector<TensorReport> tensor_reports(const ReadPlan& plan,
                                         const std::vector<EncodeStats>& stats,
                                         const Spill* spill) {
  std::vector<TensorReport> reports;
  reports.reserve(plan.tensors.size());
  for (uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& t = plan.tensors[i];
    DType kept = plan.params[t.param].format.dtype;
    reports.push_back({t.stored, kept, t.group != ScaleGroup::none,
                       spill != nullptr && spill->has(i) ? spill->stats(i) : EncodeStats{}});
  }
  // A tensor that is read twice has moves that only measured: their stats are empty.
  for (size_t i = 0; i < stats.size(); ++i) reports[plan.moves[i].tensor].stats.add(stats[i]);
  return reports;
}

uint64_t needed_bytes(const ReadPlan& plan, const Spill* spill) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& t = plan.tensors[i];
    if (plan.params[t.param].streamed()) continue;
    bool spilled = spill != nullptr && spill->has(i);
    sum += spilled ? spill->layout().find(i)->bytes() : plan.needed_bytes(t);
  }
  return sum;
}

void report_load(const ReadPlan& plan, Fetcher& fetcher, const Spill* spilled, LoadReport& report) {
  report.tensors = tensor_reports(plan, fetcher.queue().take_stats(), spilled);
  report.io = fetcher.stats();
  report.reader = fetcher.reader().description();
  report.needed_bytes = needed_bytes(plan, spilled);
}

// Returns measurements of earlier loads for the tensors that the spill cache has.
Measured measured_before(const ReadPlan& plan, const Spill* spilled) {
  Measured measured;
  measured.amax.resize(plan.tensors.size());
  for (uint32_t t = 0; t < plan.tensors.size() && spilled != nullptr; ++t) {
    if (spilled->has(t) && has_tensor_scale(plan.tensors[t].group))
      measured.amax[t] = spilled->amax(t);
  }
  return measured;
}

}  // namespace

Resident::Resident(const ReadPlan& plan, uint32_t unit, UnitStorage storage)
    : storage_(std::move(storage)) {
  auto is_here = [&](const ParamPlan& p) { return p.unit == unit && !p.streamed(); };
  parts_.reserve(static_cast<size_t>(std::ranges::count_if(plan.params, is_here)));
  for (const ParamPlan& p : plan.params) {
    if (!is_here(p)) continue;
    parts_.push_back(
        {p.param, plan.weight(p, storage_.of(p.tier).data()), p.tier, p.offset, p.kept_storage()});
  }
}

Resident::~Resident() { empty(); }

void Resident::fill(Device& device) {
  if (!storage_.pinned) storage_.pinned = device.pin(storage_.host.bytes());
  for (const Part& part : parts_) part.param->value = part.weight;
}

void Resident::empty() {
  for (const Part& part : parts_) part.param->value = {};
}

const Weight* Resident::weight(const Param& param) const {
  auto part = std::ranges::find(parts_, &param, &Part::param);
  return part == parts_.end() ? nullptr : &part->weight;
}

void Resident::touch(const std::stop_token& stop) const {
  constexpr uint64_t kPart = 32 * MiB;
  for (const Buffer* buffer : {&storage_.device, &storage_.host}) {
    const uint64_t bytes = buffer->bytes().size();
    for (uint64_t at = 0; at < bytes && !stop.stop_requested(); at += kPart)
      buffer->touch(at, std::min(kPart, bytes - at));
  }
}

void Resident::release(const Param& param) {
  auto part = std::ranges::find(parts_, &param, &Part::param);
  if (part == parts_.end()) return;
  part->param->value = {};
  Buffer& storage = part->tier == Tier::host ? storage_.host : storage_.device;
  storage.give_back(part->offset, part->bytes);
  parts_.erase(part);
}

double TensorReport::relative_rms_error() const {
  return stats.value_squares > 0 ? std::sqrt(stats.error_squares / stats.value_squares) : 0;
}

Streamer::Streamer(const ReadPlan& plan, const io::CheckpointIndex& index, Device& device,
                   const Encoder& encoder, Ledger& ledger, Measured& measured, LoadOptions options)
    : plan_(plan),
      index_(index),
      device_(device),
      encoder_(encoder),
      ledger_(ledger),
      measured_(measured),
      options_(options) {}

std::vector<Resident> Streamer::load_all(LoadReport& report, LoadProgress& progress,
                                         std::stop_token stop) {
  std::vector<Resident> units;
  units.reserve(plan_.units.size());
  for (uint32_t u = 0; u < plan_.units.size(); ++u) {
    const UnitPlan& unit = plan_.units[u];
    units.emplace_back(plan_, u,
                       UnitStorage{device_.memory(ledger_, Use::weights, unit.name,
                                                  unit.storage_bytes, Buffer::Touch::lazily),
                                   Buffer(ledger_, Use::weights, unit.name, unit.host_bytes,
                                          Buffer::Touch::lazily),
                                   nullptr});
  }
  load(units, report, progress, stop);
  return units;
}

void Streamer::refill(std::span<Resident> units, LoadReport& report, LoadProgress& progress,
                      std::stop_token stop) {
  for (Resident& unit : units) unit.empty();
  load(units, report, progress, stop);
}

// Returns each parameter's place in the units' storage.
std::vector<Weight> Streamer::weights(std::span<const Resident> units) const {
  check(units.size() == plan_.units.size(), "a load fills all units");
  std::vector<Weight> weights(plan_.params.size());
  for (size_t p = 0; p < weights.size(); ++p) {
    const ParamPlan& param = plan_.params[p];
    if (param.streamed()) {  // it is only measured
      weights[p] = {param.format, param.param->rows, param.param->cols, nullptr, nullptr};
      continue;
    }
    const Weight* there = units[param.unit].weight(*param.param);
    if (there == nullptr || there->format != param.kept_format()) {
      fail(ErrorKind::refused,
           "{}: there is no memory for it in this format: it can be loaded anew, but not in place",
           param.param->path);
    }
    weights[p] = *there;
  }
  return weights;
}

// Loads all units; starts again from another source if one fails.
void Streamer::load(std::span<Resident> units, LoadReport& report, LoadProgress& progress,
                    const std::stop_token& stop) {
  Range range("load");
  auto start = std::chrono::steady_clock::now();
  const std::vector<Weight> weights = this->weights(units);
  Buffer ring(ledger_, Use::staging, "staging ring", plan_.ring_bytes, Buffer::Touch::now);
  std::unique_ptr<Pinned> pinned = device_.pin(ring.bytes());
  const Lease lists =
      ledger_.lease(Place::host, Use::staging, "orders of reads", plan_lists(plan_).load);
  Buffer row_amax(ledger_, Use::staging, "largest values of rows", plan_.row_amax.bytes(),
                  Buffer::Touch::lazily);
  LoadingRanks* const ranks = options_.ranks;
  const Buffer sent(ledger_, Use::staging, "exchange with other ranks",
                    ranks != nullptr ? plan_.exchange_bytes : 0, Buffer::Touch::lazily);
  std::optional<RowExchange> exchange;
  if (ranks != nullptr) exchange.emplace(plan_, *ranks, sent.bytes(), ring.bytes());
  Fetcher fetcher({.plan = plan_,
                   .index = index_,
                   .encoder = encoder_,
                   .device = &device_,
                   .weights = weights,
                   .measured = measured_,
                   .options = options_,
                   .row_amax = row_amax.bytes().first(plan_.row_amax.bytes())});
  for (bool loaded = false; !loaded;) {
    ReadPace pace(options_.read, options_.try_shapes, plan_.slot_bytes,
                  plan_.ring_bytes / plan_.slot_bytes);
    do {  // opening may find that the spill is useless
      fetcher.close();
      write_spill({plan_, index_, options_, ring.bytes(), stop});
      fetcher.open({ring.bytes(), plan_.slot_bytes, pace.least_request_bytes()});
    } while (needs_spill(options_) && fetcher.packed() == nullptr);
    // Tensors that the cache had before are read; those that it gets meanwhile have just been
    // encoded.
    const Spill* spilled = fetcher.packed() != nullptr ? options_.spill : nullptr;
    measured_ = measured_before(plan_, spilled);
    const bool exchanges = ranks != nullptr && ranks->begin(exchange_keys(plan_, fetcher.packed()));
    LoadPass pass(load_order(plan_, fetcher.packed(), exchanges), fetcher, pace, progress,
                  exchange ? &*exchange : nullptr);
    progress.units_total = static_cast<uint32_t>(plan_.units.size());
    auto toucher = start_thread<std::jthread>({"touching memory"}, [&](const std::stop_token& end) {
      touch_ahead(pass.order(), units, end);
    });
    loaded = pass.run(stop);
    if (!loaded) continue;
    report.disk_rate = pace.disk_rate();
    report.fastest = pace.fastest();
    report_load(plan_, fetcher, spilled, report);
  }
  index_.refuse_changes();
  for (Resident& unit : units) unit.fill(device_);
  report.seconds = seconds_since(start);
}

}  // namespace sluice
