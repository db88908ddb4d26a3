// Answers of all transfers to faults of the connection, and to full disks.
#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>

#include "src/base/units.h"
#include "src/hub/http.h"

namespace sluice {

inline constexpr int kMostTries = 6;                // in a row that bring nothing
inline constexpr uint64_t kDiskReserve = 64 * MiB;  // left free

[[noreturn]] void fail_interrupted();
// Waits, or throws where `stop` is asked for.
void wait_for(std::chrono::seconds time, const std::stop_token& stop);
// Before the next of several tries: 1, 2, 4 ... seconds, or what the server asks for.
std::chrono::seconds pause_before(int tries, int64_t retry_after);
std::string fault_of(const HttpResult& result);

}  // namespace sluice
