#include "src/cli/bench/bench_disk.h"

#include <utility>

#include "io/disk_bench.h"
#include "kernels/cpu/membw.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/device/link.h"
#include "src/models/source.h"
#include "src/plan/rates.h"

namespace sluice::cli {

double measured_read_bandwidth(Ledger& ledger, ThreadPool& pool, const std::stop_token& stop) {
  Buffer buffer(ledger, Use::workspace, "bandwidth", kBandwidthBuffer, Buffer::Touch::now);
  const double rate = read_bandwidth(buffer.bytes(), pool, stop);
  if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted");
  return rate;
}

namespace {

// With which loads are to read: of the shapes that are about as fast as any, and that a ring has
// room for, the one with the least in flight; with very little only where nothing else is as fast,
// because it leaves no time for anything beside the reads. Nothing where none is.
std::optional<io::ReadShape> best_shape(const io::DiskBandwidth& result) {
  constexpr double kAboutAsFast = 0.97;
  constexpr uint64_t kLargestRequest = 2 * MiB, kLeastInFlight = 4 * MiB, kRing = 32 * MiB;
  constexpr uint64_t kLittle = 8 * MiB;
  auto cost = [](const io::ReadShape& shape) {
    return std::pair(shape.bytes_in_flight() < kLittle, shape.bytes_in_flight());
  };
  std::optional<io::ReadShape> best;
  for (const io::DiskSpeed& s : result.settings) {
    const uint64_t in_flight = s.setting.bytes_in_flight();
    if (s.bytes_per_second() < kAboutAsFast * result.best.bytes_per_second()) continue;
    if (s.setting.request_bytes > kLargestRequest || in_flight < kLeastInFlight) continue;
    if (in_flight <= kRing && (!best || cost(s.setting) < cost(*best))) best = s.setting;
  }
  return best;
}

void run(const CommonOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  const std::shared_ptr<Backend> gpu = open_device(o);
  io::CheckpointIndex index = open_model({o.model_path, {}, o.outside_links()})->index();
  Ledger ledger;
  Buffer staging(ledger, Use::staging, "disk bench", 64 * MiB, Buffer::Touch::now);
  constexpr uint64_t kOfSetting = GiB;
  io::DiskBandwidth result = io::measure_disk(index.files(), staging.bytes(), kOfSetting, stop);
  if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted");
  ThreadPool pool(usable_threads());
  double memory = measured_read_bandwidth(ledger, pool, stop);
  RateKeys keys;
  keys.disk = disk_key(o.model_path);
  std::vector<Observation> seen{{RateKind::disk, result.best.bytes_per_second(), RateSource::bench},
                                {RateKind::memory, memory, RateSource::bench}};
  std::optional<double> link;
  if (gpu != nullptr) {
    keys.device = gpu->device().info().name;
    link = measure_link(gpu->device(), ledger);
    seen.push_back({RateKind::link, *link, RateSource::bench});
  }
  const std::optional<io::ReadShape> shape = best_shape(result);
  if (shape) remember_shape(rates_file(), keys, *shape, RateSource::bench);
  if (!remember_rates(rates_file(), keys, seen))
    log::warning("{}: cannot be written; `sluice plan` goes on without these rates",
                 rates_file().string());
  Json settings = Json::array();
  for (const io::DiskSpeed& s : result.settings) {
    settings.push_back({{"block_bytes", s.setting.request_bytes},
                        {"depth", s.setting.depth},
                        {"bytes", s.bytes},
                        {"bytes_per_second", s.bytes_per_second()}});
  }
  if (o.json) {
    print_json({{"best_bytes_per_second", result.best.bytes_per_second()},
                {"memory_bytes_per_second", memory},
                {"link_bytes_per_second", link ? Json(*link) : Json()},
                {"settings", settings},
                {"read_shape", read_shape_json(remembered_shape(rates_file(), keys))},
                {"how", result.how}});
    return;
  }
  for (const io::DiskSpeed& s : result.settings) {
    print(fmt::format("{:>8} x {:<3} {:.2f} GiB/s\n", format_size(s.setting.request_bytes),
                      s.setting.depth, s.bytes_per_second() / static_cast<double>(GiB)));
  }
  print(fmt::format("best {:.2f} GiB/s ({})\n",
                    result.best.bytes_per_second() / static_cast<double>(GiB), result.how));
  if (shape) {
    print(fmt::format("loads will read {}, {} at once\n", format_size(shape->request_bytes),
                      shape->depth));
  }
  print(fmt::format("memory {:.1f} GB/s\n", memory / 1e9));
  if (link) print(fmt::format("link to {} {:.1f} GB/s\n", keys.device, *link / 1e9));
}

}  // namespace

void define_bench_disk(CLI::App& bench, std::stop_token stop) {
  auto o = std::make_shared<CommonOptions>();
  CLI::App* verb = bench.add_subcommand("disk", "Measure the disk, memory, and the link to a GPU");
  add_basic_options(*verb, *o, stop);
  add_device_option(*verb, *o);
  verb->callback([o, stop] { run(*o, stop); });
}

}  // namespace sluice::cli
