// Ranks that OpenMPI has started, in processes of one or several hosts. The library is loaded at
// run time (libmpi.so.40, of OpenMPI 2 to 5), so that building and running on one rank do not need
// it. It only moves bytes: sums are ours (Group::sum), so that bits do not depend on its
// algorithms.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "src/nn/group.h"

namespace sluice {

class MpiGroup final : public Group {
 public:
  // Returns whether a launcher (mpirun, or srun with PMIx) has started this process as one of
  // several ranks. Error(usage) for a launcher of another MPI.
  static bool is_started();
  // Returns whether it is one of these, and not rank 0.
  static bool is_follower();
  // Joins the ranks of the launcher, once a process. Error(usage) where OpenMPI is not installed.
  // `patience`: how long ranks wait for one that does not come. Then whoever waits throws
  // Error(runtime) that names the missing ones, and the group is broken.
  static std::shared_ptr<MpiGroup> join(std::chrono::seconds patience);
  // Waits for the other ranks; ends them, and this process, where the group is broken.
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  Rank rank() const override { return rank_; }
  Sharing sharing() const override { return sharing_; }
  std::span<const std::byte> all_gather(std::span<const std::byte> own) const override;
  std::span<const std::byte> meet(std::span<const std::byte> own) const override;
  void all_to_all(std::span<const std::span<const std::byte>> to,
                  std::span<const std::span<std::byte>> from) const override;
  void send(int to, std::span<const std::byte> bytes) const override;
  void receive(int from, std::span<std::byte> bytes) const override;
  void tell(std::span<const std::byte> message) const override;
  void hear(std::vector<std::byte>& message, const std::stop_token& stop) const override;

 private:
  struct Library;
  MpiGroup(std::unique_ptr<Library> library, std::chrono::seconds patience);
  void take_memory() const;
  void find_neighbours();
  using Request = void*;
  // The way to wait: for a sum a rank looks all the time.
  enum class Pace : uint8_t { busy, patient };
  Request begin_send(int to, std::span<const std::byte> bytes, int tag) const;
  Request begin_receive(int from, std::span<std::byte> bytes, int tag) const;
  template <class Meanwhile>
  void wait(std::span<Request> requests, Pace pace, const Meanwhile& meanwhile) const;
  void exchange(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from, int tag, Pace pace) const;
  std::span<const std::byte> gather(std::span<const std::byte> own, int tag, Pace pace) const;
  void wait_for(int rank, Request request, std::string_view deed) const;
  [[noreturn]] void give_up(std::span<const Request> requests) const;

  std::unique_ptr<Library> library_;
  std::chrono::seconds patience_;
  Rank rank_;
  Sharing sharing_;
  mutable std::vector<std::byte> gathered_;  // of all ranks
  mutable std::vector<std::byte> begin_;     // of a message, which most are no longer than
  mutable std::optional<std::chrono::steady_clock::time_point> stop_seen_;
};

}  // namespace sluice
