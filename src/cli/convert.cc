// sluice quantize, sluice convert: write a standard checkpoint of another one.
#include "src/cli/convert.h"

#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
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
#include "src/cli/verbs.h"
#include "src/formats/formats.h"
#include "src/formats/quantization_config.h"
#include "src/load/checkpoint_writer.h"
#include "src/load/gguf_model.h"
#include "src/load/output_directory.h"
#include "src/load/written_model.h"
#include "src/memory/buffer.h"
#include "src/memory/system.h"
#include "src/models/meta.h"
#include "src/models/mlx.h"
#include "src/models/source.h"
#include "src/plan/lay_out.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr uint64_t kMostConfigBytes = 16 * MiB;
constexpr uint64_t kPage = 4096;  // buffers take whole ones

io::ModelDirectory directory_of(const ConvertOptions& o) {
  return {o.model_path, o.outside_links()};
}

// The config.json of a directory that has one.
struct ReadConfig {
  std::string text;
  bool is_hub = false;  // tensors have the hub's names and shapes
  bool is_quantized = false;
};

// The config.json with the quantization_config that other files may say.
Json settled_config(const ConvertOptions& o, const std::string& text) {
  Json json = parse_json(text, kConfig);
  settle_quantization_config(json, [&](const char* file) -> std::optional<Json> {
    if (!fs::exists(o.model_path / file)) return std::nullopt;
    return parse_json(directory_of(o).read(file, kMostConfigBytes), file);
  });
  return json;
}

// Returns whether it says that weights are quantized.
bool is_quantized(const Json& config) {
  constexpr const char* kKey = "quantization_config";
  const auto has = [&](const Json& holder) {
    return holder.is_object() && holder.contains(kKey) && !holder[kKey].is_null();
  };
  return has(config) || (config.contains("text_config") && has(config["text_config"]));
}

// The config of a directory that has one.
ReadConfig read_config(const ConvertOptions& o) {
  const bool is_directory = fs::is_directory(o.model_path);
  if (io::is_gguf(o.model_path) || (is_directory && is_meta_model(o.model_path))) return {};
  if (is_directory && io::container_name(o.model_path).starts_with("model-rank-"))
    fail(ErrorKind::refused,
         "{}: its weights are as one of several ranks has them; give the checkpoint that it was "
         "made from",
         o.model);
  if (!is_directory) open_model({o.model_path, {}, o.outside_links()});  // says what it must be
  ReadConfig config{directory_of(o).read(kConfig, kMostConfigBytes)};
  const Json settled = settled_config(o, config.text);
  config.is_hub = !is_mlx(settled) && !lies_as_mlx(io::open_checkpoint(directory_of(o)));
  config.is_quantized = is_quantized(settled);
  return config;
}

// Two runs with the same identity write the same files.
std::string identity_of(const ConvertOptions& o, const io::CheckpointIndex& index,
                        const std::string& config) {
  TextChecksum text;
  text.add(fmt::format("2\n{}\n{}\n{}\n{}\n", o.quantization, o.format, o.dtype,
                       parse_size("--max-shard-size", o.max_shard_size)));
  text.add(index.identity());
  text.add(config);
  return text.digits();
}

}  // namespace

std::optional<DType> dtype_of(const ConvertOptions& o) {
  if (o.dtype == "auto") return std::nullopt;
  if (o.dtype == "bfloat16") return DType::bf16;
  if (o.dtype == "float32") return DType::f32;
  fail(ErrorKind::usage, "--dtype {}: must be auto, bfloat16 or float32", o.dtype);
}

