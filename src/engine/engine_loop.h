// An engine on a thread of its own. Other threads give it requests, and take what comes of them
// when they like: as data, so that none of their code runs between steps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"

namespace sluice {

// The part of a continuation that was added since it was taken last. A part that nobody takes grows
// with the continuation: there is never more than one.
struct StreamPart {
  std::vector<int32_t> ids = {};
  std::string text = {};
  std::vector<TokenLogprobs> logprobs = {};
  std::optional<RequestResult> result = {};  // it has ended: nothing comes after it

  void add(StreamPart next);  // the part that came after it
};

// A loop's work on its model between requests.
struct ModelTask {
  enum class Kind : uint8_t {
    sleep,     // gives back the weights, the KV cache and all else that the model has
    wake,      // loads it again, as it was
    exchange,  // loads the weights of another directory in place of the present ones
  };
  Kind kind = Kind::sleep;
  std::filesystem::path model = {};  // to exchange
  bool abort = false;                // ends what runs with an error, instead of waiting for it
};

// A moment of the loop, for reports.
struct LoopStatus {
  EngineStats stats;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t blocks = 0;  // of the KV cache
  int64_t blocks_used = 0;
  int64_t blocks_kept = 0;      // by no sequence, as prefixes that may come again
  uint64_t predicted_peak = 0;  // of the process, which a smaller budget changes [bytes]
  uint64_t predicted_device_peak = 0;
  std::shared_ptr<const Placed> placed;  // which that budget changes, too
};

// Thread-safe.
class EngineLoop {
 public:
  // The model outlives this, and nobody else runs or shrinks it meanwhile. At most
  // `max_num_seqs` sequences run in a step. Between steps the loop follows `shrink`
  // (follow_limits()). `stop` ends loads and passes. Error(runtime) where no thread can start.
  EngineLoop(LoadedModel& model, int64_t max_num_seqs, const std::atomic<int>& shrink,
             std::stop_token stop = {});
  ~EngineLoop();  // as stop()
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Returns the number of the request, before it has begun. Throws what Engine::check_runnable()
  // throws, and Error(runtime) if the loop has ended or the model sleeps. Later faults are errors
  // of its results.
  int64_t add(Request request);
  // Its KV blocks are free before the next step, and what was not taken of it is dropped; parts may
  // come until then. Does nothing where it has ended.
  void cancel(int64_t request);

  using Parts = std::map<OutputId, StreamPart>;
  // All that has come; never waits.
  Parts take();
  // Can be read from (poll) while there is something to take. take() empties it.
  int wake_descriptor() const { return wake_; }

  // Waits until the task is done. Requests that come before that end with an error. To sleep or to
  // wake twice does nothing. Throws what loading throws: where nothing was changed, all is as
  // before; else the model sleeps. To exchange the weights of a model that sleeps is an
  // Error(usage).
  void perform(ModelTask task);
  bool asleep() const;

  LoopStatus status() const;
  // Why the loop has ended by itself: a pass has failed. Empty: it has not.
  std::string failure() const;

  // Ends the loop after the present step; requests that have not ended get results with an error.
  void stop();

 private:
  struct Added {
    int64_t number = 0;
    Request request;
  };
  struct Asked {
    ModelTask task;
    std::promise<void> done;
  };
  struct Mail {
    std::vector<Added> added;
    std::vector<int64_t> cancelled;
    std::unique_ptr<Asked> task = {};
    bool stop = false;
    bool empty() const { return added.empty() && cancelled.empty() && !task && !stop; }
  };
  using Ended = std::vector<bool>;  // of each continuation of a request

  void run();
  void serve();
  void step();
  Mail next_mail();
  bool idle() const { return !engine_ || engine_->idle(); }
  void begin(Added added);
  void drop(int64_t request);
  void post(std::vector<Output> outputs);
  void put(OutputId id, StreamPart part);
  void end_all(const std::string& why);
  void start_engine();
  void end_engine();
  void advance_task();
  void do_task(const ModelTask& task);
  void end_with_error(int64_t request, const Ended& ended, const std::string& why);
  void publish();
  void wake() const;

  LoadedModel& model_;
  int64_t max_num_seqs_;
  const std::atomic<int>& shrink_;
  std::stop_token stop_;
  // The loop's thread's.
  int followed_ = 0;
  int failures_ = 0;               // passes that have failed one after the other
  std::map<int64_t, Ended> open_;  // requests in the engine
  std::unique_ptr<Asked> task_;    // that waits for the engine to be idle
  EngineStats past_;               // of engines before the present one

  std::mutex tasks_mutex_;  // one task at a time

  mutable std::mutex mail_mutex_;
  std::optional<Engine> engine_;  // none: the model sleeps. Changed with the mutex held
  std::condition_variable mail_came_;
  Mail mail_;
  int64_t next_ = 0;
  std::string ended_;  // why nothing can be added
  std::string failure_;

  std::mutex box_mutex_;
  Parts box_;
  int wake_ = -1;

  mutable std::mutex status_mutex_;
  LoopStatus status_;

  std::thread thread_;
};

}  // namespace sluice
