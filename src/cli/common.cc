#include "src/cli/common.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <utility>

#include "kernels/cuda/open_cuda.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/load/spill_directory.h"

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
      fail(ErrorKind::usage,
           "--quantize-modules {}: not known; linear, embedding, head, norm and all are", name);
  }
  return roles;
}

DtypeChoice parse_dtype_choice(const std::string& name) {
  if (name == "auto") return DtypeChoice::automatic;
  if (name == "bfloat16" || name == "bf16") return DtypeChoice::bf16;
  if (name == "float32" || name == "float" || name == "f32") return DtypeChoice::f32;
  fail(ErrorKind::usage, "--dtype {}: not supported; auto, bfloat16 and float32 are", name);
}

// nullopt: as computed.
std::optional<DType> parse_kv_dtype(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (name == "bfloat16" || name == "bf16") return DType::bf16;
  if (name == "float32" || name == "f32") return DType::f32;
  if (name == "fp8" || name == "fp8_e4m3") return DType::f8_e4m3;
  if (name == "fp8_e5m2") return DType::f8_e5m2;
  fail(ErrorKind::usage,
       "--kv-cache-dtype {}: not supported; auto, bfloat16, float32, fp8_e4m3 and fp8_e5m2 are",
       name);
}

// Options of the contract that this build accepts only with the value that it can honour.
void check_fixed_options(const CommonOptions& o) {
  if (o.load_format != "auto" && o.load_format != "safetensors") {
    fail(ErrorKind::usage, "--load-format {}: not supported; auto and safetensors are",
         o.load_format);
  }
  if (o.tensor_parallel_size != 1) {
    fail(ErrorKind::usage, "--tensor-parallel-size {}: this build runs on one rank only",
         o.tensor_parallel_size);
  }
}

// N of cuda:N, 0 of cuda; nullopt: the CPU.
std::optional<int> parse_device(const std::string& name) {
  if (name == "cpu") return std::nullopt;
  if (name == "cuda") return 0;
  int index = -1;
  if (name.starts_with("cuda:")) {
    const char* end = name.data() + name.size();
    auto [stopped, status] = std::from_chars(name.data() + 5, end, index);
    if (status != std::errc{} || stopped != end) index = -1;
  }
  if (index < 0) fail(ErrorKind::usage, "--device {}: not known; cpu, cuda and cuda:N are", name);
  return index;
}

void set_device(const CommonOptions& o, SessionOptions& s) {
  s.device_memory = o.device_memory;
  if (parse_device(o.device)) {
    if (o.kernels != "auto")
      fail(ErrorKind::usage, "--kernels {}: are the CPU's, and --device is {}", o.kernels,
           o.device);
    s.backend = open_device(o);
  } else if (o.device_memory) {
    fail(ErrorKind::usage, "--device-memory {}: the memory of --device cpu is --memory",
         *o.device_memory);
  }
}

void set_max_model_len(const CommonOptions& o, SessionOptions& s) {
  if (!o.max_model_len) return;
  s.longest_model_len = *o.max_model_len == "auto";
  if (s.longest_model_len) return;
  int64_t length = 0;
  const char* end = o.max_model_len->data() + o.max_model_len->size();
  auto [stopped, status] = std::from_chars(o.max_model_len->data(), end, length);
  if (status != std::errc{} || stopped != end || length < 1 || length > kMaxPositions) {
    fail(ErrorKind::usage, "--max-model-len {}: not a number from 1 to {}, nor auto",
         *o.max_model_len, kMaxPositions);
  }
  s.max_model_len = length;
}

uint64_t parse_bytes(const char* option, const std::string& text, uint64_t all = 0) {
  std::optional<uint64_t> bytes = parse_size(text, all);
  if (!bytes) fail(ErrorKind::usage, "{} {}: not a size; write 6GiB or 512MiB", option, text);
  return *bytes;
}

