// The ranks that compute one model together, seen from one of them. Each has a part of the weights
// (src/nn/shard.h); activations between blocks are whole on every rank. Rank 0 leads: it schedules,
// samples and writes, and tells the others what to compute (src/engine/step_data.h). An error
// before others wait for a rank is agreed on, and said by rank 0; a later one is said by its rank,
// and the launcher ends all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stop_token>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/kernels.h"
#include "src/base/error.h"
#include "src/nn/shard.h"

namespace sluice {

class DeviceLink;

// This rank's work ends because another rank's did, for a reason that Group::agree() tells.
struct OtherRankFailed : Error {
  OtherRankFailed() : Error(ErrorKind::runtime, "another rank has failed") {}
};

// One thread at a time may call a group. A call that waits for a rank may give up on one that does
// not come: Error(runtime), and the group is broken.
class Group {
 public:
  virtual ~Group() = default;
  virtual Rank rank() const = 0;
  // The numbers of ranks that share this host's memory, and this process's CPUs; itself included.
  struct Sharing {
    int host = 1;
    int cpus = 1;
    int number = 0;  // of this rank among those of the host
  };
  virtual Sharing sharing() const { return {}; }

  // Returns the bytes of all ranks, one after another in the order of ranks: as many of each, at
  // most kMostGathered, which caches hold. Valid until the next call.
  static constexpr size_t kMostGathered = size_t{32} * 1024;
  virtual std::span<const std::byte> all_gather(std::span<const std::byte> own) const = 0;
  // The same of one value of each.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  std::vector<T> gather(const T& own) const {
    const std::span<const std::byte> all = all_gather(std::as_bytes(std::span(&own, 1)));
    std::vector<T> values(all.size() / sizeof(T));
    std::memcpy(values.data(), all.data(), all.size());
    return values;
  }
  // The same as all_gather() where ranks may come minutes apart: it leaves the processor to others
  // meanwhile.
  virtual std::span<const std::byte> meet(std::span<const std::byte> own) const {
    return all_gather(own);
  }
  // Sends to[r] to each rank r, and receives in from[r] what that rank has for this one, which is
  // as long. Each list lies in one block of memory, of less than 2 GiB.
  virtual void all_to_all(std::span<const std::span<const std::byte>> to,
                          std::span<const std::span<std::byte>> from) const = 0;
  // Sends bytes to a rank, which receives as many: less than 2 GiB.
  virtual void send(int to, std::span<const std::byte> bytes) const = 0;
  virtual void receive(int from, std::span<std::byte> bytes) const = 0;
  // Rank 0 tells a message to all others, which hear it. They wait for as long as it takes;
  // Error(runtime) when `stop` is requested and rank 0 says nothing for some seconds.
  virtual void tell(std::span<const std::byte> message) const = 0;
  virtual void hear(std::vector<std::byte>& message, const std::stop_token& stop) const = 0;

  // Makes y the sum of all ranks' y, added in the order of ranks, so that every rank has the same
  // bits. y is work of the kernels' stream, in the host's memory.
  virtual void sum(Tensor y, const Kernels& kernels) const;
  // Puts the columns of all ranks' `part` side by side into `whole`, on rank 0. Rank r has those of
  // `shares[r]`; rows of `part` have room for the widest share. Both are as y is.
  virtual void gather_columns(Tensor part, Tensor whole, std::span<const Share> shares,
                              const Kernels& kernels) const;

  // Ends what each rank has done by itself: returns if no rank failed. Otherwise every rank throws
  // the error of the first that did, which rank 0 has to say. `own`: this rank's error, or null.
  void agree(const Error* own) const;
  // Does what every rank does by itself, and agrees on the outcome.
  template <class Work>
  void together(Work work) const {
    if (rank().size == 1) return work();
    try {
      work();
    } catch (const OtherRankFailed&) {
      agree(nullptr);
    } catch (const Error& e) {
      if (is_over()) throw;
      agree(&e);
    } catch (...) {
      break_off();
      throw;
    }
    agree(nullptr);
  }

