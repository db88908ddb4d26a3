#include "src/load/streamer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"
#include "src/load/encode_queue.h"

namespace sluice {
namespace {

// Storage of the units that a load has begun, and where each parameter lies in it.
struct Filling {
  std::vector<Buffer> storage;  // of each unit; empty before its first read
  std::vector<Weight> weights;  // of each parameter; meta before
};

void begin_unit(const ReadPlan& plan, uint32_t unit, Ledger& ledger, Filling& filling) {
  const UnitPlan& u = plan.units[unit];
  filling.storage[unit] =
      Buffer(ledger, Use::weights, u.name, u.storage_bytes, Buffer::Touch::lazily);
  for (size_t p = 0; p < plan.params.size(); ++p) {
    if (plan.params[p].unit == unit)
      filling.weights[p] = plan.weight(plan.params[p], filling.storage[unit].data());
  }
}

std::vector<TensorReport> tensor_reports(const ReadPlan& plan,
                                         const std::vector<EncodeStats>& stats) {
  std::vector<TensorReport> reports;
  for (const TensorPlan& t : plan.tensors) {
    DType kept = plan.params[t.param].format.dtype;
    reports.push_back({t.stored->name,
                       dtype_name(t.stored->dtype),
                       dtype_name(kept),
                       {},
                       t.group != ScaleGroup::none});
  }
  // A tensor that is read twice has moves that only measured: their stats are empty.
  for (size_t i = 0; i < stats.size(); ++i) reports[plan.moves[i].tensor].stats.add(stats[i]);
  return reports;
}

}  // namespace

Resident::Resident(const ReadPlan& plan, uint32_t unit, Buffer storage)
    : storage_(std::move(storage)) {
  for (const ParamPlan& p : plan.params) {
    if (p.unit != unit || p.streamed) continue;
    p.param->value = plan.weight(p, storage_.data());
    params_.push_back(p.param);
  }
}

Resident::~Resident() {
  for (Param* p : params_) p->value = {};
}

void refuse_damaged(const std::string& tensor, const EncodeStats& stats) {
  if (stats.not_finite == 0) return;
  fail(ErrorKind::refused, "{} holds {} NaN or infinite values: the checkpoint is damaged", tensor,
       stats.not_finite);
}

double TensorReport::relative_rms_error() const {
  return stats.value_squares > 0 ? std::sqrt(stats.error_squares / stats.value_squares) : 0;
}

Streamer::Streamer(const ReadPlan& plan, const io::CheckpointIndex& index, const Kernels& kernels,
                   Ledger& ledger, LoadOptions options)
    : plan_(plan), index_(index), kernels_(kernels), ledger_(ledger), options_(options) {}

std::vector<Resident> Streamer::load_all(LoadReport& report, LoadProgress& progress,
                                         std::stop_token stop) {
  auto start = std::chrono::steady_clock::now();
  Buffer ring(ledger_, Use::staging, "staging ring", plan_.ring_bytes, Buffer::Touch::now);
  auto reader = io::open_reader(index_.files(), ring.bytes(),
                                {.kind = options_.reader, .slot_bytes = plan_.slot_bytes});
  Filling filling;
  filling.storage.resize(plan_.units.size());
  filling.weights.resize(plan_.params.size());
  std::vector<size_t> spans_left(plan_.units.size());
  for (const Span& s : plan_.spans) ++spans_left[s.unit];
  progress.bytes_total = plan_.read_bytes();
  progress.units_total = static_cast<uint32_t>(plan_.units.size());

  // Declared after what its workers write to, so that it ends first.
  EncodeQueue queue(plan_, kernels_, filling.weights, options_.threads);
  size_t submitted = 0;
  size_t received = 0;
  for (size_t done = 0; done < plan_.spans.size();) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
    for (; submitted < plan_.spans.size() && reader->free_slots() > 0; ++submitted) {
      const Span& s = plan_.spans[submitted];
      if (filling.storage[s.unit].data() == nullptr) begin_unit(plan_, s.unit, ledger_, filling);
      reader->submit({s.file, s.offset, s.length, submitted});
    }
    if (received < submitted) {
      io::ReadResult read = reader->wait();
      queue.push({&plan_.spans[read.tag], read, {}});
      ++received;
    }
    for (const ArrivedSpan& finished : queue.take_finished(received == submitted)) {
      reader->release(finished.read);
      progress.bytes_done += finished.span->length;
      if (--spans_left[finished.span->unit] == 0) ++progress.units_done;
      ++done;
    }
  }
  report.tensors = tensor_reports(plan_, queue.stats());
  report.amax = queue.amax();
  report.io = reader->stats();
  report.reader = reader->description();
  report.needed_bytes = plan_.needed_bytes();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  std::vector<Resident> residents;
  for (uint32_t u = 0; u < plan_.units.size(); ++u)
    residents.emplace_back(plan_, u, std::move(filling.storage[u]));
  return residents;
}

}  // namespace sluice