Buffer writing_memory(const ConvertOptions& o, uint64_t least, Ledger& ledger,
                      std::optional<Lease>& process) {
  const FreeMemory free = free_memory();
  const uint64_t budget =
      o.memory ? parse_size("--memory", *o.memory, free.own + free.free) : free.budget;
  ledger.set_budget(Place::host, budget);
  map_program_code();
  malloc_trim(0);  // returns to the system what planning freed
  const uint64_t taken = process_rss(), beside = taken + kernel_bytes(taken);
  const uint64_t left = round_down(budget - std::min(budget, beside), kPage);
  least = Buffer::charged_bytes(least);
  if (left < least)
    fail(ErrorKind::no_fit,
         "{}: the budget of {} is too small; the smallest budget that works is --memory {}MiB "
         "(writing it takes {}, the process itself {})",
         o.model, format_size(budget), ceil_div(static_cast<int64_t>(beside + least + MiB), MiB),
         format_size(least), format_size(beside));
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
  log::info("wrote      {} ({} in {} file{}{})", o.out, format_size(written.bytes), written.files,
            written.files == 1 ? "" : "s",
            written.kept_files > 0 ? fmt::format(", {} of them before", written.kept_files) : "");
}

namespace {

// Files that are written beside tensors: the text of config.json, files that are copied, and
// others.
struct TextFiles {
  std::string config;
  std::vector<OtherFile> copied = {};
  std::vector<MadeFile> made = {};
};

// A directory's files; those of a source that has none.
TextFiles text_files(const ConvertOptions& o, std::string config, std::vector<MadeFile> made) {
  TextFiles files{.config = std::move(config), .made = std::move(made)};
  if (fs::is_directory(o.model_path)) files.copied = other_files(directory_of(o));
  const auto is_made = [&](const std::string& name) {
    return std::ranges::find(files.made, name, &MadeFile::name) != files.made.end();
  };
  std::erase_if(files.copied, [&](const OtherFile& file) {
    return is_made(file.name) || (file.name == "params.json" && is_made(kConfig));
  });
  const auto own = std::ranges::find(files.made, kConfig, &MadeFile::name);
  if (own == files.made.end()) return files;
  files.config = std::move(own->text);
  files.made.erase(own);
  return files;
}

// Leaves out what says that weights are quantized: of config.json, and files beside it.
void leave_out_quantization(TextFiles& files) {
  files.config = without_quantization(files.config);
  Json nothing = Json::object();
  settle_quantization_config(nothing, [&](const char* name) -> std::optional<Json> {
    std::erase_if(files.copied, [&](const OtherFile& file) { return file.name == name; });
    return std::nullopt;
  });
}

void write(const ConvertOptions& o, CheckpointWriting writing, const Json& quantization,
           TextFiles files) {
  const io::CheckpointIndex& index = writing.index;
  for (const io::AbsentTensors& absent : index.absent()) index.refuse_absent(absent.names.front());
  OutputDirectory out(o.out, o.model_path, identity_of(o, index, files.config));
  if (!quantization.is_null())
    files.config = with_quantization(std::move(files.config), quantization);
  if (const std::optional<DType> dtype = dtype_of(o))
    files.config = with_dtype(std::move(files.config), *dtype);
  writing.options.threads = o.threads ? *o.threads : usable_threads();
  writing.most_file_bytes = parse_size("--max-shard-size", o.max_shard_size);
  writing.verify = o.verify;
  CheckpointWriter writer(std::move(writing));
  write_all(o, writer, out, [&](std::span<std::byte> memory) {
    for (const MadeFile& file : files.made) write_small_file(out.path() / file.name, file.text);
    copy_other_files(files.copied, out, files.config, memory);
  });
}

// Tensors stay as they are, or numbers become BF16: nothing but headers is needed of the model.
void rewrite(const ConvertOptions& o, const std::string& config, const std::stop_token& stop) {
  const io::CheckpointIndex index = io::open_checkpoint(directory_of(o));
  for (const std::string& w : index.warnings()) log::warning("{}", w);
  WrittenModel written = converted_model(index, o.dtype == "bfloat16");
  write(o, {.index = index, .tensors = std::move(written.tensors), .stop = stop}, {},
        text_files(o, config, {}));
}

// Tensors are made as the hub has them, by the model's plan.
void make(const ConvertOptions& o, const ReadConfig& config, WrittenNumbers numbers,
          const std::stop_token& stop) {
  const std::unique_ptr<ModelSource> source = open_model({o.model_path, {}, o.outside_links()});
  Model model = read_model(*source);
  const io::CheckpointIndex index = source->index();
  for (const std::string& w : index.warnings()) log::warning("{}", w);
  settle_stored_formats(model.files.config, index);
  build_root(model, {}, &index, false);
  if (model.files.wrapper && !config.is_hub)
    fail(ErrorKind::refused,
         "{}: has a language model beside others, whose weights in this format have no form of the "
         "hub; give the checkpoint that it was made from",
         o.model);
  const QuantizeRequest as_stored{.scheme = *find_quant_scheme("none"),
                                  .matrix_layout = MatrixLayout::rows};
  const ReadPlan plan = lay_out(model, index, as_stored);
  const bool has_codes = std::ranges::any_of(
      plan.tensors, [](const TensorPlan& t) { return t.matrix->kept.has_value(); });
  if (has_codes && numbers.request)
    log::warning("{}: is quantized already; errors add up", o.model);
  WrittenModel written = made_model({*source, model, plan, index, config.is_hub}, numbers);
  TextFiles files = text_files(o, config.text, source->made_files());
  if (config.is_quantized) leave_out_quantization(files);
  write(o, {.index = index, .plan = &plan, .tensors = std::move(written.tensors), .stop = stop},
        written.quantization, std::move(files));
}

void refuse_gguf_scheme(const std::string& name) {
  const bool is_of_gguf =
      std::ranges::find(gguf_schemes(), name, &GgufScheme::name) != gguf_schemes().end();
  if (is_of_gguf && !find_quant_scheme(name))
    fail(ErrorKind::usage, "--quantization {}: is made in GGUF files alone; give --format {}, too",
         name, kGgufFormat);
}

void quantize(const ConvertOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  if (o.format == kGgufFormat) return write_gguf(o, stop);
  const std::optional<WrittenMethod> method = find_written_method(o.format);
  if (!method)
    fail(ErrorKind::usage, "--format {}: must be {} or {}", o.format,
         fmt::join(written_methods(), ", "), kGgufFormat);
  refuse_gguf_scheme(o.quantization);
  const ReadConfig config = read_config(o);
  make(o, config, {.request = parse_quantization(o.quantization), .method = *method}, stop);
}

void convert(const ConvertOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  const std::optional<DType> dtype = dtype_of(o);
  if (o.format == kGgufFormat) return write_gguf(o, stop);
  if (o.format != "safetensors")
    fail(ErrorKind::usage, "--format {}: must be safetensors or gguf", o.format);
  const ReadConfig config = read_config(o);
  const bool only_numbers = !dtype || (*dtype == DType::bf16 && !config.is_quantized);
  if (config.is_hub && only_numbers) return rewrite(o, config.text, stop);
  make(o, config, {.dtype = dtype}, stop);
}

void add_options(CLI::App& verb, ConvertOptions& o, const std::stop_token& stop) {
  add_basic_options(verb, o, stop);
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
      "quantize", "Write a quantized checkpoint for vLLM, transformers or llama.cpp");
  verb->footer(
      "Memory does not grow with the model. After an interrupt, run it again to go on.\n"
      "Examples:\n"
      "  sluice quantize MODEL MODEL-FP8 --quantization fp8_dynamic\n"
      "  sluice quantize MODEL MODEL-INT4 --quantization '*.down_proj=int8,int4'\n"
      "  sluice quantize MODEL MODEL-GGUF --format gguf --quantization q8_0");
  add_options(*verb, *o, stop);
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
      "Memory does not grow with the model. After an interrupt, run it again to go on.\n"
      "Examples:\n"
      "  sluice convert model-Q4_K_M.gguf MODEL\n"
      "  sluice convert MODEL-FP8 MODEL-BF16 --dtype bfloat16\n"
      "  sluice convert MODEL MODEL-GGUF --format gguf");
  add_options(*verb, *o, stop);
  o->format = "safetensors";
  verb->add_option("--format", o->format, "Write this form: safetensors or gguf");
  begin_group(*verb, kModelGroup);
  verb->add_option("--dtype", o->dtype,
                   "Keep numbers, and the codes of a checkpoint of the hub (auto); or make all "
                   "matrices bfloat16 or float32");
  verb->callback([o, stop] { convert(*o, stop); });
}

}  // namespace sluice::cli
