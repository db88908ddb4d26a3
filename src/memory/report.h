// The use of memory: predicted, as leased in the ledger, and as measured by the system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/json_writer.h"
#include "src/memory/ledger.h"

namespace sluice {

// Memory of a device with memory of its own [bytes].
struct DeviceMemoryReport {
  uint64_t budget = 0;
  uint64_t predicted_peak = 0;
  uint64_t ledger_peak = 0;
};

struct MemoryReport {
  uint64_t budget = 0;
  uint64_t predicted_peak = 0;  // of the process, by the plan
  uint64_t ledger_peak = 0;     // leases, the process's own share included
  uint64_t measured_peak = 0;   // VmHWM
  // Peak of everything charged to the process's cgroup, earlier processes included, where the
  // process is alone in it; and the cgroup's limit.
  std::optional<uint64_t> cgroup_peak;
  std::optional<uint64_t> cgroup_limit;
  std::optional<DeviceMemoryReport> device;
  std::vector<Ledger::Account> peak_holders;  // at the ledger's peak, largest first
  std::vector<Ledger::Phase> phases;
  std::vector<Ledger::Account> accounts;
  std::vector<Ledger::Event> timeline;
};

// Looks at the ledger's places and then at the system now. The device is in it if it has a budget.
enum class Timeline : bool { left_out, included };
MemoryReport measure_memory(const Ledger& ledger, Timeline timeline, uint64_t predicted_peak,
                            uint64_t predicted_device_peak = 0);

// The "memory" object of reports: bytes throughout, times in seconds since the start.
void write_json(JsonWriter& json, const MemoryReport& report);
// The same with an empty timeline, which would be too long for a document.
Json to_json(const MemoryReport& report);
// Error(refused) for what no ledger could have written: times that go back, accounts that nobody
// opened, totals below zero or beyond 63 bits. So sums over the timeline need no checks.
MemoryReport memory_report_from_json(const Json& json, const std::string& where);
// A count of bytes, and a list, in a report. Error(refused) for anything else.
uint64_t report_bytes(const JsonFields& fields, const char* key);
const Json& report_list(const JsonFields& fields, const char* key);
// A time on a report's clock: seconds since the start, not before `earliest`. Error(refused).
double report_seconds(const Json& value, double earliest, const std::string& where);

// A table for people, a line each, no trailing newline.
std::string to_text(const MemoryReport& report);

}  // namespace sluice
