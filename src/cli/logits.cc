// sluice logits: the logits of every position of given token lists, as a safetensors file.
#include <algorithm>
#include <cstring>

#include "io/checkpoint/safetensors_writer.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/common.h"
#include "src/cli/report_summary.h"
#include "src/cli/verbs.h"
#include "src/engine/engine.h"

namespace sluice::cli {
namespace {

struct LogitsOptions : CommonOptions {
  std::string token_ids;
  std::string out;
};

std::vector<std::vector<int32_t>> read_lists(const std::string& path, int64_t vocab_size,
                                             int64_t max_len, const std::stop_token& stop) {
  Json json = parse_json(read_text_argument(path, "--token-ids", stop), path);
  if (!json.is_array() || json.empty())
    fail(ErrorKind::usage, "--token-ids {}: must be a list of lists of token ids", path);
  if (json[0].is_number()) json = Json::array({json});
  std::vector<std::vector<int32_t>> lists;
  for (const Json& list : json) {
    std::vector<int32_t>& ids = lists.emplace_back();
    for (const Json& id : list) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
        fail(ErrorKind::usage, "--token-ids {}: list {} holds something that is no token id", path,
             lists.size() - 1);
      }
      ids.push_back(id.get<int32_t>());
    }
    if (ids.empty())
      fail(ErrorKind::usage, "--token-ids {}: list {} is empty", path, lists.size() - 1);
    if (std::ssize(ids) > max_len) {
      fail(ErrorKind::usage, "--token-ids {}: list {} has {} tokens, above --max-model-len {}",
           path, lists.size() - 1, ids.size(), max_len);
    }
    check_token_ids(ids, vocab_size);
  }
  return lists;
}

// Every position's logits, row after row into `out`; returns the hash of the last row.
uint64_t compute_logits(Runner& runner, std::span<const int32_t> ids, std::span<std::byte> out,
                        std::stop_token stop) {
  Sequence sequence = runner.new_sequence();
  uint64_t hash = 0;
  std::byte* to = out.data();
  for (size_t at = 0; at < ids.size();) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted");
    auto chunk =
        ids.subspan(at, std::min(static_cast<size_t>(runner.max_logits_rows()), ids.size() - at));
    Tensor logits = runner.logits(runner.step(sequence, chunk, std::ssize(ids)));
    size_t row_bytes = static_cast<size_t>(logits.cols) * sizeof(float);
    for (int64_t r = 0; r < logits.rows; ++r, to += row_bytes)
      std::memcpy(to, logits.row<float>(r), row_bytes);
    hash = hash_logits(logits.rows_from(logits.rows - 1, 1));
    at += chunk.size();
  }
  return hash;
}

void run(const LogitsOptions& o, std::stop_token stop) {
  apply_log_level(o);
  check_report_path(o);
  check_writable("--out", o.out);
  Session session(session_options(o));
  auto lists = read_lists(o.token_ids, session.config().vocab_size, session.max_model_len(), stop);
  int64_t longest = 0;
  uint64_t total = 0;
  for (const auto& ids : lists) {
    longest = std::max(longest, static_cast<int64_t>(ids.size()));
    total += ids.size();
  }

  uint64_t row_bytes = static_cast<uint64_t>(session.config().vocab_size) * sizeof(float);
  RunShape shape = session.run_shape(longest, longest, longest);
  shape.output_bytes = total * row_bytes;
  place_and_load(session, o, shape, stop);

  Buffer results(session.ledger(), Use::activations, "results", shape.output_bytes,
                 Buffer::Touch::now);
  std::byte* at = results.data();
  std::vector<io::TensorToWrite> tensors;
  uint64_t hash = 0;
  for (size_t i = 0; i < lists.size(); ++i) {
    std::span<std::byte> out(at, lists[i].size() * row_bytes);
    hash = compute_logits(session.runner(), lists[i], out, stop);
    tensors.push_back({fmt::format("logits.{}", i),
                       DType::f32,
                       {std::ssize(lists[i]), session.config().vocab_size},
                       out});
    at += out.size();
  }
  io::write_safetensors(o.out, tensors, stop);
  Json report =
      make_report("logits", o, session, {{"load_seconds", session.load_report().seconds}});
  write_report(o, report, stop);
  if (o.json)
    print_json(
        {{"out", o.out}, {"tensors", lists.size()}, {"logits_hash", fmt::format("{:016x}", hash)}});
  log::info("{}\nwrote      {} ({} tensors), last logits {:016x}", summary_text(report), o.out,
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
      "  echo '[[1, 2, 3], [4, 5]]' > ids.json && sluice logits MODEL --token-ids ids.json --out "
      "logits.safetensors");
  add_model_options(*verb, *o);
  verb->add_option("--token-ids", o->token_ids,
                   "Read a JSON list of lists of token ids from this file; - for standard input")
      ->required();
  verb->add_option("--out", o->out, "Write the logits to this safetensors file")->required();
  verb->callback([o, stop] { run(*o, stop); });
}

}  // namespace sluice::cli