  // A group is over when rank 0 has told its end, or a rank has failed. It is broken when a rank
  // failed while others wait for it: they must be ended.
  bool is_over() const { return state_ != State::together; }
  bool is_broken() const { return state_ == State::broken; }
  void end() const { state_ = State::over; }
  void break_off() const {
    if (rank().size > 1 && state_ == State::together) state_ = State::broken;
  }

 private:
  enum class State : uint8_t { together, over, broken };
  mutable State state_ = State::together;
};

// One rank, whose sums are complete.
class SoloGroup final : public Group {
 public:
  Rank rank() const override { return {}; }
  std::span<const std::byte> all_gather(std::span<const std::byte> own) const override {
    return own;
  }
  void all_to_all(std::span<const std::span<const std::byte>>,
                  std::span<const std::span<std::byte>>) const override {
    check(false, "one rank has nobody to exchange with");
  }
  void send(int, std::span<const std::byte>) const override {
    check(false, "one rank has nobody to send to");
  }
  void receive(int, std::span<std::byte>) const override {
    check(false, "one rank has nobody to receive from");
  }
  void tell(std::span<const std::byte>) const override {}
  void hear(std::vector<std::byte>&, const std::stop_token&) const override {
    check(false, "one rank has nobody to hear");
  }
};

// Rank 0 of ranks on this host that are not there, for plans of its part: nothing is computed.
class PlannedGroup final : public Group {
 public:
  explicit PlannedGroup(int ranks) : ranks_(ranks) {}
  Rank rank() const override { return {0, ranks_}; }
  Sharing sharing() const override { return {ranks_, ranks_}; }
  // The others have the same.
  std::span<const std::byte> all_gather(std::span<const std::byte> own) const override {
    gathered_.clear();
    for (int r = 0; r < ranks_; ++r) gathered_.insert(gathered_.end(), own.begin(), own.end());
    return gathered_;
  }
  void all_to_all(std::span<const std::span<const std::byte>>,
                  std::span<const std::span<std::byte>>) const override {
    check(false, "ranks that are not there send nothing");
  }
  void send(int, std::span<const std::byte>) const override {
    check(false, "ranks that are not there receive nothing");
  }
  void receive(int, std::span<std::byte>) const override {
    check(false, "ranks that are not there send nothing");
  }
  void tell(std::span<const std::byte>) const override {}
  void hear(std::vector<std::byte>&, const std::stop_token&) const override {
    check(false, "rank 0 hears nobody");
  }

 private:
  int ranks_;
  mutable std::vector<std::byte> gathered_;
};

// Some consecutive ranks of a group, of which this rank is one: those of a stage of a pipeline.
// They exchange by messages of two, in the order of ranks, so that none waits for one that waits
// for it.
class PartGroup final : public Group {
 public:
  // `all` outlives it.
  PartGroup(const Group& all, Share ranks) : all_(all), ranks_(ranks) {}
  Rank rank() const override {
    return {all_.rank().rank - static_cast<int>(ranks_.begin), static_cast<int>(ranks_.count)};
  }
  std::span<const std::byte> all_gather(std::span<const std::byte> own) const override;
  void all_to_all(std::span<const std::span<const std::byte>> to,
                  std::span<const std::span<std::byte>> from) const override;
  void send(int to, std::span<const std::byte> bytes) const override {
    all_.send(static_cast<int>(ranks_.begin) + to, bytes);
  }
  void receive(int from, std::span<std::byte> bytes) const override {
    all_.receive(static_cast<int>(ranks_.begin) + from, bytes);
  }
  void tell(std::span<const std::byte>) const override { check(false, "rank 0 of all tells all"); }
  void hear(std::vector<std::byte>&, const std::stop_token&) const override {
    check(false, "rank 0 of all tells all");
  }

 private:
  const Group& all_;
  Share ranks_;
  mutable std::vector<std::byte> gathered_;
};

// The ranks of a model: all, and those among them that divide each of this one's layers.
struct RankGroups {
  const Group& all;
  const Group& tensor;
  const DeviceLink* devices = nullptr;  // of `tensor`, where each has a device; null: none has
};

}  // namespace sluice
