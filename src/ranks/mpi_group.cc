#include "src/ranks/mpi_group.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "src/base/checksum.h"
#include "src/base/environment.h"
#include "src/base/error.h"

namespace sluice {

// The functions of MPI that are used, with OpenMPI's types: handles are pointers.
struct MpiGroup::Library {
  using Handle = void*;
  void* file = nullptr;
  Handle world = nullptr;
  Handle byte = nullptr;
  int (*init)(int*, char***, int, int*) = nullptr;
  int (*finalize)() = nullptr;
  int (*comm_rank)(Handle, int*) = nullptr;
  int (*comm_size)(Handle, int*) = nullptr;
  int (*all_gather)(const void*, int, Handle, void*, int, Handle, Handle) = nullptr;
  int (*begin_send)(const void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*begin_receive)(void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*all_to_all)(const void*, const int*, const int*, Handle, void*, const int*, const int*,
                    Handle, Handle) = nullptr;
  int (*broadcast)(void*, int, Handle, int, Handle) = nullptr;
  int (*begin_broadcast)(void*, int, Handle, int, Handle, Handle*) = nullptr;
  int (*test_all)(int, Handle*, int*, void*) = nullptr;
  int (*is_done)(Handle, int*, void*) = nullptr;
  int (*wait)(Handle*, void*) = nullptr;
  int (*abort)(Handle, int) = nullptr;
};

namespace {

constexpr const char* kLibrary = "libmpi.so.40";
constexpr int kSerialized = 2;                              // MPI_THREAD_SERIALIZED
constexpr size_t kBeginBytes = 4096;                        // of a message, with its length
constexpr size_t kFirstExchange = size_t{2} * 1024 * 1024;  // as a load's
constexpr int kFailed = 1;  // exit status of all ranks where one has failed
constexpr int kMeetTag = 1, kSendTag = 2;
// Between the times at which ranks give up waiting, in their order.
constexpr std::chrono::milliseconds kTurn{500};
constexpr size_t kMostTurns = 64;
void* const kNoStatuses = nullptr;  // MPI_STATUSES_IGNORE

using Clock = std::chrono::steady_clock;

int as_int(size_t bytes) { return static_cast<int>(bytes); }

}  // namespace

bool MpiGroup::is_started() {
  const std::string_view open_mpi = environment("OMPI_COMM_WORLD_SIZE");
  if (!open_mpi.empty()) return open_mpi != "1";
  if (!environment("PMIX_RANK").empty()) return true;
  const std::string_view other = environment("PMI_SIZE");
  if (!other.empty() && other != "1") {
    fail(ErrorKind::usage,
         "the launcher of these {} ranks is not OpenMPI's; use its mpirun, or srun --mpi=pmix",
         other);
  }
  return false;
}

bool MpiGroup::is_follower() {
  const std::string_view open_mpi = environment("OMPI_COMM_WORLD_RANK");
  const std::string_view rank = open_mpi.empty() ? environment("PMIX_RANK") : open_mpi;
  return !rank.empty() && rank != "0";
}

std::shared_ptr<MpiGroup> MpiGroup::join(std::chrono::seconds patience) {
  auto library = std::make_unique<Library>();
  library->file = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library->file == nullptr) {
    fail(ErrorKind::usage,
         "several ranks need {}, which is not there; install OpenMPI (Debian: openmpi-bin), on "
         "every host",
         kLibrary);
  }
  auto load = [&](auto& function, const char* name) {
    void* found = dlsym(library->file, name);
    if (found == nullptr) fail(ErrorKind::usage, "{} has no {}; install OpenMPI", kLibrary, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  load(library->world, "ompi_mpi_comm_world");
  load(library->byte, "ompi_mpi_byte");
  load(library->init, "MPI_Init_thread");
  load(library->finalize, "MPI_Finalize");
  load(library->comm_rank, "MPI_Comm_rank");
  load(library->comm_size, "MPI_Comm_size");
  load(library->all_gather, "MPI_Allgather");
  load(library->begin_send, "MPI_Isend");
  load(library->begin_receive, "MPI_Irecv");
  load(library->all_to_all, "MPI_Alltoallv");
  load(library->broadcast, "MPI_Bcast");
  load(library->begin_broadcast, "MPI_Ibcast");
  load(library->test_all, "MPI_Testall");
  load(library->is_done, "MPI_Request_get_status");
  load(library->wait, "MPI_Wait");
  load(library->abort, "MPI_Abort");
  return std::shared_ptr<MpiGroup>(new MpiGroup(std::move(library), patience));
}

MpiGroup::MpiGroup(std::unique_ptr<Library> library, std::chrono::seconds patience)
    : library_(std::move(library)), patience_(patience) {
  // The pieces of a sum are sent at once, and not after the receiver has asked for them: prefill is
  // 4 % faster. Later versions have another name for it.
  setenv("OMPI_MCA_btl_vader_eager_limit", "65536", 0);
  setenv("OMPI_MCA_btl_sm_eager_limit", "65536", 0);
  // Containers often forbid to read another process's memory, of which OpenMPI complains at length.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  // Beside busy programs, whoever waits must let those run that it waits for.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  int level = 0;
  library_->init(nullptr, nullptr, kSerialized, &level);
  library_->comm_rank(library_->world, &rank_.rank);
  library_->comm_size(library_->world, &rank_.size);
  gathered_.resize(kMostGathered * static_cast<size_t>(rank_.size));
  begin_.resize(kBeginBytes);
  take_memory();
  find_neighbours();
}

// The library takes memory for large transfers at the first of them, so that the plan counts it.
void MpiGroup::take_memory() const {
  const std::vector<std::byte> first(kMostGathered);
  all_gather(first);
  const auto ranks = static_cast<size_t>(rank_.size);
  const size_t part = kFirstExchange / ranks;
  std::vector<std::byte> sent(part * ranks), received(sent.size());
  std::vector<std::span<const std::byte>> to;
  std::vector<std::span<std::byte>> from;
  for (size_t r = 0; r < ranks; ++r) {
    to.push_back(std::span(sent).subspan(r * part, part));
    from.push_back(std::span(received).subspan(r * part, part));
  }
  all_to_all(to, from);
}

void MpiGroup::find_neighbours() {
  struct Location {
    uint64_t host = 0, cpus = 0;
  } own;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  own.host = checksum64(std::as_bytes(std::span(name)));
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  own.cpus = checksum64(std::as_bytes(std::span(&cpus, 1)));
  const std::span<const std::byte> all = all_gather(std::as_bytes(std::span(&own, 1)));
  sharing_ = {0, 0};
  for (int r = 0; r < rank_.size; ++r) {
    Location other;
    std::memcpy(&other, all.data() + static_cast<size_t>(r) * sizeof(other), sizeof(other));
    if (other.host != own.host) continue;
    ++sharing_.host;
    if (other.cpus == own.cpus) ++sharing_.cpus;
  }
}

MpiGroup::~MpiGroup() {
  if (!is_over()) break_off();  // others wait for what this rank will not do
  if (is_broken()) library_->abort(library_->world, kFailed);
  library_->finalize();
}

std::span<const std::byte> MpiGroup::all_gather(std::span<const std::byte> own) const {
  check(own.size() <= kMostGathered, "no more than kMostGathered at once");
  const int bytes = as_int(own.size());
  library_->all_gather(own.data(), bytes, library_->byte, gathered_.data(), bytes, library_->byte,
                       library_->world);
  return std::span(gathered_).first(own.size() * static_cast<size_t>(rank_.size));
}

// Requests are mostly done soon, but may take hours. `meanwhile`: called again and again.
template <class Meanwhile>
void MpiGroup::wait_patiently(std::span<void*> requests, const Meanwhile& meanwhile) const {
  constexpr std::chrono::milliseconds kBusy{2}, kLongest{1};
  const auto start = Clock::now();
  std::chrono::microseconds pause{20};
  for (int done = 0;;) {
    // It leaves those as they are that are done, until all are.
    library_->test_all(as_int(requests.size()), requests.data(), &done, kNoStatuses);
    if (done != 0) return;
    meanwhile();
    if (Clock::now() - start < kBusy) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, kLongest);
  }
}

// Each rank sends what it has to each other one, so that all know who is missing.
std::span<const std::byte> MpiGroup::meet(std::span<const std::byte> own) const {
  check(own.size() <= kMostGathered, "no more than kMostGathered at once");
  const int bytes = as_int(own.size());
  const auto ranks = static_cast<size_t>(rank_.size), self = static_cast<size_t>(rank_.rank);
  const auto part = [&](size_t r) { return gathered_.data() + r * own.size(); };
  std::vector<Library::Handle> requests;
  for (size_t r = 0; r < ranks; ++r) {
    if (r == self) continue;
    library_->begin_receive(part(r), bytes, library_->byte, as_int(r), kMeetTag, library_->world,
                            &requests.emplace_back());
  }
  for (size_t r = 0; r < ranks; ++r) {
    if (r == self) continue;
    library_->begin_send(own.data(), bytes, library_->byte, as_int(r), kMeetTag, library_->world,
                         &requests.emplace_back());
  }
  std::ranges::copy(own, part(self));
  // The first rank that is there says who is not.
  const auto end = Clock::now() + patience_ + std::min(self, kMostTurns) * kTurn;
  wait_patiently(requests, [&] {
    if (Clock::now() > end) give_up(std::span(requests).first(ranks - 1));
  });
  return std::span(gathered_).first(own.size() * ranks);
}

// `receipts`: of each other rank's message.
void MpiGroup::give_up(std::span<void* const> receipts) const {
  break_off();
  std::vector<int> missing;
  for (size_t i = 0; i < receipts.size(); ++i) {
    int done = 0;
    library_->is_done(receipts[i], &done, nullptr);
    const int rank = as_int(i);
    if (done == 0) missing.push_back(rank < rank_.rank ? rank : rank + 1);
  }
  fail(ErrorKind::runtime,
       "rank{} {}: not where the others have waited for {} s; look whether it still runs, and "
       "whether its disk is slower than theirs (--rank-timeout)",
       missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), patience_.count());
}

