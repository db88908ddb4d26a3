#include <algorithm>

#include "src/engine/engine.h"

namespace sluice {

EngineStats& EngineStats::operator+=(const EngineStats& s) {
  for (int64_t EngineStats::* count :
       {&EngineStats::steps, &EngineStats::rows, &EngineStats::prompt_tokens,
        &EngineStats::prefix_tokens, &EngineStats::generated_tokens, &EngineStats::drafted,
        &EngineStats::accepted, &EngineStats::preemptions, &EngineStats::slots_held,
        &EngineStats::slots_filled})
    this->*count += s.*count;
  for (int64_t BlockStats::* count :
       {&BlockStats::stored, &BlockStats::restored, &BlockStats::lost})
    blocks.*count += s.blocks.*count;
  for (double EngineStats::* seconds :
       {&EngineStats::schedule_seconds, &EngineStats::model_seconds, &EngineStats::sample_seconds})
    this->*seconds += s.*seconds;
  most_running = std::max(most_running, s.most_running);
  if (s.pass_seconds > 0) pass_seconds = s.pass_seconds;
  return *this;
}

}  // namespace sluice
