#include "src/cli/run_report.h"

#include <algorithm>
#include <utility>

#include "src/cli/report/report_summary.h"

namespace sluice::cli {
namespace {

constexpr const char* kReportSchema = "sluice.report/1";

Json spill_json(const LoadedModel& model) {
  if (model.spill() == nullptr) return {};
  Spill::Report r = model.spill()->report();
  if (r.paths.empty()) return {};
  Json copies = Json::array();
  for (const auto& path : r.paths) copies.push_back(path.string());
  return {{"copies", copies},
          {"outcome", r.outcome.empty() ? "unfinished" : r.outcome},
          {"bytes", r.bytes},
          {"bytes_written", r.written}};
}

Json scheduler_json(SchedulerSlice slice) {
  constexpr double kMicroseconds = 1e6;
  return {{"slice", static_cast<double>(slice.asked) / kMicroseconds},
          {"in_force", slice.in_force}};
}

QuantizationErrors errors_in(const LoadReport& load) {
  QuantizationErrors errors;
  for (const TensorReport& t : load.tensors)
    if (t.quantized) errors.add(t.name(), t.relative_rms_error(), t.stats.max_error);
  return errors;
}

}  // namespace

RunReport::RunReport(std::string verb, const CommonOptions& options, LoadedModel& model,
                     Json timings)
    : verb_(std::move(verb)),
      options_(options),
      model_(model),
      timings_(std::move(timings)),
      scheduler_(scheduler_json(model.scheduler_slice())),
      spill_(spill_json(model)),
      stream_(model.stream_report()) {
  if (!is_written()) return;
  ranks_ = model.rank_shares();
  samples_ = model.planner().machine().timeline().samples();
}

// Writes to nowhere what is written later, so that the memory that this takes is there when the
// peak is measured.
const MemoryReport& RunReport::memory() {
  if (memory_) return *memory_;
  auto measure = [&](Timeline timeline) {
    return measure_memory(model_.planner().machine().ledger(), timeline, model_.predicted_peak(),
                          model_.predicted_device_peak());
  };
  if (!is_written()) return memory_.emplace(measure(Timeline::left_out));
  memory_ = measure(Timeline::included);
  JsonWriter nowhere([](std::string_view) {}, 2);
  write(nowhere);
  nowhere.flush();
  memory_->measured_peak = process_peak_rss();
  return *memory_;
}

void RunReport::save(const std::stop_token& stop) {
  if (options_.report.empty()) return;
  memory();
  write_json(options_.report, [&](JsonWriter& json) { write(json); }, "--report", stop);
}

Json RunReport::load_figures() const {
  const LoadReport& load = model_.report();
  const double seconds = std::max(load.seconds, 1e-9);
  const double needed = static_cast<double>(std::max<uint64_t>(load.needed_bytes, 1));
  return {{"seconds", load.seconds},
          {"bytes_read", load.io.bytes_read},
          {"bytes_needed", load.needed_bytes},
          {"read_amplification", static_cast<double>(load.io.bytes_read) / needed},
          {"bytes_per_second", static_cast<double>(load.io.bytes_read) / seconds},
          {"weights_bytes", model_.memory_plan().all_weights()},
          {"reader", load.reader},
          {"read_shape", read_shape_json(model_.planner().rates().read_shape())},
          {"reads", load.io.reads},
          {"retries", load.io.retries}};
}

void RunReport::write_tensors(JsonWriter& json) const {
  json.array(model_.report().tensors, [&](const TensorReport& t) {
    Json item{{"name", t.name()},
              {"stored", t.stored()},
              {"kept", t.kept()},
              {"not_finite", t.stats.not_finite}};
    if (t.quantized) {
      item["relative_rms_error"] = t.relative_rms_error();
      item["max_error"] = t.stats.max_error;
    }
    json.value(item);
  });
}

namespace {

Json experts_json(const StreamReport& stream) {
  const ExpertCounts& experts = stream.experts;
  if (experts.slots == 0) return nullptr;
  const auto uses = static_cast<double>(std::max<uint64_t>(experts.uses, 1));
  return {{"slots", experts.slots},
          {"uses", experts.uses},
          {"hits", experts.hits},
          {"hit_rate", static_cast<double>(experts.hits) / uses},
          {"misses", experts.uses - experts.hits},
          {"bytes_from_cache", experts.hit_bytes},
          {"kept", experts.kept}};
}

}  // namespace

// Null for one rank.
Json RunReport::ranks() const {
  Json ranks;
  for (const RankShare& share : ranks_)
    ranks.push_back({{"bytes_read", share.bytes_read},
                     {"bytes_streamed", share.bytes_streamed},
                     {"weights_bytes", share.weights},
                     {"first_layer", share.layers.begin},
                     {"layers", share.layers.count}});
  return ranks;
}

Json RunReport::stream_figures() const {
  if (!stream_) return {};
  return {{"bytes_per_sweep", model_.memory_plan().sweep_bytes},
          {"bytes_read", stream_->io.bytes_read},
          {"bytes_from_spill", stream_->spilled_bytes},
          {"host_bytes_per_sweep", model_.memory_plan().host_sweep_bytes},
          {"cpu_bytes_per_sweep", model_.memory_plan().host_multiplied_bytes},
          {"cpu_rows", model_.planner().cpu_rows()},
          {"bytes_from_host", stream_->host_bytes},
          {"reads", stream_->io.reads},
          {"retries", stream_->io.retries},
          {"tiles_used", stream_->tiles_used},
          {"bytes_per_pass", stream_->pass_bytes},
          {"experts", experts_json(*stream_)},
          {"wait_seconds", stream_->wait_seconds()}};
}

void RunReport::write_units(JsonWriter& json) const {
  json.array([&] {
    for (size_t u = 0; u < stream_->units.size(); ++u) {
      const sluice::UnitStalls& s = stream_->units[u];
      if (s.bytes == 0) continue;
      json.value({{"name", model_.read_plan().units[u].name},
                  {"bytes", s.bytes},
                  {"stalls", {{"disk", s.disk}, {"compute", s.compute}, {"copy", s.copy}}}});
    }
  });
}

void RunReport::write(JsonWriter& json) const {
  const Json small{{"schema", kReportSchema},
                   {"verb", verb_},
                   {"model", options_.model},
                   {"architecture", model_.planner().checkpoint().model().files.architecture},
                   {"quantization", model_.planner().options().quantize.name()},
                   {"spill", spill_},
                   {"kv_cache", kv_cache_json(model_.planner())},
                   {"ranks", ranks()},
                   {"scheduler", scheduler_},
                   {"timings", timings_}};
  auto load = [&] { json.object(load_figures(), {{"tensors", [&] { write_tensors(json); }}}); };
  auto stream = [&] {
    if (!stream_) return json.value(nullptr);
    json.object(stream_figures(), {{"units", [&] { write_units(json); }}});
  };
  auto samples = [&] {
    json.array(samples_, [&](const DiskTimeline::Sample& s) { json.value({s.seconds, s.bytes}); });
  };
  auto disk = [&] { json.object(Json::object(), {{"samples", samples}}); };
  auto memory = [&] { write_json(json, *memory_); };
  json.object(small, {{"load", load}, {"stream", stream}, {"disk", disk}, {"memory", memory}});
}

std::string RunReport::summary() {
  const Json sections{{"load", load_figures()},
                      {"stream", stream_figures()},
                      {"spill", spill_},
                      {"kv_cache", kv_cache_json(model_.planner())},
                      {"timings", timings_}};
  return summary_text(sections, errors_in(model_.report()), memory(), "report");
}

}  // namespace sluice::cli
