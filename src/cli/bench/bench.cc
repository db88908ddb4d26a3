// sluice bench: loads, disk, decode and prefill, each beside the bound that it is held against.
#include <algorithm>
#include <chrono>

#include "io/disk_bench.h"
#include "kernels/cpu/membw.h"
#include "kernels/cpu/peak.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/bench/bench_disk.h"
#include "src/cli/bench/bench_engine.h"
#include "src/cli/common.h"
#include "src/cli/run_report.h"
#include "src/cli/verbs.h"
#include "src/device/link.h"
#include "src/plan/rates.h"

namespace sluice::cli {
namespace {

constexpr int64_t kShortPrompt = 16;  // which costs nothing beside the weights

struct BenchOptions : CommonOptions {
  std::optional<int64_t> tokens;
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> repeats;
  std::optional<int64_t> max_num_seqs;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Any ids will do: speed does not depend on them.
std::vector<int32_t> some_ids(int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>((i * 7919 + 13) % vocab_size));
  return ids;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

// A load, and what was measured beside it; 0: not measured.
struct LoadRound {
  double bytes_per_second = 0;
  double disk_bytes_per_second = 0;    // of bare reads of the same files before and after it
  double memory_bytes_per_second = 0;  // at which as much memory is had of the system

  double disk_ratio() const { return bytes_per_second / disk_bytes_per_second; }
  double bound_ratio() const {
    return bytes_per_second / std::min(disk_bytes_per_second, memory_bytes_per_second);
  }
};

// A bare io_uring loop over the checkpoint's files, at the setting that was best for them.
double disk_rate(Planner& planner, const io::ReadShape& setting, const std::stop_token& stop) {
  Buffer staging(planner.machine().ledger(), Use::staging, "disk bench",
                 setting.request_bytes * static_cast<uint64_t>(setting.depth), Buffer::Touch::now);
  uint64_t bytes = 0;
  for (const io::CheckpointFile& file : planner.checkpoint().index().files()) bytes += file.size;
  const io::DiskSpeed speed = io::measure_setting(
      planner.checkpoint().index().files(), staging.bytes(), setting, 0, bytes, nullptr, stop);
  if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted");
  return speed.bytes_per_second();
}

// A hypervisor takes back the memory that lies free in a virtual machine for some seconds; to get
// it again costs more than any disk. Touched here and let go just before the first load that is
// measured, it is there, as it is on a machine of one's own; later loads get what the one before
// has let go of.
Buffer touched_memory(Machine& machine, uint64_t bytes) {
  return Buffer(machine.ledger(), Use::workspace, "touched memory", bytes, Buffer::Touch::now);
}

// The rate at which the threads that load can have new memory, as much as the weights take.
double new_memory_rate(Machine& machine, uint64_t weights) {
  Buffer buffer(machine.ledger(), Use::workspace, "new memory", weights, Buffer::Touch::lazily);
  std::span<std::byte> bytes = buffer.bytes();
  auto start = std::chrono::steady_clock::now();
  machine.pool().parallel_for(std::ssize(bytes), 2 * MiB,
                              [&](int64_t begin, int64_t end, int /*worker*/) {
                                for (int64_t at = begin; at < end; at += 4 * KiB)
                                  bytes[static_cast<size_t>(at)] = {};
                              });
  return static_cast<double>(bytes.size()) / seconds_since(start);
}

// `runtime`: bytes that the process holds.
io::ReadShape best_disk_setting(Planner& planner, uint64_t runtime, const std::stop_token& stop) {
  uint64_t room = planner.machine().budget() - runtime;
  uint64_t bytes = std::clamp(round_down(room / 2, MiB), MiB, 32 * MiB);
  Buffer staging(planner.machine().ledger(), Use::staging, "disk bench", bytes, Buffer::Touch::now);
  constexpr uint64_t kOfSetting = GiB;
  const io::DiskBandwidth measured =
      io::measure_disk(planner.checkpoint().index().files(), staging.bytes(), kOfSetting, stop);
  if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted");
  return measured.best.setting;
}

Json load_rounds_json(const std::vector<LoadRound>& rounds) {
  Json list = Json::array();
  for (const LoadRound& r : rounds) {
    list.push_back({{"bytes_per_second", r.bytes_per_second},
                    {"disk_bytes_per_second", r.disk_bytes_per_second},
                    {"memory_bytes_per_second", r.memory_bytes_per_second},
                    {"ratio", r.disk_ratio()},
                    {"bound_ratio", r.bound_ratio()}});
  }
  return list;
}

double median_of(const std::vector<LoadRound>& rounds, double (LoadRound::*ratio)() const) {
  std::vector<double> ratios;
  for (const LoadRound& r : rounds) ratios.push_back((r.*ratio)());
  return median(ratios);
}

// Leaves the last load in `model`. One round alone has no bound beside it.
std::vector<LoadRound> load_rounds(const BenchOptions& o, Planner& planner,
                                   std::optional<LoadedModel>& model, int64_t repeats,
                                   const std::stop_token& stop) {
  const std::shared_ptr<const Placed> placed = planner.place(planner.run_shape(16, 1, 1));
  const MemoryPlan& plan = placed->memory;
  const bool bounded = repeats > 1;
  const io::ReadShape setting =
      bounded ? best_disk_setting(planner, plan.runtime, stop) : io::ReadShape{};
  std::vector<LoadRound> rounds;
  double before = 0;  // the disk's rate
  for (int64_t i = 0; i < repeats; ++i) {
    model.reset();
    LoadRound& round = rounds.emplace_back();
    if (bounded) {
      if (i == 0) {
        Buffer touched = touched_memory(planner.machine(), plan.weights);
        before = disk_rate(planner, setting, stop);
      }
      round.memory_bytes_per_second = new_memory_rate(planner.machine(), plan.weights);
    }
    load_with_progress(model, planner, placed, o, stop);
    const LoadReport& load = model->report();
    round.bytes_per_second = static_cast<double>(load.io.bytes_read) / std::max(load.seconds, 1e-9);
    if (bounded) {
      const double after = disk_rate(planner, setting, stop);
      round.disk_bytes_per_second = (before + after) / 2;
      before = after;
    }
  }
  return rounds;
}

std::string load_rounds_text(const std::vector<LoadRound>& rounds) {
  if (rounds.size() == 1) return {};
  constexpr auto kGiB = static_cast<double>(GiB);
  std::string text;
  for (const LoadRound& r : rounds) {
    text += fmt::format(
        "load {:.2f} GiB/s, disk {:.2f} GiB/s ({:.3f}), new memory {:.2f} GiB/s: {:.3f} of what "
        "bounds it\n",
        r.bytes_per_second / kGiB, r.disk_bytes_per_second / kGiB, r.disk_ratio(),
        r.memory_bytes_per_second / kGiB, r.bound_ratio());
  }
  return text + fmt::format("median of {}: {:.3f} of the disk, {:.3f} of what bounds it\n",
                            rounds.size(), median_of(rounds, &LoadRound::disk_ratio),
                            median_of(rounds, &LoadRound::bound_ratio));
}

void bench_load(const BenchOptions& o, std::stop_token stop) {
  apply_log_level(o);
  check_report_path(o);
  Planner planner(model_options(o));
  const uint64_t baseline = process_rss();
  std::optional<LoadedModel> model;
  const std::vector<LoadRound> rounds = load_rounds(o, planner, model, o.repeats.value_or(1), stop);
  RunReport report("bench load", o, *model, Json::object());
  report.save(stop);
  const LoadReport& load = model->report();
  const MemoryPlan& plan = model->memory_plan();
  const uint64_t measured = report.memory().measured_peak;
  const uint64_t above = measured - std::min(measured, plan.weights);
  if (!o.json) {
    print(fmt::format("{}\nabove the weights: {}\n{}", report.summary(), format_size(above),
                      load_rounds_text(rounds)));
    return;
  }
  const std::optional<uint64_t> cgroup = report.memory().cgroup_peak;
  Json result{{"bytes_read", load.io.bytes_read},
              {"bytes_needed", load.needed_bytes},
              {"seconds", load.seconds},
              {"bytes_per_second", rounds.back().bytes_per_second},
              {"weights_bytes", plan.all_weights()},
              {"above_weights_bytes", above},
              {"peak_bytes", plan.load_peak()},
              {"measured_peak_bytes", measured},
              {"cgroup_peak_bytes", cgroup ? Json(*cgroup) : Json()},
              {"baseline_bytes", baseline},
              {"reader", load.reader}};
  if (rounds.size() > 1) {
    result["rounds"] = load_rounds_json(rounds);
    result["ratio"] = median_of(rounds, &LoadRound::disk_ratio);
    result["bound_ratio"] = median_of(rounds, &LoadRound::bound_ratio);
  }
  print_json(result);
}

// A part of a weight in memory that is too large for caches; empty where none is.
std::span<const std::byte> large_weight(const LoadedModel& model) {
  constexpr uint64_t kEnough = 256 * MiB;
  if (model.memory_plan().streams() ||
      model.planner().machine().backend().device().has_own_memory())
    return {};
  for (const ParamPlan& p : model.read_plan().params) {
    const Weight& weight = p.param->value;
    if (p.bytes >= kEnough && !weight.is_meta()) return {weight.data, kEnough};
  }
  return {};
}

struct DecodeSteps {
  std::vector<double> seconds;
  // Rates of the kernel that reads a large weight fastest, before each step and after the last;
  // empty where there is none. On a machine that others use, the rate of memory changes from second
  // to second.
  std::vector<double> bandwidths;
};

// The rates of the kernel whose median is the highest. `rates`: of every kernel, each time.
std::vector<double> best_kernel(const std::vector<std::vector<double>>& rates) {
  std::vector<double> best;
  for (size_t kernel = 0; !rates.empty() && kernel < rates[0].size(); ++kernel) {
    std::vector<double> of_kernel;
    for (const std::vector<double>& all : rates) of_kernel.push_back(all[kernel]);
    if (best.empty() || median(of_kernel) > median(best)) best = std::move(of_kernel);
  }
  return best;
}

// Decodes `count` sequences after prompts of `prompt` tokens.
DecodeSteps decode_steps(LoadedModel& model, int64_t count, int64_t prompt, int64_t tokens,
                         std::stop_token stop) {
  Runner& runner = model.runner();
  std::vector<int32_t> ids =
      some_ids(prompt + tokens, model.planner().checkpoint().spec().vocab_size);
  std::vector<Sequence> sequences;
  for (int64_t s = 0; s < count; ++s) {
    sequences.push_back(runner.new_sequence());
    runner.prefill(sequences.back(), std::span(ids).first(static_cast<size_t>(prompt)), stop);
  }
  const std::span<const std::byte> weight = large_weight(model);
  DecodeSteps steps;
  std::vector<std::vector<double>> rates;
  auto read_weight = [&] {
    if (!weight.empty()) rates.push_back(read_rates(weight, model.planner().machine().pool()));
  };
  read_weight();
  for (int64_t i = prompt; i < prompt + tokens; ++i) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted");
    std::vector<StepPart> parts;
    parts.reserve(sequences.size());
    for (Sequence& s : sequences)
      parts.push_back({&s, std::span(ids).subspan(static_cast<size_t>(i), 1)});
    auto start = std::chrono::steady_clock::now();
    runner.logits(runner.step(parts));
    steps.seconds.push_back(seconds_since(start));
    read_weight();
  }
  steps.bandwidths = best_kernel(rates);
  return steps;
}

// The bound of a step: the disk, where weights are read anew for every token; else the link to a
// device, where they come from host memory; else memory, whose rate a GPU reports.
struct StepBound {
  const char* from;
  const char* bytes_key;
  const char* rate_key;
  uint64_t bytes;
  double rate;
};
// Without `bandwidths` takes the weights' place: the model is not used any more.
StepBound step_bound(LoadedModel& model, const std::vector<double>& bandwidths,
                     const std::stop_token& stop) {
  Planner& planner = model.planner();
  Machine& machine = planner.machine();
  const MemoryPlan plan = model.memory_plan();
  const uint64_t token_bytes = model.read_plan().step_bytes();
  if (!bandwidths.empty())
    return {"memory", "weight_bytes_per_step", "read_bandwidth", token_bytes, median(bandwidths)};
  model.release();
  Device& device = machine.backend().device();
  if (plan.reads_disk()) {
    return {"disk", "disk_bytes_per_step", "disk_bandwidth", plan.sweep_bytes,
            disk_rate(planner, best_disk_setting(planner, plan.runtime, stop), stop)};
  }
  if (plan.host_multiplied_bytes > plan.host_sweep_bytes) {
    const double rate = measured_read_bandwidth(machine.ledger(), machine.pool(), stop);
    return {"host memory", "cpu_bytes_per_step", "read_bandwidth", plan.host_multiplied_bytes,
            rate};
  }
  if (plan.host_sweep_bytes > 0) {
    return {"host memory", "host_bytes_per_step", "link_bandwidth", plan.host_sweep_bytes,
            measure_link(device, machine.ledger())};
  }
  const Ledger& ledger = machine.ledger();
  const bool has_room = machine.budget() >= ledger.used(Place::host) + kBandwidthBuffer;
  double rate = device.info().memory_rate;
  if (!device.has_own_memory())
    rate = has_room ? measured_read_bandwidth(machine.ledger(), machine.pool(), stop) : 0;
  return {"memory", "weight_bytes_per_step", "read_bandwidth", token_bytes, rate};
}

// The median of what the steps reached: each beside what was measured around it.
double share_of_bound(const DecodeSteps& steps, const StepBound& bound) {
  std::vector<double> shares;
  for (size_t i = 0; i < steps.seconds.size(); ++i) {
    const bool around = !steps.bandwidths.empty();
    const double rate = around ? (steps.bandwidths[i] + steps.bandwidths[i + 1]) / 2 : bound.rate;
    shares.push_back(static_cast<double>(bound.bytes) / steps.seconds[i] / rate);
  }
  return median(shares);
}

void bench_decode(const BenchOptions& o, std::stop_token stop) {
  apply_log_level(o);
  check_report_path(o);
  Planner planner(model_options(o));
  int64_t tokens = o.tokens.value_or(32);
  int64_t count = o.max_num_seqs.value_or(1);
  const int64_t prompt = o.prompt_tokens.value_or(kShortPrompt);
  if (prompt + tokens > planner.max_model_len())
    fail(ErrorKind::usage, "--prompt-tokens {} and --tokens {} are more than the model's {}",
         prompt, tokens, planner.max_model_len());
  int64_t blocks = ceil_div(prompt + tokens, o.block_size);  // of a sequence
  RunShape shape =
      planner.run_shape(count * blocks * o.block_size, std::max(prompt, count), count, count);
  if (shape.logits_rows < count)
    fail(ErrorKind::usage, "--max-num-seqs may be at most {} with this vocabulary",
         shape.logits_rows);
  shape.least_rows = count;
  LoadedModel model = load_with_progress(planner, planner.place(shape), o, stop);
  const DecodeSteps steps = decode_steps(model, count, prompt, tokens, stop);
  RunReport report("bench decode", o, model, Json::object());
  const double step = median(steps.seconds);
  if (count == 1 && prompt <= kShortPrompt) model.learn_pass(step);
  const StepBound bound = step_bound(model, steps.bandwidths, stop);
  report.save(stop);
  const double given = static_cast<double>(bound.bytes) / step;
  const double rate = static_cast<double>(count) / step;
  if (o.json) {
    print_json({{"tokens_per_second", rate},
                {bound.bytes_key, bound.bytes},
                {bound.rate_key, bound.rate},
                {"ratio", bound.rate > 0 ? Json(share_of_bound(steps, bound)) : Json()},
                {"sequences", count},
                {"prompt_tokens", prompt},
                {"steps", tokens}});
    return;
  }
  std::string text =
      fmt::format("decode {:.2f} tokens/s (median of {} steps), {} a step from {}: {:.2f} GB/s",
                  rate, tokens, format_size(bound.bytes), bound.from, given / 1e9);
  if (bound.rate > 0) {
    text += fmt::format(", {:.3f} of the {:.2f} GB/s that it gives", share_of_bound(steps, bound),
                        bound.rate / 1e9);
  }
  print(text + "\n");
}

DType linear_dtype(const ReadPlan& plan) {
  auto linear = std::ranges::find(plan.params, ParamRole::linear,
                                  [](const ParamPlan& p) { return p.param->role; });
  return linear == plan.params.end() ? DType::f32 : linear->format.dtype;
}

void bench_prefill(const BenchOptions& o, std::stop_token stop) {
  apply_log_level(o);
  check_report_path(o);
  Planner planner(model_options(o));
  int64_t tokens = std::min(o.tokens.value_or(512), planner.max_model_len());
  int64_t repeats = o.repeats.value_or(3);
  const RunShape shape = planner.run_shape(tokens, tokens, 1);
  LoadedModel model = load_with_progress(planner, planner.place(shape), o, stop);
  Runner& runner = model.runner();
  std::vector<int32_t> ids = some_ids(tokens, planner.checkpoint().spec().vocab_size);
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeats; ++i) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted");
    Sequence sequence = runner.new_sequence();
    auto start = std::chrono::steady_clock::now();
    runner.logits(runner.prefill(sequence, ids, stop));
    seconds.push_back(seconds_since(start));
  }
  double elements = 0;  // of the matrices that a token meets
  for (const ParamPlan& p : model.read_plan().params) {
    if (p.param->role == ParamRole::linear)
      elements += p.param->share * static_cast<double>(p.param->rows * p.param->cols);
  }
  double each = median(seconds);
  double flops = 2 * elements * static_cast<double>(tokens) / each;
  std::optional<double> peak;  // not known of a GPU
  if (!planner.machine().backend().device().has_own_memory()) {
    peak = peak_operations(planner.options().isa, planner.compute(),
                           linear_dtype(model.read_plan()), planner.machine().pool());
  }
  RunReport("bench prefill", o, model, Json::object()).save(stop);
  if (o.json) {
    print_json({{"tokens", tokens},
                {"tokens_per_second", static_cast<double>(tokens) / each},
                {"flops_per_second", flops},
                {"peak_flops_per_second", peak ? Json(*peak) : Json()}});
    return;
  }
  std::string text = fmt::format(
      "prefill of {} tokens: {:.1f} tokens/s (median of {}), {:.0f} GFLOP/s in linear layers",
      tokens, static_cast<double>(tokens) / each, repeats, flops / 1e9);
  if (peak) text += fmt::format(", of {:.0f} that the multiply-add instruction gives", *peak / 1e9);
  print(text + "\n");
}

}  // namespace

