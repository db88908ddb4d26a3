#include "src/memory/report.h"

#include <fmt/format.h>

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

std::vector<Ledger::Account> accounts_from(const JsonFields& fields, const char* key) {
  std::vector<Ledger::Account> accounts;
  std::string where = fmt::format("{}: {}", fields.where(), key);
  for (const Json& item : report_list(fields, key)) {
    JsonFields f(item, where);
    accounts.push_back({enum_from<Place>(f.string("place"), kPlaces, place_name, where),
                        enum_from<Use>(f.string("use"), kUses, use_name, where), f.string("owner"),
                        report_bytes(f, "bytes")});
  }
  return accounts;
}

int64_t integer_from(const Json& value, const char* what, const std::string& where) {
  bool fits = value.is_number_integer() &&
              (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX});
  if (!fits) fail(ErrorKind::refused, "{}: {} must be an integer of 64 bits", where, what);
  return value.get<int64_t>();
}

std::vector<Ledger::Event> timeline_from(const JsonFields& fields, size_t accounts) {
  std::vector<Ledger::Event> events;
  std::vector<int64_t> held(accounts);
  int64_t total = 0;  // over all places, so that no sum of some of them overflows
  double last = 0;
  std::string where = fields.where() + ": timeline";
  for (const Json& item : report_list(fields, "timeline")) {
    if (!item.is_array() || item.size() != 3)
      fail(ErrorKind::refused, "{}: every entry must be [seconds, account, bytes]", where);
    last = report_seconds(item[0], last, where);
    int64_t account = integer_from(item[1], "an account", where);
    if (account < 0 || account >= std::ssize(held))
      fail(ErrorKind::refused, "{}: there is no account {}", where, account);
    int64_t delta = integer_from(item[2], "a number of bytes", where);
    int64_t& balance = held[static_cast<size_t>(account)];
    if (__builtin_add_overflow(balance, delta, &balance) || balance < 0 ||
        __builtin_add_overflow(total, delta, &total)) {
      fail(ErrorKind::refused, "{}: account {} would hold less than nothing or more than 63 bits",
           where, account);
    }
    events.push_back({last, static_cast<uint32_t>(account), delta});
  }
  return events;
}

}  // namespace

uint64_t report_bytes(const JsonFields& fields, const char* key) {
  return static_cast<uint64_t>(fields.integer(key, 0, INT64_MAX));
}

const Json& report_list(const JsonFields& fields, const char* key) {
  const Json& value = fields.raw(key);
  if (!value.is_array()) fail(ErrorKind::refused, "{}: {} must be a list", fields.where(), key);
  return value;
}

double report_seconds(const Json& value, double earliest, const std::string& where) {
  constexpr double kLatest = 1e9;  // thirty years: what charts and traces make of it stays finite
  if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kLatest))
    fail(ErrorKind::refused, "{}: a time must be seconds since the start, 0 to {:.0e}", where,
         kLatest);
  if (value.get<double>() < earliest)
    fail(ErrorKind::refused, "{}: time goes back from {} s to {} s", where, earliest,
         value.get<double>());
  return value.get<double>();
}

MemoryReport measure_memory(const Ledger& ledger, Timeline timeline, uint64_t predicted_peak,
                            uint64_t predicted_device_peak) {
  MemoryReport r;
  r.budget = ledger.budget(Place::host).value_or(0);
  r.predicted_peak = predicted_peak;
  r.ledger_peak = ledger.peak(Place::host);
  if (auto budget = ledger.budget(Place::device))
    r.device = {*budget, predicted_device_peak, ledger.peak(Place::device)};
  r.peak_holders = ledger.holders_at_peak(Place::host);
  r.phases = ledger.phases();
  if (timeline == Timeline::included) r.timeline = ledger.events();
  r.accounts = ledger.accounts();  // after the events, so that it has the account of each
  if (auto cgroup = cgroup_memory()) {
    r.cgroup_peak = cgroup->peak;
    r.cgroup_limit = cgroup->limit;
  }
  r.measured_peak = process_peak_rss();
  return r;
}

