// sluice plan: what a run would need, from headers alone.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/generation_options.h"
#include "src/cli/grammar_options.h"
#include "src/cli/ranks.h"
#include "src/cli/verbs.h"
#include "src/engine/checkpoint.h"
#include "src/plan/rank_division.h"
#include "src/plan/units_json.h"

namespace sluice::cli {
namespace {

struct PlanOptions : CommonOptions {
  int64_t prompt_tokens = 512;
  int64_t max_tokens = 128;
  int64_t max_num_seqs = 1;
  // Memories of ranks that are to divide the model, and the way between any two.
  std::vector<std::string> rank_memory;
  std::optional<std::string> rank_link;  // bytes a second
  std::optional<double> rank_latency;    // [microseconds]
  GenerationOptions generation;
  GrammarOptions grammar;
};

Json uses_json(const MemoryPlan& m) {
  return {{"runtime", m.runtime},     {"weights", m.weights},  {"staging", m.staging},
          {"kv_cache", m.kv_cache},   {"swap", m.swap},        {"activations", m.activations},
          {"workspace", m.workspace}, {"stream", m.stream},    {"spill_index", m.spill},
          {"kernel", m.kernel},       {"draft_model", m.draft}};
}

Json rates_json(const Rates& rates) {
  Json json;
  auto add = [&](const std::string& name, const Rate& rate) {
    json[name + "_bytes_per_second"] = rate.bytes_per_second;
    json[name + "_source"] = rate_source_name(rate.source);
  };
  add("disk", rates.disk);
  add("sweep", rates.sweep);
  add("memory", rates.memory);
  add("link", rates.link);
  add("host", rates.host);
  return json;
}

// Rows of a step up to which the CPU beside a device multiplies what lies in host memory, the most
// of each kind; 0: nothing.
Json cpu_rows_json(const ReadPlan& read) {
  int64_t dense = 0, experts = 0;
  for (const ParamPlan& p : read.params) {
    if (!p.is_for_host()) continue;
    int64_t& most = p.param->is_routed() ? experts : dense;
    most = std::max(most, p.host_rows);
  }
  return {{"dense", dense}, {"experts", experts}};
}

const char* source_text(const Json& source) {
  return source == "stated"                              ? "as stated"
         : source == rate_source_name(RateSource::runs)  ? "seen in recent runs"
         : source == rate_source_name(RateSource::bench) ? "measured by bench disk"
                                                         : "assumed";
}

// "2.2 GB/s, seen in recent runs".
std::string rate_text(const Json& rates, const std::string& name) {
  return fmt::format("{:.1f} GB/s, {}", rates.at(name + "_bytes_per_second").get<double>() / 1e9,
                     source_text(rates.at(name + "_source")));
}

// The layers of each stage of a pipeline, and what the checkpoint has for it; null without one.
Json stages_json(const Stage& stage) {
  Json stages;
  for (const StageLayers& of : stage.all)
    stages.push_back({{"first_layer", of.layers.begin},
                      {"layers", of.layers.count},
                      {"stored_bytes", of.bytes}});
  return stages;
}

// The work that ranks are to divide: a plan with everything in memory.
RankWork rank_work(Planner& planner, const RunShape& shape) {
  const MemoryPlan all = planner.plan_within(shape, UINT64_MAX, planner.options().quantize);
  const DecoderSpec& spec = planner.checkpoint().spec();
  const uint64_t divided = all.all_weights() + all.all_kv_cache();
  RankWork work{.weights = all.all_weights(),
                .kv_cache = all.all_kv_cache(),
                .whole = all.needed() + all.device.peak() - divided,
                .layers = std::ssize(spec.layers),
                .row_bytes = static_cast<uint64_t>(spec.hidden_size) * sizeof(float),
                .logits_bytes = static_cast<uint64_t>(spec.vocab_size) * sizeof(float)};
  work.refusal = [&planner](int ranks) {
    return planner.checkpoint().refusal_of(ranks, planner.options().needs_head);
  };
  return work;
}

// The way between ranks: as stated, else as a run on ranks has measured it.
RankLink rank_link(const PlanOptions& o, const Rates& rates) {
  RankLink link{rates.ranks.bytes_per_second, 1 / rates.messages.bytes_per_second};
  if (o.rank_link)
    link.bytes_per_second =
        static_cast<double>(std::max<uint64_t>(parse_size("--rank-link", *o.rank_link), 1));
  if (o.rank_latency) link.latency = *o.rank_latency * 1e-6;
  return link;
}

std::string_view source_of(bool is_stated, const Rate& rate) {
  return is_stated ? "stated" : rate_source_name(rate.source);
}

// The ways in which ranks with the memories that are asked about can divide the model, the fastest
// first; null where nothing is asked.
Json divisions_json(Planner& planner, const RunShape& shape, const PlanOptions& o) {
  if (o.rank_memory.empty()) return nullptr;
  if (planner.rank().size > 1 || o.pipeline_parallel_size > 1)
    fail(ErrorKind::usage,
         "--rank-memory: chooses --tensor-parallel-size and --pipeline-parallel-size itself; leave "
         "them out");
  std::vector<uint64_t> memories;
  for (const std::string& memory : o.rank_memory)
    memories.push_back(parse_size("--rank-memory", memory));
  const Rates rates = planner.rates().known();
  const RankLink link = rank_link(o, rates);
  const std::vector<RankDivision> divisions =
      rank_divisions(rank_work(planner, shape), memories, link, rates);
  Json list = Json::array();
  for (const RankDivision& d : divisions) {
    const bool can_be = d.refusal.empty();
    list.push_back({{"tensor_parallel_size", d.tensor_parallel_size},
                    {"pipeline_parallel_size", d.pipeline_parallel_size},
                    {"tokens_per_second", can_be ? Json(1 / d.seconds()) : Json()},
                    {"memory_seconds", d.memory},
                    {"disk_seconds", d.disk},
                    {"link_seconds", d.link},
                    {"refusal", can_be ? Json() : Json(d.refusal)}});
  }
  return {{"why", why_fastest(divisions)},
          {"link_bytes_per_second", link.bytes_per_second},
          {"link_bytes_source", source_of(o.rank_link.has_value(), rates.ranks)},
          {"latency_seconds", link.latency},
          {"latency_source", source_of(o.rank_latency.has_value(), rates.messages)},
          {"all", std::move(list)}};
}

// Returns whether there is a matrix that it quantizes: those that are stored quantized stay.
bool changes_any(const ReadPlan& read, const QuantizeRequest& quantize) {
  return std::ranges::any_of(read.tensors, [&](const TensorPlan& t) {
    const Param& param = *read.params[t.param].param;
    return !t.matrix->kept &&
           scheme_of(quantize, param, param.pieces[t.piece]).group != ScaleGroup::none;
  });
}

// Lists other budgets and schemes, with what they would bring.
Json would_help(Planner& planner, const RunShape& shape, const MemoryPlan& now,
                const ReadPlan& read) {
  Json list = Json::array();
  if (!now.streams()) return list;
  auto consider = [&](const std::string& change, uint64_t budget, const QuantizeRequest& quantize) {
    try {
      const MemoryPlan memory = planner.plan_within(shape, budget, quantize);
      list.push_back({{"change", change},
                      {"tokens_per_second", planner.tokens_per_second(memory, quantize)},
                      {"bytes_per_sweep", memory.sweep_bytes},
                      {"needed_bytes", memory.needed()}});
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::no_fit) throw;
    }
  };
  const QuantizeRequest& asked = planner.options().quantize;
  for (int percent : {125, 150, 200}) {
    if (!now.reads_disk()) break;
    uint64_t budget = planner.machine().budget() / 100 * static_cast<uint64_t>(percent);
    consider(fmt::format("--memory {}MiB", budget / MiB), budget, asked);
  }
  if (now.reads_disk()) {
    const uint64_t all = planner.plan_within(shape, UINT64_MAX, asked).needed() + 2 * MiB;
    consider(fmt::format("--memory {}MiB", all / MiB), all, asked);
  }
  if (asked.scheme.group == ScaleGroup::none && asked.rules.empty()) {
    QuantizeRequest fp8 = asked;
    fp8.scheme = *find_quant_scheme("fp8");
    fp8.to_bf16 = false;
    if (changes_any(read, fp8)) consider("--quantization fp8", planner.machine().budget(), fp8);
  }
  return list;
}

// Keeps the entries that are noticeably faster than the one before, the slowest first. Of equally
// fast ones the smallest stays.
Json only_faster(Json list, double now) {
  constexpr double kNoticeable = 1.01;
  auto rank = [](const Json& change) {
    return std::pair(change.at("tokens_per_second").get<double>(),
                     change.at("needed_bytes").get<uint64_t>());
  };
  std::stable_sort(list.begin(), list.end(),
                   [&](const Json& a, const Json& b) { return rank(a) < rank(b); });
  Json faster = Json::array();
  for (Json& change : list) {
    const double rate = change.at("tokens_per_second").get<double>();
    if (rate < now * kNoticeable) continue;
    now = rate;
    faster.push_back(std::move(change));
  }
  return faster;
}

// The cache of experts; null without one.
Json experts_json(const ReadPlan& read) {
  if (read.experts.empty()) return nullptr;
  return {{"experts", read.experts.size()},
          {"slots", read.expert_slots},
          {"slot_bytes", read.expert_slot_bytes},
          {"per_token", read.experts_of_step()},
          {"hit_rate", 1 - read.expert_misses()},
          {"hit_rate_source",
           rate_source_name(read.knows_reuse() ? RateSource::runs : RateSource::assumed)}};
}

Json plan_json(Planner& planner, const RunShape& shape, const MemoryPlan& memory,
               const MemoryPlan& smallest, const ReadPlan& read, Json divisions) {
  const Rates rates = planner.rates().known();
  const double speed = planner.tokens_per_second(memory, planner.options().quantize);
  const DevicePlan& device = memory.device;
  const uint64_t least =
      smallest.needed() + MiB;  // a process is not the same to the page each time
  const bool fits = planner.fits(memory);
  return {{"fits", fits},
          {"ranks", planner.rank().size},
          {"pipeline", stages_json(planner.checkpoint().model().root->stage())},
          {"divisions", std::move(divisions)},
          {"budget", planner.machine().budget()},
          {"device_budget", planner.machine().device_budget()},
          {"peak_bytes", {{"host", memory.peak()}, {"device", device.peak()}}},
          {"needed_bytes",
           std::max(memory.needed(), fits ? std::min(least, planner.machine().budget()) : least)},
          {"load_peak_bytes", memory.load_peak()},
          {"run_peak_bytes", memory.run_peak()},
          {"uses", uses_json(memory)},
          {"device_uses",
           {{"weights", device.weights},
            {"staging", device.staging},
            {"kv_cache", device.kv_cache},
            {"activations", device.activations},
            {"workspace", device.workspace},
            {"draft_model", device.draft}}},
          {"max_model_len", planner.max_model_len()},
          {"kv_cache", kv_cache_json(planner)},
          {"kv_blocks", memory.kv_blocks},
          {"swap_blocks", {{"host", memory.swap_blocks}, {"disk", memory.disk_blocks}}},
          {"chunk_rows", memory.chunk_rows},
          {"read_bytes", read.read_bytes()},
          {"bytes_per_sweep", memory.sweep_bytes},
          {"bytes_of_first_sweep", memory.first_sweep_bytes},
          {"host_bytes_per_sweep", memory.host_sweep_bytes},
          {"experts", experts_json(read)},
          {"cpu_bytes_per_sweep", memory.host_multiplied_bytes},
          {"cpu_rows", cpu_rows_json(read)},
          {"load_seconds", predict_load_seconds(read, rates)},
          {"tokens_per_second", speed},
          {"rates", rates_json(rates)},
          {"read_shape", read_shape_json(planner.rates().read_shape())},
          {"would_help", only_faster(would_help(planner, shape, memory, read), speed)},
          {"smallest",
           {{"memory", fits ? std::min(least, planner.machine().budget()) : least},
            {"device_memory", smallest.device.peak()}}},
          {"ignored_tensors", read.ignored},
          {"units", units_json(read, shape, device.peak() > 0 ? "device" : "host")}};
}

// With a column for host memory where that is not what the device computes with.
std::string units_text(const Json& units, bool device) {
  auto line = [&](std::string_view name, std::string_view place, std::string_view bytes,
                  std::string_view host, std::string_view read) {
    return device
               ? fmt::format("{:<28} {:<16} {:>10} {:>10} {:>14}\n", name, place, bytes, host, read)
               : fmt::format("{:<28} {:<10} {:>10} {:>14}\n", name, place, bytes, read);
  };
  std::string text =
      line("unit", "place", device ? "on device" : "in memory", "in host", "read per pass");
  for (const Json& u : units) {
    auto size = [&](const char* key) { return format_size(u.at(key).get<uint64_t>()); };
    text += line(u.at("name").get<std::string>(), u.at("place").get<std::string>(), size("bytes"),
                 size("host_bytes"), size("streamed_bytes"));
  }
  return text;
}

std::string size_text(const Json& bytes) { return format_size(bytes.get<uint64_t>()); }

// Describes the memory that is needed, and each use of it.
std::string needs_text(const Planner& planner, const Json& plan) {
  auto mib = [&](const char* which) {
    return ceil_div(plan.at("smallest").at(which).get<int64_t>(), static_cast<int64_t>(MiB));
  };
  std::string text =
      fmt::format("{}: needs {} of {}\nsmallest     --memory {}MiB",
                  plan.at("fits").get<bool>() ? "fits" : "does not fit",
                  format_need(plan.at("needed_bytes").get<uint64_t>(), planner.machine().budget()),
                  format_size(planner.machine().budget()), mib("memory"));
  text += planner.machine().device_budget() > 0
              ? fmt::format(" --device-memory {}MiB\n", mib("device_memory"))
              : "\n";
  if (planner.options().longest_model_len)
    text += fmt::format("longest      {} tokens a sequence\n", planner.max_model_len());
  const auto add_uses = [&](const char* uses) {
    for (const auto& [use, bytes] : plan.at(uses).items())
      if (bytes != 0) text += fmt::format("  {:<12} {:>10}\n", use, size_text(bytes));
  };
  add_uses("uses");
  if (planner.machine().device_budget() > 0) {
    text +=
        fmt::format("device       {} of {}: {}\n", size_text(plan.at("peak_bytes").at("device")),
                    format_size(planner.machine().device_budget()),
                    planner.machine().backend().device().info().name);
    add_uses("device_uses");
  }
  if (const Json& scales = plan.at("kv_cache").at("scales"); !scales.is_null())
    text += fmt::format("KV scales    {}\n",
                        scales == "checkpoint" ? "the checkpoint's" : "per token and head");
  return text + fmt::format("peak         {} while loading, {} while running\n",
                            size_text(plan.at("load_peak_bytes")),
                            size_text(plan.at("run_peak_bytes")));
}

std::string stages_text(const Json& stages) {
  std::string text;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Json& stage = stages.at(i);
    const auto first = stage.at("first_layer").get<int64_t>();
    text += fmt::format("{:<12} stage {}: layers {} to {}, {}\n", i == 0 ? "pipeline" : "", i,
                        first, first + stage.at("layers").get<int64_t>() - 1,
                        size_text(stage.at("stored_bytes")));
  }
  return text;
}

