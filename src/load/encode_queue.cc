#include "src/load/encode_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/error.h"
#include "src/base/thread.h"
#include "src/plan/rows_in_file.h"

namespace sluice {
namespace {

// Fetches that wait for each worker that is awake before another is called. A load that one worker
// keeps up with leaves the other processors to the disk's driver.
constexpr size_t kBacklog = 2;

// Time that an idle worker stays awake, about as long as a disk takes for a span. If every span
// wakes a sleeping processor, a virtual machine's disk loses 5 % (docs/benchmarks.md).
constexpr auto kAwake = std::chrono::milliseconds(1);

// Sets the places of a piece's rows, each of which is `bytes` behind the one before it in the file.
void set_rows(const Piece& piece, int64_t bytes, EncodeArgs& args) {
  const View& view = piece.view;
  args.source_stride = bytes;
  if (view.group == 1) {
    args.source_stride = view.stride * bytes;
  } else if (piece.runs() > 1) {
    args.run_rows = view.group;
    args.run_stride = view.stride * bytes;
  }
}

// Calls `copy` for each plane of `from`, which becomes rows of `to` from `row` on. The order of
// columns comes with the first.
void for_planes(const Weight& from, const Weight& to, int64_t row, const auto& copy) {
  for (Plane plane : kPlanes) {
    const uint64_t bytes = plane_bytes(to.format, plane, from.rows, to.cols);
    if (bytes == 0 || (plane == Plane::order && row > 0)) continue;
    copy(to.plane(plane) + plane_offset(to.format, plane, row, to.cols), from.plane(plane), bytes);
  }
}

}  // namespace

EncodeQueue::EncodeQueue(const EncodeSetup& setup)
    : setup_(setup),
      plan_(setup.plan),
      stats_(setup.weights.empty() ? 0 : plan_.moves.size()),
      measuring_(setup.weights.empty() ? 0 : plan_.tensors.size()) {
  for (uint64_t at = 0; at < setup.row_amax.size(); at += plan_.row_amax.area_bytes)
    free_areas_.push_back(reinterpret_cast<float*>(setup.row_amax.data() + at));
  if (std::ranges::find(plan_.params, Tier::host, &ParamPlan::tier) != plan_.params.end())
    host_encoder_ = make_cpu_encoder(Isa::automatic);
  if (setup.device != nullptr && setup.device->has_own_memory()) copies_ = setup.device->stream();
  awake_ = static_cast<size_t>(setup.threads);
  start_threads(
      workers_, "encoding", setup.threads, [this](int) { work(); }, [this] { end_work(); });
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

void EncodeQueue::push(const ArrivedFetch& arrived) {
  std::unique_lock lock(mutex_);
  ready_.push_back(arrived);
  call_workers();
  while (workers_.empty() && !ready_.empty()) process_first(lock);
}

void EncodeQueue::call_workers() {
  while (awake_ < workers_.size() && ready_.size() > awake_ * kBacklog) {
    ++awake_;
    calls_.release();
  }
}

std::vector<ArrivedFetch> EncodeQueue::take_finished(bool block) {
  std::unique_lock lock(mutex_);
  while (block && finished_.empty() && !failure_) {
    if (!ready_.empty()) {
      process_first(lock);
      continue;
    }
    is_awaited_ = true;
    finished_ready_.wait(lock, [&] { return !finished_.empty() || !ready_.empty() || failure_; });
    is_awaited_ = false;
  }
  if (failure_) std::rethrow_exception(failure_);
  return std::exchange(finished_, {});
}

void EncodeQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (ready_.empty() && !closed_) {
      --awake_;
      lock.unlock();
      await_call();
      lock.lock();
    }
    if (closed_) return;
    process_first(lock);
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

// `lock`, of mutex_, is held before and after.
void EncodeQueue::process_first(std::unique_lock<std::mutex>& lock) {
  const ArrivedFetch arrived = ready_.front();
  ready_.pop_front();
  lock.unlock();
  std::exception_ptr failure;
  try {
    process(arrived);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (!failure) return;
  if (!failure_) failure_ = failure;
  if (is_awaited_) finished_ready_.notify_one();
}

void EncodeQueue::process(const ArrivedFetch& arrived) {
  if (arrived.fetch.form == Fetch::Form::packed) return copy_packed(arrived);
  const uint32_t tensor = moves_of(plan_, arrived.fetch).front().tensor;
  if (plan_.tensors[tensor].measure_spans > 0 && !arrived.fetch.has_tile()) {
    std::unique_lock lock(mutex_);
    Measuring& m = measuring_[tensor];
    if (m.spans < plan_.tensors[tensor].measure_spans) {  // the scales are not known yet
      if (arrived.fetch.measure) {
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

// Called with mutex_ held, for the first span of a transposed tensor, or of several that share it.
void EncodeQueue::take_area(uint32_t tensor) {
  if (!plan_.tensors[tensor].transposed || measuring_[tensor].area != nullptr) return;
  check(!free_areas_.empty(), "an area for all that can be on its way");
  measuring_[tensor].area = free_areas_.back();
  free_areas_.pop_back();
  std::fill_n(measuring_[tensor].area, plan_.row_amax.area_bytes / sizeof(float), 0.0f);
}

// Returns the largest values of a tensor's rows, in the area of the first tensor that it shares
// reads with.
float* EncodeQueue::rows_of(uint32_t first, const Move& move) {
  std::lock_guard lock(mutex_);
  return measuring_[first].area + plan_.tensors[move.tensor].amax_offset / sizeof(float);
}

// Returns the number of the plan's spans that have arrived: each has one move of the first tensor.
uint32_t EncodeQueue::spans_in(const ArrivedFetch& arrived) const {
  const std::span<const Move> moves = moves_of(plan_, arrived.fetch);
  return static_cast<uint32_t>(std::ranges::count(moves, moves.front().tensor, &Move::tensor));
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

// Called with mutex_ held, once each row has been measured.
void EncodeQueue::find_scales(uint32_t first, const Move& move) {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  const ParamPlan& param = plan_.params[tensor.param];
  std::span<float> rows(measuring_[first].area + tensor.amax_offset / sizeof(float),
                        static_cast<size_t>(param.param->pieces[tensor.piece].cut.rows));
  measuring_[move.tensor].amax = *std::ranges::max_element(rows);
  for (float& row : rows) row = code_scale(param.format.dtype, row);
}

void EncodeQueue::measure(const ArrivedFetch& arrived) {
  const std::span<const Move> moves = moves_of(plan_, arrived.fetch);
  const uint32_t first = moves.front().tensor;
  const bool transposed = plan_.tensors[first].transposed;
  for (const Move& move : moves) {
    EncodeArgs args = encode_args(move, arrived);
    if (transposed) {
      add_row_amax(args, rows_of(first, move));
      continue;
    }
    float amax = measured_amax(move, args);
    std::lock_guard lock(mutex_);
    measuring_[move.tensor].amax = std::max(measuring_[move.tensor].amax, amax);
  }
  {
    std::lock_guard lock(mutex_);
    Measuring& m = measuring_[first];
    m.spans += spans_in(arrived);
    // Keeps its slot until the scale is known.
    if (arrived.fetch.encode) m.waiting.push_back(arrived);
    if (m.spans == plan_.tensors[first].measure_spans) {
      for (const Move& move : moves.first(arrived.fetch.exchanged ? 1 : moves.size())) {
        if (transposed) find_scales(first, move);
        setup_.measured.amax[move.tensor] = measuring_[move.tensor].amax;
      }
      const std::vector<ArrivedFetch> unblocked = std::exchange(m.waiting, {});
      ready_.insert(ready_.end(), unblocked.begin(), unblocked.end());
      call_workers();
      if (is_awaited_) finished_ready_.notify_one();
    }
  }
  if (!arrived.fetch.encode) finish(arrived);
}

// After its last span.
void EncodeQueue::give_back_area(const ArrivedFetch& arrived) {
  if (arrived.fetch.has_tile()) return;
  const uint32_t first = moves_of(plan_, arrived.fetch).front().tensor;
  if (!plan_.tensors[first].transposed || plan_.tensors[first].measure_spans == 0) return;
  std::lock_guard lock(mutex_);
  Measuring& m = measuring_[first];
  m.encoded += spans_in(arrived);
  if (m.encoded == plan_.tensors[first].measure_spans)
    free_areas_.push_back(std::exchange(m.area, nullptr));
}

void EncodeQueue::encode(ArrivedFetch arrived) {
  const Fetch& fetch = arrived.fetch;
  const std::span<const Move> moves = moves_of(plan_, fetch);
  check(fetch.encode, "a fetch that only measures, of a tensor that is known");
  if (fetch.after != nullptr) fetch.after->synchronize();
  // A tile's statistics are its own; other fetches have theirs at the place of the plan's moves.
  EncodeStats* stats = fetch.has_tile() ? &arrived.stats : &stats_[fetch.first_move];
  check(!fetch.has_tile() || moves.size() == 1, "a tile has rows of one tensor");
  for (size_t i = 0; i < moves.size(); ++i) {
    EncodeArgs args = encode_args(moves[i], arrived);
    if (has_tensor_scale(args.group)) {
      std::lock_guard lock(mutex_);
      check(setup_.measured.amax[moves[i].tensor].has_value(), "a load has measured its tensor");
      args.tensor_amax = *setup_.measured.amax[moves[i].tensor];
    } else if (args.group == ScaleGroup::row && plan_.tensors[moves[i].tensor].transposed) {
      args.row_scales = rows_of(moves.front().tensor, moves[i]);
    }
    stats[i] = encoder_for(moves[i]).encode(args);
    if (!fetch.has_tile()) order_columns(moves[i]);
  }
  if (fetch.with_planes) arrived.stats.add(encode_planes(arrived));
  give_back_area(arrived);
  // The bytes are encoded: their slot is free to write from.
  for (size_t i = 0; i < moves.size() && setup_.fills != nullptr; ++i)
    fill(moves[i], stats[i], arrived);
  finish(arrived);
}

// Gives the columns of a matrix whose rows are inputs their order, once all have come.
void EncodeQueue::order_columns(const Move& move) {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  if (!tensor.orders_columns()) return;
  {
    std::lock_guard lock(mutex_);
    uint32_t& encoded = measuring_[move.tensor].encoded;
    encoded += static_cast<uint32_t>(move.rows);
    if (encoded < static_cast<uint32_t>(tensor.rows.rows)) return;
  }
  const Piece& piece = plan_.params[tensor.param].param->pieces[tensor.piece];
  encoder_for(move).order_columns(setup_.weights[tensor.param], piece.offset, piece.cut.rows,
                                  tensor.matrix->order.data());
}

// Encodes the rows of planes beside the codes, which are further extents of the read.
EncodeStats EncodeQueue::encode_planes(const ArrivedFetch& arrived) const {
  EncodeStats stats;
  ArrivedFetch others = arrived;
  others.fetch.exchanged = false;  // each rank reads them for itself
  const Move& codes = arrived.fetch.move;
  for (uint32_t k = 0; k < plan_.tensors[codes.tensor].others; ++k) {
    const Move move = plan_.other_move(codes, k);
    EncodeArgs args = encode_args(move, others);
    args.source = arrived.read.more[k].data();
    stats.add(encoder_for(move).encode(args));
  }
  return stats;
}

void EncodeQueue::fill(const Move& move, const EncodeStats& stats, const ArrivedFetch& arrived) {
  if (!setup_.fills->wants(move.tensor)) return;
  EncodeArgs args = encode_args(move, arrived);
  Spill::Rows rows{args.to, args.first_row, stats, 0};
  {
    std::lock_guard lock(mutex_);
    rows.amax = setup_.measured.amax[move.tensor].value_or(0);
  }
  setup_.fills->add(move, rows,
                    setup_.slots.subspan(arrived.read.slot * setup_.slot_bytes, setup_.slot_bytes));
}

void EncodeQueue::copy_packed(const ArrivedFetch& arrived) {
  const Fetch& fetch = arrived.fetch;
  const TensorPlan& tensor = plan_.tensors[fetch.move.tensor];
  const ParamPlan& param = plan_.params[tensor.param];
  const Weight from = setup_.packed->weight(fetch.move, arrived.read);
  const Weight& to = fetch.has_tile() ? fetch.tile : setup_.weights[tensor.param];
  const int64_t row =
      fetch.has_tile() ? 0 : param.param->pieces[tensor.piece].offset + fetch.move.first_row;
  if (fetch.after != nullptr) fetch.after->synchronize();
  if (copies_ != nullptr && param.tier != Tier::host) {
    copy_to_device(from, to, row);
  } else {
    for_planes(from, to, row, [](std::byte* at, const std::byte* begin, uint64_t bytes) {
      std::copy_n(begin, bytes, at);
    });
  }
  finish(arrived);
}

// One worker at a time: the link is the limit.
void EncodeQueue::copy_to_device(const Weight& from, const Weight& to, int64_t row) {
  std::lock_guard lock(copies_mutex_);
  for_planes(from, to, row, [&](std::byte* at, const std::byte* begin, uint64_t bytes) {
    copies_->copy(at, begin, bytes);
  });
  copies_->synchronize();
}

void EncodeQueue::finish(const ArrivedFetch& arrived) {
  std::lock_guard lock(mutex_);
  finished_.push_back(arrived);
  if (is_awaited_) finished_ready_.notify_one();
}

std::vector<EncodeStats> EncodeQueue::take_stats() {
  std::lock_guard lock(mutex_);
  return std::exchange(stats_, {});
}

const Encoder& EncodeQueue::encoder_for(const Move& move) const {
  bool host = plan_.params[plan_.tensors[move.tensor].param].tier == Tier::host;
  return host ? *host_encoder_ : setup_.encoder;
}

// Rows of an input-major plane: its columns are outputs.
EncodeArgs EncodeQueue::column_args(const Move& move, bool is_exchanged, EncodeArgs args) const {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  const Piece& piece = plan_.params[tensor.param].param->pieces[tensor.piece];
  const StoredPlane& plane = tensor.plane();
  args.stored = plane.plane == Plane::scales ? tensor.stored->dtype : DType::u32;
  args.rows = move.rows;
  args.first_row = piece.offset;
  if (!is_exchanged) args.first_output = piece.stored_output(piece.cut.row);
  args.outputs = piece.cut.rows;
  if (piece.runs() > 1) {
    args.output_run = piece.view.group;
    args.output_stride = piece.view.stride;
  }
  const int64_t runs = move.first_row / plane.run_rows;
  if (plane.plane == Plane::codes) {
    args.first_col = runs * plane.run_inputs;
  } else {
    args.first_group = runs;
  }
  return args;
}

// Rows of an output-major plane beside the codes.
EncodeArgs EncodeQueue::plane_args(const Move& move, EncodeArgs args) const {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  const Piece& piece = plan_.params[tensor.param].param->pieces[tensor.piece];
  const int64_t sharing = tensor.plane().row_outputs;
  args.source_stride = static_cast<int64_t>(stored_row_bytes(tensor));
  args.sharing = sharing;
  args.flat = tensor.plane().flat;
  args.factor = tensor.plane().factor;
  args.inverse = tensor.plane().inverse;
  args.source_group = tensor.plane().group;
  args.across = tensor.plane().across;
  const int64_t first = piece.stored_output(piece.cut.row + move.first_row);
  if (args.across > 0 || sharing > 1) args.first_output = args.across > 0 ? first : first % sharing;
  if (piece.runs() > 1) {
    args.output_run = piece.view.group;
    args.output_stride = piece.view.stride;
  }
  args.first_col = piece.cut.col;
  args.source_cols = piece.cols;
  return args;
}

EncodeArgs EncodeQueue::encode_args(const Move& move, const ArrivedFetch& arrived) const {
  const TensorPlan& tensor = plan_.tensors[move.tensor];
  const Piece& piece = plan_.params[tensor.param].param->pieces[tensor.piece];
  EncodeArgs args;
  args.plane = tensor.plane().plane;
  const bool is_exchanged = arrived.fetch.exchanged;
  auto in_file = static_cast<int64_t>(tensor.rows.row_bytes);
  args.source = arrived.read.bytes.data() + move.offset;
  if (is_exchanged) {  // parts of rows, one after another
    in_file = static_cast<int64_t>(
        row_share(*plan_.params[tensor.param].param, tensor, plan_.rank)->bytes);
    const int64_t before = move.first_row - moves_of(plan_, arrived.fetch).front().first_row;
    args.source = arrived.read.bytes.data() + before * in_file;
  }
  args.source_stride = in_file;
  const bool is_tile = arrived.fetch.has_tile();
  args.to = is_tile ? arrived.fetch.tile : setup_.weights[tensor.param];
  if (!tensor.matrix->tables.empty()) args.tables = tensor.matrix->tables.data();
  args.words = tensor.plane().words;
  if (tensor.plane().input_major()) return column_args(move, is_exchanged, args);
  if (!tensor.matrix->order.empty()) args.order = tensor.matrix->order.data();
  args.stored = tensor.stored->dtype;
  args.rows = move.rows;
  args.group = tensor.group;
  if (!is_tile) args.first_row = piece.offset + move.first_row;
  if (tensor.source > 0) return plane_args(move, args);
  // Bytes from one output to the next, as they are stored.
  const bool rows = !tensor.transposed && !piece.vector;
  auto output =
      static_cast<int64_t>(tensor.matrix->kept ? stored_row_bytes(tensor)
                                               : row_bytes(args.stored, rows ? piece.cols : 1));
  if (is_exchanged && rows) output = in_file;
  set_rows(piece, output, args);
  if (tensor.transposed) {
    args.rows = piece.cut.rows;
    args.first_row = piece.offset;
    args.column_stride = in_file;
    args.first_col = move.first_row;
    args.source_cols = move.rows;
  }
  if (const int64_t slice = tensor.plane().slice_outputs; slice > 0)
    args.words.place = static_cast<int>(piece.stored_output(piece.cut.row) / slice);
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