void MpiGroup::all_to_all(std::span<const std::span<const std::byte>> to,
                          std::span<const std::span<std::byte>> from) const {
  std::vector<int> sizes, places, own_sizes, own_places;
  for (const std::span<const std::byte> part : to) {
    sizes.push_back(as_int(part.size()));
    places.push_back(static_cast<int>(part.data() - to.front().data()));
  }
  for (const std::span<std::byte> part : from) {
    own_sizes.push_back(as_int(part.size()));
    own_places.push_back(static_cast<int>(part.data() - from.front().data()));
  }
  library_->all_to_all(to.front().data(), sizes.data(), places.data(), library_->byte,
                       from.front().data(), own_sizes.data(), own_places.data(), library_->byte,
                       library_->world);
}

void MpiGroup::send(int to, std::span<const std::byte> bytes) const {
  Library::Handle request = nullptr;
  library_->begin_send(bytes.data(), as_int(bytes.size()), library_->byte, to, kSendTag,
                       library_->world, &request);
  wait_patiently({&request, 1}, [] {});
}

void MpiGroup::receive(int from, std::span<std::byte> bytes) const {
  Library::Handle request = nullptr;
  library_->begin_receive(bytes.data(), as_int(bytes.size()), library_->byte, from, kSendTag,
                          library_->world, &request);
  const auto end = Clock::now() + patience_;
  wait_patiently({&request, 1}, [&] {
    if (Clock::now() < end) return;
    break_off();
    fail(ErrorKind::runtime,
         "rank {}: has not sent its part of a step for {} s; look whether it still runs "
         "(--rank-timeout)",
         from, patience_.count());
  });
}