std::string divisions_text(const Json& divisions) {
  if (divisions.is_null()) return {};
  const Json& all = divisions.at("all");
  const auto size = [](const Json& d, const char* of) { return d.at(of).get<int>(); };
  std::string text = fmt::format(
      "ranks        --tensor-parallel-size {} --pipeline-parallel-size {}: {}\n"
      "  {:<10} {:>9} {:>12} {:>12} {:>12}\n",
      size(all.front(), "tensor_parallel_size"), size(all.front(), "pipeline_parallel_size"),
      divisions.at("why").get<std::string>(), "division", "tokens/s", "memory", "disk", "messages");
  for (const Json& d : all) {
    const std::string name =
        fmt::format("{} x {}", size(d, "tensor_parallel_size"), size(d, "pipeline_parallel_size"));
    if (!d.at("refusal").is_null()) {
      text += fmt::format("  {:<10} {}\n", name, d.at("refusal").get<std::string>());
      continue;
    }
    const auto time = [&](const char* of) {
      return fmt::format("{:.1f} ms", 1e3 * d.at(of).get<double>());
    };
    text += fmt::format("  {:<10} {:>9.2f} {:>12} {:>12} {:>12}\n", name,
                        d.at("tokens_per_second").get<double>(), time("memory_seconds"),
                        time("disk_seconds"), time("link_seconds"));
  }
  return text + fmt::format("  between ranks {:.2f} GB/s ({}), {:.0f} us a message ({})\n",
                            1e-9 * divisions.at("link_bytes_per_second").get<double>(),
                            source_text(divisions.at("link_bytes_source")),
                            1e6 * divisions.at("latency_seconds").get<double>(),
                            source_text(divisions.at("latency_source")));
}

