// A session's knowledge of the machine's speed, and how loads and passes add to it.
#include <algorithm>
#include <optional>
#include <vector>

#include "src/base/log.h"
#include "src/engine/session.h"

namespace sluice {
namespace {

// Matrices that stay in memory, as many as caches do not hold; fewer say nothing.
struct Matrices {
  std::vector<Weight> weights;
  uint64_t bytes = 0;
};
Matrices some_matrices(const ReadPlan& plan) {
  Matrices matrices;
  for (const ParamPlan& p : plan.params) {
    if (p.streamed() || p.param->role != ParamRole::linear) continue;
    matrices.weights.push_back(p.param->value);
    matrices.bytes += p.bytes;
    if (matrices.bytes >= 2 * kSustainedBytes) break;
  }
  if (matrices.bytes < kSustainedBytes) return {};
  return matrices;
}

}  // namespace

Rates Session::rates(const QuantizeRequest& quantize) const {
  return remembered_rates(rates_file(), rate_keys(options_.model, quantize));
}

// `path` is on the disk that counts.
RateKeys Session::rate_keys(const std::filesystem::path& path,
                            const QuantizeRequest& quantize) const {
  const DeviceInfo& device = backend_->device().info();
  RateKeys keys;
  keys.disk = disk_key(path);
  for (const auto& mirror : options_.mirrors) keys.disk += fmt::format("+{}", disk_key(mirror));
  keys.weights = fmt::format("{} {}", dtype_name(checkpoint_.weights_dtype()), quantize.name());
  keys.processor = backend_->device().has_own_memory()
                       ? device.name
                       : fmt::format("{} {} threads", isa_name(options_.isa), pool_->size());
  keys.device = device.name;
  keys.memory_rate = device.memory_rate;
  return keys;
}

void Session::remember(std::span<const Observation> seen) const {
  if (seen.empty()) return;
  const std::filesystem::path file = rates_file();
  if (!remember_rates(file, rate_keys(options_.model, options_.quantize), seen) && !file.empty())
    log::debug("{}: cannot be written; the rates of this run are not remembered", file.string());
}

// Returns whether the load says something of this disk: nothing came through the page cache, or
// from another disk.
bool Session::loaded_from_disk() const {
  const io::ReaderStats& io = load_report().io;
  const std::string disk = disk_key(options_.model);
  const bool spilled = spill() && spill()->report().outcome == "reused";
  return options_.reader == io::ReaderKind::automatic && io.bytes_direct == io.bytes_read &&
         (!spilled || std::ranges::all_of(options_.spill.directories, [&](const auto& directory) {
           return disk_key(directory) == disk;
         }));
}

bool Session::tries_shapes() const {
  return options_.reader == io::ReaderKind::automatic && !read_shape_.is_settled() &&
         rank().size == 1;
}

void Session::learn_load() {
  if (!loaded_from_disk() || rank().size > 1) return;  // ranks share a disk
  learn_shape();
  const Observation seen{RateKind::disk, load_report().disk_rate.value_or(0)};
  if (load_report().disk_rate) remember({&seen, 1});
}

// Call before the rate is remembered.
void Session::learn_shape() {
  const RateKeys keys = rate_keys(options_.model, options_.quantize);
  if (load_report().fastest) {
    remember_shape(rates_file(), keys, *load_report().fastest, RateSource::runs);
    read_shape_ = remembered_shape(rates_file(), keys);
  } else if (load_report().disk_rate && read_shape_.is_settled()) {
    // A disk that gives clearly more or less than it did is another, or in another place.
    constexpr double kAnother = 4.0 / 3;
    const double change = *load_report().disk_rate / rates().disk.bytes_per_second;
    if (change > kAnother || change < 1 / kAnother) forget_shape(rates_file(), keys);
  }
}

// A run that streams does not show what memory gives, which another budget needs to know.
void Session::learn_memory() {
  const RateKeys keys = rate_keys(options_.model, options_.quantize);
  if (rates_file().empty() || has_rate(rates_file(), keys, RateKind::step)) return;
  const Matrices matrices = some_matrices(read_plan());
  if (matrices.weights.empty() || backend_->device().has_own_memory()) return;
  const double seconds = runner().matrices_seconds(matrices.weights);
  const Observation seen{RateKind::step, static_cast<double>(matrices.bytes) / seconds};
  remember({&seen, 1});
}

void Session::learn_pass(double seconds) {
  // After a shrink passes of two kinds were timed, and another reader than the usual one is no
  // measure.
  if (seconds <= 0 || past_peak_ > 0 || options_.reader != io::ReaderKind::automatic) return;
  if (rank().size > 1) return;  // they share the machine
  if (memory_plan().reads_disk()) learn_memory();
  const SpillLayout none;
  const SpillLayout& spilled = spill() && spill()->ready() ? spill()->layout() : none;
  // A pass reads the experts that its tokens choose, as far as no cache has them.
  const std::optional<StreamReport> stream = stream_report();
  const uint64_t read = stream ? stream->pass_bytes : 0;
  const PassBytes bytes{.disk = read > 0 ? read : sweep_bytes(read_plan(), spilled),
                        .link = memory_plan().host_sweep_bytes,
                        .host = memory_plan().host_multiplied_bytes,
                        .memory = memory_plan().met_by_device(read_plan().bytes_per_token()),
                        .disk_share = memory_plan().buffers.disk_share};
  if (auto seen = observe_pass(bytes, seconds, rates())) remember({&*seen, 1});
}

}  // namespace sluice
