// sluice quantize, sluice convert: write a standard checkpoint of another one.
#include "src/cli/convert.h"

#include <fmt/ranges.h>
#include <malloc.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/gguf.h"
#include "io/checkpoint/index.h"
#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/thread_pool.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/progress.h"
#include "src/cli/verbs.h"
#include "src/engine/checkpoint.h"
#include "src/formats/quantization_config.h"
#include "src/load/checkpoint_writer.h"
#include "src/load/gguf_model.h"
#include "src/load/output_directory.h"
#include "src/load/written_model.h"
#include "src/memory/buffer.h"
#include "src/memory/system.h"
#include "src/models/mlx.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr uint64_t kMostConfigBytes = 16 * MiB;

io::ModelDirectory directory_of(const ConvertOptions& o) {
  return {o.model_path, o.outside_links()};
}

// The text of config.json. Refuses weights that are not as the hub has them.
std::string config_text(const ConvertOptions& o) {
  if (io::is_gguf(o.model_path) || !fs::exists(o.model_path / kConfig))
    fail(ErrorKind::usage, "{}: only a directory with config.json can be written anew", o.model);
  std::string text = directory_of(o).read(kConfig, kMostConfigBytes);
  const bool mlx =
      is_mlx(parse_json(text, kConfig)) || lies_as_mlx(io::open_checkpoint(directory_of(o)));
  const std::string_view maker = mlx ? "MLX has them"
                                 : io::container_name(o.model_path).starts_with("model-rank-")
                                     ? "one of several ranks has them"
                                     : "";
  if (!maker.empty())
    fail(ErrorKind::refused, "{}: its weights are as {}; give the checkpoint that it was made from",
         o.model, maker);
  return text;
}

// Refuses models that are quantized: scales are numbers that would be rounded as well.
void refuse_quantized(const ConvertOptions& o, const std::string& config) {
  constexpr const char* kKey = "quantization_config";
  Json json = parse_json(config, kConfig);
  settle_quantization_config(json, [&](const char* file) -> std::optional<Json> {
    if (!fs::exists(o.model_path / file)) return std::nullopt;
    return parse_json(directory_of(o).read(file, kMostConfigBytes), file);
  });
  const auto has = [&](const Json& holder) {
    return holder.is_object() && holder.contains(kKey) && !holder[kKey].is_null();
  };
  if (has(json) || (json.contains("text_config") && has(json["text_config"])))
    fail(ErrorKind::refused, "{}: is quantized already; give the checkpoint that it was made from",
         o.model);
}

// Two runs with the same identity write the same files.
std::string identity_of(const ConvertOptions& o, const io::CheckpointIndex& index,
                        const std::string& config) {
  TextChecksum text;
  text.add(fmt::format("1\n{}\n{}\n{}\n{}\n", o.quantization, o.format, o.dtype,
                       parse_size("--max-shard-size", o.max_shard_size)));
  text.add(index.identity());
  text.add(config);
  return text.digits();
}

}  // namespace

Buffer writing_memory(const ConvertOptions& o, uint64_t least, Ledger& ledger,
                      std::optional<Lease>& process) {
  const FreeMemory free = free_memory();
  const uint64_t budget =
      o.memory ? parse_size("--memory", *o.memory, free.own + free.free) : free.budget;
  ledger.set_budget(Place::host, budget);
  map_program_code();
  malloc_trim(0);  // returns to the system what planning freed
  const uint64_t taken = process_rss(), beside = taken + kernel_bytes(taken);
  const uint64_t left = budget - std::min(budget, beside);
  if (left < least)
    fail(ErrorKind::no_fit,
         "{}: writing it takes {} of memory, and {} are left of the budget of {}; raise --memory",
         o.model, format_size(least), format_size(left), format_size(budget));
  process = ledger.lease(Place::host, Use::runtime, "process", beside);
  return {ledger, Use::staging, "rows",
          std::clamp(left, least, std::max(least, CheckpointWriter::kMostMemory)),
          Buffer::Touch::lazily};
}

void check_disk(const ConvertOptions& o, uint64_t needed, const OutputDirectory& out) {
  const uint64_t free = io::system_calls().free_bytes(out.path().c_str());
  if (needed > free)
    fail(ErrorKind::no_fit, "{}: needs {} of the disk, and {} are free", o.out,
         format_need(needed, free), format_size(free));
}

void report(const ConvertOptions& o, const WriteReport& written, const Ledger& ledger) {
  if (o.json) {
    Json json{{"out", o.out},
              {"files", written.files},
              {"kept_files", written.kept_files},
              {"bytes", written.bytes},
              {"verified", o.verify},
              {"ledger_peak", ledger.peak(Place::host)}};
    if (!written.least_exact.empty())
      json["largest_error"] = {{"tensor", written.least_exact},
                               {"relative_rms_error", written.largest_error}};
    print_json(json);
  }
  if (!written.least_exact.empty())
    log::info("error      {:.4f} relative RMS at most ({})", written.largest_error,
              written.least_exact);
  log::info("wrote      {} ({} in {} files{})", o.out, format_size(written.bytes), written.files,
            written.kept_files > 0 ? fmt::format(", {} of them before", written.kept_files) : "");
}

