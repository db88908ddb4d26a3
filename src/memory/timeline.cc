#include "src/memory/timeline.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sluice {
namespace {

using Events = std::vector<Ledger::Event>;

// The part of the time that each event is in. Phases are numbered from 1 on.
struct Part {
  size_t phase = 0;
  size_t number = 0;
  bool operator==(const Part&) const = default;
};

std::vector<Part> parts_of(const Events& events, std::span<const Ledger::Phase> phases,
                           size_t parts) {
  std::vector<Part> all;
  all.reserve(events.size());
  size_t phase = 0;
  for (const Ledger::Event& e : events) {
    while (phase < phases.size() && phases[phase].seconds <= e.seconds) ++phase;
    double begin = phase == 0 ? 0 : phases[phase - 1].seconds;
    double end = phase < phases.size() ? phases[phase].seconds : events.back().seconds;
    double share = end > begin ? (e.seconds - begin) / (end - begin) : 0;
    auto number = static_cast<size_t>(share * static_cast<double>(parts));
    all.push_back({phase, std::min(number, parts - 1)});
  }
  return all;
}

// The first event after which something was largest.
struct Highest {
  int64_t bytes = 0;  // more than nothing, so that it is always true of an event
  size_t event = 0;

  void see(int64_t now, size_t at) {
    if (now > bytes) *this = {now, at};
  }
  void mark(std::vector<bool>& marked) {
    if (bytes > 0) marked[event] = true;
    *this = {};
  }
};

// Keeps the last state of each time of which any state is kept: without it, changes at that time
// would seem to come later.
void keep_ends_of_times(const Events& events, std::vector<bool>& kept) {
  bool any = false;  // at this time
  for (size_t i = 0; i < events.size(); ++i) {
    any = any || kept[i];
    if (i + 1 < events.size() && events[i + 1].seconds == events[i].seconds) continue;
    kept[i] = std::exchange(any, false);
  }
}

// Events whose states are kept: the last of each part, and the highest ones.
std::vector<bool> kept_states(const Events& events, std::span<const Ledger::Account> accounts,
                              std::span<const Part> parts) {
  std::vector<bool> kept(events.size());
  std::array<int64_t, kPlaces> place_bytes{};
  std::array<std::array<int64_t, kUses>, kPlaces> use_bytes{};
  std::array<Highest, kPlaces> of_part;
  std::array<std::array<Highest, kUses>, kPlaces> of_phase;
  for (size_t i = 0; i < events.size(); ++i) {
    const Ledger::Account& account = accounts[events[i].account];
    auto place = static_cast<size_t>(account.place), use = static_cast<size_t>(account.use);
    of_part[place].see(place_bytes[place] += events[i].delta, i);
    of_phase[place][use].see(use_bytes[place][use] += events[i].delta, i);
    if (i + 1 < events.size() && parts[i + 1] == parts[i]) continue;
    kept[i] = true;
    for (Highest& h : of_part) h.mark(kept);
    if (i + 1 < events.size() && parts[i + 1].phase == parts[i].phase) continue;
    for (auto& uses : of_phase)
      for (Highest& h : uses) h.mark(kept);
  }
  keep_ends_of_times(events, kept);
  return kept;
}

}  // namespace

void thin_timeline(Events& events, std::span<const Ledger::Account> accounts,
                   std::span<const Ledger::Phase> phases, size_t parts) {
  std::vector<bool> kept = kept_states(events, accounts, parts_of(events, phases, parts));
  Events thin;
  std::vector<int64_t> change(accounts.size());  // since the last state that is kept
  std::vector<uint32_t> changed;
  for (size_t i = 0; i < events.size(); ++i) {
    changed.push_back(events[i].account);
    change[events[i].account] += events[i].delta;
    if (!kept[i]) continue;
    for (bool taken : {false, true}) {
      for (uint32_t a : changed)
        if (change[a] != 0 && (change[a] > 0) == taken)
          thin.push_back({events[i].seconds, a, std::exchange(change[a], 0)});
    }
    changed.clear();
  }
  events = std::move(thin);
}

}  // namespace sluice
