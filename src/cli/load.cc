// Loading as every verb that computes does it, and what reports say of it.
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/progress.h"

namespace sluice::cli {
Json read_shape_json(const RememberedShape& read) {
  return {{"request_bytes", read.shape.request_bytes},
          {"depth", read.shape.depth},
          {"source", rate_source_name(read.source)}};
}

Json kv_cache_json(const Planner& planner) {
  Json scales;
  if (is_float8(planner.kv_dtype()))
    scales =
        planner.checkpoint().model().root->kv_scales().empty() ? "token_and_head" : "checkpoint";
  return {{"dtype", dtype_name(planner.kv_dtype())}, {"scales", scales}};
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
          {"guessed_tokens", s.drafted},
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

LoadedModel load_with_progress(Planner& planner, std::shared_ptr<const Placed> placed,
                               const CommonOptions& options, std::stop_token stop) {
  LoadProgress progress;
  ProgressDisplay display(counts_of(progress), options.quiet);
  return LoadedModel(planner, std::move(placed), std::move(stop), &progress);
}

void load_with_progress(std::optional<LoadedModel>& model, Planner& planner,
                        std::shared_ptr<const Placed> placed, const CommonOptions& options,
                        std::stop_token stop) {
  LoadProgress progress;
  ProgressDisplay display(counts_of(progress), options.quiet);
  model.emplace(planner, std::move(placed), std::move(stop), &progress);
}

void check_report_path(const CommonOptions& options) {
  if (!options.report.empty()) check_writable("--report", options.report);
}

void write_report(const CommonOptions& options, const WriteJson& write,
                  const std::stop_token& stop) {
  if (!options.report.empty()) write_json(options.report, write, "--report", stop);
}

}  // namespace sluice::cli
