#include "src/load/streamer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"
#include "src/base/thread.h"
#include "src/base/units.h"
#include "src/device/range.h"
#include "src/load/disk_rate.h"
#include "src/load/encode_queue.h"
#include "src/load/fallback.h"
#include "src/load/shape_trial.h"

namespace sluice {
namespace {

// Virtual disks answer all that was asked of them at once, and have nothing to do then: slots that
// are still free are submitted at that moment, before the first that arrived has been encoded.
size_t in_flight_of(size_t slots) { return slots - slots / 8; }

// Requests of a slot each that are as much as the shape asks for.
size_t in_flight_of(const io::ReadShape& shape, uint64_t slot_bytes) {
  constexpr uint64_t kFewest = 2;
  return std::max(kFewest, shape.bytes_in_flight() / slot_bytes);
}

// Whether a ring has room for all shapes that can be tried.
bool has_room_to_try(const ReadPlan& plan) {
  const io::ReadShape& largest = kReadShapes.front();
  return plan.slot_bytes >= largest.request_bytes && plan.ring_bytes >= largest.bytes_in_flight();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One read of a load.
struct Fetch {
  const Span* span = nullptr;
  std::optional<Move> spilled;  // the rows whose codes it gets from the spill
  uint32_t file = 0;  // the checkpoint's; once it is read, which copy of it or of the spill's
  uint64_t offset = 0;
  uint64_t length = 0;
};

// Storage of all units, and where each parameter lies in it.
struct Filling {
  std::vector<UnitStorage> storage;  // of each unit; empty where nothing of it stays
  std::vector<Weight> weights;       // of each parameter

  Filling(const ReadPlan& plan, Device& device, Ledger& ledger) {
    for (const UnitPlan& u : plan.units) {
      storage.push_back(
          {device.memory(ledger, Use::weights, u.name, u.storage_bytes, Buffer::Touch::lazily),
           Buffer(ledger, Use::weights, u.name, u.host_bytes, Buffer::Touch::lazily), nullptr});
    }
    for (const ParamPlan& p : plan.params)
      weights.push_back(plan.weight(p, storage[p.unit].of(p.tier).data()));
  }
};

// Has the system bring the pages of a load's storage, in the order in which it is filled, while the
// first bytes are still on their way: encoding need not wait for them then. A hypervisor that takes
// free memory back has not yet taken what was free for a moment only.
void touch_ahead(std::span<const Fetch> list, std::span<const UnitStorage> storage,
                 const std::stop_token& stop) {
  constexpr uint64_t kPart = 32 * MiB;
  auto touch = [&](const Buffer& buffer) {
    uint64_t bytes = buffer.bytes().size();
    for (uint64_t at = 0; at < bytes && !stop.stop_requested(); at += kPart)
      buffer.touch(at, std::min(kPart, bytes - at));
  };
  std::vector<bool> touched(storage.size());
  for (const Fetch& f : list) {
    uint32_t unit = f.span->unit;
    if (touched[unit]) continue;
    touched[unit] = true;
    touch(storage[unit].device);
    touch(storage[unit].host);
  }
}

std::vector<Fetch> fetches(const ReadPlan& plan, const Spill* spill) {
  std::vector<Fetch> list;
  for (const Span& span : plan.spans) {
    auto moves = std::span(plan.moves).subspan(span.first_move, span.moves);
    bool spilled = spill != nullptr &&
                   std::ranges::all_of(moves, [&](const Move& m) { return spill->has(m.tensor); });
    if (!spilled) {
      list.push_back({&span, {}, span.file, span.offset, span.length});
    } else if (span.encode) {
      for (const Move& move : moves) {
        Spill::Extent extent = spill->extent(move.tensor, move.first_row, move.rows);
        list.push_back({&span, move, 0, extent.offset, extent.length});
      }
    }
  }
  return list;
}

std::vector<TensorReport> tensor_reports(const ReadPlan& plan,
                                         const std::vector<EncodeStats>& stats,
                                         const Spill* spill) {
  std::vector<TensorReport> reports;
  for (uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& t = plan.tensors[i];
    DType kept = plan.params[t.param].format.dtype;
    reports.push_back({t.stored->name, dtype_name(t.stored->dtype), dtype_name(kept),
                       spill != nullptr && spill->has(i) ? spill->stats(i) : EncodeStats{},
                       t.group != ScaleGroup::none});
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
    sum += spilled ? spill->layout().find(i)->codes_bytes() : plan.needed_bytes(t);
  }
  return sum;
}

}  // namespace

Resident::Resident(const ReadPlan& plan, uint32_t unit, UnitStorage storage)
    : storage_(std::move(storage)) {
  for (const ParamPlan& p : plan.params) {
    if (p.unit != unit || p.streamed()) continue;
    p.param->value = plan.weight(p, storage_.of(p.tier).data());
    parts_.push_back({p.param, p.tier, p.offset, p.storage});
  }
}

Resident::~Resident() {
  for (const Part& part : parts_) part.param->value = {};
}

void Resident::release(const Param& param) {
  auto part = std::ranges::find(parts_, &param, &Part::param);
  if (part == parts_.end()) return;
  part->param->value = {};
  Buffer& storage = part->tier == Tier::host ? storage_.host : storage_.device;
  storage.give_back(part->offset, part->bytes);
  parts_.erase(part);
}

void refuse_damaged(const io::CheckpointIndex& index, const std::string& tensor,
                    const EncodeStats& stats) {
  if (stats.not_finite == 0) return;
  index.refuse_changes();
  fail(ErrorKind::refused, "{} holds {} NaN or infinite values: the checkpoint is damaged", tensor,
       stats.not_finite);
}

double TensorReport::relative_rms_error() const {
  return stats.value_squares > 0 ? std::sqrt(stats.error_squares / stats.value_squares) : 0;
}

Streamer::Streamer(const ReadPlan& plan, const io::CheckpointIndex& index, Device& device,
                   const Encoder& encoder, Ledger& ledger, LoadOptions options)
    : plan_(plan),
      index_(index),
      device_(device),
      encoder_(encoder),
      ledger_(ledger),
      options_(options) {}

std::vector<Resident> Streamer::load_all(LoadReport& report, LoadProgress& progress,
                                         std::stop_token stop) {
  Range range("load");
  io::Sources sources(index_);
  while (true) {
    try {
      return load_once(sources, report, progress, stop);
    } catch (const SpillDamaged& e) {
      options_.spill->stop_using(e.what(), true);
    } catch (const io::ReadError& e) {
      if (!fall_back(e, sources, options_.spill)) throw;
    }
  }
}

std::vector<Resident> Streamer::load_once(io::Sources& sources, LoadReport& report,
                                          LoadProgress& progress, const std::stop_token& stop) {
  auto start = std::chrono::steady_clock::now();
  // What was ready before is read; what becomes ready meanwhile has just been encoded.
  Spill* ready = offer_spill(options_.spill, sources) ? options_.spill : nullptr;
  std::vector<Fetch> list = fetches(plan_, ready);
  Buffer ring(ledger_, Use::staging, "staging ring", plan_.ring_bytes, Buffer::Touch::now);
  std::unique_ptr<Pinned> pinned = device_.pin(ring.bytes());
  ShapeTrial trial(options_.read, options_.try_shapes && has_room_to_try(plan_));
  auto reader = io::open_reader(sources.files(), ring.bytes(),
                                {.kind = options_.reader,
                                 .slot_bytes = plan_.slot_bytes,
                                 .chunk_bytes = trial.least_request_bytes()});
  Filling filling(plan_, device_, ledger_);
  std::vector<size_t> fetches_left(plan_.units.size());
  progress.bytes_total = 0;
  progress.bytes_done = 0;
  progress.units_done = 0;
  progress.units_total = static_cast<uint32_t>(plan_.units.size());
  for (const Fetch& f : list) {
    ++fetches_left[f.span->unit];
    progress.bytes_total += f.length;
  }

  // Declared after what they write to, so that they end first.
  auto toucher = start_thread<std::jthread>({"touching memory"}, [&](const std::stop_token& end) {
    touch_ahead(list, filling.storage, end);
  });
  Buffer row_amax(ledger_, Use::staging, "largest values of rows", plan_.row_amax.bytes(),
                  Buffer::Touch::lazily);
  EncodeQueue queue(plan_, encoder_, filling.weights, ring.bytes(), options_.threads,
                    options_.spill, nullptr, {}, row_amax.bytes().first(plan_.row_amax.bytes()));
  const size_t slots_in_flight = in_flight_of(static_cast<size_t>(reader->free_slots()));
  DiskRate disk_rate;
  size_t submitted = 0;
  size_t received = 0;
  for (size_t done = 0; done < list.size();) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
    const io::ReadShape shape = trial.shape();
    const size_t most_in_flight = std::min(slots_in_flight, in_flight_of(shape, plan_.slot_bytes));
    for (; submitted < list.size() && submitted - received < most_in_flight &&
           reader->free_slots() > 0;
         ++submitted) {
      Fetch& f = list[submitted];
      f.file = sources.choose(f.spilled ? sources.extra_file() : f.file, f.length);
      reader->submit({f.file, f.offset, f.length, submitted, shape.request_bytes});
    }
    if (received < submitted) {
      const bool busy = 2 * (submitted - received) >= most_in_flight;
      io::ReadResult read = reader->wait();
      const double now = seconds_since(start);
      disk_rate.arrived(read.bytes.size(), now, busy);
      trial.arrived(read.bytes.size(), now, busy);
      const Fetch& f = list[read.tag];
      sources.arrived(f.file, f.length);
      if (options_.timeline != nullptr) options_.timeline->add(read.bytes.size());
      using Kind = ArrivedSpan::Kind;
      queue.push({f.spilled ? Kind::spilled : Kind::span,
                  read,
                  f.span,
                  f.spilled.value_or(Move{}),
                  {},
                  nullptr,
                  {}});
      ++received;
    }
    for (const ArrivedSpan& finished : queue.take_finished(received == submitted)) {
      reader->release(finished.read);
      progress.bytes_done += finished.read.bytes.size();
      if (--fetches_left[list[finished.read.tag].span->unit] == 0) ++progress.units_done;
      ++done;
    }
  }
  toucher.request_stop();  // a small load may be faster than it
  toucher.join();
  report.tensors = tensor_reports(plan_, queue.stats(), ready);
  report.amax = queue.amax();
  for (uint32_t t = 0; t < report.amax.size(); ++t) {
    if (ready != nullptr && ready->has(t)) report.amax[t] = ready->amax(t);
  }
  report.io = reader->stats();
  report.disk_rate = disk_rate.sustained();
  report.fastest = trial.verdict();
  report.reader = reader->description();
  report.needed_bytes = needed_bytes(plan_, ready);
  index_.refuse_changes();
  for (UnitStorage& s : filling.storage) s.pinned = device_.pin(s.host.bytes());
  report.seconds = seconds_since(start);

  std::vector<Resident> residents;
  residents.reserve(plan_.units.size());
  for (uint32_t u = 0; u < plan_.units.size(); ++u)
    residents.emplace_back(plan_, u, std::move(filling.storage[u]));
  return residents;
}

}  // namespace sluice
