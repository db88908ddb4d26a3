#include "tests/support/simt/streams.h"

#include <algorithm>
#include <string>

#include "src/base/check.h"
#include "tests/support/simt/emulator.h"

namespace sluice::simt {
namespace {

bool can_run(const CUstream_st& stream) {
  if (stream.tasks.empty()) return false;
  const Mark& after = stream.tasks.front().after;
  return after == nullptr || *after;
}

}  // namespace

CUstream_st* Streams::make() {
  std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<CUstream_st>());
  streams_.back()->owner = this;
  return streams_.back().get();
}

void Streams::end(CUstream_st* stream) noexcept {
  try {
    synchronize(stream);
  } catch (...) {  // whoever waited for it has been told
  }
  std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const auto& s) { return s.get() == stream; });
}

void Streams::put(CUstream_st* stream, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (stream->recording != nullptr) {
    stream->recording->push_back(std::move(work));
  } else {
    stream->tasks.push_back({std::move(work), nullptr, nullptr});
  }
}

std::vector<std::function<void()>> Streams::capture(CUstream_st* stream,
                                                    const std::function<void()>& work) {
  std::vector<std::function<void()>> recorded;
  auto record_to = [&](std::vector<std::function<void()>>* to) {
    std::lock_guard lock(mutex_);
    stream->recording = to;
  };
  record_to(&recorded);
  try {
    work();
  } catch (...) {
    record_to(nullptr);
    throw;
  }
  record_to(nullptr);
  return recorded;
}

void Streams::refuse_recording(const CUstream_st* stream, const char* what) const {
  if (stream->recording != nullptr) throw Fault(std::string(what) + " while work is recorded");
}

Mark Streams::record(CUstream_st* stream) {
  std::lock_guard lock(mutex_);
  refuse_recording(stream, "an event");
  Mark point = std::make_shared<bool>(false);
  stream->tasks.push_back({{}, nullptr, point});
  return point;
}

void Streams::wait(CUstream_st* stream, Mark mark) {
  std::lock_guard lock(mutex_);
  refuse_recording(stream, "a wait for an event");
  stream->tasks.push_back({{}, std::move(mark), nullptr});
}

void Streams::synchronize(CUstream_st* stream) {
  std::lock_guard lock(mutex_);
  refuse_recording(stream, "a wait for the stream");
  run_until([&] { return stream->tasks.empty(); }, stream);
}

void Streams::synchronize(const Mark& mark) {
  std::lock_guard lock(mutex_);
  if (mark == nullptr) return;
  run_until([&] { return *mark; }, *mark ? nullptr : stream_of(mark));
}

CUstream_st* Streams::stream_of(const Mark& point) {
  auto found = std::ranges::find_if(streams_, [&](const auto& s) {
    return std::ranges::find(s->tasks, point, &CUstream_st::Task::point) != s->tasks.end();
  });
  check(found != streams_.end(), "somebody has recorded what is waited for");
  return found->get();
}

// A stream that can go on, for the sake of `wanted`, which is not done.
CUstream_st* Streams::choose(CUstream_st* wanted) {
  std::vector<CUstream_st*> ready;
  for (const auto& s : streams_)
    if (can_run(*s)) ready.push_back(s.get());
  if (schedule_ == Schedule::shuffled) return ready[random_() % ready.size()];
  if (schedule_ == Schedule::eager) {
    auto other = std::ranges::find_if(ready, [&](CUstream_st* s) { return s != wanted; });
    if (other != ready.end()) return *other;
  }
  while (!can_run(*wanted)) wanted = stream_of(wanted->tasks.front().after);
  return wanted;
}

void Streams::run_until(const std::function<bool()>& done, CUstream_st* wanted) {
  if (fault_) std::rethrow_exception(fault_);
  if (done()) return;
  run_([&] {
    while (!done() && !fault_) run_front(*choose(wanted));
  });
  if (fault_) std::rethrow_exception(fault_);
}

void Streams::run_front(CUstream_st& stream) {
  CUstream_st::Task task = std::move(stream.tasks.front());
  stream.tasks.pop_front();
  try {
    if (task.work) task.work();
  } catch (...) {
    fault_ = std::current_exception();
    return;
  }
  if (task.point) *task.point = true;
}

}  // namespace sluice::simt
