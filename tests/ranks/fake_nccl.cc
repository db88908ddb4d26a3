// NCCL's functions, after its documentation, for ranks that are threads of one process and have
// emulated devices. A rank waits for the others in the call, as one task of a device runs at a
// time.
#include "tests/ranks/fake_nccl.h"

#include <array>
#include <barrier>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace {

struct Meeting {
  explicit Meeting(int size) : barrier(size), sent(static_cast<size_t>(size)) {}
  std::barrier<> barrier;
  std::vector<std::vector<std::byte>> sent;
};

struct Comm {
  std::shared_ptr<Meeting> meeting;
  size_t rank = 0;
};

struct UniqueId {
  std::array<char, 128> internal;
};

sluice::test::FakeStreams streams;
std::mutex mutex;
std::map<int, std::shared_ptr<Meeting>> meetings;
int ids = 0;
std::condition_variable released;
bool is_held = false;
int failing_rank = -1;

constexpr int kUint8 = 1, kInvalidArgument = 4;

}  // namespace

extern "C" {

void fake_nccl_use(const sluice::test::FakeStreams* use) { streams = *use; }

void fake_nccl_hold(bool hold, int failing) {
  const std::lock_guard lock(mutex);
  is_held = hold;
  failing_rank = failing;
  released.notify_all();
}

int ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(mutex);
  ++ids;
  std::memcpy(id->internal.data(), &ids, sizeof(ids));
  return 0;
}

int ncclCommInitRank(void** comm, int ranks, UniqueId id, int rank) {
  int number = 0;
  std::memcpy(&number, id.internal.data(), sizeof(number));
  if (number == 0 || rank >= ranks) return kInvalidArgument;
  std::unique_lock lock(mutex);
  if (rank == failing_rank) return kInvalidArgument;
  released.wait(lock, [] { return !is_held; });
  std::shared_ptr<Meeting>& meeting = meetings[number];
  if (meeting == nullptr) meeting = std::make_shared<Meeting>(ranks);
  *comm = new Comm{meeting, static_cast<size_t>(rank)};
  return 0;
}

int ncclCommAbort(void* comm) {
  delete static_cast<Comm*>(comm);
  return 0;
}

int ncclAllGather(const void* own, void* all, size_t count, int type, void* comm,
                  CUstream_st* stream) {
  if (type != kUint8) return kInvalidArgument;
  const Comm& c = *static_cast<Comm*>(comm);
  std::vector<std::byte>& sent = c.meeting->sent[c.rank];
  sent.resize(count);
  streams.put(stream, [&sent, own, count] { std::memcpy(sent.data(), own, count); });
  streams.synchronize(stream);
  c.meeting->barrier.arrive_and_wait();
  std::vector<std::byte> received;
  for (const auto& part : c.meeting->sent)
    received.insert(received.end(), part.begin(), part.end());
  c.meeting->barrier.arrive_and_wait();
  streams.put(stream, [received = std::move(received), all] {
    std::memcpy(all, received.data(), received.size());
  });
  return 0;
}

const char* ncclGetErrorString(int) { return "invalid argument"; }

}  // extern "C"