// A message is its length and its first bytes, then the rest, if there is more.
void MpiGroup::tell(std::span<const std::byte> message) const {
  const uint64_t length = message.size();
  const size_t room = kBeginBytes - sizeof(length);
  std::memcpy(begin_.data(), &length, sizeof(length));
  std::ranges::copy(message.first(std::min(room, message.size())), begin_.begin() + sizeof(length));
  Library::Handle request = nullptr;
  library_->begin_broadcast(begin_.data(), as_int(kBeginBytes), library_->byte, 0, library_->world,
                            &request);
  library_->wait(&request, nullptr);
  for (size_t at = room; at < message.size(); at += kMostGathered) {
    const std::span<const std::byte> part =
        message.subspan(at, std::min(kMostGathered, message.size() - at));
    std::ranges::copy(part, gathered_.begin());
    library_->broadcast(gathered_.data(), as_int(part.size()), library_->byte, 0, library_->world);
  }
}

void MpiGroup::hear(std::vector<std::byte>& message, const std::stop_token& stop) const {
  // After a stop that rank 0 may not have been asked for.
  constexpr std::chrono::seconds kPatience{5};
  Library::Handle request = nullptr;
  library_->begin_broadcast(begin_.data(), as_int(kBeginBytes), library_->byte, 0, library_->world,
                            &request);
  wait_patiently({&request, 1}, [&] {
    if (!stop.stop_requested()) return;
    const auto now = Clock::now();
    if (!stop_seen_) stop_seen_ = now;
    if (now - *stop_seen_ < kPatience) return;
    break_off();
    fail(ErrorKind::runtime, "interrupted, and rank 0 goes on");
  });
  uint64_t length = 0;
  std::memcpy(&length, begin_.data(), sizeof(length));
  message.resize(length);
  const size_t room = kBeginBytes - sizeof(length);
  std::copy_n(begin_.begin() + sizeof(length), std::min<size_t>(room, length), message.begin());
  for (size_t at = room; at < length; at += kMostGathered) {
    const size_t part = std::min<size_t>(kMostGathered, length - at);
    library_->broadcast(gathered_.data(), as_int(part), library_->byte, 0, library_->world);
    std::copy_n(gathered_.begin(), part, message.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace sluice
