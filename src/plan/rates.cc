#include "src/plan/rates.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "io/file.h"
#include "io/reader.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kMostBytes = 1 << 20;
constexpr size_t kKept = 8;  // observations of a kind
// Shares of a disk's and a memory's bare rate that streaming and the matrix kernels reach
// (docs/benchmarks.md).
constexpr double kDiskShare = 0.92;
constexpr double kMemoryShare = 0.85;
// The least share of a pass that the disk counts as, even if it reads beside compute without either
// waiting: in another budget the pass may wait for it.
constexpr double kLeastPart = 0.2;
// Bounds of a credible shape.
constexpr uint64_t kLeastRequest = 64 * KiB, kLargestRequest = 8 * MiB;
constexpr uint64_t kLeastInFlight = 4 * MiB, kMostInFlight = 64 * MiB;
// Bounds of a credible rate [bytes/s, messages/s]. Others were not written by this program.
constexpr double kSlowest = 1e4, kFewestMessages = 0.1, kFastest = 1e14;

// An object of rates.json, of lists of observations.
const char* section(RateKind kind) {
  constexpr const char* kSections[] = {"disks", "sweeps", "memory", "steps",
                                       "links", "hosts",  "ranks",  "messages"};
  return kSections[static_cast<size_t>(kind)];
}

// Returns the key of a list in a section.
std::string list_key(RateKind kind, const RateKeys& keys) {
  switch (kind) {
    case RateKind::disk:
      return keys.disk;
    case RateKind::sweep:
      return keys.disk + " " + keys.weights;
    case RateKind::memory:
      return "host";
    case RateKind::step:
      return keys.weights + " " + keys.processor;
    case RateKind::link:
      return keys.device;
    case RateKind::host:
      return keys.weights + " beside " + keys.device;
    case RateKind::ranks:
    case RateKind::messages:
      return keys.several_hosts ? "hosts" : "host";
  }
  return {};
}

// Null where there is no such member.
const Json& member(const Json& json, const std::string& key) {
  static const Json kNull;
  const auto found = json.find(key);
  return found == json.end() ? kNull : *found;
}

Json object_of(const Json& json, const std::string& key) {
  const Json& found = member(json, key);
  return found.is_object() ? found : Json::object();
}

uint64_t number_in(const Json& json, const std::string& key) {
  const Json& found = member(json, key);
  return found.is_number_unsigned() ? found.get<uint64_t>() : 0;
}

RateSource source_in(const Json& json) {
  return member(json, "from") == rate_source_name(RateSource::bench) ? RateSource::bench
                                                                     : RateSource::runs;
}

Json read_rates(const std::filesystem::path& file) {
  if (file.empty()) return Json::object();
  try {
    Json json = parse_json(io::read_small_file(file, kMostBytes), file.string());
    if (json.is_object()) return json;
  } catch (const Error&) {
    return Json::object();  // as if there were none
  }
  return Json::object();
}

bool credible(RateKind kind, double rate) {
  return rate >= (kind == RateKind::messages ? kFewestMessages : kSlowest) && rate <= kFastest;
}

// The oldest first; without what is none.
std::vector<Observation> observations_of(const Json& json, const RateKeys& keys, RateKind kind) {
  std::vector<Observation> found;
  const Json& list = member(member(json, section(kind)), list_key(kind, keys));
  if (!list.is_array()) return found;
  for (const Json& o : list) {
    const Json& rate = member(o, "rate");
    if (rate.is_number() && credible(kind, rate.get<double>()))
      found.push_back({kind, rate.get<double>(), source_in(o)});
  }
  return found;
}

// Returns the rate that a run reaches, if a benchmark or a run observed this one.
Rate reached(const Observation& o) {
  double share = 1;
  if (o.kind == RateKind::memory) share = kMemoryShare;
  if (o.kind == RateKind::disk && o.source == RateSource::bench) share = kDiskShare;
  return {o.bytes_per_second * share, o.source};
}

