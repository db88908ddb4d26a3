// Sessions in less memory than their model takes.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/engine/session.h"
#include "src/memory/system.h"

namespace sluice::test {

// Bytes beside what the process holds: the least that works, and the least with which nothing is
// streamed. The same where nothing ever is.
struct Needs {
  uint64_t smallest = 0;
  uint64_t resident = 0;
  // Between them, so that something is streamed.
  uint64_t at(double share) const {
    return smallest + static_cast<uint64_t>(share * static_cast<double>(resident - smallest));
  }
};

inline uint64_t least_room(const SessionOptions& options,
                           const std::function<RunShape(const Session&)>& shape) {
  Session session(options);
  const MemoryPlan smallest = session.smallest(shape(session));
  return smallest.needed() - smallest.runtime;
}

inline Needs needs(const SessionOptions& options,
                   const std::function<RunShape(const Session&)>& shape) {
  constexpr uint64_t kStep = 64 * KiB;
  Session session(options);
  const MemoryPlan smallest = session.smallest(shape(session));
  Needs needs{smallest.needed() - smallest.runtime, session.predict(shape(session)).needed()};
  needs.resident -= smallest.runtime;
  for (uint64_t streams = needs.smallest; needs.resident - streams > kStep;) {
    const uint64_t middle = (streams + needs.resident) / 2;
    const auto [plan, read] =
        session.what_if(shape(session), smallest.runtime + middle, options.quantize);
    (plan.streams() ? streams : needs.resident) = middle;
  }
  if (!smallest.streams()) needs.smallest = needs.resident;
  return needs;
}

// Returns a session with `room` beside the process's own memory. That memory changes from one
// session to the next, most of all under sanitizers: if too little is left, or more than was asked
// for, the next attempt has just the difference more or less.
inline std::unique_ptr<Session> placed(SessionOptions options, uint64_t room,
                                       const std::function<RunShape(const Session&)>& shape) {
  constexpr uint64_t kStep = 64 * KiB;
  uint64_t more = 0, less = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    malloc_trim(0);  // a session gives back what the one before has freed, and then it is room
    options.memory = std::to_string(process_rss() + room + more - std::min(room + more, less));
    auto session = std::make_unique<Session>(options);
    try {
      session->place(shape(*session));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::no_fit) throw;
      const uint64_t needed = session->smallest(shape(*session)).needed();
      more += needed - std::min(needed, session->budget());
      continue;
    }
    const uint64_t beside = session->budget() - session->memory_plan().runtime;
    if (beside <= room + more + kStep) return session;
    less += beside - room - more;
  }
  throw std::runtime_error("no budget is enough");
}

// Rules of --place that read every second matrix of the model from disk in each pass, and take the
// others from host memory.
inline std::string half_on_disk(const SessionOptions& options) {
  Session session(options);
  std::string rules = "*=host";
  int64_t matrices = 0;
  session.model().root->each_param([&](const Param& p) {
    if (!p.pieces.front().vector && ++matrices % 2 == 0) rules += "," + p.path + "=disk";
  });
  return rules;
}

}  // namespace sluice::test
