// sluice plan: what a run would need, from headers alone.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/verbs.h"

namespace sluice::cli {
namespace {

struct PlanOptions : CommonOptions {
  int64_t prompt_tokens = 512;
  int64_t max_tokens = 128;
};

// Until they are measured on this machine; the output says that they are assumed.
constexpr double kAssumedDiskRate = 1.5e9;   // bytes/s
constexpr double kAssumedMemoryRate = 20e9;  // bytes/s

Json uses_json(const MemoryPlan& m) {
  return {{"runtime", m.runtime},   {"weights", m.weights},         {"staging", m.staging},
          {"kv_cache", m.kv_cache}, {"activations", m.activations}, {"workspace", m.workspace},
          {"kernel", m.kernel}};
}

Json plan_json(const Session& session, const MemoryPlan& memory, const MemoryPlan& smallest,
               const ReadPlan& read) {
  Json units = Json::array();
  for (const UnitPlan& u : read.units) {
    units.push_back({{"name", u.name},
                     {"place", "host"},
                     {"bytes", u.storage_bytes},
                     {"read_bytes", u.read_bytes}});
  }
  return {{"fits", memory.needed() <= session.budget()},
          {"budget", session.budget()},
          {"peak_bytes", {{"host", memory.peak()}}},
          {"needed_bytes", memory.needed()},
          {"load_peak_bytes", memory.load_peak()},
          {"run_peak_bytes", memory.run_peak()},
          {"uses", uses_json(memory)},
          {"kv_blocks", memory.kv_blocks},
          {"chunk_rows", memory.chunk_rows},
          {"read_bytes", read.read_bytes()},
          {"bytes_per_sweep", 0},  // resident weights are not streamed again
          {"load_seconds", static_cast<double>(read.read_bytes()) / kAssumedDiskRate},
          {"tokens_per_second",
           kAssumedMemoryRate / static_cast<double>(std::max<uint64_t>(read.bytes_per_token(), 1))},
          {"assumed",
           {{"disk_bytes_per_second", kAssumedDiskRate},
            {"memory_bytes_per_second", kAssumedMemoryRate}}},
          {"smallest", {{"memory", smallest.needed() + MiB}}},
          {"ignored_tensors", read.ignored},
          {"units", units}};
}

std::string plan_text(const Session& session, const Json& plan) {
  auto size = [](const Json& bytes) { return format_size(bytes.get<uint64_t>()); };
  bool fits = plan.at("fits").get<bool>();
  std::string text = fmt::format("{}: {} of {} needed\n", fits ? "fits" : "does not fit",
                                 size(plan.at("needed_bytes")), format_size(session.budget()));
  for (const auto& [use, bytes] : plan.at("uses").items())
    text += fmt::format("  {:<12} {:>10}\n", use, size(bytes));
  text += fmt::format("peak         {} while loading, {} while running\n",
                      size(plan.at("load_peak_bytes")), size(plan.at("run_peak_bytes")));
  text += fmt::format(
      "smallest     --memory {}MiB\n",
      ceil_div(plan.at("smallest").at("memory").get<int64_t>(), static_cast<int64_t>(MiB)));
  text += fmt::format("load         {} to read, about {:.1f} s at an assumed {:.1f} GB/s\n",
                      size(plan.at("read_bytes")), plan.at("load_seconds").get<double>(),
                      kAssumedDiskRate / 1e9);
  text += fmt::format(
      "decode       about {:.1f} tokens/s at an assumed {:.0f} GB/s of memory bandwidth\n",
      plan.at("tokens_per_second").get<double>(), kAssumedMemoryRate / 1e9);
  text += fmt::format("{:<28} {:>10} {:>10}\n", "unit", "in memory", "on disk");
  for (const Json& u : plan.at("units")) {
    text += fmt::format("{:<28} {:>10} {:>10}\n", u.at("name").get<std::string>(),
                        size(u.at("bytes")), size(u.at("read_bytes")));
  }
  if (!plan.at("ignored_tensors").empty()) {
    text +=
        fmt::format("not read     {}\n",
                    fmt::join(plan.at("ignored_tensors").get<std::vector<std::string>>(), ", "));
  }
  return text;
}

void run(const PlanOptions& o) {
  apply_log_level(o);
  check_report_path(o);
  Session session(session_options(o));
  int64_t tokens = std::min(o.prompt_tokens + o.max_tokens, session.max_model_len());
  RunShape shape = session.run_shape(tokens, std::min(o.prompt_tokens, tokens), 1);
  MemoryPlan memory = session.predict(shape);
  MemoryPlan smallest = session.smallest(shape);
  ReadPlan read =
      compile(session.model(), session.index(), session.options().quantize, memory.effort.staging);
  Json plan = plan_json(session, memory, smallest, read);
  write_report(o, plan);
  if (o.json) {
    print_json(plan);
  } else {
    print(plan_text(session, plan));
  }
  if (!plan.at("fits").get<bool>()) {
    fail(ErrorKind::no_fit, "the model needs {}, but the budget is {}",
         format_size(memory.needed()), format_size(session.budget()));
  }
}

}  // namespace

void define_plan(CLI::App& app, std::stop_token) {
  auto o = std::make_shared<PlanOptions>();
  CLI::App* verb = app.add_subcommand("plan", "Say what a run would need, without reading weights");
  verb->footer(
      "Exit status 4 when the model does not fit.\n"
      "Examples:\n"
      "  sluice plan MODEL --memory 8GiB\n"
      "  sluice plan MODEL --quantization fp8 --json");
  add_model_options(*verb, *o);
  verb->add_option("--prompt-tokens", o->prompt_tokens, "length of the prompt")
      ->check(CLI::Range(int64_t{1}, kMaxPositions))
      ->capture_default_str();
  verb->add_option("-n,--max-tokens", o->max_tokens, "tokens to generate")
      ->check(CLI::Range(int64_t{0}, kMaxPositions))
      ->capture_default_str();
  verb->callback([o] { run(*o); });
}

}  // namespace sluice::cli
