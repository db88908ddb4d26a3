// A device for tests: its memory is memory that only its own work may touch, and its work is done
// as late, and in an order as bad, as CUDA allows (streams.h). Kernels run in the emulator.
#pragma once

#include <cstdint>
#include <memory>

#include "src/device/device.h"
#include "tests/support/simt/streams.h"

namespace sluice::simt {

struct DeviceOptions {
  Schedule schedule = Schedule::lazy;
  uint64_t seed = 0;
  uint64_t bytes = uint64_t{1} << 30;  // of its memory
  int compute_capability = 89;
  bool graphs = true;        // it can record work
  uint64_t graph_bytes = 0;  // that each graph says it takes
};

// Each piece of its memory ends at a page that nobody may touch. Reads and writes of a host thread
// end the process.
class EmulatedDevice : public Device {
 public:
  virtual uint64_t peak_bytes() const = 0;  // that were in use at once
  virtual int64_t graphs() const = 0;       // that there are now
  virtual uint64_t bytes_out() const = 0;   // copied from its memory to the host's
};
std::unique_ptr<EmulatedDevice> make_emulated_device(const DeviceOptions& options);

}  // namespace sluice::simt
