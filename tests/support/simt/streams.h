// Streams of an emulated device: work waits in them until somebody waits for it, and is then done
// in an order that CUDA allows and that finds who relies on more. Work of one stream is in order,
// and so is what an event orders; between streams nothing else is.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

namespace sluice::simt {

class Streams;
using Mark = std::shared_ptr<bool>;  // a point in a stream: true once the work before it is done

}  // namespace sluice::simt

// The object behind CUDA's handle.
struct CUstream_st {
  struct Task {
    std::function<void()> work;  // empty: only a point
    sluice::simt::Mark after;    // null, or a point that it waits for
    sluice::simt::Mark point;    // null, or what it is
  };
  sluice::simt::Streams* owner = nullptr;
  std::deque<Task> tasks;
  std::vector<std::function<void()>>* recording = nullptr;  // where work goes instead
};

namespace sluice::simt {

// Who goes on while somebody waits for a stream.
enum class Schedule : uint8_t {
  lazy,      // no other than that one, and those that it has to wait for
  eager,     // all others first, as far as they can
  shuffled,  // at random
};

// Thread-safe.
class Streams {
 public:
  // `run`: runs what it is given, with whatever has to be around it.
  using Run = std::function<void(const std::function<void()>&)>;
  Streams(Schedule schedule, uint64_t seed, Run run)
      : schedule_(schedule), random_(seed), run_(std::move(run)) {}

  CUstream_st* make();
  void end(CUstream_st* stream) noexcept;  // its work is done first

  void put(CUstream_st* stream, std::function<void()> work);
  Mark record(CUstream_st* stream);
  void wait(CUstream_st* stream, Mark mark);

  // Returns the work that `work` puts into the stream, in order; none of it is done. Events and
  // waits are faults.
  std::vector<std::function<void()>> capture(CUstream_st* stream,
                                             const std::function<void()>& work);

  // Both rethrow what a task has thrown, from then on always.
  void synchronize(CUstream_st* stream);
  void synchronize(const Mark& mark);

 private:
  void refuse_recording(const CUstream_st* stream, const char* what) const;
  void run_until(const std::function<bool()>& done, CUstream_st* wanted);
  CUstream_st* choose(CUstream_st* wanted);
  CUstream_st* stream_of(const Mark& point);
  void run_front(CUstream_st& stream);

  std::mutex mutex_;  // one task runs at a time, and nobody puts work in meanwhile
  Schedule schedule_;
  std::mt19937_64 random_;
  Run run_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::exception_ptr fault_;
};

}  // namespace sluice::simt