std::string experts_text(const Json& experts) {
  if (experts.is_null()) return {};
  const auto slots = experts.at("slots").get<uint64_t>();
  const auto wanted = experts.at("per_token").get<uint64_t>();
  std::string text =
      fmt::format("experts      {} of {} in a cache, {} each; a hit rate of {:.0f} % is {}\n",
                  slots, experts.at("experts").get<uint64_t>(), size_text(experts.at("slot_bytes")),
                  100 * experts.at("hit_rate").get<double>(),
                  experts.at("hit_rate_source") == rate_source_name(RateSource::runs)
                      ? "predicted from an earlier run"
                      : "assumed (all are chosen alike)");
  if (slots < wanted) {
    text += fmt::format(
        "             A token uses {}: what it reads is mostly gone before the next one wants "
        "it.\n",
        wanted);
  }
  return text;
}

// Tells the predicted speed, and what would make it faster.
std::string speed_text(const Json& plan) {
  const Json& rates = plan.at("rates");
  auto rate = [&](const char* what) { return rate_text(rates, what); };
  const Json& read = plan.at("read_shape");
  std::string text = fmt::format(
      "load         {} to read, about {:.1f} s (disk: {})\n"
      "             in reads of {}, {} at once ({})\n"
      "decode       about {:.2f} tokens/s (memory: {})\n",
      size_text(plan.at("read_bytes")), plan.at("load_seconds").get<double>(), rate("disk"),
      size_text(read.at("request_bytes")), read.at("depth").get<int>(),
      source_text(read.at("source")), plan.at("tokens_per_second").get<double>(), rate("memory"));
  if (const Json& disk = plan.at("bytes_per_sweep"); disk.get<uint64_t>() > 0)
    text += fmt::format("             {} from disk per token (disk: {})\n", size_text(disk),
                        rate("sweep"));
  text += experts_text(plan.at("experts"));
  if (const Json& host = plan.at("host_bytes_per_sweep"); host.get<uint64_t>() > 0)
    text += fmt::format("             {} from host memory per token (link: {})\n", size_text(host),
                        rate("link"));
  if (const Json& cpu = plan.at("cpu_bytes_per_sweep"); cpu.get<uint64_t>() > 0) {
    const Json& rows = plan.at("cpu_rows");
    text += fmt::format("             {} multiplied by the CPU per token (host: {})\n",
                        size_text(cpu), rate("host"));
    for (const char* kind : {"dense", "experts"}) {
      if (const int64_t most = rows.at(kind).get<int64_t>(); most > 0)
        text +=
            fmt::format("             {}: steps of more than {} rows go to the GPU\n", kind, most);
    }
  }
  for (const Json& help : plan.at("would_help"))
    text += fmt::format("  {:<20} {:>8.2f} tokens/s, {} from disk per token\n",
                        help.at("change").get<std::string>(),
                        help.at("tokens_per_second").get<double>(),
                        size_text(help.at("bytes_per_sweep")));
  if (rates.at("disk_source") == rate_source_name(RateSource::assumed))
    text += "The first run, or `sluice bench disk MODEL`, replaces the assumed rates.\n";
  return text;
}