void define_bench(CLI::App& app, std::stop_token stop) {
  CLI::App* verb = app.add_subcommand("bench", "Measure rates and their bounds");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n"
      "  sluice bench disk MODEL\n"
      "  sluice bench load MODEL --quantization fp8 --json\n"
      "  sluice bench decode MODEL --quantization fp8\n"
      "  sluice bench prefill MODEL --tokens 512\n"
      "  sluice bench engine MODEL --max-num-seqs 16");
  auto load = std::make_shared<BenchOptions>();
  CLI::App* load_verb = verb->add_subcommand("load", "Load a model, against the rate of the disk");
  add_model_options(*load_verb, *load, stop);
  load_verb
      ->add_option(
          "--repeats", load->repeats,
          "Load this many times, each beside a bare read of the same files (default: 1, without)")
      ->check(CLI::Range(1, 1000));
  load_verb->callback([load, stop] { bench_load(*load, stop); });

  define_bench_disk(*verb, stop);

  auto decode = std::make_shared<BenchOptions>();
  CLI::App* decode_verb = verb->add_subcommand(
      "decode", "Decode tokens, against the bandwidth of memory, link or disk");
  add_model_options(*decode_verb, *decode, stop);
  decode_verb
      ->add_option("--tokens", decode->tokens,
                   "Take this many steps, each a token of every sequence (default: 32)")
      ->check(CLI::Range(1, 1 << 20));
  decode_verb
      ->add_option("--prompt-tokens", decode->prompt_tokens,
                   "Decode after prompts of this many tokens; the bound is without their keys "
                   "(default: 16)")
      ->check(CLI::Range(1, 1 << 20));
  decode_verb
      ->add_option("--max-num-seqs", decode->max_num_seqs,
                   "Decode this many sequences at once (default: 1)")
      ->check(CLI::Range(1, 4096));
  decode_verb->callback([decode, stop] { bench_decode(*decode, stop); });

  auto prefill = std::make_shared<BenchOptions>();
  CLI::App* prefill_verb = verb->add_subcommand(
      "prefill", "Prefill a prompt, against the rate of the CPU's instructions");
  add_model_options(*prefill_verb, *prefill, stop);
  prefill_verb
      ->add_option("--tokens", prefill->tokens,
                   "Prefill a prompt of this many tokens (default: 512)")
      ->check(CLI::Range(1, 1 << 20));
  prefill_verb
      ->add_option("--repeats", prefill->repeats,
                   "Run this many times, and take the median (default: 3)")
      ->check(CLI::Range(1, 1000));
  prefill_verb->callback([prefill, stop] { bench_prefill(*prefill, stop); });
  define_bench_engine(*verb, stop);
}

}  // namespace sluice::cli
