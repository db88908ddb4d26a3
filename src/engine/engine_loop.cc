#include "src/engine/engine_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <functional>
#include <iterator>
#include <new>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/thread.h"

namespace sluice {
namespace {

// The interval at which an idle loop looks whether the budget has become smaller.
constexpr std::chrono::seconds kIdle{1};
constexpr const char* kSleeps = "the model sleeps; wake it up first";

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  if (to.empty()) {
    to.swap(from);
  } else {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }
}

}  // namespace

void StreamPart::add(StreamPart next) {
  append(ids, next.ids);
  append(logprobs, next.logprobs);
  text += next.text;
  if (next.result) result = std::move(next.result);
}

EngineLoop::EngineLoop(LoadedModel& model, int64_t max_num_seqs, const std::atomic<int>& shrink,
                       std::stop_token stop)
    : model_(model),
      max_num_seqs_(max_num_seqs),
      shrink_(shrink),
      stop_(std::move(stop)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) fail_errno(errno, "cannot make an event descriptor");
  try {
    start_engine();
    publish();
    thread_ = start_thread({"running the engine"}, [this] { run(); });
  } catch (...) {
    close(wake_);
    throw;
  }
}

EngineLoop::~EngineLoop() {
  stop();
  close(wake_);
}

void EngineLoop::stop() {
  {
    std::lock_guard lock(mail_mutex_);
    mail_.stop = true;
    if (ended_.empty()) ended_ = "the engine has been stopped";
  }
  mail_came_.notify_one();
  if (thread_.joinable()) thread_.join();
}

int64_t EngineLoop::add(Request request) {
  int64_t number = 0;
  {
    std::lock_guard lock(mail_mutex_);
    if (!ended_.empty()) fail(ErrorKind::runtime, "{}", ended_);
    if (!engine_) fail(ErrorKind::runtime, "{}", kSleeps);
    engine_->check_runnable(request);
    number = next_++;
    mail_.added.push_back({number, std::move(request)});
  }
  mail_came_.notify_one();
  return number;
}

void EngineLoop::cancel(int64_t request) {
  {
    std::lock_guard lock(mail_mutex_);
    mail_.cancelled.push_back(request);
  }
  mail_came_.notify_one();
}

void EngineLoop::perform(ModelTask task) {
  std::lock_guard one(tasks_mutex_);
  auto asked = std::make_unique<Asked>(Asked{std::move(task), {}});
  std::future<void> done = asked->done.get_future();
  {
    std::lock_guard lock(mail_mutex_);
    if (!ended_.empty()) fail(ErrorKind::runtime, "{}", ended_);
    mail_.task = std::move(asked);
  }
  mail_came_.notify_one();
  done.get();
}

bool EngineLoop::asleep() const {
  std::lock_guard lock(mail_mutex_);
  return !engine_;
}

EngineLoop::Parts EngineLoop::take() {
  std::lock_guard lock(box_mutex_);
  uint64_t woken = 0;
  if (::read(wake_, &woken, sizeof(woken)) < 0) return {};  // nothing has come
  return std::exchange(box_, {});
}

void EngineLoop::wake() const {
  constexpr uint64_t kOne = 1;
  if (::write(wake_, &kOne, sizeof(kOne)) < 0) return;  // it is full, and wakes all the same
}

LoopStatus EngineLoop::status() const {
  std::lock_guard lock(status_mutex_);
  return status_;
}

std::string EngineLoop::failure() const {
  std::lock_guard lock(mail_mutex_);
  return failure_;
}

// A fault that is not of one pass is a fault of every request, as the engine is unusable after it.
void EngineLoop::run() {
  std::string why = "the engine has been stopped";
  bool failed = true;
  try {
    serve();
    failed = false;
  } catch (const std::bad_alloc&) {
    why = "the system has no memory left";
  } catch (const std::exception& e) {
    why = e.what();
  }
  std::vector<Added> never_begun;
  {
    std::lock_guard lock(mail_mutex_);
    ended_ = why;
    if (failed) failure_ = why;
    never_begun = std::move(mail_.added);
    if (mail_.task) task_ = std::move(mail_.task);
  }
  if (task_) task_->done.set_exception(std::make_exception_ptr(Error(ErrorKind::runtime, why)));
  for (const Added& added : never_begun)
    open_.emplace(added.number, Ended(static_cast<size_t>(added.request.n)));
  end_all(why);
}

void EngineLoop::serve() {
  for (;;) {
    Mail mail = next_mail();
    for (Added& added : mail.added) begin(std::move(added));
    if (mail.task) task_ = std::move(mail.task);
    for (int64_t request : mail.cancelled) drop(request);
    if (mail.stop) return;
    if (task_) advance_task();
    if (!idle()) step();
    if (engine_) follow_limits(model_, shrink_, followed_);
    publish();
  }
}

// A pass that fails, as a read may, ends the requests that it was for; others go on. Several in a
// row are no matter of requests. Ranks compute together: one that fails alone has lost the others.
void EngineLoop::step() {
  constexpr int kMostFailures = 3;
  std::vector<Output> outputs;
  try {
    outputs = engine_->step({});
    failures_ = 0;
  } catch (const Error& e) {
    const std::vector<int64_t> failed = engine_->failed_pass();
    if (failed.empty() || e.kind() != ErrorKind::runtime || model_.planner().rank().size > 1 ||
        ++failures_ >= kMostFailures)
      throw;
    log::warning("a pass has failed: {}", e.what());
    for (int64_t request : failed) {
      engine_->cancel(request);
      const auto open = open_.find(request);
      if (open == open_.end()) continue;  // another continuation of it was first
      end_with_error(request, open->second, e.what());
      open_.erase(open);
    }
  }
  post(std::move(outputs));
}