// Returns the typical rate; nullopt if there are no observations.
std::optional<Rate> typical(const Json& json, const RateKeys& keys, RateKind kind) {
  std::vector<Rate> rates;
  for (const Observation& o : observations_of(json, keys, kind)) rates.push_back(reached(o));
  if (rates.empty()) return std::nullopt;
  std::ranges::sort(rates, std::greater{}, &Rate::bytes_per_second);
  return rates[rates.size() / 4];
}

void add(Json& json, const RateKeys& keys, const Observation& observation) {
  if (!credible(observation.kind, observation.bytes_per_second)) return;
  std::vector<Observation> all = observations_of(json, keys, observation.kind);
  all.push_back(observation);
  if (all.size() > kKept) all.erase(all.begin());
  Json list = Json::array();
  for (const Observation& o : all)
    list.push_back({{"rate", o.bytes_per_second}, {"from", rate_source_name(o.source)}});
  Json lists = object_of(json, section(observation.kind));
  lists[list_key(observation.kind, keys)] = std::move(list);
  json[section(observation.kind)] = std::move(lists);
}

}  // namespace

std::string_view rate_source_name(RateSource source) {
  constexpr std::string_view kNames[] = {"assumed", "bench disk", "runs"};
  return kNames[static_cast<size_t>(source)];
}

std::string disk_key(const std::filesystem::path& path) {
  struct stat s{};
  return stat(path.c_str(), &s) == 0 ? std::to_string(s.st_dev) : std::string();
}

std::filesystem::path rates_file() {
  const std::filesystem::path cache = user_cache();
  return cache.empty() ? cache : cache / "rates.json";
}

Rates remembered_rates(const std::filesystem::path& file, const RateKeys& keys) {
  const Json json = read_rates(file);
  Rates rates;
  auto take = [&](Rate& rate, RateKind kind) {
    if (auto seen = typical(json, keys, kind)) rate = *seen;
  };
  take(rates.disk, RateKind::disk);
  rates.sweep = rates.disk;
  take(rates.sweep, RateKind::sweep);
  if (keys.memory_rate > 0) {
    rates.memory.bytes_per_second = keys.memory_rate * kMemoryShare;
  } else {
    take(rates.memory, RateKind::memory);
  }
  take(rates.memory, RateKind::step);
  take(rates.link, RateKind::link);
  take(rates.host, RateKind::memory);
  take(rates.host, RateKind::host);
  RateKeys ranks = keys;
  for (const bool several : {false, true}) {
    ranks.several_hosts = several;
    if (auto seen = typical(json, ranks, RateKind::ranks)) rates.ranks = *seen;
    if (auto seen = typical(json, ranks, RateKind::messages)) rates.messages = *seen;
  }
  return rates;
}

bool has_rate(const std::filesystem::path& file, const RateKeys& keys, RateKind kind) {
  return typical(read_rates(file), keys, kind).has_value();
}

