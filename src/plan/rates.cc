#include "src/plan/rates.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/json.h"

namespace sluice {
namespace {

constexpr uint64_t kMostBytes = 1 << 20;
// What streaming and the matrix kernels reach of a disk's and a memory's bare rate
// (docs/benchmarks.md).
constexpr double kDiskShare = 0.92;
constexpr double kMemoryShare = 0.85;
// Sequences whose arithmetic takes as long as memory takes for the weights, about
// (docs/benchmarks.md).
constexpr double kSequencesForFree = 16;

std::string disk_of(const std::filesystem::path& model) {
  struct stat s{};
  return stat(model.c_str(), &s) == 0 ? std::to_string(s.st_dev) : std::string();
}

Json read_rates(const std::filesystem::path& file) {
  try {
    Json json = parse_json(io::read_small_file(file, kMostBytes), file.string());
    if (json.is_object() && json.value("disks", Json::object()).is_object()) return json;
  } catch (const Error&) {
    return Json::object();  // as if there were none
  }
  return Json::object();
}

Json object_of(const Json& json, const char* key) {
  Json none = Json::object();
  return json.contains(key) && json.at(key).is_object() ? json.at(key) : none;
}

std::optional<double> positive(const Json& object, const std::string& key) {
  if (!object.contains(key) || !object.at(key).is_number()) return std::nullopt;
  double value = object.at(key).get<double>();
  return value > 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

std::filesystem::path rates_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "sluice/rates.json";
  if (home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".cache/sluice/rates.json";
  return {};
}

Rates remembered_rates(const std::filesystem::path& file, const std::filesystem::path& model,
                       const std::string& device) {
  Rates rates;
  if (file.empty()) return rates;
  Json json = read_rates(file);
  if (auto disk = positive(object_of(json, "disks"), disk_of(model))) {
    rates.disk = *disk;
    rates.disk_measured = true;
  }
  if (auto memory = positive(json, "memory")) {
    rates.memory = *memory;
    rates.memory_measured = true;
  }
  if (auto link = positive(object_of(json, "links"), device)) {
    rates.link = *link;
    rates.link_measured = true;
  }
  return rates;
}

bool remember_rates(const std::filesystem::path& file, const std::filesystem::path& model,
                    const MeasuredRates& rates) {
  if (file.empty()) return false;
  Json json = read_rates(file);
  if (rates.disk) json["disks"][disk_of(model)] = *rates.disk;
  if (rates.memory) json["memory"] = *rates.memory;
  if (rates.link) {
    json["links"] = object_of(json, "links");
    json["links"][rates.device] = *rates.link;
  }
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  std::filesystem::path fresh = file.string() + "." + std::to_string(getpid());
  std::ofstream out(fresh, std::ios::trunc);
  out << json.dump(2) << "\n";
  out.close();
  if (out) std::filesystem::rename(fresh, file, error);
  if (out && !error) return true;
  std::filesystem::remove(fresh, error);
  return false;
}

Prediction predict_speed(const MemoryPlan& memory, const ReadPlan& read, const Rates& rates,
                         int64_t sequences) {
  auto width = static_cast<double>(sequences);
  double disk = static_cast<double>(memory.sweep_bytes) /
                (rates.disk * kDiskShare * memory.effort.disk_share);
  double link = static_cast<double>(memory.host_sweep_bytes) / rates.link;
  double compute = static_cast<double>(std::max<uint64_t>(read.bytes_per_token(), 1)) /
                   (rates.memory * kMemoryShare) * std::max(1.0, width / kSequencesForFree);
  double load = static_cast<double>(read.read_bytes()) / (rates.disk * kDiskShare);
  return {load, width / (disk + link + compute)};
}

BlockCosts predict_block_costs(uint64_t bytes, int64_t block_size, const ReadPlan& read,
                               const Rates& rates) {
  double weights = static_cast<double>(std::max<uint64_t>(read.bytes_per_token(), 1));
  double memory = 2 * static_cast<double>(bytes) / (rates.memory * kMemoryShare);
  double disk = static_cast<double>(bytes) / (rates.disk * kDiskShare);
  BlockCosts costs;
  costs.recompute =
      static_cast<double>(block_size) * weights / (rates.memory * kMemoryShare * kSequencesForFree);
  costs.store = costs.restore = {0, memory, memory + disk};
  return costs;
}

}  // namespace sluice
