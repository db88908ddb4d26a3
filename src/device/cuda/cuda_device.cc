#include "src/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/device/arena.h"
#include "src/device/cuda/check_cuda.h"
#include "src/device/cuda/cuda_graph.h"
#include "src/device/cuda/gpu_info.h"

namespace sluice::cuda {
namespace {

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(int device) : device_(device) {
    check_cuda(cudaSetDevice(device_), "choosing the device");
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void synchronize() override {
    check_cuda(cudaSetDevice(device_), "choosing the device");  // this may be the thread's first
    check_cuda(cudaEventSynchronize(event_), "waiting for the device");
  }
  cudaEvent_t get() const { return event_; }

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

// Returns whether the driver does not know this memory. A copy may still use such memory after its
// call.
bool pageable(const void* at) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, at), "asking about memory");
  return attributes.type == cudaMemoryTypeUnregistered;
}

// Each call makes the device the calling thread's current one; handle() does so for the launch that
// asks for it.
class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(int device) : device_(device) {
    use_device();
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  ~CudaStream() override { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void copy(std::byte* to, const std::byte* from, uint64_t bytes) override {
    use_device();
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copying");
    if (pageable(from) || pageable(to)) synchronize();
  }
  void clear(std::byte* at, uint64_t bytes) override {
    use_device();
    check_cuda(cudaMemsetAsync(at, 0, bytes, stream_), "clearing memory");
  }
  void record(DeviceEvent& event) override {
    use_device();
    check_cuda(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_),
               "recording an event");
  }
  void wait(const DeviceEvent& event) override {
    use_device();
    check_cuda(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).get(), 0),
               "waiting for an event");
  }
  void synchronize() override {
    use_device();
    check_cuda(cudaStreamSynchronize(stream_), "waiting for the device");
  }
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) override {
    use_device();
    return CudaGraph::capture(stream_, work);
  }
  void launch(DeviceGraph& graph) override {
    use_device();
    static_cast<CudaGraph&>(graph).launch(stream_);
  }
  CUstream_st* handle() const override {
    use_device();
    return stream_;
  }

 private:
  void use_device() const { check_cuda(cudaSetDevice(device_), "choosing the device"); }

  int device_;
  cudaStream_t stream_ = nullptr;
};

class CudaPinned final : public Pinned {
 public:
  explicit CudaPinned(void* data) : data_(data) {}
  ~CudaPinned() override { cudaHostUnregister(data_); }
  CudaPinned(const CudaPinned&) = delete;
  CudaPinned& operator=(const CudaPinned&) = delete;

 private:
  void* data_;
};

class CudaDevice final : public Device, private MemoryOwner {
 public:
  CudaDevice(int index, DeviceInfo info) : index_(index), info_(std::move(info)) {}
  ~CudaDevice() override {
    if (memory_ != nullptr) cudaFree(memory_);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }
  Place place() const override { return Place::device; }

  uint64_t free_bytes() const override {
    use_device();
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
    return free;
  }

  void reserve(uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    check(arena_.empty(), "memory is reserved while none of it is in use");
    use_device();
    if (memory_ != nullptr) check_cuda(cudaFree(std::exchange(memory_, nullptr)), "freeing memory");
    arena_ = Arena();
    if (bytes == 0) return;
    void* data = nullptr;
    check_cuda(cudaMalloc(&data, bytes), "taking memory");
    memory_ = static_cast<std::byte*>(data);
    arena_ = Arena(bytes);
  }

  Buffer memory(Ledger& ledger, Use use, std::string_view owner, uint64_t bytes,
                Buffer::Touch) override {
    uint64_t size = Buffer::charged_bytes(bytes);
    if (size == 0) return {};
    Lease lease = ledger.lease(Place::device, use, owner, size);
    std::byte* data = take(owner, size);
    Buffer buffer(std::move(lease), {data, size}, *this);
    check_cuda(cudaMemset(data, 0, size), "clearing memory");
    check_cuda(cudaStreamSynchronize(nullptr), "clearing memory");
    return buffer;
  }

  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<CudaStream>(index_); }
  std::unique_ptr<DeviceEvent> event() override { return std::make_unique<CudaEvent>(index_); }

  std::unique_ptr<Pinned> pin(std::span<std::byte> host) override {
    if (host.empty()) return nullptr;
    use_device();
    cudaError_t status = cudaHostRegister(host.data(), host.size(), cudaHostRegisterPortable);
    if (status == cudaSuccess) return std::make_unique<CudaPinned>(host.data());
    cudaGetLastError();
    log::warning("CUDA: {} of memory cannot be pinned ({}): copies to the device are slower",
                 format_size(host.size()), cudaGetErrorString(status));
    return nullptr;
  }

 private:
  void use_device() const { check_cuda(cudaSetDevice(index_), "choosing the device"); }

  std::byte* take(std::string_view owner, uint64_t size) {
    std::lock_guard lock(mutex_);
    use_device();
    std::optional<uint64_t> offset = arena_.take(size);
    if (!offset) {
      fail(ErrorKind::no_fit, "{} needs {} of the device, and {} in one piece is left of it", owner,
           format_size(size), format_size(arena_.widest_gap()));
    }
    return memory_ + *offset;
  }
  void take_back(std::span<std::byte> bytes) noexcept override {
    std::lock_guard lock(mutex_);
    arena_.give_back(static_cast<uint64_t>(bytes.data() - memory_), bytes.size());
  }

  int index_;
  DeviceInfo info_;
  mutable std::mutex mutex_;  // guards what follows
  std::byte* memory_ = nullptr;
  Arena arena_;
};

}  // namespace

std::unique_ptr<Device> open_device(int index) {
  const GpuCount found = count_gpus();
  if (found.gpus == 0) fail(ErrorKind::usage, "--device cuda: {}", found.why_none);
  if (index >= found.gpus) {
    fail(ErrorKind::usage, "--device cuda:{}: there are {} of them, counted from 0", index,
         found.gpus);
  }
  DeviceInfo info = gpu_info(index);
  if (info.compute_capability < kLeastComputeCapability) {
    fail(ErrorKind::usage, "--device cuda:{}: {} has compute capability {}.{}, and 8.0 is needed",
         index, info.name, info.compute_capability / 10, info.compute_capability % 10);
  }
  check_cuda(cudaSetDevice(index), "choosing the device");
  check_cuda(cudaFree(nullptr), "beginning to use the device");
  return std::make_unique<CudaDevice>(index, std::move(info));
}

}  // namespace sluice::cuda