Json to_json(const MemoryReport& r) {
  Json json{{"budget", r.budget},
            {"predicted_peak", r.predicted_peak},
            {"ledger_peak", r.ledger_peak},
            {"measured_peak", r.measured_peak},
            {"cgroup_peak", r.cgroup_peak ? Json(*r.cgroup_peak) : Json()},
            {"cgroup_limit", r.cgroup_limit ? Json(*r.cgroup_limit) : Json()}};
  if (r.device) {
    json["device"] = {{"budget", r.device->budget},
                      {"predicted_peak", r.device->predicted_peak},
                      {"ledger_peak", r.device->ledger_peak}};
  }
  json["peak_holders"] = Json::array();
  for (const auto& a : r.peak_holders) json["peak_holders"].push_back(account_json(a));
  json["phases"] = Json::array();
  for (const auto& p : r.phases)
    json["phases"].push_back({{"seconds", p.seconds}, {"name", p.name}});
  json["accounts"] = Json::array();
  for (const auto& a : r.accounts) json["accounts"].push_back(account_json(a));
  json["timeline"] = Json::array();
  return json;
}

void write_json(JsonWriter& json, const MemoryReport& r) {
  Json figures = to_json(r);
  figures.erase("timeline");
  auto timeline = [&] {
    json.array(r.timeline,
               [&](const Ledger::Event& e) { json.value({e.seconds, e.account, e.delta}); });
  };
  json.object(figures, {{"timeline", timeline}});
}

MemoryReport memory_report_from_json(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  MemoryReport r;
  r.budget = report_bytes(fields, "budget");
  r.predicted_peak = report_bytes(fields, "predicted_peak");
  r.ledger_peak = report_bytes(fields, "ledger_peak");
  r.measured_peak = report_bytes(fields, "measured_peak");
  if (fields.has("cgroup_peak")) r.cgroup_peak = report_bytes(fields, "cgroup_peak");
  if (fields.has("cgroup_limit")) r.cgroup_limit = report_bytes(fields, "cgroup_limit");
  if (fields.has("device")) {
    JsonFields device(fields.raw("device"), where + ": device");
    r.device = {report_bytes(device, "budget"), report_bytes(device, "predicted_peak"),
                report_bytes(device, "ledger_peak")};
  }
  r.peak_holders = accounts_from(fields, "peak_holders");
  double last = 0;
  for (const Json& item : report_list(fields, "phases")) {
    JsonFields f(item, where + ": phases");
    last = report_seconds(f.raw("seconds"), last, f.where());
    r.phases.push_back({last, f.string("name")});
  }
  r.accounts = accounts_from(fields, "accounts");
  r.timeline = timeline_from(fields, r.accounts.size());
  return r;
}

std::string to_text(const MemoryReport& r) {
  std::string text =
      fmt::format("memory     predicted peak {}, measured {} ({:+.1f} %), ledger {}, budget {}",
                  format_size(r.predicted_peak), format_size(r.measured_peak), deviation(r),
                  format_size(r.ledger_peak), format_size(r.budget));
  if (r.cgroup_peak && r.cgroup_limit) {  // without a limit nobody asks
    text +=
        fmt::format(", cgroup {} of {}", format_size(*r.cgroup_peak), format_size(*r.cgroup_limit));
  }
  if (r.device) {
    text += fmt::format("\ndevice     predicted peak {}, ledger {}, budget {}",
                        format_size(r.device->predicted_peak), format_size(r.device->ledger_peak),
                        format_size(r.device->budget));
  }
  text += "\n  at the peak:";
  for (const auto& [use, bytes] : by_use(r.peak_holders)) {
    text += fmt::format("\n    {:<12} {:>10}", use_name(use), format_size(bytes));
  }
  return text;
}

}  // namespace sluice
