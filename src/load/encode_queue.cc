#include "src/load/encode_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/error.h"
#include "src/base/thread.h"

namespace sluice {
namespace {

// Spans that wait for each worker that is awake before another is called. A load that one worker
// keeps up with leaves the other processors to the disk's driver.
constexpr size_t kBacklog = 2;

// How long an idle worker stays awake, about as long as a disk takes for a span. Where every span
// wakes a sleeping processor, a virtual machine's disk loses 5 % (docs/benchmarks.md).
constexpr auto kAwake = std::chrono::milliseconds(1);

}  // namespace

EncodeQueue::EncodeQueue(const ReadPlan& plan, const Encoder& encoder,
                         std::span<const Weight> weights, std::span<std::byte> slots, int threads,
                         Spill* spill, Signal* finished, std::span<const float> amax)
    : plan_(plan),
      encoder_(encoder),
      weights_(weights),
      slots_(slots),
      spill_(spill),
      signal_(finished),
      stats_(plan.moves.size()),
      measured_(plan.tensors.size()) {
  for (size_t t = 0; t < amax.size(); ++t)
    measured_[t] = {plan.tensors[t].measure_spans, amax[t], {}};
  if (std::ranges::find(plan.params, Tier::host, &ParamPlan::tier) != plan.params.end())
    host_encoder_ = make_cpu_encoder(Isa::automatic);
  awake_ = static_cast<size_t>(threads);
  start_threads(workers_, "encoding", threads, [this](int) { work(); }, [this] { end_work(); });
}

EncodeQueue::~EncodeQueue() {
  end_work();
  for (std::thread& t : workers_) t.join();
}

void EncodeQueue::end_work() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    ready_.clear();
  }
  calls_.release(std::ssize(workers_));
}

void EncodeQueue::push(const ArrivedSpan& arrived) {
  std::lock_guard lock(mutex_);
  ready_.push_back(arrived);
  call_workers();
}

void EncodeQueue::call_workers() {
  while (awake_ < workers_.size() && ready_.size() > awake_ * kBacklog) {
    ++awake_;
    calls_.release();
  }
}