void set_kv_memory(const CommonOptions& o, SessionOptions& s) {
  constexpr uint64_t kSwapLimit = 8 * GiB;
  if (o.kv_cache_memory) s.kv_bytes = parse_bytes("--kv-cache-memory", *o.kv_cache_memory);
  if (o.kv_cache_memory && s.kv_bytes == 0)
    fail(ErrorKind::usage, "--kv-cache-memory {}: must be more", *o.kv_cache_memory);
  s.swap.host_bytes = parse_bytes("--swap-space", o.swap_space);
  s.swap.directory = o.swap_dir;
  if (!o.swap_dir.empty()) s.swap.disk_bytes = kSwapLimit;
  if (!o.swap_limit) return;
  if (o.swap_dir.empty())
    fail(ErrorKind::usage, "--swap-limit: there is no directory to swap to (--swap-dir)");
  s.swap.disk_bytes = parse_bytes("--swap-limit", *o.swap_limit);
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
  if (o.spill_limit) parse_spill_limit(*o.spill_limit, 0);  // refused here if it is no size
  spill.verify = o.verify_spill;
  if (o.verify_spill && spill.directories.empty())
    fail(ErrorKind::usage, "--verify-spill: there is no spill directory (--spill-dir)");
  return spill;
}

}  // namespace

void add_basic_options(CLI::App& verb, CommonOptions& o) {
  verb.add_option("MODEL", o.model,
                  "checkpoint directory (config.json, *.safetensors, tokenizer.json)")
      ->required();
  verb.add_flag("--json", o.json, "print one JSON object on stdout");
  verb.add_flag("--quiet", o.quiet, "no progress, no summary; errors only");
  verb.add_option("--log-level", o.log_level, "debug, info, warning, error or off")
      ->capture_default_str();
}

std::shared_ptr<Backend> open_device(const CommonOptions& o) {
  const std::optional<int> index = parse_device(o.device);
  return index ? open_cuda(*index) : nullptr;
}

void add_device_option(CLI::App& verb, CommonOptions& o) {
  verb.add_option("--device", o.device, "cpu, cuda, cuda:N (the N-th GPU, counted from 0)")
      ->capture_default_str();
}

void add_model_options(CLI::App& verb, CommonOptions& o) {
  add_basic_options(verb, o);
  add_device_option(verb, o);
  verb.add_option("--device-memory", o.device_memory,
                  "of the GPU's memory, as --memory (default: what is free, less a reserve)");
  verb.add_option(
      "--memory", o.memory,
      "budget of the whole process: 6GiB, 512MiB, 75% (default: what is free, less a reserve)");
  verb.add_option(
          "--quantization", o.quantization,
          "while loading: none, fp8_per_tensor, fp8_per_channel, fp8_per_block, fp8_dynamic, "
          "fp8_dynamic_per_block, int8 (the last three round activations, too); fp8 = "
          "fp8_per_channel")
      ->capture_default_str();
  verb.add_option("--quantize-modules", o.quantize_modules,
                  "what --quantization applies to: linear, embedding, head, norm, all")
      ->delimiter(',')
      ->capture_default_str();
  verb.add_option("--max-quant-error", o.max_quant_error,
                  "refuse when a tensor's relative RMS error is above this");
  verb.add_option("--dtype", o.dtype, "compute in: auto, bfloat16, float32")->capture_default_str();
  verb.add_option(
          "--kv-cache-dtype", o.kv_cache_dtype,
          "keys and values: auto (as --dtype), bfloat16, float32, fp8_e4m3, fp8_e5m2; fp8 = "
          "fp8_e4m3")
      ->capture_default_str();
  verb.add_option("--load-format", o.load_format, "auto, safetensors")->capture_default_str();
  verb.add_option(
          "--mirror", o.mirrors,
          "a directory on another disk with some or all of the weight files, read at the same "
          "time; may be given several times")
      ->allow_extra_args(false);
  verb.add_option("--reader", o.reader, "auto, uring, pread, mmap")->capture_default_str();
  verb.add_option("--kernels", o.kernels, "auto, amx, avx512_bf16, avx2, portable, reference")
      ->capture_default_str();
  verb.add_option("--threads", o.threads,
                  "compute threads (default: the CPUs that the process may use)")
      ->check(CLI::Range(1, 1024));
  verb.add_flag("--pin-threads", o.pin_threads,
                "each compute thread but the calling one keeps to a CPU of its own");
  verb.add_option("--block-size", o.block_size, "tokens in a block of the KV cache")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb.add_option(
      "--kv-cache-memory", o.kv_cache_memory,
      "most that the KV cache takes (default: room for all sequences at their longest)");
  verb.add_option("--swap-space", o.swap_space,
                  "memory, of the budget, for KV blocks that have no room in the KV cache")
      ->capture_default_str();
  verb.add_option("--swap-dir", o.swap_dir,
                  "a directory for KV blocks that have no room in memory (default: none)");
  verb.add_option("--swap-limit", o.swap_limit,
                  "most that --swap-dir takes of the disk (default 8GiB)");
  verb.add_option("--max-model-len", o.max_model_len,
                  "longest sequence, prompt and continuation; auto: the longest that fits");
  verb.add_option("--place", o.place,
                  "what stays in memory and what is streamed: layers.0-7=host,layers.*.mlp=disk; "
                  "with a GPU device, too");
  verb.add_option("--tensor-parallel-size", o.tensor_parallel_size, "1")->capture_default_str();
  verb.add_option("--spill-dir", o.spill_dirs,
                  "where weights that are quantized and streamed are kept in their packed form: a "
                  "directory, none, auto ($XDG_CACHE_HOME/sluice/spill); more than once: a copy in "
                  "each, and all are read at once")
      ->allow_extra_args(false)
      ->capture_default_str();
  verb.add_option(
      "--spill-limit", o.spill_limit,
      "most that the spill directory may hold: 20GiB, 50% of what is free (default 75%)");
  verb.add_flag("--verify-spill", o.verify_spill,
                "compare what the spill directory holds with the checkpoint before it is used");
  verb.add_option("--report", o.report, "write a JSON report to this file");
}

