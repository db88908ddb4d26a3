#include "src/engine/machine_rates.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"

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

MachineRates::MachineRates(RateSetting setting, const QuantizeRequest& quantize)
    : setting_(std::move(setting)),
      quantize_(quantize),
      read_shape_(remembered_shape(file_, keys())) {}

Rates MachineRates::known(const QuantizeRequest& quantize) const {
  return remembered_rates(file_, keys(setting_.model, quantize));
}

Rates MachineRates::known_of(const std::filesystem::path& path) const {
  return remembered_rates(file_, keys(path, quantize_));
}

// `path` is on the disk that counts.
RateKeys MachineRates::keys(const std::filesystem::path& path,
                            const QuantizeRequest& quantize) const {
  RateKeys keys;
  keys.disk = disk_key(path);
  for (const auto& mirror : setting_.mirrors) keys.disk += fmt::format("+{}", disk_key(mirror));
  keys.weights = fmt::format("{} {}", setting_.stored, quantize.name());
  keys.processor = setting_.processor;
  keys.device = setting_.device;
  keys.memory_rate = setting_.memory_rate;
  return keys;
}

ExpertReuse MachineRates::expert_reuse() const {
  return remembered_reuse(file_, checkpoint_key(setting_.model));
}

void MachineRates::remember(const Observation& seen) const {
  if (!remember_rates(file_, keys(), {&seen, 1}) && !file_.empty())
    log::debug("{}: cannot be written; the rates of this run are not remembered", file_.string());
}

// Returns whether the load says something of this disk: nothing came through the page cache, or
// from another disk.
bool MachineRates::shows_disk(const ModelWeights& loaded) const {
  const io::ReaderStats& io = loaded.report().io;
  if (!setting_.typical || io.bytes_direct != io.bytes_read) return false;
  const Spill* spill = loaded.spill();
  if (spill == nullptr || spill->report().outcome != "reused") return true;
  const std::string disk = disk_key(setting_.model);
  return std::ranges::all_of(spill->files(),
                             [&](const auto& file) { return disk_key(file.path) == disk; });
}

void MachineRates::learn_load(const ModelWeights& loaded) {
  if (!shows_disk(loaded)) return;
  learn_shape(loaded.report());
  if (const std::optional<double> rate = loaded.report().disk_rate)
    remember({RateKind::disk, *rate});
}

// Call before the rate is remembered.
void MachineRates::learn_shape(const LoadReport& report) {
  if (report.fastest) {
    remember_shape(file_, keys(), *report.fastest, RateSource::runs);
    read_shape_ = remembered_shape(file_, keys());
  } else if (report.disk_rate && read_shape_.is_settled()) {
    // A disk that gives clearly more or less than it did is another, or in another place.
    constexpr double kAnother = 4.0 / 3;
    const double change = *report.disk_rate / known().disk.bytes_per_second;
    if (change > kAnother || change < 1 / kAnother) forget_shape(file_, keys());
  }
}

// A run that streams does not show what memory gives, which another budget needs to know.
void MachineRates::learn_memory(const ReadPlan& plan, Runner& runner) const {
  if (file_.empty() || has_rate(file_, keys(), RateKind::step)) return;
  const Matrices matrices = some_matrices(plan);
  if (matrices.weights.empty()) return;
  const double seconds = runner.matrices_seconds(matrices.weights);
  remember({RateKind::step, static_cast<double>(matrices.bytes) / seconds});
}

void MachineRates::learn_pass(ModelWeights& loaded, double seconds) {
  if (seconds <= 0 || !setting_.typical) return;
  const MemoryPlan& memory = loaded.placed().memory;
  const ReadPlan& plan = *loaded.placed().read;
  Runner* const runner = loaded.runner();  // a server that sleeps has none
  if (memory.reads_disk() && !setting_.own_memory && loaded.filled() && runner != nullptr)
    learn_memory(plan, *runner);
  const Spill* spill = loaded.spill();
  const SpillLayout none;
  const SpillLayout& spilled = spill != nullptr && spill->ready() ? spill->layout() : none;
  // A pass reads the experts that its tokens choose, as far as no cache has them.
  const std::optional<StreamReport> stream = loaded.stream_report();
  const uint64_t read = stream ? stream->pass_bytes : 0;
  if (stream) remember_reuse(file_, checkpoint_key(setting_.model), stream->reuse);
  const PassBytes bytes{.disk = read > 0 ? read : sweep_bytes(plan, spilled),
                        .link = memory.host_sweep_bytes,
                        .host = memory.host_multiplied_bytes,
                        .memory = memory.met_by_device(plan.step_bytes()),
                        .disk_share = memory.buffers.disk_share};
  if (auto seen = observe_pass(bytes, seconds, known())) remember(*seen);
}

}  // namespace sluice
