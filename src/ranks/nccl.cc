#include "src/ranks/nccl.h"

#include <array>
#include <future>
#include <thread>
#include <utility>

#include "src/base/error.h"
#include "src/base/shared_library.h"

namespace sluice {
namespace {

// NCCL's types and functions, after its documentation.
struct UniqueId {
  std::array<char, 128> internal{};
};
struct Functions {
  using Handle = void*;                                // ncclComm_t
  int (*get_id)(UniqueId*) = nullptr;                  // ncclGetUniqueId
  int (*init)(Handle*, int, UniqueId, int) = nullptr;  // ncclCommInitRank
  int (*abort)(Handle) = nullptr;                      // ncclCommAbort
  int (*all_gather)(const void*, void*, size_t, int, Handle, CUstream_st*) = nullptr;
  const char* (*text)(int) = nullptr;  // ncclGetErrorString
};
constexpr int kUint8 = 1;  // ncclUint8

Functions functions_of(const char* name) {
  const SharedLibrary library("NCCL", {name});
  if (!library.found())
    fail(ErrorKind::usage,
         "several ranks on GPUs need {}, which is not there; install NCCL (Debian and Ubuntu with "
         "NVIDIA's packages: libnccl2), or use --device cpu",
         name);
  Functions f;
  library.load(f.get_id, "ncclGetUniqueId");
  library.load(f.init, "ncclCommInitRank");
  library.load(f.abort, "ncclCommAbort");
  library.load(f.all_gather, "ncclAllGather");
  library.load(f.text, "ncclGetErrorString");
  return f;
}

class Nccl final : public DeviceLink {
 public:
  Nccl(const Group& group, Device& device, std::chrono::seconds patience, const char* library) {
    UniqueId own;
    group.together([&] {
      f_ = functions_of(library);
      static_cast<void>(device.stream()->handle());  // makes the device this thread's current one
      if (group.rank().rank == 0) check_status(f_.get_id(&own), "making a group");
    });
    const UniqueId id = group.gather(own).front();
    group.together([&] { join(group, device, id, patience); });
  }
  // Other ranks may have ended, for which ncclCommDestroy would wait.
  ~Nccl() override {
    if (handle_ != nullptr) f_.abort(handle_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  void all_gather(const std::byte* own, std::byte* all, uint64_t bytes,
                  DeviceStream& stream) const override {
    check_status(f_.all_gather(own, all, bytes, kUint8, handle_, stream.handle()), "gathering");
  }

 private:
  // The library waits for all ranks, without end where one does not come. So a thread of its own
  // calls it, which is left behind where the time is over: the group is broken then, and its
  // end is that of all processes.
  void join(const Group& group, Device& device, const UniqueId& id, std::chrono::seconds patience) {
    struct Joined {
      int status = 0;
      Functions::Handle handle = nullptr;
    };
    std::promise<Joined> promise;
    std::future<Joined> joined = promise.get_future();
    const auto waits = std::make_shared<bool>(true);
    std::thread([f = f_, rank = group.rank(), id, stream = device.stream(),
                 still_waits = std::weak_ptr(waits), promise = std::move(promise)]() mutable {
      static_cast<void>(std::exchange(stream, nullptr)->handle());
      Joined result;
      result.status = f.init(&result.handle, rank.size, id, rank.rank);
      if (still_waits.expired() && result.status == 0) f.abort(result.handle);
      promise.set_value(result);
    }).detach();
    if (joined.wait_for(patience) != std::future_status::ready) {
      group.break_off();
      fail(ErrorKind::runtime,
           "NCCL: the GPUs of {} ranks have not met within {} s; NCCL_DEBUG=INFO shows what it "
           "waits for, and NCCL_SOCKET_IFNAME chooses the network (--rank-timeout)",
           group.rank().size, patience.count());
    }
    const Joined result = joined.get();
    handle_ = result.handle;
    if (result.status != 0) group.break_off();  // the others wait in the library
    check_status(result.status, "joining a group");
  }
  void check_status(int status, const char* what) const {
    if (status != 0) fail(ErrorKind::runtime, "NCCL: {}: {}", what, f_.text(status));
  }

  Functions f_;
  Functions::Handle handle_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceLink> join_nccl(const Group& group, Device& device,
                                      std::chrono::seconds patience, const char* library) {
  return std::make_unique<Nccl>(group, device, patience, library);
}

}  // namespace sluice
