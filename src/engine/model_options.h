// Options with which a model is opened, planned and loaded, as a user asks for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/reader.h"
#include "kernels/backend.h"
#include "src/base/thread_pool.h"
#include "src/load/spill.h"
#include "src/memory/buffer.h"
#include "src/nn/device_group.h"
#include "src/plan/memory_plan.h"
#include "src/plan/quantize.h"

namespace sluice {

enum class DtypeChoice : uint8_t { automatic, bf16, f32 };

struct ModelOptions {
  std::filesystem::path model;
  std::vector<std::filesystem::path> mirrors;  // directories with some or all of its weight files
  io::OutsideLinks outside_links = io::OutsideLinks::refused;
  bool dummy_weights = false;                // of `model` only the config counts
  bool needs_head = true;                    // else a model without one makes embeddings
  std::optional<std::string> memory;         // as given: "2GiB", "75%"; none: the free memory
  std::shared_ptr<Backend> backend;          // computes the model; null: the CPU, as `isa` says
  std::optional<std::string> device_memory;  // as `memory`, of a device with memory of its own
  // Rows of a step up to which the CPU multiplies weights in host memory beside a device (0: it
  // never does); none: as the plan computes it from the machine's rates (src/plan/host_rows.h).
  std::optional<int64_t> cpu_rows;
  QuantizeRequest quantize;
  DtypeChoice dtype = DtypeChoice::automatic;
  std::optional<DType> kv_dtype;  // of the KV cache (kernels/kv_cache.h); none: as computed
  std::optional<double> max_quant_error;
  io::ReaderKind reader = io::ReaderKind::automatic;
  Isa isa = Isa::automatic;
  int threads = 0;  // 0: as many as the process may use
  ThreadPool::Pin pin_threads = ThreadPool::Pin::no;
  int64_t scheduler_slice = 0;  // requested while weights stream [microseconds]; 0: none
  int64_t block_size = 16;
  std::optional<int64_t> max_model_len;
  bool longest_model_len = false;  // as long as the budget allows
  std::vector<PlaceRule> place;
  SpillOptions spill;                        // for what is streamed
  uint64_t kv_bytes = 0;                     // limit of the KV cache; 0: as much as is needed
  SwapShape swap;                            // room for evicted KV blocks
  bool prompt_cache = false;                 // a prompt cache will be used
  Buffer::Touch touch = Buffer::Touch::now;  // of the memory to run, but for small parts
  std::shared_ptr<const Group> ranks;        // that compute the model together; null: one alone
  // A way between the GPUs of the ranks, which each have one; null: they compute on CPUs.
  std::shared_ptr<const DeviceLink> devices;
  int pipeline_parallel_size = 1;          // of so many ranks each has some of the layers
  bool expert_parallel = false;            // of others each has some of the experts
  const io::SystemCalls* calls = nullptr;  // of weights' reads, for tests; null: the real ones
};

}  // namespace sluice
