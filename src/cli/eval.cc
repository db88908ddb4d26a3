// sluice eval: perplexity of a text.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/common.h"
#include "src/cli/input.h"
#include "src/cli/ranks.h"
#include "src/cli/run_report.h"
#include "src/cli/verbs.h"
#include "src/engine/perplexity.h"
#include "src/engine/request.h"

namespace sluice::cli {
namespace {

struct EvalOptions : CommonOptions {
  std::string text;
};

void run(const EvalOptions& o, std::stop_token stop) {
  apply_log_level(o);
  check_report_path(o);
  Planner planner(model_options(o));
  const auto longest = static_cast<size_t>(planner.max_model_len());
  if (longest < 2)
    fail(ErrorKind::usage, "--max-model-len {}: a window needs 2 tokens, one to predict the other",
         longest);
  TextIds text(planner, open_input(o.text, "--text", stop));
  text.read(longest);  // a shorter text plans for its own length
  size_t window = std::min(longest, text.ids().size());
  auto rows = static_cast<int64_t>(window);
  RunShape shape = planner.run_shape(rows, rows, rows);
  shape.text_bytes = TextIds::bytes(window);
  LoadedModel model = load_with_progress(planner, planner.place(shape), o, stop);

  size_t given = 0;  // ids of the window before
  Perplexity result = evaluate(
      model.runner(),
      [&] {
        text.drop(given);
        text.read(longest);
        given = std::min(longest, text.ids().size());
        auto ids = text.ids().first(given);
        check_token_ids(ids, planner.checkpoint().spec().vocab_size);
        return ids;
      },
      stop);
  RunReport report("eval", o, model, {{"load_seconds", model.report().seconds}});
  report.save(stop);
  if (o.json) {
    const Json figures{{"perplexity", result.perplexity}, {"tokens", result.tokens}};
    const MemoryReport& memory = report.memory();
    print_json([&](JsonWriter& json) {
      json.object(figures, {{"memory", [&] { write_json(json, memory); }}});
    });
  } else {
    print(fmt::format("perplexity {:.4f} over {} tokens\n", result.perplexity, result.tokens));
  }
  log::info("{}", report.summary());
}

}  // namespace

void define_eval(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<EvalOptions>();
  CLI::App* verb = app.add_subcommand("eval", "Compute the perplexity of a text");
  verb->footer(
      "The text may have any length. It is encoded with the tokenizer's special tokens\n"
      "and cut into windows of --max-model-len tokens that do not overlap. In each\n"
      "window every token after the first is predicted from the tokens before it.\n"
      "Example:\n"
      "  sluice eval MODEL --text validation.txt --quantization fp8 --json");
  add_model_options(*verb, *o, stop);
  verb->add_option("--text", o->text, "Read the text from this file; - for standard input")
      ->required();
  verb->callback([o, stop] { on_ranks(*o, stop, true, [&] { run(*o, stop); }); });
}

}  // namespace sluice::cli
