// Options that verbs share, and what they do alike.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/json.h"
#include "src/cli/help.h"
#include "src/cli/output.h"
#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "src/engine/planner.h"
#include "src/memory/report.h"

namespace sluice::cli {

// Values of --load-format, with the names of vLLM and SGLang where they have one.
inline constexpr std::string_view kDummyFormat = "dummy";      // random weights
inline constexpr std::string_view kLayeredFormat = "layered";  // one layer after another, as always
inline constexpr std::string_view kRemoteFormat = "remote";    // MODEL is an address
inline constexpr std::string_view kBitsandbytesFormat = "bitsandbytes";  // by the config
inline constexpr std::array<std::string_view, 12> kLoadFormats{"auto",
                                                               "safetensors",
                                                               "gguf",
                                                               "pt",
                                                               "npz",
                                                               "npcache",
                                                               "sharded_state",
                                                               "consolidated",
                                                               kDummyFormat,
                                                               kLayeredFormat,
                                                               kBitsandbytesFormat,
                                                               kRemoteFormat};

// Options as given; model_options() checks them together.
struct CommonOptions {
  std::string model;                 // as given, an address without its key
  bool allow_outside_links = false;  // in its directory
  bool pull = false;                 // fetch it where it is missing
  bool texts_only = false;           // the verb reads no weights
  std::filesystem::path model_path;  // where it is (find_model), once the line has been parsed
  std::vector<std::string> mirrors;
  std::string device = "cpu";
  std::optional<std::string> memory;
  std::optional<std::string> device_memory;
  std::string quantization = "none";
  std::vector<std::string> quantize_modules{"linear"};
  std::optional<double> max_quant_error;
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string load_format = "auto";
  std::string reader = "auto";
  std::string kernels = "auto";
  std::optional<int> threads;
  bool pin_threads = false;
  int64_t scheduler_slice = 100;  // microseconds
  int64_t block_size = 16;
  std::optional<std::string> kv_cache_memory;
  std::string swap_space = "0";
  std::string swap_dir;
  std::optional<std::string> swap_limit;
  std::optional<std::string> max_model_len;
  std::string place;
  std::optional<int64_t> cpu_rows;
  bool cpu_moe = false;
  std::optional<int64_t> n_cpu_moe;
  int tensor_parallel_size = 1;
  int pipeline_parallel_size = 1;
  bool enable_expert_parallel = false;
  int rank_timeout = 1800;             // seconds
  std::shared_ptr<const Group> ranks;  // that a launcher has started; null: none
  std::vector<std::string> spill_dirs{"auto"};
  std::optional<std::string> spill_limit;
  bool verify_spill = false;
  std::string report;
  std::string log_level = "info";
  bool quiet = false;
  bool json = false;

  io::OutsideLinks outside_links() const {
    return allow_outside_links ? io::OutsideLinks::allowed : io::OutsideLinks::refused;
  }
};

// Sets where MODEL is (find_model), fetched first where it is an address and not here, which is
// shown without its key from then on.
void find_or_fetch(CommonOptions& options, const std::stop_token& stop);

// MODEL, --allow-outside-links, --json, --quiet, --log-level.
void add_basic_options(CLI::App& verb, CommonOptions& options, std::stop_token stop);
// Adds --device; opens its backend: null for the CPU, whose threads are a Machine's. Error(usage)
// for an unknown name, and where there is no such GPU.
void add_device_option(CLI::App& verb, CommonOptions& options);
std::shared_ptr<Backend> open_device(const CommonOptions& options);
// Adds --pull, which fetches MODEL where it is missing, and the model of --draft-model where the
// verb has one. After add_basic_options.
void add_pull_option(CLI::App& verb, CommonOptions& options, std::stop_token stop,
                     const std::optional<std::string>* draft = nullptr);
// All of these and everything about memory, loading and computing.
// Each leaves the verb at its own group of options.
void add_model_options(CLI::App& verb, CommonOptions& options, std::stop_token stop);

void apply_log_level(const CommonOptions& options);
// Error(usage) for values that are unknown or that this build cannot honour.
ModelOptions model_options(const CommonOptions& options);

// The read shape for the disk, and its source.
Json read_shape_json(const RememberedShape& read);
// The dtype of keys and values, and whether FP8 scales are the checkpoint's or one for each token
// and head.
Json kv_cache_json(const Planner& planner);
// Describes what an engine did in so many seconds, as timings of reports.
Json engine_json(const EngineStats& stats, double seconds);
// Counts of KV blocks that were evicted to another tier and restored.
Json swaps_json(const BlockStats& stats);

// Loads, showing what is being done.
LoadedModel load_with_progress(Planner& planner, std::shared_ptr<const Placed> placed,
                               const CommonOptions& options, std::stop_token stop);
void load_with_progress(std::optional<LoadedModel>& model, Planner& planner,
                        std::shared_ptr<const Placed> placed, const CommonOptions& options,
                        std::stop_token stop);

// "a,b,c" or "[a, b, c]" as token ids; Error(usage) names `option`.
std::vector<int32_t> parse_token_ids(const std::string& text, const std::string& option);

// Exit statuses and their meanings, for help texts and the man page.
std::span<const std::pair<int, std::string_view>> exit_statuses();

// Refuses an unwritable --report before any work is done.
void check_report_path(const CommonOptions& options);
// Writes a verb's own document to --report, where that is given. That of a run: run_report.h.
void write_report(const CommonOptions& options, const WriteJson& write,
                  const std::stop_token& stop);

}  // namespace sluice::cli