std::string plan_text(const Planner& planner, const Json& plan) {
  std::string text = needs_text(planner, plan) + stages_text(plan.at("pipeline")) +
                     divisions_text(plan.at("divisions")) + speed_text(plan) +
                     units_text(plan.at("units"), planner.machine().device_budget() > 0);
  if (!plan.at("ignored_tensors").empty()) {
    text += lines_for_terminal(
        fmt::format("not read     {}\n",
                    fmt::join(plan.at("ignored_tensors").get<std::vector<std::string>>(), ", ")));
  }
  return text;
}

void run(const PlanOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  check_report_path(o);
  check_speculation(o.generation);
  ModelOptions options = model_options(o);
  options.prompt_cache = !o.generation.prompt_cache.empty();
  options.needs_head = false;
  Planner planner(std::move(options));
  std::unique_ptr<Planner> draft = open_draft(planner, o.generation);
  // --max-model-len auto: as long as fits.
  bool longest = planner.options().longest_model_len;
  int64_t tokens = longest ? planner.max_model_len()
                           : std::min(o.prompt_tokens + o.max_tokens, planner.max_model_len());
  const int64_t prompt = std::min(o.prompt_tokens, tokens);
  if (prompt < o.prompt_tokens)
    log::warning("a sequence may have {} tokens: the plan is for a prompt of so many, not of {}",
                 tokens, o.prompt_tokens);
  Request request;
  request.max_tokens = tokens - prompt;
  request.sampling = sampling_params(o.generation.sampling);
  request.sampling.grammar = find_grammar(o.grammar, planner.checkpoint(), stop);
  RunShapes shapes = run_shapes(planner, o.generation, request, prompt, o.max_num_seqs);
  if (draft) {
    const RunShape own = DraftModel::shape(*draft, tokens, prompt);
    shapes.least = draft->least_beside(own, shapes.least);
    draft->place_beside(planner, own, shapes.shape);
  }
  const RunShape& shape = shapes.shape;
  MemoryPlan memory = planner.predict(shape);
  MemoryPlan smallest = planner.smallest(shapes.least);
  ReadPlan read = planner.read_plan_for(memory, planner.options().quantize);
  Json plan = plan_json(planner, shape, memory, smallest, read, divisions_json(planner, shape, o));
  write_report(o, [&](JsonWriter& json) { json.value(plan); }, stop);
  if (o.json) {
    print_json(plan);
  } else {
    print(plan_text(planner, plan));
  }
  if (!plan.at("fits").get<bool>()) {
    if (memory.needed() > planner.machine().budget())
      fail(ErrorKind::no_fit, "the model needs {}, but the budget is {}",
           format_need(plan.at("needed_bytes").get<uint64_t>(), planner.machine().budget()),
           format_size(planner.machine().budget()));
    fail(ErrorKind::no_fit, "the model needs {} of the device, but --device-memory is {}",
         format_need(memory.device.peak(), planner.machine().device_budget()),
         format_size(planner.machine().device_budget()));
  }
}

}  // namespace

