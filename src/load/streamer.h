// Executes a ReadPlan: bytes from disk through the staging ring into the parameters' storage,
// encoded on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/read_shape.h"
#include "io/reader.h"
#include "kernels/kernels.h"
#include "src/device/device.h"
#include "src/load/fetcher.h"
#include "src/load/load_pass.h"
#include "src/memory/buffer.h"
#include "src/memory/ledger.h"
#include "src/plan/plan_lists.h"
#include "src/plan/read_plan.h"

namespace sluice {

// The memory of a unit's parameters: the device's, and the host's for those that stay there.
struct UnitStorage {
  Buffer device;
  Buffer host;
  std::unique_ptr<Pinned> pinned;  // host, once it is filled

  const Buffer& of(Tier tier) const { return tier == Tier::host ? host : device; }
};

// A unit's storage: empty, with its parameters on meta, or filled. Its end returns them to meta and
// the memory to the system.
class Resident {
 public:
  Resident(const ReadPlan& plan, uint32_t unit, UnitStorage storage);  // empty
  Resident(Resident&&) noexcept = default;
  Resident& operator=(Resident&&) = delete;
  ~Resident();

  // Called when a load has written all of the storage: sets the values of the parameters.
  void fill(Device& device);
  void empty();
  // Returns a parameter's view, filled or not; null if it is not in this unit.
  const Weight* weight(const Param& param) const;
  // Touches its pages, so that the system allocates them.
  void touch(const std::stop_token& stop) const;
  // Returns one parameter to meta, and its pages to the system. Nothing if it is not in this unit.
  void release(const Param& param);

 private:
  struct Part {
    Param* param = nullptr;
    Weight weight;
    Tier tier = Tier::device;
    uint64_t offset = 0;  // of codes and scales, in the storage of the tier
    uint64_t bytes = 0;
  };
  static_assert(sizeof(Part) <= kResidentBytes);
  std::vector<Part> parts_;
  UnitStorage storage_;
};

struct TensorReport {
  const io::StoredTensor* tensor = nullptr;  // of the index that was loaded
  DType kept_dtype = DType::bf16;            // in memory
  bool quantized = false;
  EncodeStats stats;

  const std::string& name() const { return tensor->name; }
  std::string_view stored() const { return dtype_name(tensor->dtype); }
  std::string_view kept() const { return dtype_name(kept_dtype); }
  // sqrt(sum of squared errors / sum of squares); 0 for a tensor of zeros.
  double relative_rms_error() const;
};
static_assert(sizeof(TensorReport) <= kTensorReportBytes);

struct LoadReport {
  double seconds = 0;
  io::ReaderStats io;
  std::optional<double> disk_rate;       // bytes/s while the disk was the limit (DiskRate)
  std::optional<io::ReadShape> fastest;  // of those that were tried (ReadPace)
  std::string reader;                    // Reader::description()
  uint64_t needed_bytes = 0;
  std::vector<TensorReport> tensors;  // in the order of the plan
};

class Streamer {
 public:
  // All arguments outlive the streamer. The encoder writes parameters to the device's memory; the
  // CPU's encoder writes those that stay in host memory. The staging ring is leased for the
  // duration of each load. Each load writes `measured`.
  Streamer(const ReadPlan& plan, const io::CheckpointIndex& index, Device& device,
           const Encoder& encoder, Ledger& ledger, Measured& measured, LoadOptions options);

  // Reads every unit once, in disk order, from the spill cache where possible. Throws Error for
  // faults of files, memory or disk, and Error(runtime) when `stop` is requested. After an Error
  // nothing stays allocated.
  std::vector<Resident> load_all(LoadReport& report, LoadProgress& progress, std::stop_token stop);
  // Loads into existing storage of all units of a plan for the same model, for example from another
  // checkpoint. Error(refused) where a parameter has another format. After any Error the units are
  // empty.
  void refill(std::span<Resident> units, LoadReport& report, LoadProgress& progress,
              std::stop_token stop);

 private:
  void load(std::span<Resident> units, LoadReport& report, LoadProgress& progress,
            const std::stop_token& stop);
  std::vector<Weight> weights(std::span<const Resident> units) const;

  const ReadPlan& plan_;
  const io::CheckpointIndex& index_;
  Device& device_;
  const Encoder& encoder_;
  Ledger& ledger_;
  Measured& measured_;
  LoadOptions options_;
};

}  // namespace sluice