namespace {

void write(const ConvertOptions& o, const io::CheckpointIndex& index, WrittenModel written,
           std::string config, const std::stop_token& stop) {
  for (const io::AbsentTensors& absent : index.absent()) index.refuse_absent(absent.names.front());
  const std::vector<OtherFile> others = other_files(directory_of(o));
  OutputDirectory out(o.out, o.model_path, identity_of(o, index, config));
  if (!written.quantization.is_null())
    config = with_quantization(std::move(config), written.quantization);
  if (o.dtype == "bfloat16") config = with_bf16(std::move(config));
  const int threads = o.threads ? *o.threads : usable_threads();
  const uint64_t most = parse_size("--max-shard-size", o.max_shard_size);
  CheckpointWriter writer({.index = index,
                           .tensors = std::move(written.tensors),
                           .most_file_bytes = most,
                           .verify = o.verify,
                           .options = {.threads = threads},
                           .stop = stop});
  check_disk(o, writer.needed_bytes(out), out);
  Ledger ledger;
  std::optional<Lease> process;
  const Buffer memory = writing_memory(o, writer.least_memory(), ledger, process);
  WriteProgress progress;
  WriteReport done;
  {
    const ProgressDisplay display({"writing", progress.bytes_done, progress.bytes_total, "file",
                                   &progress.files_done, &progress.files_total},
                                  o.quiet);
    done = writer.write(out, memory.bytes(), progress);
  }
  copy_other_files(others, out, config, memory.bytes());
  out.publish();
  report(o, done, ledger);
}

void quantize(const ConvertOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  if (o.format == kGgufFormat) return write_gguf(o, stop);
  const std::string config = config_text(o);
  refuse_quantized(o, config);
  const QuantizeRequest request = parse_quantization(o.quantization);
  const WrittenMethod method = written_method(o.format);
  Checkpoint checkpoint({o.model_path, {}, o.outside_links()}, true);
  write(o, checkpoint.index(),
        quantized_model(checkpoint.model(), checkpoint.index(), request, method), config, stop);
}

void convert(const ConvertOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  if (o.dtype != "auto" && o.dtype != "bfloat16")
    fail(ErrorKind::usage, "--dtype {}: must be auto or bfloat16", o.dtype);
  if (o.format == kGgufFormat) return write_gguf(o, stop);
  if (o.format != "safetensors")
    fail(ErrorKind::usage, "--format {}: must be safetensors or gguf", o.format);
  const std::string config = config_text(o);
  if (o.dtype == "bfloat16") refuse_quantized(o, config);
  const io::CheckpointIndex index = io::open_checkpoint(directory_of(o));
  for (const std::string& w : index.warnings()) log::warning("{}", w);
  write(o, index, converted_model(index, o.dtype == "bfloat16"), config, stop);
}

void add_options(CLI::App& verb, ConvertOptions& o) {
  add_basic_options(verb, o);
  verb.add_option("OUT", o.out, "Write the checkpoint to this new directory")->required();
  begin_group(verb, kOutputGroup);
  verb.add_option("--max-shard-size", o.max_shard_size, "Begin a new file when one has this size")
      ->type_name("SIZE");
  verb.add_flag("--verify", o.verify, "Read each file back, and compare it with what was written");
  begin_group(verb, kMemoryGroup);
  verb.add_option("--memory", o.memory,
                  "Keep the whole process within 1GiB, 512M or 75% of the free memory (default: "
                  "the free memory, less a reserve)")
      ->type_name("SIZE");
  begin_group(verb, kAdvancedGroup);
  verb.add_option("--threads", o.threads,
                  "Encode with this many threads (default: the CPUs that the process may use)")
      ->check(CLI::Range(1, 1024));
}

}  // namespace

void define_quantize(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<ConvertOptions>();
  CLI::App* verb = app.add_subcommand(
      "quantize", "Write a quantized checkpoint in a form that vLLM and transformers read");
  verb->footer(
      "Memory does not grow with the model. A run that was interrupted goes on where it was.\n"
      "Examples:\n"
      "  sluice quantize MODEL MODEL-FP8 --quantization fp8_dynamic\n"
      "  sluice quantize MODEL MODEL-INT4 --quantization '*.down_proj=int8_weight_only,int4'\n"
      "  sluice quantize MODEL MODEL-GGUF --format gguf --quantization q8_0");
  add_options(*verb, *o);
  begin_group(*verb, kQuantizationGroup);
  verb->add_option(
          "--quantization", o->quantization,
          fmt::format(
              "Quantize linear layers by this scheme: {}; or by rules and a scheme for all "
              "others, *.down_proj=none,int4; with --format gguf all matrices: {}",
              fmt::join(quant_schemes().subspan(1) | std::views::transform(&QuantScheme::name),
                        ", "),
              fmt::join(gguf_schemes() | std::views::transform(&GgufScheme::name), ", ")))
      ->default_str("")
      ->required();
  verb->add_option(
      "--format", o->format,
      "Write this form: compressed-tensors, fp8 (weight_scale_inv of blocks of 128 x 128), "
      "bitsandbytes (nf4), or gguf, of the types that it lists");
  verb->callback([o, stop] { quantize(*o, stop); });
}

void define_convert(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<ConvertOptions>();
  CLI::App* verb =
      app.add_subcommand("convert", "Write a checkpoint of another format as safetensors or GGUF");
  verb->footer(
      "Memory does not grow with the model. A run that was interrupted goes on where it was.\n"
      "Examples:\n"
      "  sluice convert MODEL MODEL-safetensors\n"
      "  sluice convert MODEL MODEL-GGUF --format gguf");
  add_options(*verb, *o);
  o->format = "safetensors";
  verb->add_option("--format", o->format, "Write this form: safetensors or gguf");
  begin_group(*verb, kModelGroup);
  verb->add_option("--dtype", o->dtype,
                   "Keep numbers as they are (auto), or round those of matrices to bfloat16");
  verb->callback([o, stop] { convert(*o, stop); });
}

}  // namespace sluice::cli