void define_plan(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<PlanOptions>();
  CLI::App* verb =
      app.add_subcommand("plan", "Predict the needs of a run, without reading weights");
  verb->footer(
      "Exit status 4 when the model does not fit.\n"
      "Examples:\n"
      "  sluice plan MODEL --memory 8GiB\n"
      "  sluice plan MODEL --quantization fp8 --json\n"
      "  sluice plan MODEL --rank-memory 24GiB,8GiB --rank-link 1.2GB --rank-latency 50");
  add_model_options(*verb, *o, stop);
  verb->add_option("--prompt-tokens", o->prompt_tokens, "Plan for a prompt of this many tokens")
      ->check(CLI::Range(int64_t{1}, kMaxPositions));
  verb->add_option("-n,--max-tokens", o->max_tokens, "Plan for this many generated tokens")
      ->check(CLI::Range(int64_t{0}, kMaxPositions));
  add_generation_options(*verb, o->generation);
  add_grammar_options(*verb, o->grammar);
  verb->add_option("--max-num-seqs", o->max_num_seqs,
                   "Plan for this many sequences of that length at once")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  verb->add_option("--rank-memory", o->rank_memory,
                   "Choose how several ranks divide the model, each on a host or a socket of its "
                   "own, by the memory of each")
      ->type_name("SIZE,...")
      ->delimiter(',');
  verb->add_option(
          "--rank-link", o->rank_link,
          "Bytes that ranks exchange in a second (default: as runs on ranks have measured)")
      ->type_name("SIZE");
  verb->add_option(
          "--rank-latency", o->rank_latency,
          "Time of the shortest message between ranks [microseconds] (default: as measured)")
      ->check(CLI::Range(0.0, 1e7));
  verb->callback([o, stop] {
    if (const int ranks = asked_ranks(*o); ranks > 1)
      o->ranks = std::make_shared<PlannedGroup>(ranks);
    run(*o, stop);
  });
}

}  // namespace sluice::cli
