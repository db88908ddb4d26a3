#include "src/memory/report.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/memory/system.h"

namespace sluice {
namespace {

Json account_json(const Ledger::Account& a) {
  return {{"place", place_name(a.place)},
          {"use", use_name(a.use)},
          {"owner", a.owner},
          {"bytes", a.bytes}};
}

// Percent by which the measured peak differs from the predicted one.
double deviation(const MemoryReport& r) {
  if (r.predicted_peak == 0) return 0;
  return 100.0 * (static_cast<double>(r.measured_peak) / static_cast<double>(r.predicted_peak) - 1);
}

// Sums over owners; layers are many, uses are few.
std::map<Use, uint64_t> by_use(const std::vector<Ledger::Account>& holders) {
  std::map<Use, uint64_t> sums;
  for (const auto& a : holders) sums[a.use] += a.bytes;
  return sums;
}

template <class Enum, class Name>
Enum enum_from(const std::string& name, size_t count, Name name_of, const std::string& where) {
  for (size_t i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  fail(ErrorKind::refused, "{}: \"{}\" is not known in a memory report", where, name);
}

}  // namespace

MemoryReport measure_memory(const Ledger& ledger, uint64_t predicted_peak) {
  MemoryReport r;
  r.budget = ledger.budget(Place::host).value_or(0);
  r.predicted_peak = predicted_peak;
  r.ledger_peak = ledger.peak(Place::host);
  r.measured_peak = process_peak_rss();
  if (auto cgroup = cgroup_memory()) r.cgroup_peak = cgroup->peak;
  r.peak_holders = ledger.holders_at_peak(Place::host);
  r.phases = ledger.phases();
  r.accounts = ledger.accounts();
  r.timeline = ledger.events();
  return r;
}

Json to_json(const MemoryReport& r) {
  Json json{{"budget", r.budget},
            {"predicted_peak", r.predicted_peak},
            {"ledger_peak", r.ledger_peak},
            {"measured_peak", r.measured_peak},
            {"cgroup_peak", r.cgroup_peak ? Json(*r.cgroup_peak) : Json()}};
  json["peak_holders"] = Json::array();
  for (const auto& a : r.peak_holders) json["peak_holders"].push_back(account_json(a));
  json["phases"] = Json::array();
  for (const auto& p : r.phases)
    json["phases"].push_back({{"seconds", p.seconds}, {"name", p.name}});
  json["accounts"] = Json::array();
  for (const auto& a : r.accounts) json["accounts"].push_back(account_json(a));
  json["timeline"] = Json::array();
  for (const auto& e : r.timeline) json["timeline"].push_back({e.seconds, e.account, e.delta});
  return json;
}

MemoryReport memory_report_from_json(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  auto bytes = [&](const JsonFields& f, const char* key) {
    return static_cast<uint64_t>(f.integer(key, 0, INT64_MAX));
  };
  auto list = [&](const char* key) -> const Json& {
    const Json& value = fields.raw(key);
    if (!value.is_array()) fail(ErrorKind::refused, "{}: {} must be a list", where, key);
    return value;
  };
  MemoryReport r;
  r.budget = bytes(fields, "budget");
  r.predicted_peak = bytes(fields, "predicted_peak");
  r.ledger_peak = bytes(fields, "ledger_peak");
  r.measured_peak = bytes(fields, "measured_peak");
  if (fields.has("cgroup_peak")) r.cgroup_peak = bytes(fields, "cgroup_peak");
  for (const Json& item : list("peak_holders")) {
    JsonFields f(item, where + ": peak_holders");
    r.peak_holders.push_back({enum_from<Place>(f.string("place"), kPlaces, place_name, where),
                              enum_from<Use>(f.string("use"), kUses, use_name, where),
                              f.string("owner"), bytes(f, "bytes")});
  }
  for (const Json& item : list("phases")) {
    JsonFields f(item, where + ": phases");
    r.phases.push_back({f.number("seconds"), f.string("name")});
  }
  return r;
}

std::string to_text(const MemoryReport& r) {
  std::string text =
      fmt::format("memory     predicted peak {}, measured {} ({:+.1f} %), ledger {}, budget {}",
                  format_size(r.predicted_peak), format_size(r.measured_peak), deviation(r),
                  format_size(r.ledger_peak), format_size(r.budget));
  if (r.cgroup_peak) text += fmt::format(", cgroup {}", format_size(*r.cgroup_peak));
  text += "\n  at the peak:";
  for (const auto& [use, bytes] : by_use(r.peak_holders)) {
    text += fmt::format("\n    {:<12} {:>10}", use_name(use), format_size(bytes));
  }
  return text;
}

}  // namespace sluice
