#include "src/load/encode_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "quant/gptq.h"
#include "quant/groups.h"
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
                         Spill* spill, Signal* finished, std::span<const float> amax,
                         std::span<std::byte> row_amax)
    : plan_(plan),
      encoder_(encoder),
      weights_(weights),
      slots_(slots),
      spill_(spill),
      signal_(finished),
      row_amax_(row_amax),
      stats_(plan.moves.size()),
      measured_(plan.tensors.size()) {
  for (size_t t = 0; t < amax.size(); ++t) {
    measured_[t].spans = plan.tensors[t].measure_spans;
    measured_[t].amax = amax[t];
  }
  for (uint64_t at = 0; at < row_amax.size(); at += plan.row_amax.area_bytes)
    free_areas_.push_back(reinterpret_cast<float*>(row_amax.data() + at));
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
  if (plan_.tensors[tensor].measure_spans > 0) {
    std::unique_lock lock(mutex_);
    Measured& m = measured_[tensor];
    if (m.spans < plan_.tensors[tensor].measure_spans) {  // the scales are not known yet
      if (arrived.span->measure) {
        take_area(tensor);
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

// With mutex_ held, for the first span of a transposed tensor, or of several that share it.
void EncodeQueue::take_area(uint32_t tensor) {
  if (!plan_.tensors[tensor].transposed || measured_[tensor].area != nullptr) return;
  check(!free_areas_.empty(), "an area for all that can be on its way");
  measured_[tensor].area = free_areas_.back();
  free_areas_.pop_back();
  std::fill_n(measured_[tensor].area, plan_.row_amax.area_bytes / sizeof(float), 0.0f);
}

// Of the rows of a tensor, in the area of the first that it shares reads with.
float* EncodeQueue::rows_of(uint32_t first, const Move& move) {
  std::lock_guard lock(mutex_);
  return measured_[first].area + plan_.tensors[move.tensor].amax_offset / sizeof(float);
}

// The largest value of a move whose tensor has one scale.
float EncodeQueue::measured_amax(const Move& move, const EncodeArgs& args) const {
  float amax = 0;
  const int64_t run = args.run_rows > 0 ? args.run_rows : args.rows;
  for (int64_t row = 0; row < args.rows; row += run) {
    amax = std::max(amax,
                    encoder_for(move).absolute_max(args.row(row), args.stored, args.source_stride,
                                                   std::min(run, args.rows - row), args.cols()));
  }
  return amax;
}

// With mutex_ held, once each row has been measured.
void EncodeQueue::find_scales(uint32_t first, const Move& move) {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  const ParamPlan& param = plan_.params[tensor.param];
  std::span<float> rows(measured_[first].area + tensor.amax_offset / sizeof(float),
                        static_cast<size_t>(param.param->pieces[tensor.piece].cut.rows));
  measured_[move.tensor].amax = *std::ranges::max_element(rows);
  for (float& row : rows) row = code_scale(param.format.dtype, row);
}

void EncodeQueue::measure(const ArrivedSpan& arrived) {
  const Span& span = *arrived.span;
  const uint32_t first = moves(arrived).front().tensor;
  const bool transposed = plan_.tensors[first].transposed;
  for (const Move& move : moves(arrived)) {
    EncodeArgs args = encode_args(move, arrived);
    if (transposed) {
      add_row_amax(args, rows_of(first, move));
      continue;
    }
    float amax = measured_amax(move, args);
    std::lock_guard lock(mutex_);
    measured_[move.tensor].amax = std::max(measured_[move.tensor].amax, amax);
  }
  {
    std::lock_guard lock(mutex_);
    Measured& m = measured_[first];
    m.spans += 1;
    if (span.encode) m.waiting.push_back(arrived);  // keeps its slot until the scale is known
    if (m.spans == plan_.tensors[first].measure_spans) {
      for (const Move& move : moves(arrived))
        if (transposed) find_scales(first, move);
      std::vector<ArrivedSpan> unblocked = std::exchange(m.waiting, {});
      ready_.insert(ready_.end(), unblocked.begin(), unblocked.end());
    }
    call_workers();
  }
  if (!span.encode) finish(arrived);
}

// After its last span.
void EncodeQueue::give_back_area(const ArrivedSpan& arrived) {
  if (arrived.kind != ArrivedSpan::Kind::span) return;
  const uint32_t first = moves(arrived).front().tensor;
  if (!plan_.tensors[first].transposed || plan_.tensors[first].measure_spans == 0) return;
  std::lock_guard lock(mutex_);
  Measured& m = measured_[first];
  if (++m.encoded == plan_.tensors[first].measure_spans)
    free_areas_.push_back(std::exchange(m.area, nullptr));
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
    } else if (args.group == ScaleGroup::row && plan_.tensors[all[i].tensor].transposed) {
      args.row_scales = rows_of(all.front().tensor, all[i]);
    }
    stats[i] = encoder_for(all[i]).encode(args);
  }
  give_back_area(arrived);
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

// Rows of one of the tensors that a weight comes from; columns are its outputs.
EncodeArgs EncodeQueue::gptq_args(const Move& move, const ArrivedSpan& arrived) const {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  const Piece& piece = plan_.params[tensor.param].param->pieces[tensor.piece];
  const GptqSource& source = *tensor.gptq;
  EncodeArgs args;
  args.plane = tensor.plane;
  args.stored = args.plane == Plane::scales ? tensor.stored->dtype : gptq_type(source.format.bits);
  args.source = arrived.read.bytes.data() + move.offset;
  args.source_stride = static_cast<int64_t>(tensor.rows.row_bytes);
  args.rows = move.rows;
  args.to = weights_[tensor.param];
  args.first_row = piece.offset;
  args.first_output = piece.cut.row;
  args.outputs = piece.cut.rows;
  args.first_group = move.first_row;
  if (args.plane == Plane::codes) args.first_col = move.first_row / source.format.bits * kRunCols;
  if (source.format.ordered) {
    args.order = source.order.data();
    args.places = source.places.data();
  }
  return args;
}

EncodeArgs EncodeQueue::encode_args(const Move& move, const ArrivedSpan& arrived) const {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  const Piece& piece = plan_.params[tensor.param].param->pieces[tensor.piece];
  const View& view = piece.view;
  if (tensor.gptq != nullptr) return gptq_args(move, arrived);
  EncodeArgs args;
  args.stored = tensor.stored->dtype;
  args.source = arrived.read.bytes.data() + move.offset;
  args.rows = move.rows;
  args.group = tensor.group;
  args.to = arrived.kind == ArrivedSpan::Kind::tile ? arrived.tile : weights_[tensor.param];
  if (arrived.kind != ArrivedSpan::Kind::tile) args.first_row = piece.offset + move.first_row;
  // From one output to the next, as they are stored.
  const bool rows = !view.transposed && !piece.vector;
  const auto output = static_cast<int64_t>(row_bytes(args.stored, rows ? piece.cols : 1));
  args.source_stride = output;
  if (view.group == 1) {
    args.source_stride = view.stride * output;
  } else if (piece.runs() > 1) {
    args.run_rows = view.group;
    args.run_stride = view.stride * output;
  }
  if (view.transposed) {
    args.rows = piece.cut.rows;
    args.first_row = piece.offset;
    args.column_stride = tensor.stored->shape[tensor.stored->shape.size() - 1] * output;
    args.first_col = move.first_row;
    args.source_cols = move.rows;
  }
  if (piece.vector) {  // pieces lie side by side in one row
    args.to.data += piece.offset * dtype_bytes(args.to.format.dtype);
    args.to.cols = piece.cut.cols;
    args.first_row = 0;
    if (piece.runs() > 1) {  // as a column
      check(args.group == ScaleGroup::none, "a vector with runs is no code");
      args.rows = args.to.rows = piece.cut.cols;
      args.to.cols = 1;
    }
  }
  return args;
}

}  // namespace sluice
