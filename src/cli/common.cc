#include "src/cli/common.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "io/checkpoint/gguf.h"
#include "io/file.h"
#include "kernels/cuda/open_cuda.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/base/units.h"
#include "src/cli/help.h"
#include "src/cli/settings.h"
#include "src/hub/web_model.h"
#include "src/load/spill_directory.h"
#include "src/models/source.h"
#include "src/ranks/mpi_group.h"
#include "src/ranks/nccl.h"

namespace sluice::cli {
namespace {

constexpr std::array<std::pair<std::string_view, ParamRole>, 4> kModules{
    {{"linear", ParamRole::linear},
     {"embedding", ParamRole::embedding},
     {"head", ParamRole::head},
     {"norm", ParamRole::norm}}};

std::set<ParamRole> parse_modules(const std::vector<std::string>& names) {
  std::set<ParamRole> roles;
  for (const std::string& name : names) {
    bool known = name == "all";
    for (const auto& [module, role] : kModules) {
      if (name == module || name == "all") roles.insert(role);
      known = known || name == module;
    }
    if (!known)
      fail(ErrorKind::usage, "--quantize-modules {}: must be linear, embedding, head, norm or all",
           name);
  }
  return roles;
}

DtypeChoice parse_dtype_choice(const std::string& name) {
  if (name == "auto") return DtypeChoice::automatic;
  if (name == "bfloat16" || name == "bf16") return DtypeChoice::bf16;
  if (name == "float32" || name == "float" || name == "f32") return DtypeChoice::f32;
  fail(ErrorKind::usage, "--dtype {}: must be auto, bfloat16 or float32", name);
}

// nullopt: as computed.
std::optional<DType> parse_kv_dtype(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (name == "bfloat16" || name == "bf16") return DType::bf16;
  if (name == "float32" || name == "f32") return DType::f32;
  if (name == "fp8" || name == "fp8_e4m3") return DType::f8_e4m3;
  if (name == "fp8_e5m2") return DType::f8_e5m2;
  fail(ErrorKind::usage,
       "--kv-cache-dtype {}: must be auto, bfloat16, float32, fp8_e4m3 or fp8_e5m2", name);
}

// The format of a model's weights, as --load-format names it, with vLLM's names where it has one;
// empty for a file that is known by its content only.
std::string_view load_format_of(const std::filesystem::path& model) {
  if (io::is_gguf(model)) return "gguf";
  const std::string container = io::container_name(model);
  if (container.starts_with("model.safetensors")) return "safetensors";
  if (container.starts_with("consolidated")) return "consolidated";
  if (container.starts_with("np/")) return "npcache";
  if (container.starts_with("model-rank-")) return "sharded_state";
  if (container.ends_with(".npz")) return "npz";
  return container.empty() ? "" : "pt";
}

// Tells by the config that bitsandbytes has quantized the weights.
bool is_bitsandbytes(const CommonOptions& o) {
  const Json config = open_model({o.model_path, {}, o.outside_links()})->config();
  const auto quantization = config.find("quantization_config");
  return quantization != config.end() && quantization->is_object() &&
         quantization->value("quant_method", Json()) == kBitsandbytesFormat;
}

// Refuses a format that the weights do not have.
void check_load_format(const CommonOptions& o) {
  if (std::ranges::count(kLoadFormats, o.load_format) == 0)
    fail(ErrorKind::usage, "--load-format {}: must be one of {}", o.load_format,
         fmt::join(kLoadFormats, ", "));
  if (o.load_format == "auto" || o.load_format == kLayeredFormat) return;
  if (o.load_format == kDummyFormat) {
    if (std::filesystem::is_directory(o.model_path)) return;
    fail(ErrorKind::usage, "--load-format dummy: {} is not a directory with a config.json",
         io::printable(o.model));
  }
  if (o.load_format == kRemoteFormat && parse_web_address(o.model)) return;
  if (o.load_format == kBitsandbytesFormat && is_bitsandbytes(o)) return;
  const std::string_view format = load_format_of(o.model_path);
  if (!format.empty() && format != o.load_format)
    fail(ErrorKind::usage,
         "--load-format {}: {} has weights in the format {}; leave the option out", o.load_format,
         io::printable(o.model), format);
}

// Options of the contract that this build accepts only with the value that it can honour.
void check_fixed_options(const CommonOptions& o) {
  check_load_format(o);
  if (o.ranks != nullptr) return;
  const auto refuse = [](std::string_view option, int ranks) {
    if (ranks != 1)
      fail(ErrorKind::usage,
           "{} {}: only run, chat, batch, serve, logits and eval work on several ranks", option,
           ranks);
  };
  refuse("--tensor-parallel-size", o.tensor_parallel_size);
  refuse("--pipeline-parallel-size", o.pipeline_parallel_size);
}

constexpr std::string_view kFirstGpu = "cuda";

// N of cuda:N, 0 of cuda; nullopt: the CPU.
std::optional<int> parse_device(const std::string& name) {
  if (name == "cpu") return std::nullopt;
  if (name == kFirstGpu) return 0;
  std::string_view number = name;
  const bool is_cuda = take_until(number, ':') == "cuda";
  const std::optional<int> index = parse_number<int>(number);
  if (!is_cuda || !index || *index < 0)
    fail(ErrorKind::usage, "--device {}: must be cpu, cuda or cuda:N", name);
  return index;
}

// Options that divide the work between a GPU and the CPU.
void need_device(const CommonOptions& o) {
  constexpr std::string_view kAlone = "needs --device cuda; without a GPU the CPU computes all";
  if (o.cpu_moe) fail(ErrorKind::usage, "--cpu-moe: {}", kAlone);
  if (o.n_cpu_moe) fail(ErrorKind::usage, "--n-cpu-moe {}: {}", *o.n_cpu_moe, kAlone);
  if (o.cpu_rows) fail(ErrorKind::usage, "--cpu-rows {}: {}", *o.cpu_rows, kAlone);
  if (o.device_memory) {
    fail(ErrorKind::usage, "--device-memory {}: needs --device cuda; for the CPU give --memory",
         *o.device_memory);
  }
}

// Connects the GPUs of the ranks that divide each layer: those of a stage. Ranks without a GPU call
// it too, as all agree that each stage has one kind of device.
void join_devices(const Group& all, const CommonOptions& o, ModelOptions& s) {
  const int ranks = all.rank().size / o.pipeline_parallel_size;
  if (ranks < 2) return;
  const int first = all.rank().rank / ranks * ranks;
  const std::vector<uint8_t> has_gpu = all.gather(uint8_t{s.backend != nullptr});
  all.together([&] {
    if ((has_gpu[static_cast<size_t>(first)] != 0) == (s.backend != nullptr)) return;
    fail(ErrorKind::usage,
         "--device {}: rank {} divides the same layers and has another kind of device; give both "
         "the same, or a stage each (--pipeline-parallel-size)",
         o.device, first);
  });
  if (s.backend == nullptr) return;
  const PartGroup stage(all, {first, ranks});
  try {
    s.devices = join_nccl(stage, s.backend->device(), std::chrono::seconds(o.rank_timeout));
  } catch (const Error&) {
    if (stage.is_broken()) all.break_off();
    throw;
  }
}

void open_own_device(const CommonOptions& o, ModelOptions& s) {
  if (!parse_device(o.device)) return need_device(o);
  if (o.kernels != "auto")
    fail(ErrorKind::usage,
         "--kernels {}: selects kernels of the CPU, but --device is {}; leave one of them out",
         o.kernels, o.device);
  s.backend = open_device(o);
}

void set_device(const CommonOptions& o, ModelOptions& s) {
  s.device_memory = o.device_memory;
  // Ranks of a plan are not there, and one alone exchanges nothing.
  const auto* ranks = dynamic_cast<const MpiGroup*>(o.ranks.get());
  if (ranks == nullptr) return open_own_device(o, s);
  ranks->together([&] { open_own_device(o, s); });
  join_devices(*ranks, o, s);
}

void set_max_model_len(const CommonOptions& o, ModelOptions& s) {
  if (!o.max_model_len) return;
  s.longest_model_len = *o.max_model_len == "auto";
  if (s.longest_model_len) return;
  s.max_model_len = parse_number<int64_t>(*o.max_model_len);
  if (!s.max_model_len || *s.max_model_len < 1 || *s.max_model_len > kMaxPositions) {
    fail(ErrorKind::usage, "--max-model-len {}: must be auto or a number from 1 to {}",
         *o.max_model_len, kMaxPositions);
  }
}

void set_kv_memory(const CommonOptions& o, ModelOptions& s) {
  constexpr uint64_t kSwapLimit = 8 * GiB;
  if (o.kv_cache_memory) s.kv_bytes = parse_size("--kv-cache-memory", *o.kv_cache_memory);
  if (o.kv_cache_memory && s.kv_bytes == 0)
    fail(ErrorKind::usage, "--kv-cache-memory {}: must be more than 0", *o.kv_cache_memory);
  s.swap.host_bytes = parse_size("--swap-space", o.swap_space);
  s.swap.directory = o.swap_dir;
  std::error_code ignored;
  if (!o.swap_dir.empty() && !std::filesystem::is_directory(o.swap_dir, ignored))
    fail(ErrorKind::usage, "--swap-dir {}: is not a directory; make it first", o.swap_dir);
  if (!o.swap_dir.empty()) s.swap.disk_bytes = kSwapLimit;
  if (!o.swap_limit) return;
  if (o.swap_dir.empty()) fail(ErrorKind::usage, "--swap-limit: needs --swap-dir");
  s.swap.disk_bytes = parse_size("--swap-limit", *o.swap_limit);
}

SpillOptions spill_options(const CommonOptions& o) {
  SpillOptions spill;
  for (const std::string& directory : o.spill_dirs) {
    if (directory.empty()) fail(ErrorKind::usage, "--spill-dir is empty; none turns it off");
    if (directory == "none" && o.spill_dirs.size() > 1)
      fail(ErrorKind::usage, "--spill-dir none goes with no other directory");
    std::filesystem::path path = directory == "auto"   ? default_spill_directory()
                                 : directory == "none" ? std::filesystem::path()
                                                       : std::filesystem::absolute(directory);
    if (!path.empty()) spill.directories.push_back(path);
  }
  spill.limit = o.spill_limit;
  if (o.spill_limit)
    parse_size("--spill-limit", *o.spill_limit, 0);  // refused here if it is no size
  spill.verify = o.verify_spill;
  if (o.verify_spill && spill.directories.empty())
    fail(ErrorKind::usage, "--verify-spill: needs --spill-dir");
  return spill;
}

// Rules of --place come first, and so count before the others.
std::vector<PlaceRule> place_rules(const CommonOptions& o) {
  std::string text = o.place, experts = o.cpu_moe ? "experts.*=cpu" : "";
  if (o.n_cpu_moe) experts = fmt::format("layers.0-{}.*.experts.*=cpu", *o.n_cpu_moe - 1);
  if (!text.empty() && !experts.empty()) text += ',';
  text += experts;
  return text.empty() ? std::vector<PlaceRule>() : parse_place_rules(text);
}

void add_weight_options(CLI::App& verb, CommonOptions& o) {
  begin_group(verb, kModelGroup);
  verb.add_option("--dtype", o.dtype,
                  "Compute in this type: auto (the model's), bfloat16, float32");
  verb.add_option("--max-model-len", o.max_model_len,
                  "Allow sequences of this many tokens, prompt and continuation; auto: the most "
                  "that fit (default: the model's)");
  verb.add_option("--load-format", o.load_format,
                  fmt::format("Refuse weights in another format: {}; dummy makes random weights of "
                              "config.json alone",
                              fmt::join(kLoadFormats, ", ")));
  verb.add_option("--mirror", o.mirrors,
                  "Read weight files from this directory on another disk at the same time; may be "
                  "given several times")
      ->type_name("DIRECTORY")
      ->allow_extra_args(false);
}

void add_memory_options(CLI::App& verb, CommonOptions& o) {
  begin_group(verb, kMemoryGroup);
  verb.add_option("--memory", o.memory,
                  "Keep the whole process within 6GiB, 512M or 75% of the free memory (default: "
                  "the free memory, less a reserve)")
      ->type_name("SIZE");
  verb.add_option("--device-memory", o.device_memory,
                  "Keep within this much GPU memory: 6GiB, 512M or 75% of the free memory "
                  "(default: the free memory, less a reserve)")
      ->type_name("SIZE");
  verb.add_option(
      "--place", o.place,
      "Place parameters by rules NAME=PLACE: layers.0-7=host,layers.*.mlp=disk. Places: "
      "host (memory), disk (streamed), cached (experts: streamed, often used ones stay in "
      "memory); with a GPU also device (its memory) and cpu (host memory, multiplied "
      "there by the CPU)");
  verb.add_option(
          "--cpu-rows", o.cpu_rows,
          "Let the CPU multiply weights in host memory in steps of up to this many rows (tokens), "
          "and copy them to the GPU for larger steps; 0: always copy (default: by the measured "
          "rates)")
      ->check(CLI::Range(0, 1 << 20));
  CLI::Option* all = verb.add_flag("--cpu-moe", o.cpu_moe,
                                   "Keep experts in host memory, where the CPU computes them "
                                   "beside a GPU; same as --place experts.*=cpu");
  verb.add_option("--n-cpu-moe", o.n_cpu_moe,
                  "Do the same for the experts of this many first layers only")
      ->check(CLI::Range(1, 1 << 20))
      ->excludes(all);
  verb.add_option("--kv-cache-memory", o.kv_cache_memory,
                  "Limit the KV cache to this much memory (default: room for all sequences at "
                  "their longest)")
      ->type_name("SIZE");
  verb.add_option("--swap-space", o.swap_space, "Keep evicted KV blocks in this much of the budget")
      ->type_name("SIZE");
  verb.add_option("--swap-dir", o.swap_dir,
                  "Keep evicted KV blocks that have no room in memory in a file in this directory "
                  "(default: none)")
      ->type_name("DIRECTORY");
  verb.add_option("--swap-limit", o.swap_limit,
                  "Limit --swap-dir to this much of the disk (default: 8GiB)")
      ->type_name("SIZE");
  verb.add_option(
          "--spill-dir", o.spill_dirs,
          "Keep packed codes of weights that are quantized and streamed in this directory, none or "
          "auto ($XDG_CACHE_HOME/sluice/spill); may be given several times, for a copy in each")
      ->type_name("DIRECTORY")
      ->allow_extra_args(false);
  verb.add_option("--spill-limit", o.spill_limit,
                  "Limit the spill directory to 20GiB or 50% of the free space (default: 75%)")
      ->type_name("SIZE");
}

void add_quantization_options(CLI::App& verb, CommonOptions& o) {
  begin_group(verb, kQuantizationGroup);
  verb.add_option(
      "--quantization", o.quantization,
      fmt::format("Quantize weights while they are loaded: {} (fp8 is fp8_per_channel, int4 is "
                  "int4_g128); or rules before it, *.down_proj=int8,lm_head=none,fp8",
                  scheme_names()));
  verb.add_option("--quantize-modules", o.quantize_modules,
                  "Quantize these modules: linear, embedding, head, norm, all")
      ->delimiter(',');
  verb.add_option("--max-quant-error", o.max_quant_error,
                  "Refuse the model when a tensor's relative RMS error exceeds this");
  verb.add_option("--kv-cache-dtype", o.kv_cache_dtype,
                  "Keep keys and values in this type: auto (as --dtype), bfloat16, float32, "
                  "fp8_e4m3, fp8_e5m2, fp8 (fp8_e4m3)");
}

void add_advanced_options(CLI::App& verb, CommonOptions& o) {
  begin_group(verb, kAdvancedGroup);
  verb.add_option("--threads", o.threads,
                  "Compute with this many threads (default: the CPUs that the process may use)")
      ->check(CLI::Range(1, 1024));
  verb.add_flag("--pin-threads", o.pin_threads,
                "Pin each compute thread to one CPU, except the calling thread");
  verb.add_option("--scheduler-slice", o.scheduler_slice,
                  "Request this time slice for threads while weights stream [microseconds], 100 to "
                  "100000; 0: none");
  verb.add_option("--kernels", o.kernels,
                  "Compute with this instruction set: auto, amx, avx512_bf16, avx2, portable, "
                  "reference");
  verb.add_option("--reader", o.reader, "Read files this way: auto, uring, pread, mmap");
  verb.add_option("--block-size", o.block_size,
                  "Divide the KV cache into blocks of this many tokens")
      ->check(CLI::Range(1, 4096));
  verb.add_flag("--verify-spill", o.verify_spill,
                "Compare the spill directory with the checkpoint before it is used");
  verb.add_option("--tensor-parallel-size", o.tensor_parallel_size,
                  "Divide the model over this many ranks, which mpirun starts; each has its own "
                  "--memory and --threads")
      ->check(CLI::Range(1, 1024));
  verb.add_option("--pipeline-parallel-size", o.pipeline_parallel_size,
                  "Divide the layers over this many ranks, or groups of --tensor-parallel-size "
                  "ranks, by the --memory of each")
      ->check(CLI::Range(1, 1024));
  verb.add_flag("--enable-expert-parallel", o.enable_expert_parallel,
                "Give each rank whole experts, instead of a part of each");
  verb.add_option("--rank-timeout", o.rank_timeout,
                  "End the run when a rank is this many seconds later than the others")
      ->check(CLI::Range(1, 1000000));
}

}  // namespace

void add_basic_options(CLI::App& verb, CommonOptions& o, std::stop_token stop) {
  begin_group(verb, kModelGroup);
  verb.add_option(
          "MODEL", o.model,
          "Directory of the checkpoint (config.json, *.safetensors, tokenizer.json), a GGUF file, "
          "the name of a model in the Hugging Face cache, ORG/NAME[@REVISION][:TAG], or the "
          "address of such a directory or file, https://...")
      ->required();
  verb.add_flag("--allow-outside-links", o.allow_outside_links,
                "Follow symbolic links that lead out of the model's directory");
  verb.parse_complete_callback([&o, stop = std::move(stop)] { find_or_fetch(o, stop); });
  begin_group(verb, kOutputGroup);
  verb.add_flag("--json", o.json, "Print the result as one JSON object");
  verb.add_flag("--quiet", o.quiet, "Print no progress and no summary, only errors");
  verb.add_option("--log-level", o.log_level,
                  "Print messages from this level on: debug, info, warning, error, off");
  Settings::add_option(verb);
}

std::shared_ptr<Backend> open_device(const CommonOptions& o) {
  std::optional<int> index = parse_device(o.device);
  // Each of several ranks on a host has another.
  if (o.ranks != nullptr && o.device == kFirstGpu) index = o.ranks->sharing().number;
  return index ? open_cuda(*index) : nullptr;
}

void add_device_option(CLI::App& verb, CommonOptions& o) {
  begin_group(verb, kModelGroup);
  verb.add_option("--device", o.device,
                  "Compute on the CPU (cpu) or on an NVIDIA GPU (cuda, or cuda:N counted from 0)");
  begin_group(verb, kOwnGroup);
}

void add_model_options(CLI::App& verb, CommonOptions& o, std::stop_token stop) {
  add_basic_options(verb, o, std::move(stop));
  add_device_option(verb, o);
  add_weight_options(verb, o);
  add_memory_options(verb, o);
  add_quantization_options(verb, o);
  begin_group(verb, kOutputGroup);
  verb.add_option("--report", o.report, "Write a JSON report to this file")->type_name("FILE");
  add_advanced_options(verb, o);
  begin_group(verb, kOwnGroup);
}

void apply_log_level(const CommonOptions& o) {
  log::Level level = log::Level::info;
  if (!log::parse_level(o.log_level, level)) {
    fail(ErrorKind::usage, "--log-level {}: must be debug, info, warning, error or off",
         o.log_level);
  }
  log::set_level(o.quiet ? log::Level::error : level);
}

ModelOptions model_options(const CommonOptions& o) {
  check_fixed_options(o);
  ModelOptions s;
  s.model = o.model_path;
  s.outside_links = o.outside_links();
  s.dummy_weights = o.load_format == kDummyFormat;
  for (const std::string& mirror : o.mirrors) {
    if (!std::filesystem::is_directory(mirror))
      fail(ErrorKind::usage, "--mirror {}: is not a directory", mirror);
  }
  s.mirrors.assign(o.mirrors.begin(), o.mirrors.end());
  s.memory = o.memory;
  s.quantize = parse_quantization(o.quantization);
  s.quantize.roles = parse_modules(o.quantize_modules);
  s.dtype = parse_dtype_choice(o.dtype);
  s.kv_dtype = parse_kv_dtype(o.kv_cache_dtype);
  s.max_quant_error = o.max_quant_error;
  std::optional<io::ReaderKind> reader = io::parse_reader_kind(o.reader);
  if (!reader) fail(ErrorKind::usage, "--reader {}: must be auto, uring, pread or mmap", o.reader);
  s.reader = *reader;
  std::optional<Isa> isa = parse_isa(o.kernels);
  if (!isa)
    fail(ErrorKind::usage,
         "--kernels {}: must be auto, amx, avx512_bf16, avx2, portable or reference", o.kernels);
  if (const std::string missing = isa_missing(*isa); !missing.empty())
    fail(ErrorKind::usage, "--kernels {}: not on this machine: {}", o.kernels, missing);
  s.isa = *isa;
  s.threads = o.threads.value_or(0);
  const bool slice = o.scheduler_slice >= kLeastSlice && o.scheduler_slice <= kLargestSlice;
  if (!slice && o.scheduler_slice != 0) {
    fail(ErrorKind::usage, "--scheduler-slice {}: must be 0, or {} to {} microseconds",
         o.scheduler_slice, kLeastSlice, kLargestSlice);
  }
  s.scheduler_slice = o.scheduler_slice;
  if (o.pin_threads) s.pin_threads = ThreadPool::Pin::yes;
  s.block_size = o.block_size;
  set_kv_memory(o, s);
  set_max_model_len(o, s);
  s.place = place_rules(o);
  s.cpu_rows = o.cpu_rows;
  s.spill = spill_options(o);
  s.ranks = o.ranks;
  s.pipeline_parallel_size = o.pipeline_parallel_size;
  s.expert_parallel = o.enable_expert_parallel;
  set_device(o, s);  // last: it takes a while
  return s;
}

std::vector<int32_t> parse_token_ids(const std::string& text, const std::string& option) {
  std::vector<int32_t> ids;
  std::string_view rest = text;
  auto skip = [&](std::string_view characters) {
    rest.remove_prefix(std::min(rest.find_first_not_of(characters), rest.size()));
  };
  skip(" [");
  while (!rest.empty() && rest != "]") {
    int32_t id = 0;
    auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), id);
    if (status != std::errc{})
      fail(ErrorKind::usage, "{} {}: not a list of token ids such as 1,2,3", option, text);
    ids.push_back(id);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (!rest.empty() && !rest.starts_with(',') && !rest.starts_with(' ') &&
        !rest.starts_with(']')) {
      fail(ErrorKind::usage, "{} {}: not a list of token ids such as 1,2,3", option, text);
    }
    skip(", ");
  }
  return ids;
}

std::span<const std::pair<int, std::string_view>> exit_statuses() {
  static constexpr std::array<std::pair<int, std::string_view>, 5> kStatuses{
      {{0, "done"},
       {1, "failed at run time: I/O, a full disk; of two reports: a regression"},
       {2, "wrong usage"},
       {3, "the model or an input file was refused"},
       {4, "does not fit the memory budget"}}};
  return kStatuses;
}

}  // namespace sluice::cli
