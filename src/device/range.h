// Named stretches of a thread's time, for profilers such as Nsight Systems (NVTX). They do nothing
// if no profiler is attached, or in builds without the CUDA Toolkit.
#pragma once

#include <string>

namespace sluice {

// A range from here to its end; ranges lie within each other.
class Range {
 public:
  explicit Range(const std::string& name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace sluice
