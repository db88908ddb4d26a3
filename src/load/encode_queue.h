// The workers of a load: spans that have arrived go in, are encoded into their parameters, and come
// out to be released.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <semaphore>
#include <span>
#include <thread>
#include <vector>

#include "io/reader.h"
#include "kernels/kernels.h"
#include "src/device/device.h"
#include "src/load/spill.h"
#include "src/plan/read_plan.h"

namespace sluice {

struct ArrivedSpan {
  enum class Kind : uint8_t {
    span,     // of the plan: its rows go where the parameters are
    tile,     // of the sweep: its rows go to `tile`
    spilled,  // codes from the spill cache: they go where the parameters are
  };
  Kind kind = Kind::span;
  io::ReadResult read;
  const Span* span = nullptr;  // Kind::span
  Move move;                   // the rows of any other kind
  Weight tile;                 // Kind::tile
  DeviceEvent* after =
      nullptr;        // Kind::tile: what uses its memory is done then; null: nothing does
  EncodeStats stats;  // Kind::tile, once it is finished
};

// Something that a thread waits for together with other things: one who holds no lock notifies.
struct Signal {
  std::mutex mutex;
  std::condition_variable_any changed;
  void notify() {
    {
      std::lock_guard lock(mutex);
    }  // whoever looked before it waited has begun to wait
    changed.notify_all();
  }
};

class EncodeQueue {
 public:
  // `weights[p]` is where parameter p goes; its storage is there before the first of its spans is
  // pushed. `slots`: the memory that spans arrive in, slots of plan.slot_bytes. `spill` may be
  // null; it is given what it wants. `finished`: notified whenever there is something to take; or
  // null. `amax`: amax() of the queue that saw all tensors before, or empty. `row_amax`: of
  // plan.row_amax, for spans of the load. All arguments outlive the queue.
  EncodeQueue(const ReadPlan& plan, const Encoder& encoder, std::span<const Weight> weights,
              std::span<std::byte> slots, int threads, Spill* spill, Signal* finished = nullptr,
              std::span<const float> amax = {}, std::span<std::byte> row_amax = {});
  ~EncodeQueue();  // waits for the workers

  void push(const ArrivedSpan& arrived);
  // Spans that are done with their bytes; blocks for at least one when `block`. Rethrows a worker's
  // failure.
  std::vector<ArrivedSpan> take_finished(bool block);

  // One for each move of the plan; complete once every span is finished.
  std::vector<EncodeStats> stats() const;
  // The largest value of each tensor that has one scale for all; complete likewise.
  std::vector<float> amax() const;

 private:
  // A tensor with one scale, or one that is transposed: what is known of its largest values, and,
  // of the first of those that share reads, the spans that wait for them.
  struct Measured {
    uint32_t spans = 0;
    float amax = 0;
    uint32_t encoded = 0;   // spans
    float* area = nullptr;  // where each row's is, then its scale
    std::vector<ArrivedSpan> waiting;
  };

  void work();
  void end_work();
  void await_call();
  void call_workers();  // with mutex_ held
  void process(const ArrivedSpan& arrived);
  void measure(const ArrivedSpan& arrived);
  void take_area(uint32_t tensor);
  float* rows_of(uint32_t first, const Move& move);
  float measured_amax(const Move& move, const EncodeArgs& args) const;
  void find_scales(uint32_t first, const Move& move);
  void give_back_area(const ArrivedSpan& arrived);
  void encode(ArrivedSpan arrived);
  void copy_spilled(const ArrivedSpan& arrived);
  void spill(const Move& move, const EncodeStats& stats, const ArrivedSpan& arrived);
  void finish(const ArrivedSpan& arrived);
  EncodeArgs encode_args(const Move& move, const ArrivedSpan& arrived) const;
  EncodeArgs gptq_args(const Move& move, const ArrivedSpan& arrived) const;
  const Encoder& encoder_for(const Move& move) const;
  std::span<const Move> moves(const ArrivedSpan& arrived) const;

  const ReadPlan& plan_;
  const Encoder& encoder_;
  std::unique_ptr<Encoder> host_encoder_;  // for what stays in host memory beside a device
  std::span<const Weight> weights_;
  std::span<std::byte> slots_;
  Spill* spill_;
  Signal* signal_;
  std::span<std::byte> row_amax_;

  mutable std::mutex mutex_;  // guards everything below
  std::vector<EncodeStats> stats_;
  std::condition_variable finished_ready_;
  size_t awake_ = 0;  // workers that look for work, or have been called to
  std::deque<ArrivedSpan> ready_;
  std::vector<ArrivedSpan> finished_;
  std::vector<Measured> measured_;  // of each tensor
  std::vector<float*> free_areas_;  // of row_amax_
  bool closed_ = false;
  std::exception_ptr failure_;

  std::counting_semaphore<> calls_{0};
  std::vector<std::thread> workers_;
};

}  // namespace sluice
