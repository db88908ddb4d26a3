// Ranks that are threads of one process.
#pragma once

#include <algorithm>
#include <barrier>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "src/nn/group.h"

namespace sluice::test {

// State that the ranks share.
struct Meeting {
  explicit Meeting(int size)
      : barrier(size), parts(static_cast<size_t>(size)), sent(parts.size()), told(parts.size()) {}
  std::barrier<> barrier;
  std::vector<std::span<const std::byte>> parts;
  std::vector<std::span<const std::span<const std::byte>>> sent;
  // Messages on their way from a rank to another, and from rank 0 to each.
  using Messages = std::deque<std::vector<std::byte>>;
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::pair<int, int>, Messages> mail;
  std::vector<Messages> told;
};

class ThreadGroup : public Group {
 public:
  ThreadGroup(Rank rank, Meeting& meeting) : rank_(rank), meeting_(meeting) {}
  Rank rank() const override { return rank_; }
  std::span<const std::byte> all_gather(std::span<const std::byte> own) const override {
    check(own.size() <= kMostGathered, "no more than kMostGathered at once");
    meeting_.parts[static_cast<size_t>(rank_.rank)] = own;
    meeting_.barrier.arrive_and_wait();
    gathered_.clear();
    for (std::span<const std::byte> part : meeting_.parts) {
      check(part.size() == own.size(), "ranks gather as many bytes each");
      gathered_.insert(gathered_.end(), part.begin(), part.end());
    }
    meeting_.barrier.arrive_and_wait();
    return gathered_;
  }
  void all_to_all(std::span<const std::span<const std::byte>> to,
                  std::span<const std::span<std::byte>> from) const override {
    const auto own = static_cast<size_t>(rank_.rank);
    meeting_.sent[own] = to;
    meeting_.barrier.arrive_and_wait();
    for (size_t r = 0; r < from.size(); ++r) {
      const std::span<const std::byte> part = meeting_.sent[r][own];
      check(part.size() == from[r].size(), "a rank receives what the other sends");
      std::ranges::copy(part, from[r].begin());
    }
    meeting_.barrier.arrive_and_wait();
  }
  void send(int to, std::span<const std::byte> bytes) const override {
    std::lock_guard lock(meeting_.mutex);
    meeting_.mail[{rank_.rank, to}].emplace_back(bytes.begin(), bytes.end());
    meeting_.arrived.notify_all();
  }
  void receive(int from, std::span<std::byte> bytes) const override {
    std::unique_lock lock(meeting_.mutex);
    auto& mail = meeting_.mail[{from, rank_.rank}];
    meeting_.arrived.wait(lock, [&] { return !mail.empty(); });
    check(mail.front().size() == bytes.size(), "a rank receives what the other sends");
    std::ranges::copy(mail.front(), bytes.begin());
    mail.pop_front();
  }
  void tell(std::span<const std::byte> message) const override {
    std::lock_guard lock(meeting_.mutex);
    for (size_t r = 1; r < meeting_.told.size(); ++r)
      meeting_.told[r].emplace_back(message.begin(), message.end());
    meeting_.arrived.notify_all();
  }
  void hear(std::vector<std::byte>& message, const std::stop_token&) const override {
    std::unique_lock lock(meeting_.mutex);
    auto& told = meeting_.told[static_cast<size_t>(rank_.rank)];
    meeting_.arrived.wait(lock, [&] { return !told.empty(); });
    message = std::move(told.front());
    told.pop_front();
  }

 private:
  Rank rank_;
  Meeting& meeting_;
  mutable std::vector<std::byte> gathered_;
};

}  // namespace sluice::test
