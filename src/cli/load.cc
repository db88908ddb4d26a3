// Loading as every verb that computes does it, and the report of what happened.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/progress.h"

namespace sluice::cli {
namespace {

constexpr const char* kReportSchema = "sluice.report/1";

Json load_json(const LoadReport& load, const RememberedShape& read, uint64_t weights_bytes) {
  Json tensors = Json::array();
  for (const TensorReport& t : load.tensors) {
    Json item{{"name", t.name},
              {"stored", t.stored},
              {"kept", t.kept},
              {"not_finite", t.stats.not_finite}};
    if (t.quantized) {
      item["relative_rms_error"] = t.relative_rms_error();
      item["max_error"] = t.stats.max_error;
    }
    tensors.push_back(std::move(item));
  }
  double seconds = std::max(load.seconds, 1e-9);
  double needed = static_cast<double>(std::max<uint64_t>(load.needed_bytes, 1));
  return {{"seconds", load.seconds},
          {"bytes_read", load.io.bytes_read},
          {"bytes_needed", load.needed_bytes},
          {"read_amplification", static_cast<double>(load.io.bytes_read) / needed},
          {"bytes_per_second", static_cast<double>(load.io.bytes_read) / seconds},
          {"weights_bytes", weights_bytes},
          {"reader", load.reader},
          {"read_shape", read_shape_json(read)},
          {"reads", load.io.reads},
          {"retries", load.io.retries},
          {"tensors", tensors}};
}

Json stream_json(const Session& session) {
  std::optional<StreamReport> report = session.stream_report();
  if (!report) return {};
  const StreamReport& s = *report;
  Json units = Json::array();
  for (size_t u = 0; u < s.units.size(); ++u) {
    const UnitStalls& stalls = s.units[u];
    if (stalls.bytes == 0) continue;
    units.push_back(
        {{"name", session.read_plan().units[u].name},
         {"bytes", stalls.bytes},
         {"stalls", {{"disk", stalls.disk}, {"compute", stalls.compute}, {"copy", stalls.copy}}}});
  }
  return {{"bytes_per_sweep", session.memory_plan().sweep_bytes},
          {"bytes_read", s.io.bytes_read},
          {"bytes_from_spill", s.spilled_bytes},
          {"host_bytes_per_sweep", session.memory_plan().host_sweep_bytes},
          {"bytes_from_host", s.host_bytes},
          {"reads", s.io.reads},
          {"retries", s.io.retries},
          {"tiles_used", s.tiles_used},
          {"wait_seconds", s.wait_seconds()},
          {"units", units}};
}

Json spill_json(const Session& session) {
  if (session.spill() == nullptr) return {};
  Spill::Report r = session.spill()->report();
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

Json disk_json(const DiskTimeline& timeline) {
  Json samples = Json::array();
  for (const DiskTimeline::Sample& s : timeline.samples()) samples.push_back({s.seconds, s.bytes});
  return {{"samples", samples}};
}

}  // namespace

Json read_shape_json(const RememberedShape& read) {
  return {{"request_bytes", read.shape.request_bytes},
          {"depth", read.shape.depth},
          {"source", rate_source_name(read.source)}};
}

Json kv_cache_json(const Session& session) {
  Json scales;
  if (is_float8(session.kv_dtype()))
    scales = session.model().root->kv_scales().empty() ? "token_and_head" : "checkpoint";
  return {{"dtype", dtype_name(session.kv_dtype())}, {"scales", scales}};
}

Json swaps_json(const BlockStats& s) {
  return {{"stored", s.stored}, {"restored", s.restored}, {"lost", s.lost}};
}

Json engine_json(const EngineStats& s, double seconds) {
  auto share = [](auto part, auto whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  return {{"seconds", seconds},
          {"prompt_tokens", s.prompt_tokens},
          {"prefix_tokens", s.prefix_tokens},
          {"generated_tokens", s.generated_tokens},
          {"guessed_tokens", s.guessed},
          {"accepted_tokens", s.accepted},
          {"tokens_per_second", share(s.generated_tokens, seconds)},
          {"most_running", s.most_running},
          {"steps", s.steps},
          {"preemptions", s.preemptions},
          {"kv_waste", 1 - share(s.slots_filled, s.slots_held)},
          {"kv_swaps", swaps_json(s.blocks)},
          {"schedule_seconds", s.schedule_seconds},
          {"model_seconds", s.model_seconds},
          {"sample_seconds", s.sample_seconds}};
}

void load_with_progress(Session& session, const CommonOptions& options, std::stop_token stop) {
  LoadProgress progress;
  ProgressDisplay display(counts_of(progress), options.quiet);
  session.load(progress, std::move(stop));
}

void place_and_load(Session& session, const CommonOptions& options, const RunShape& shape,
                    std::stop_token stop) {
  session.place(shape);
  load_with_progress(session, options, std::move(stop));
}

Json make_report(const std::string& verb, const CommonOptions& options, Session& session,
                 const Json& timings) {
  MemoryReport memory =
      measure_memory(session.ledger(), session.predicted_peak(), session.predicted_device_peak());
  return {{"schema", kReportSchema},
          {"verb", verb},
          {"model", options.model},
          {"architecture", session.model().files.architecture},
          {"quantization", session.options().quantize.name()},
          {"load", load_json(session.load_report(), session.read_shape(),
                             session.memory_plan().all_weights())},
          {"stream", stream_json(session)},
          {"spill", spill_json(session)},
          {"kv_cache", kv_cache_json(session)},
          {"scheduler", scheduler_json(session.scheduler_slice())},
          {"disk", disk_json(session.timeline())},
          {"memory", to_json(memory)},
          {"timings", timings}};
}

void check_report_path(const CommonOptions& options) {
  if (!options.report.empty()) check_writable("--report", options.report);
}

void write_report(const CommonOptions& options, const Json& report, const std::stop_token& stop) {
  if (options.report.empty()) return;
  write_text(options.report, report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
             "--report", stop);
}

}  // namespace sluice::cli