// Waits where there is nothing to do.
EngineLoop::Mail EngineLoop::next_mail() {
  std::unique_lock lock(mail_mutex_);
  if (idle() && !task_) mail_came_.wait_for(lock, kIdle, [&] { return !mail_.empty(); });
  return std::exchange(mail_, {});
}

void EngineLoop::begin(Added added) {
  Ended& ended = open_[added.number];
  ended.resize(static_cast<size_t>(added.request.n));
  try {
    if (!engine_ || task_) fail(ErrorKind::runtime, "{}", kSleeps);
    engine_->add(added.number, std::move(added.request));
  } catch (const Error& e) {
    end_with_error(added.number, ended, e.what());
    open_.erase(added.number);
  }
}

void EngineLoop::drop(int64_t request) {
  if (engine_) engine_->cancel(request);
  open_.erase(request);
  std::lock_guard lock(box_mutex_);
  box_.erase(box_.lower_bound({request, 0}), box_.lower_bound({request + 1, 0}));
}

void EngineLoop::post(std::vector<Output> outputs) {
  for (Output& out : outputs) {
    const OutputId id = out.id;
    auto open = open_.find(id.request);
    check(open != open_.end(), "an output of a request that nobody asked for");
    StreamPart part{std::move(out.ids), std::move(out.text), std::move(out.logprobs), {}};
    if (out.finished) part.result = engine_->take(id);
    put(id, std::move(part));
    if (!out.finished) continue;
    open->second[static_cast<size_t>(id.index)] = true;
    if (std::ranges::all_of(open->second, std::identity())) open_.erase(open);
  }
}

void EngineLoop::put(OutputId id, StreamPart part) {
  std::lock_guard lock(box_mutex_);
  if (box_.empty()) wake();
  auto [at, fresh] = box_.try_emplace(id);
  if (fresh) {
    at->second = std::move(part);
  } else {
    at->second.add(std::move(part));
  }
}

void EngineLoop::end_all(const std::string& why) {
  for (const auto& [request, ended] : open_) end_with_error(request, ended, why);
  open_.clear();
}

void EngineLoop::end_with_error(int64_t request, const Ended& ended, const std::string& why) {
  for (size_t i = 0; i < ended.size(); ++i) {
    if (ended[i]) continue;
    StreamPart part;
    part.result.emplace();
    part.result->finish_reason = "error";
    part.result->error = why;
    put({request, static_cast<int64_t>(i)}, std::move(part));
  }
}

void EngineLoop::start_engine() {
  Runner& runner = model_.runner();
  std::lock_guard lock(mail_mutex_);
  engine_.emplace(runner, model_.planner().checkpoint().tokenizer(), max_num_seqs_);
}

void EngineLoop::end_engine() {
  if (engine_) past_ += engine_->stats();
  {
    std::lock_guard lock(mail_mutex_);
    engine_.reset();
  }
  model_.release();
}

void EngineLoop::advance_task() {
  if (task_->task.abort) {
    std::vector<int64_t> open;
    for (const auto& [request, ended] : open_) open.push_back(request);
    for (int64_t request : open) engine_->cancel(request);
    end_all(kSleeps);
  }
  if (!idle()) return;
  const std::unique_ptr<Asked> asked = std::move(task_);
  try {
    do_task(asked->task);
    publish();
    asked->done.set_value();
  } catch (...) {
    publish();
    asked->done.set_exception(std::current_exception());
  }
}

void EngineLoop::do_task(const ModelTask& task) {
  switch (task.kind) {
    case ModelTask::Kind::sleep:
      model_.planner().need_one_rank("sleeping");
      return end_engine();
    case ModelTask::Kind::wake:
      if (engine_) return;
      follow_limits(model_, shrink_, followed_);  // that came while it slept
      try {
        model_.reload(stop_);
        return start_engine();
      } catch (...) {
        end_engine();
        throw;
      }
    case ModelTask::Kind::exchange:
      if (!engine_) fail(ErrorKind::usage, "{}", kSleeps);
      try {
        model_.refill(task.model, stop_);
      } catch (...) {
        if (!model_.has_weights()) end_engine();
        throw;
      }
  }
}

void EngineLoop::publish() {
  LoopStatus now{.stats = past_,
                 .predicted_peak = model_.predicted_peak(),
                 .predicted_device_peak = model_.predicted_device_peak(),
                 .placed = model_.placed()};
  if (engine_) {
    const BlockManager& blocks = model_.runner().blocks();
    now.stats += engine_->stats();
    now.running = engine_->running();
    now.waiting = engine_->waiting();
    now.blocks = blocks.size();
    now.blocks_used = blocks.size() - blocks.free_blocks();
    now.blocks_kept = blocks.kept_blocks();
  }
  std::lock_guard lock(status_mutex_);
  status_ = std::move(now);
}

}  // namespace sluice
