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
  int (*begin_send)(const void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*begin_receive)(void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*test_all)(int, Handle*, int*, void*) = nullptr;
  int (*is_done)(Handle, int*, void*) = nullptr;
  int (*abort)(Handle, int) = nullptr;
};

namespace {

constexpr const char* kLibrary = "libmpi.so.40";
constexpr int kSerialized = 2;                              // MPI_THREAD_SERIALIZED
constexpr size_t kBeginBytes = 4096;                        // of a message, with its length
constexpr size_t kFirstExchange = size_t{2} * 1024 * 1024;  // as a load's
constexpr int kFailed = 1;  // exit status of all ranks where one has failed
constexpr int kMeetTag = 1, kSendTag = 2, kExchangeTag = 3, kTellTag = 4;
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
  load(library->begin_send, "MPI_Isend");
  load(library->begin_receive, "MPI_Irecv");
  load(library->test_all, "MPI_Testall");
  load(library->is_done, "MPI_Request_get_status");
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
  sharing_ = {.host = 0, .cpus = 0};
  for (int r = 0; r < rank_.size; ++r) {
    Location other;
    std::memcpy(&other, all.data() + static_cast<size_t>(r) * sizeof(other), sizeof(other));
    if (other.host != own.host) continue;
    ++sharing_.host;
    if (r < rank_.rank) ++sharing_.number;
    if (other.cpus == own.cpus) ++sharing_.cpus;
  }
}

MpiGroup::~MpiGroup() {
  if (!is_over()) break_off();  // others wait for what this rank will not do
  if (is_broken()) library_->abort(library_->world, kFailed);
  library_->finalize();
}

std::span<const std::byte> MpiGroup::all_gather(std::span<const std::byte> own) const {
  return gather(own, kExchangeTag, Pace::busy);
}

std::span<const std::byte> MpiGroup::meet(std::span<const std::byte> own) const {
  return gather(own, kMeetTag, Pace::patient);
}

std::span<const std::byte> MpiGroup::gather(std::span<const std::byte> own, int tag,
                                            Pace pace) const {
  check(own.size() <= kMostGathered, "no more than kMostGathered at once");
  const auto ranks = static_cast<size_t>(rank_.size);
  const std::vector<std::span<const std::byte>> to(ranks, own);
  std::vector<std::span<std::byte>> from;
  for (size_t r = 0; r < ranks; ++r)
    from.push_back(std::span(gathered_).subspan(r * own.size(), own.size()));
  exchange(to, from, tag, pace);
  return std::span(gathered_).first(own.size() * ranks);
}

void MpiGroup::all_to_all(std::span<const std::span<const std::byte>> to,
                          std::span<const std::span<std::byte>> from) const {
  exchange(to, from, kExchangeTag, Pace::patient);
}

MpiGroup::Request MpiGroup::begin_send(int to, std::span<const std::byte> bytes, int tag) const {
  Request request = nullptr;
  library_->begin_send(bytes.data(), as_int(bytes.size()), library_->byte, to, tag, library_->world,
                       &request);
  return request;
}

MpiGroup::Request MpiGroup::begin_receive(int from, std::span<std::byte> bytes, int tag) const {
  Request request = nullptr;
  library_->begin_receive(bytes.data(), as_int(bytes.size()), library_->byte, from, tag,
                          library_->world, &request);
  return request;
}

// Requests are mostly done soon, but may take hours. `meanwhile`: called again and again.
template <class Meanwhile>
void MpiGroup::wait(std::span<Request> requests, Pace pace, const Meanwhile& meanwhile) const {
  constexpr std::chrono::milliseconds kBusy{2}, kLongest{1};
  const auto start = Clock::now();
  std::chrono::microseconds pause{20};
  for (int done = 0;;) {
    // It leaves those as they are that are done, until all are.
    library_->test_all(as_int(requests.size()), requests.data(), &done, kNoStatuses);
    if (done != 0) return;
    meanwhile();
    if (pace == Pace::busy || Clock::now() - start < kBusy) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, kLongest);
  }
}

