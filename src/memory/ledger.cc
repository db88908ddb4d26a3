#include "src/memory/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/memory/timeline.h"

namespace sluice {
namespace {

std::vector<Ledger::Account> largest_first(std::vector<Ledger::Account> accounts, Place place) {
  std::erase_if(accounts, [&](const auto& a) { return a.place != place || a.bytes == 0; });
  std::stable_sort(accounts.begin(), accounts.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return accounts;
}

}  // namespace

std::string_view place_name(Place place) {
  static constexpr std::array<std::string_view, kPlaces> kNames{"device", "host"};
  return kNames[static_cast<size_t>(place)];
}

std::string_view use_name(Use use) {
  static constexpr std::array<std::string_view, kUses> kNames{
      "weights", "staging", "kv_cache", "activations", "workspace", "swap", "runtime"};
  return kNames[static_cast<size_t>(use)];
}

Lease::Lease(Lease&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      account_(other.account_),
      bytes_(std::exchange(other.bytes_, 0)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    give_back(bytes_);
    ledger_ = std::exchange(other.ledger_, nullptr);
    account_ = other.account_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Lease::~Lease() { give_back(bytes_); }

void Lease::give_back(uint64_t bytes) {
  if (ledger_ == nullptr || bytes == 0) return;
  std::lock_guard lock(ledger_->mutex_);
  ledger_->record(account_, -static_cast<int64_t>(bytes));
  bytes_ -= bytes;
}

void Ledger::set_budget(Place place, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  balances_[static_cast<size_t>(place)].budget = bytes;
}

std::optional<uint64_t> Ledger::budget(Place place) const {
  std::lock_guard lock(mutex_);
  return balances_[static_cast<size_t>(place)].budget;
}

std::optional<Lease> Ledger::try_lease(Place place, Use use, std::string_view owner,
                                       uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const Balance& balance = balances_[static_cast<size_t>(place)];
  if (balance.budget && (bytes > *balance.budget || balance.used > *balance.budget - bytes)) {
    return std::nullopt;
  }
  uint32_t account = account_for(place, use, owner);
  record(account, static_cast<int64_t>(bytes));
  return Lease(this, account, bytes);
}

Lease Ledger::lease(Place place, Use use, std::string_view owner, uint64_t bytes) {
  if (auto lease = try_lease(place, use, owner, bytes)) return std::move(*lease);
  std::lock_guard lock(mutex_);
  const Balance& balance = balances_[static_cast<size_t>(place)];
  fail(ErrorKind::no_fit, "{} needs {} for {}, but of the {} budget of {} only {} is left ({})",
       owner, format_size(bytes), use_name(use), place_name(place), format_size(*balance.budget),
       format_size(*balance.budget - std::min(*balance.budget, balance.used)), holders_text(place));
}

void Ledger::begin_phase(std::string name) {
  std::lock_guard lock(mutex_);
  if (phases_.size() == kMostPhases) phases_.erase(phases_.begin() + 1);
  phases_.push_back({now(), std::move(name)});
}

uint64_t Ledger::used(Place place) const {
  std::lock_guard lock(mutex_);
  return balances_[static_cast<size_t>(place)].used;
}

uint64_t Ledger::peak(Place place) const {
  std::lock_guard lock(mutex_);
  return balances_[static_cast<size_t>(place)].peak;
}

std::vector<Ledger::Account> Ledger::holders_at_peak(Place place) const {
  std::lock_guard lock(mutex_);
  std::vector<Account> then = accounts_;
  for (size_t i = 0; i < then.size(); ++i) {
    if (at_peak_[i].peaks == balances_[static_cast<size_t>(place)].peaks)
      then[i].bytes = at_peak_[i].bytes;
  }
  return largest_first(std::move(then), place);
}

std::vector<Ledger::Account> Ledger::accounts() const {
  std::lock_guard lock(mutex_);
  return accounts_;
}

std::vector<Ledger::Event> Ledger::events() const {
  std::lock_guard lock(mutex_);
  return events_;
}

std::vector<Ledger::Phase> Ledger::phases() const {
  std::lock_guard lock(mutex_);
  return phases_;
}

uint32_t Ledger::account_for(Place place, Use use, std::string_view owner) {
  auto found = numbers_.find(std::tuple(place, use, owner));
  if (found != numbers_.end()) return found->second;
  auto number = static_cast<uint32_t>(accounts_.size());
  numbers_.emplace(std::tuple(place, use, std::string(owner)), number);
  accounts_.push_back({place, use, std::string(owner), 0});
  at_peak_.push_back({balances_[static_cast<size_t>(place)].peaks, 0});
  return number;
}

void Ledger::record(uint32_t account, int64_t delta) {
  if (delta == 0) return;
  Account& a = accounts_[account];
  Balance& balance = balances_[static_cast<size_t>(a.place)];
  if (at_peak_[account].peaks != balance.peaks) at_peak_[account] = {balance.peaks, a.bytes};
  a.bytes += static_cast<uint64_t>(delta);
  balance.used += static_cast<uint64_t>(delta);
  if (balance.used > balance.peak) {
    balance.peak = balance.used;
    ++balance.peaks;
  }
  events_.push_back({now(), account, delta});
  if (events_.size() >= most_events_) thin_events();
}

void Ledger::thin_events() {
  for (size_t parts = kMostEvents / 4 / (phases_.size() + 1) + 1; parts > 0; parts /= 2) {
    thin_timeline(events_, accounts_, phases_, parts);
    if (events_.size() <= kMostEvents / 2) break;
  }
  most_events_ = std::max(kMostEvents, 2 * events_.size());
}

std::string Ledger::holders_text(Place place) const {
  std::array<uint64_t, kUses> by_use{};
  for (const Account& a : accounts_) {
    if (a.place == place) by_use[static_cast<size_t>(a.use)] += a.bytes;
  }
  std::string text;
  for (size_t i = 0; i < kUses; ++i) {
    if (by_use[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", use_name(static_cast<Use>(i)),
                        format_size(by_use[i]));
  }
  return text.empty() ? "nothing is in use" : text;
}

double Ledger::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace sluice