namespace {

// Replaces the file as a whole. False when it cannot be written.
bool write_rates(const std::filesystem::path& file, const Json& json) {
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

constexpr const char* kShapes = "shapes";
constexpr size_t kShapesKept = 3;

struct SeenShape {
  io::ReadShape shape;
  RateSource source = RateSource::runs;
};

// The oldest first; without what nobody would ask a disk with.
std::vector<SeenShape> seen_shapes(const Json& json, const RateKeys& keys) {
  std::vector<SeenShape> found;
  const Json& list = member(member(json, kShapes), keys.disk);
  if (!list.is_array()) return found;
  for (const Json& o : list) {
    const uint64_t bytes = number_in(o, "request_bytes"), depth = number_in(o, "depth");
    if (bytes < kLeastRequest || bytes > kLargestRequest || bytes % io::kDirectAlignment != 0)
      continue;
    if (depth == 0 || depth > kMostInFlight / bytes || depth * bytes < kLeastInFlight) continue;
    found.push_back({{bytes, static_cast<int>(depth)}, source_in(o)});
  }
  return found;
}

void set_shapes(Json& json, const RateKeys& keys, const std::vector<SeenShape>& seen) {
  Json list = Json::array();
  for (const SeenShape& s : seen) {
    list.push_back({{"request_bytes", s.shape.request_bytes},
                    {"depth", s.shape.depth},
                    {"from", rate_source_name(s.source)}});
  }
  Json lists = object_of(json, kShapes);
  lists[keys.disk] = std::move(list);
  json[kShapes] = std::move(lists);
}

}  // namespace

bool remember_rates(const std::filesystem::path& file, const RateKeys& keys,
                    std::span<const Observation> observations) {
  if (file.empty()) return false;
  Json json = read_rates(file);
  for (const Observation& o : observations) add(json, keys, o);
  return write_rates(file, json);
}

RememberedShape remembered_shape(const std::filesystem::path& file, const RateKeys& keys) {
  RememberedShape remembered;
  const std::vector<SeenShape> seen = seen_shapes(read_rates(file), keys);
  auto said = [&](const io::ReadShape& shape) {
    return std::ranges::count(seen, shape, &SeenShape::shape);
  };
  std::ptrdiff_t most = 0;
  for (const SeenShape& s : seen) {
    if (s.source == RateSource::runs) ++remembered.loads;
    if (said(s.shape) < most) continue;
    most = said(s.shape);
    remembered.shape = s.shape;
    remembered.source = s.source;
  }
  return remembered;
}

bool remember_shape(const std::filesystem::path& file, const RateKeys& keys,
                    const io::ReadShape& shape, RateSource source) {
  if (file.empty()) return false;
  Json json = read_rates(file);
  std::vector<SeenShape> seen = seen_shapes(json, keys);
  // A benchmark's shape holds until loads have been measured.
  if (source == RateSource::bench) seen.clear();
  std::erase_if(seen, [](const SeenShape& s) { return s.source == RateSource::bench; });
  seen.push_back({shape, source});
  if (seen.size() > kShapesKept) seen.erase(seen.begin());
  set_shapes(json, keys, seen);
  return write_rates(file, json);
}

bool forget_shape(const std::filesystem::path& file, const RateKeys& keys) {
  if (file.empty()) return false;
  Json json = read_rates(file);
  set_shapes(json, keys, {});
  return write_rates(file, json);
}

namespace {

constexpr const char* kExperts = "experts";
constexpr size_t kCheckpointsKept = 32;
// Bounds of what can be true.
constexpr uint64_t kExpertsOfAModel = 1 << 20, kMostUses = uint64_t{1} << 48;

ExpertReuse reuse_in(const Json& json) {
  const Json& again = member(json, "again");
  if (!again.is_array()) return {};
  ExpertReuse seen;
  seen.experts = number_in(json, "experts");
  seen.slots = number_in(json, "slots");
  seen.uses = number_in(json, "uses");
  seen.hits = number_in(json, "hits");
  if (again.size() != seen.again.size() || seen.experts > kExpertsOfAModel ||
      seen.slots > seen.experts || seen.uses > kMostUses || seen.hits > seen.uses)
    return {};
  uint64_t left = seen.uses;
  for (size_t i = 0; i < again.size(); ++i) {
    if (!again[i].is_number_unsigned() || again[i].get<uint64_t>() > left) return {};
    seen.again[i] = again[i].get<uint64_t>();
    left -= seen.again[i];
  }
  return seen;
}

}  // namespace

std::string checkpoint_key(const std::filesystem::path& model) {
  struct stat s{};
  if (stat(model.c_str(), &s) != 0) return {};
  return fmt::format("{} {} {}", s.st_dev, s.st_ino, s.st_mtime);
}

ExpertReuse remembered_reuse(const std::filesystem::path& file, const std::string& checkpoint) {
  return reuse_in(member(object_of(read_rates(file), kExperts), checkpoint));
}

bool remember_reuse(const std::filesystem::path& file, const std::string& checkpoint,
                    const ExpertReuse& seen) {
  if (file.empty() || checkpoint.empty() || !seen.is_known()) return false;
  Json json = read_rates(file);
  Json all = object_of(json, kExperts);
  uint64_t latest = 0;
  for (const Json& entry : all) latest = std::max(latest, number_in(entry, "order"));
  all[checkpoint] = {{"order", std::min(latest, kMostUses) + 1},
                     {"experts", seen.experts},
                     {"slots", seen.slots},
                     {"uses", seen.uses},
                     {"hits", seen.hits},
                     {"again", seen.again}};
  while (all.size() > kCheckpointsKept) {
    all.erase(std::min_element(all.begin(), all.end(), [](const Json& a, const Json& b) {
      return number_in(a, "order") < number_in(b, "order");
    }));
  }
  json[kExperts] = std::move(all);
  return write_rates(file, json);
}

namespace {

double disk_seconds(const PassBytes& bytes, const Rates& rates) {
  return static_cast<double>(bytes.disk) / (rates.sweep.bytes_per_second * bytes.disk_share);
}

double link_seconds(const PassBytes& bytes, const Rates& rates) {
  return static_cast<double>(bytes.link) / rates.link.bytes_per_second;
}

double host_seconds(const PassBytes& bytes, const Rates& rates) {
  return static_cast<double>(bytes.host) / rates.host.bytes_per_second;
}

double memory_seconds(const PassBytes& bytes, const Rates& rates) {
  return static_cast<double>(std::max<uint64_t>(bytes.memory, 1)) / rates.memory.bytes_per_second;
}

}  // namespace

double pass_seconds(const PassBytes& bytes, const Rates& rates) {
  return disk_seconds(bytes, rates) + link_seconds(bytes, rates) + host_seconds(bytes, rates) +
         memory_seconds(bytes, rates);
}

std::optional<Observation> observe_pass(const PassBytes& bytes, double seconds,
                                        const Rates& rates) {
  const bool disk = bytes.disk > 0;
  const bool link = !disk && bytes.link > bytes.host, host = !disk && !link && bytes.host > 0;
  const uint64_t moved = disk ? bytes.disk : link ? bytes.link : host ? bytes.host : bytes.memory;
  if (moved < kSustainedBytes || seconds <= 0) return std::nullopt;
  double rest = 0;
  if (!link) rest += link_seconds(bytes, rates);
  if (!host) rest += host_seconds(bytes, rates);
  if (disk || link || host) rest += memory_seconds(bytes, rates);
  const double part = std::max(seconds - rest, kLeastPart * seconds);
  const double rate = static_cast<double>(moved) / part;
  if (disk) return Observation{RateKind::sweep, rate / bytes.disk_share};
  return Observation{link ? RateKind::link : host ? RateKind::host : RateKind::step, rate};
}

double predict_load_seconds(const ReadPlan& read, const Rates& rates) {
  return static_cast<double>(read.read_bytes()) / rates.disk.bytes_per_second;
}

double predict_speed(const MemoryPlan& memory, const ReadPlan& read, const Rates& rates,
                     int64_t sequences) {
  auto width = static_cast<double>(sequences);
  const PassBytes bytes{.disk = sequences > 1 ? memory.batch_sweep_bytes : memory.sweep_bytes,
                        .link = memory.host_sweep_bytes,
                        .host = memory.host_multiplied_bytes,
                        .memory = memory.met_by_device(read.step_bytes(sequences)),
                        .disk_share = memory.buffers.disk_share};
  // Arithmetic of more than some sequences takes longer than memory.
  Rates shared = rates;
  shared.memory.bytes_per_second /= std::max(1.0, width / kSequencesForFree);
  return width / pass_seconds(bytes, shared);
}

BlockCosts predict_block_costs(uint64_t bytes, int64_t block_size, const ReadPlan& read,
                               const Rates& rates) {
  double weights = static_cast<double>(std::max<uint64_t>(read.step_bytes(), 1));
  double memory = 2 * static_cast<double>(bytes) / rates.memory.bytes_per_second;
  double disk = static_cast<double>(bytes) / rates.disk.bytes_per_second;
  BlockCosts costs;
  costs.recompute = static_cast<double>(block_size) * weights /
                    (rates.memory.bytes_per_second * kSequencesForFree);
  costs.store = costs.restore = {0, memory, memory + disk};
  return costs;
}

}  // namespace sluice