std::vector<ArrivedSpan> EncodeQueue::take_finished(bool block) {
  std::unique_lock lock(mutex_);
  if (block) finished_ready_.wait(lock, [&] { return !finished_.empty() || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  return std::exchange(finished_, {});
}

void EncodeQueue::work() {
  while (true) {
    ArrivedSpan arrived;
    {
      std::unique_lock lock(mutex_);
      while (ready_.empty() && !closed_) {
        --awake_;
        lock.unlock();
        await_call();
        lock.lock();
      }
      if (closed_) return;
      arrived = ready_.front();
      ready_.pop_front();
    }
    bool failed = false;
    try {
      process(arrived);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      finished_ready_.notify_all();
      failed = true;
    }
    if (failed && signal_ != nullptr) signal_->notify();
  }
}

// Whoever else wants the processor gets it before the worker sleeps.
void EncodeQueue::await_call() {
  auto end = std::chrono::steady_clock::now() + kAwake;
  while (std::chrono::steady_clock::now() < end) {
    if (calls_.try_acquire()) return;
    std::this_thread::yield();
  }
  calls_.acquire();
}

void EncodeQueue::process(const ArrivedSpan& arrived) {
  if (arrived.kind == ArrivedSpan::Kind::spilled) return copy_spilled(arrived);
  uint32_t tensor = moves(arrived).front().tensor;
  if (plan_.tensors[tensor].group == ScaleGroup::tensor) {
    std::unique_lock lock(mutex_);
    Measured& m = measured_[tensor];
    if (m.spans < plan_.tensors[tensor].measure_spans) {  // the scale is not known yet
      if (arrived.span->measure) {
        lock.unlock();
        measure(arrived);
      } else {
        m.waiting.push_back(arrived);
      }
      return;
    }
  }
  encode(arrived);
}

void EncodeQueue::measure(const ArrivedSpan& arrived) {
  const Span& span = *arrived.span;
  const Move& move = moves(arrived).front();
  EncodeArgs args = encode_args(move, arrived);
  float amax = encoder_for(move).absolute_max(args.source, args.stored, args.source_stride,
                                              args.rows, args.to.cols);
  std::vector<ArrivedSpan> unblocked;
  {
    std::lock_guard lock(mutex_);
    Measured& m = measured_[move.tensor];
    m.amax = std::max(m.amax, amax);
    m.spans += 1;
    if (span.encode) m.waiting.push_back(arrived);  // keeps its slot until the scale is known
    if (m.spans == plan_.tensors[move.tensor].measure_spans)
      unblocked = std::exchange(m.waiting, {});
    ready_.insert(ready_.end(), unblocked.begin(), unblocked.end());
    call_workers();
  }
  if (!span.encode) finish(arrived);
}

void EncodeQueue::encode(ArrivedSpan arrived) {
  std::span<const Move> all = moves(arrived);
  // Of a tile beside it, of a span in its place.
  bool is_tile = arrived.kind == ArrivedSpan::Kind::tile;
  if (arrived.after != nullptr) arrived.after->synchronize();
  EncodeStats* stats = is_tile ? &arrived.stats : &stats_[arrived.span->first_move];
  for (size_t i = 0; i < all.size(); ++i) {
    EncodeArgs args = encode_args(all[i], arrived);
    if (args.group == ScaleGroup::tensor) {
      std::lock_guard lock(mutex_);
      args.tensor_amax = measured_[all[i].tensor].amax;
    }
    stats[i] = encoder_for(all[i]).encode(args);
  }
  // The bytes are encoded: their slot is free to write from.
  for (size_t i = 0; i < all.size() && spill_ != nullptr; ++i) spill(all[i], stats[i], arrived);
  finish(arrived);
}

void EncodeQueue::spill(const Move& move, const EncodeStats& stats, const ArrivedSpan& arrived) {
  if (!spill_->wants(move.tensor)) return;
  EncodeArgs args = encode_args(move, arrived);
  Spill::Rows rows{args.to, args.first_row, stats, 0};
  {
    std::lock_guard lock(mutex_);
    rows.amax = measured_[move.tensor].amax;
  }
  spill_->add(move, rows, slots_.subspan(arrived.read.slot * plan_.slot_bytes, plan_.slot_bytes));
}

void EncodeQueue::copy_spilled(const ArrivedSpan& arrived) {
  const Move& move = arrived.move;
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  std::optional<Weight> from = spill_->weight(move.tensor, move.first_row, arrived.read.bytes);
  if (!from) throw SpillDamaged(tensor.stored->name);
  Weight to = weights_[tensor.param];
  int64_t row = plan_.params[tensor.param].param->pieces[tensor.piece].offset + move.first_row;
  for (Plane plane : kPlanes) {
    std::copy_n(from->plane(plane), plane_bytes(to.format, plane, from->rows, to.cols),
                to.plane(plane) + plane_offset(to.format, plane, row, to.cols));
  }
  finish(arrived);
}

void EncodeQueue::finish(const ArrivedSpan& arrived) {
  {
    std::lock_guard lock(mutex_);
    finished_.push_back(arrived);
  }
  finished_ready_.notify_one();
  if (signal_ != nullptr) signal_->notify();
}

std::span<const Move> EncodeQueue::moves(const ArrivedSpan& arrived) const {
  if (arrived.kind != ArrivedSpan::Kind::span) return {&arrived.move, 1};
  return std::span(plan_.moves).subspan(arrived.span->first_move, arrived.span->moves);
}

std::vector<EncodeStats> EncodeQueue::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

std::vector<float> EncodeQueue::amax() const {
  std::lock_guard lock(mutex_);
  std::vector<float> amax;
  amax.reserve(measured_.size());
  for (const Measured& m : measured_) amax.push_back(m.amax);
  return amax;
}

const Encoder& EncodeQueue::encoder_for(const Move& move) const {
  bool host = plan_.params[plan_.tensors[move.tensor].param].tier == Tier::host;
  return host ? *host_encoder_ : encoder_;
}

EncodeArgs EncodeQueue::encode_args(const Move& move, const ArrivedSpan& arrived) const {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  const Piece& piece = plan_.params[tensor.param].param->pieces[tensor.piece];
  EncodeArgs args;
  args.stored = tensor.stored->dtype;
  args.source = arrived.read.bytes.data() + move.offset;
  args.source_stride = static_cast<int64_t>(row_bytes(args.stored, piece.cols));
  args.rows = move.rows;
  args.group = tensor.group;
  if (arrived.kind == ArrivedSpan::Kind::tile) {
    args.to = arrived.tile;
    return args;
  }
  args.to = weights_[tensor.param];
  args.first_row = piece.offset + move.first_row;
  if (piece.vector) {  // pieces lie side by side in one row
    args.to.data += piece.offset * dtype_bytes(args.to.format.dtype);
    args.to.cols = piece.cut.cols;
    args.first_row = 0;
  }
  return args;
}

}  // namespace sluice
