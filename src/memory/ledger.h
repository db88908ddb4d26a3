// The ledger: every budgeted byte has a place, a use and an owner. Nothing on the load and run
// paths is allocated without a lease. Pure bookkeeping: it allocates nothing and can be tested
// without memory or device.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace sluice {

enum class Place : uint8_t { device, host };
enum class Use : uint8_t { weights, staging, kv_cache, activations, workspace, swap, runtime };
inline constexpr size_t kPlaces = 2;
inline constexpr size_t kUses = 7;
std::string_view place_name(Place place);
std::string_view use_name(Use use);

class Ledger;

// Bytes taken from a ledger; given back when it ends. Move-only. The ledger must outlive it.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();
  uint64_t bytes() const { return bytes_; }
  void give_back(uint64_t bytes);  // a part; at most bytes()

 private:
  friend class Ledger;
  Lease(Ledger* ledger, uint32_t account, uint64_t bytes)
      : ledger_(ledger), account_(account), bytes_(bytes) {}

  Ledger* ledger_ = nullptr;
  uint32_t account_ = 0;
  uint64_t bytes_ = 0;
};

// Thread-safe.
class Ledger {
 public:
  // Limits the events that are kept: beyond it the timeline is thinned (timeline.h). If the peaks
  // of many accounts and phases alone are more, a small multiple is kept.
  static constexpr size_t kMostEvents = 16384;

  struct Account {
    Place place;
    Use use;
    std::string owner;  // "model.layers.3", "staging ring"
    uint64_t bytes = 0;
  };
  struct Event {
    double seconds = 0;  // since the ledger was made
    uint32_t account = 0;
    int64_t delta = 0;  // bytes
  };
  struct Phase {
    double seconds = 0;
    std::string name;  // "load", "prefill", "decode"
  };

  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Sets a budget [bytes]. Without one everything fits.
  void set_budget(Place place, uint64_t bytes);
  std::optional<uint64_t> budget(Place place) const;

  // "Does not fit" is an ordinary answer.
  std::optional<Lease> try_lease(Place place, Use use, std::string_view owner, uint64_t bytes);
  // Leases bytes that the plan has counted. Throws Error(no_fit) that lists the holders.
  Lease lease(Place place, Use use, std::string_view owner, uint64_t bytes);

  // Begins a phase. Of more than kMostPhases, which a server begins whose weights are exchanged
  // again and again, the earliest but the first become parts of the one before them.
  static constexpr size_t kMostPhases = 256;
  void begin_phase(std::string name);
  std::chrono::steady_clock::time_point start() const { return start_; }

  uint64_t used(Place place) const;
  uint64_t peak(Place place) const;
  // The accounts and their bytes when `place` was at its peak, largest first.
  std::vector<Account> holders_at_peak(Place place) const;

  // Snapshots for reports. The sums over `events` are what was held at their times; between them it
  // was no more than at the larger of two neighbours of one part of the time (timeline.h).
  std::vector<Account> accounts() const;
  std::vector<Event> events() const;
  std::vector<Phase> phases() const;

 private:
  friend class Lease;
  uint32_t account_for(Place place, Use use, std::string_view owner);
  void record(uint32_t account, int64_t delta);
  void thin_events();
  std::string holders_text(Place place) const;
  double now() const;

  struct Balance {
    std::optional<uint64_t> budget;
    uint64_t used = 0;
    uint64_t peak = 0;
    uint64_t peaks = 0;  // times that the peak was raised
  };
  // The bytes of an account at its place's peak, valid while nothing was recorded for it since. So
  // the cost of a peak does not depend on the number of accounts.
  struct AtPeak {
    uint64_t peaks = 0;  // Balance::peaks at that time
    uint64_t bytes = 0;
  };

  mutable std::mutex mutex_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::array<Balance, kPlaces> balances_{};
  std::vector<Account> accounts_;
  std::vector<AtPeak> at_peak_;                                                   // of each account
  std::map<std::tuple<Place, Use, std::string>, uint32_t, std::less<>> numbers_;  // of accounts
  std::vector<Event> events_;
  size_t most_events_ = kMostEvents;
  std::vector<Phase> phases_;
};

}  // namespace sluice
