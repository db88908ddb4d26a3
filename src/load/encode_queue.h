// The workers of a fetch loop: arrived fetches go in, are encoded or copied to their destination,
// and come out to be released.
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
#include "src/load/fetch.h"
#include "src/load/spill.h"
#include "src/plan/measured.h"
#include "src/plan/read_plan.h"

namespace sluice {

struct ArrivedFetch {
  Fetch fetch;
  io::ReadResult read;
  EncodeStats stats = {};  // errors of a tile's encoding, once it is finished
};

// Everything referred to outlives the queue.
struct EncodeSetup {
  const ReadPlan& plan;
  const Encoder& encoder;
  // Destination of parameter p of the plan; allocated before the first of its fetches is pushed.
  // Empty where all fetches have tiles.
  std::span<const Weight> weights;
  Measured& measured;                  // results of fetches that measure
  std::span<std::byte> slots;          // memory in which fetches arrive
  uint64_t slot_bytes = 0;             // of each
  int threads = 0;                     // 0: the calling thread encodes
  const Spill* packed = nullptr;       // source of Form::packed
  Spill* fills = nullptr;              // spill cache to fill; null: none
  Device* device = nullptr;            // of the encoder; null: the host
  std::span<std::byte> row_amax = {};  // of plan.row_amax, for spans of the load
};

class EncodeQueue {
 public:
  explicit EncodeQueue(const EncodeSetup& setup);
  ~EncodeQueue();  // waits for the workers; drops what they have not begun

  void push(const ArrivedFetch& arrived);
  // Fetches whose bytes are no longer needed. With `block` at least one: instead of waiting the
  // caller encodes what no worker has begun. Rethrows a worker's failure.
  std::vector<ArrivedFetch> take_finished(bool block);

  // One for each move of the plan, once every fetch of the load is finished.
  std::vector<EncodeStats> take_stats();

 private:
  // State of a tensor with one scale, or of a transposed one: the largest values so far; and, for
  // the first of the tensors that share reads, the fetches that wait for them. Of one whose columns
  // change places: the rows of the file that are encoded.
  struct Measuring {
    uint32_t spans = 0;
    float amax = 0;
    uint32_t encoded = 0;   // spans, or rows
    float* area = nullptr;  // each row's largest value, then its scale
    std::vector<ArrivedFetch> waiting;
  };

  static_assert(sizeof(Measuring) <= kMeasuringBytes && sizeof(EncodeStats) <= kEncodeStatsBytes);

  void work();
  void end_work();
  void await_call();
  void call_workers();  // with mutex_ held
  void process_first(std::unique_lock<std::mutex>& lock);
  void process(const ArrivedFetch& arrived);
  void measure(const ArrivedFetch& arrived);
  void take_area(uint32_t tensor);
  float* rows_of(uint32_t first, const Move& move);
  uint32_t spans_in(const ArrivedFetch& arrived) const;
  float measured_amax(const Move& move, const EncodeArgs& args) const;
  void find_scales(uint32_t first, const Move& move);
  void give_back_area(const ArrivedFetch& arrived);
  void encode(ArrivedFetch arrived);
  void order_columns(const Move& move);
  void copy_packed(const ArrivedFetch& arrived);
  void copy_to_device(const Weight& from, const Weight& to, int64_t row);
  void fill(const Move& move, const EncodeStats& stats, const ArrivedFetch& arrived);
  void finish(const ArrivedFetch& arrived);
  EncodeArgs encode_args(const Move& move, const ArrivedFetch& arrived) const;
  EncodeArgs column_args(const Move& move, bool is_exchanged, EncodeArgs args) const;
  EncodeArgs plane_args(const Move& move, EncodeArgs args) const;
  EncodeStats encode_planes(const ArrivedFetch& arrived) const;
  const Encoder& encoder_for(const Move& move) const;

  const EncodeSetup setup_;
  const ReadPlan& plan_;
  std::unique_ptr<Encoder> host_encoder_;  // for what stays in host memory beside a device
  std::mutex copies_mutex_;
  std::unique_ptr<DeviceStream>
      copies_;  // to a device with memory of its own; guarded by the mutex

  mutable std::mutex mutex_;  // guards everything below, and setup_.measured
  std::vector<EncodeStats> stats_;
  std::condition_variable finished_ready_;
  bool is_awaited_ = false;  // finished_ready_ is
  size_t awake_ = 0;         // workers that look for work, or have been woken
  std::deque<ArrivedFetch> ready_;
  std::vector<ArrivedFetch> finished_;
  std::vector<Measuring> measuring_;  // of each tensor
  std::vector<float*> free_areas_;    // of setup_.row_amax
  bool closed_ = false;
  std::exception_ptr failure_;

  std::counting_semaphore<> calls_{0};
  std::vector<std::thread> workers_;
};

}  // namespace sluice