void apply_log_level(const CommonOptions& o) {
  log::Level level = log::Level::info;
  if (!log::parse_level(o.log_level, level)) {
    fail(ErrorKind::usage, "--log-level {}: not known; debug, info, warning, error and off are",
         o.log_level);
  }
  log::set_level(o.quiet ? log::Level::error : level);
}

SessionOptions session_options(const CommonOptions& o) {
  check_fixed_options(o);
  SessionOptions s;
  s.model = o.model;
  s.mirrors.assign(o.mirrors.begin(), o.mirrors.end());
  s.memory = o.memory;
  std::optional<QuantScheme> scheme = find_quant_scheme(o.quantization);
  if (!scheme) {
    std::string known;
    for (const QuantScheme& q : quant_schemes()) known += fmt::format("{}, ", q.name);
    fail(ErrorKind::usage, "--quantization {}: not supported; {}and fp8 are", o.quantization,
         known);
  }
  s.quantize = {*scheme, parse_modules(o.quantize_modules), false};
  s.dtype = parse_dtype_choice(o.dtype);
  s.kv_dtype = parse_kv_dtype(o.kv_cache_dtype);
  s.max_quant_error = o.max_quant_error;
  std::optional<io::ReaderKind> reader = io::parse_reader_kind(o.reader);
  if (!reader)
    fail(ErrorKind::usage, "--reader {}: not known; auto, uring, pread and mmap are", o.reader);
  s.reader = *reader;
  std::optional<Isa> isa = parse_isa(o.kernels);
  if (!isa)
    fail(ErrorKind::usage,
         "--kernels {}: not known; auto, amx, avx512_bf16, avx2, portable and reference are",
         o.kernels);
  if (const std::string missing = isa_missing(*isa); !missing.empty())
    fail(ErrorKind::usage, "--kernels {}: not on this machine: {}", o.kernels, missing);
  s.isa = *isa;
  s.threads = o.threads;
  if (o.pin_threads) s.pin_threads = ThreadPool::Pin::yes;
  s.block_size = o.block_size;
  set_kv_memory(o, s);
  set_max_model_len(o, s);
  if (!o.place.empty()) s.place = parse_place_rules(o.place);
  s.spill = spill_options(o);
  set_device(o, s);  // last: it takes a while
  return s;
}

void follow_limits(Session& session, const std::atomic<int>& shrink, int& followed) {
  for (int asked = shrink.load(); followed < asked; ++followed)
    session.shrink(session.budget() / 4 * 3);
  session.follow_cgroup();
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

void print(std::string_view text) {
  bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) fail_errno(errno, "cannot write the result to standard output");
}

void print_json(const Json& json) {
  print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void write_text(const std::string& path, std::string_view text, const char* option) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) fail_errno(errno, "{} {}: cannot be written", option, path);
}

}  // namespace sluice::cli
