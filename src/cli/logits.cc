// sluice logits: the logits of every position of given token lists, as a safetensors file.
#include <algorithm>
#include <span>
#include <string>

#include "io/checkpoint/safetensors_writer.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/input.h"
#include "src/cli/ranks.h"
#include "src/cli/run_report.h"
#include "src/cli/token_lists.h"
#include "src/cli/verbs.h"
#include "src/engine/engine.h"

namespace sluice::cli {
namespace {

struct LogitsOptions : CommonOptions {
  std::string token_ids;
  std::string out;
};

constexpr size_t kBlock = MiB;  // of the file, written at a time

TokenLists read_lists(const LogitsOptions& o, Planner& planner, const std::stop_token& stop) {
  TokenLists lists = read_token_lists(
      open_input(o.token_ids, "--token-ids", stop), "--token-ids " + o.token_ids,
      static_cast<size_t>(planner.max_model_len()),
      [&](std::span<const int32_t> ids) {
        check_token_ids(ids, planner.checkpoint().spec().vocab_size);
      },
      [&](uint64_t bytes) { planner.machine().hold_input("--token-ids", bytes); });
  planner.machine().hold_input({}, 0);  // from here on they are planned
  return lists;
}

// Writes every position's logits, row after row; returns the hash of the last row.
uint64_t write_logits(Runner& runner, std::span<const int32_t> ids, io::SafetensorsWriter& out,
                      const std::stop_token& stop) {
  Sequence sequence = runner.new_sequence();
  uint64_t hash = 0;
  for (size_t at = 0; at < ids.size();) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted");
    auto chunk =
        ids.subspan(at, std::min(static_cast<size_t>(runner.max_logits_rows()), ids.size() - at));
    Tensor logits = runner.logits(runner.step(sequence, chunk, std::ssize(ids)));
    for (int64_t r = 0; r < logits.rows; ++r)
      out.write(std::as_bytes(std::span(logits.row<float>(r), static_cast<size_t>(logits.cols))));
    hash = hash_logits(logits.rows_from(logits.rows - 1, 1));
    at += chunk.size();
  }
  return hash;
}

void run(const LogitsOptions& o, std::stop_token stop) {
  apply_log_level(o);
  check_report_path(o);
  check_writable("--out", o.out);
  Planner planner(model_options(o));
  const TokenLists lists = read_lists(o, planner, stop);
  auto longest = static_cast<int64_t>(lists.longest());
  RunShape shape = planner.run_shape(longest, longest, longest);
  shape.output_bytes = kBlock;
  shape.text_bytes = lists.bytes();
  LoadedModel model = load_with_progress(planner, planner.place(shape), o, stop);

  Buffer block(planner.machine().ledger(), Use::activations, "results", kBlock, Buffer::Touch::now);
  auto tensor = [&](size_t i) {
    return io::TensorToWrite{fmt::format("logits.{}", i),
                             DType::f32,
                             {std::ssize(lists[i]), planner.checkpoint().spec().vocab_size}};
  };
  io::SafetensorsWriter out(o.out, lists.size(), tensor, block.bytes(), stop);
  uint64_t hash = 0;
  for (size_t i = 0; i < lists.size(); ++i)
    hash = write_logits(model.runner(), lists[i], out, stop);
  out.finish();
  RunReport report("logits", o, model, {{"load_seconds", model.report().seconds}});
  report.save(stop);
  if (o.json)
    print_json(
        {{"out", o.out}, {"tensors", lists.size()}, {"logits_hash", fmt::format("{:016x}", hash)}});
  log::info("{}\nwrote      {} ({} tensors), last logits {:016x}", report.summary(), o.out,
            lists.size(), hash);
}

}  // namespace

void define_logits(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<LogitsOptions>();
  CLI::App* verb =
      app.add_subcommand("logits", "Write the logits of given token lists to a safetensors file");
  verb->footer(
      "The file holds logits.0, logits.1, ...: float32 [tokens, vocab_size].\n"
      "Example:\n"
      "  echo '[[1, 2, 3], [4, 5]]' > ids.json\n"
      "  sluice logits MODEL --token-ids ids.json --out logits.safetensors");
  add_model_options(*verb, *o, stop);
  verb->add_option("--token-ids", o->token_ids,
                   "Read a JSON list of lists of token ids from this file; - for standard input")
      ->required();
  verb->add_option("--out", o->out, "Write the logits to this safetensors file")
      ->type_name("FILE")
      ->required();
  verb->callback([o, stop] { on_ranks(*o, stop, true, [&] { run(*o, stop); }); });
}

}  // namespace sluice::cli