// Each rank sends what it has to each other one itself, so that all know who is missing.
void MpiGroup::exchange(std::span<const std::span<const std::byte>> to,
                        std::span<const std::span<std::byte>> from, int tag, Pace pace) const {
  const auto self = static_cast<size_t>(rank_.rank);
  std::vector<Request> requests;
  for (size_t r = 0; r < from.size(); ++r)
    if (r != self) requests.push_back(begin_receive(as_int(r), from[r], tag));
  for (size_t r = 0; r < to.size(); ++r)
    if (r != self) requests.push_back(begin_send(as_int(r), to[r], tag));
  std::ranges::copy(to[self], from[self].begin());
  // The first rank that is there says who is not.
  const auto end = Clock::now() + patience_ + std::min(self, kMostTurns) * kTurn;
  wait(requests, pace, [&] {
    if (Clock::now() > end) give_up(std::span(requests).first(from.size() - 1));
  });
}

// `requests`: one of each other rank, in their order.
void MpiGroup::give_up(std::span<const Request> requests) const {
  break_off();
  std::vector<int> missing;
  for (size_t i = 0; i < requests.size(); ++i) {
    int done = 0;
    library_->is_done(requests[i], &done, nullptr);
    const int rank = as_int(i);
    if (done == 0) missing.push_back(rank < rank_.rank ? rank : rank + 1);
  }
  fail(ErrorKind::runtime,
       "rank{} {}: not where the others have waited for {} s; look whether it still runs, and "
       "whether its disk is slower than theirs (--rank-timeout)",
       missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), patience_.count());
}

void MpiGroup::send(int to, std::span<const std::byte> bytes) const {
  wait_for(to, begin_send(to, bytes, kSendTag), "taken what was sent to it");
}

void MpiGroup::receive(int from, std::span<std::byte> bytes) const {
  wait_for(from, begin_receive(from, bytes, kSendTag), "sent its part of a step");
}

// `deed`: what the other rank has not done if the time is over.
void MpiGroup::wait_for(int rank, Request request, std::string_view deed) const {
  const auto end = Clock::now() + patience_;
  wait({&request, 1}, Pace::patient, [&] {
    if (Clock::now() < end) return;
    break_off();
    fail(ErrorKind::runtime,
         "rank {}: has not {} for {} s; look whether it still runs (--rank-timeout)", rank, deed,
         patience_.count());
  });
}

// A message is its length and its first bytes, then the rest, if there is more.
void MpiGroup::tell(std::span<const std::byte> message) const {
  const uint64_t length = message.size();
  const size_t room = kBeginBytes - sizeof(length);
  std::memcpy(begin_.data(), &length, sizeof(length));
  std::ranges::copy(message.first(std::min(room, message.size())), begin_.begin() + sizeof(length));
  // First one to each other rank, in their order; then those of the rest.
  std::vector<Request> requests;
  for (int r = 1; r < rank_.size; ++r) requests.push_back(begin_send(r, begin_, kTellTag));
  for (int r = 1; r < rank_.size && length > room; ++r)
    requests.push_back(begin_send(r, message.subspan(room), kTellTag));
  const auto others = static_cast<size_t>(rank_.size - 1);
  const auto end = Clock::now() + patience_;
  wait(requests, Pace::patient, [&] {
    if (Clock::now() > end) give_up(std::span(requests).last(others));
  });
}

void MpiGroup::hear(std::vector<std::byte>& message, const std::stop_token& stop) const {
  // After a stop that rank 0 may not have been asked for.
  constexpr std::chrono::seconds kPatience{5};
  const auto hear_part = [&](std::span<std::byte> part) {
    Request request = begin_receive(0, part, kTellTag);
    wait({&request, 1}, Pace::patient, [&] {
      if (!stop.stop_requested()) return;
      const auto now = Clock::now();
      if (!stop_seen_) stop_seen_ = now;
      if (now - *stop_seen_ < kPatience) return;
      break_off();
      fail(ErrorKind::runtime, "interrupted, and rank 0 goes on");
    });
  };
  hear_part(begin_);
  uint64_t length = 0;
  std::memcpy(&length, begin_.data(), sizeof(length));
  message.resize(length);
  const size_t room = kBeginBytes - sizeof(length);
  std::copy_n(begin_.begin() + sizeof(length), std::min<size_t>(room, length), message.begin());
  if (length > room) hear_part(std::span(message).subspan(room));
}

}  // namespace sluice
