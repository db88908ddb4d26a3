// sluice shard: cuts a checkpoint for so many ranks, each of which then reads its own files alone.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/gguf.h"
#include "io/model_directory.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/verbs.h"
#include "src/engine/checkpoint.h"
#include "src/load/output_directory.h"
#include "src/load/sharded_state.h"
#include "src/memory/buffer.h"
#include "src/models/gguf/gguf.h"
#include "src/models/source.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

struct ShardOptions : CommonOptions {
  std::string out;
};

constexpr size_t kBlock = 8 * MiB;  // read and written at a time
constexpr const char* kConfig = "config.json";
constexpr uint64_t kMostConfigBytes = 16 * MiB;

Checkpoint part_of(const ShardOptions& o, int rank) {
  const Rank of{rank, o.tensor_parallel_size};
  return Checkpoint({o.model_path, {}, o.outside_links()}, true, of, false, {});
}

// Two runs with the same one write the same files: what one that was killed has left is written
// over.
std::string request_of(const ShardOptions& o) {
  return fmt::format("shard {} {}", o.tensor_parallel_size, part_of(o, 0).index().identity());
}

void run(const ShardOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  const bool is_gguf = io::is_gguf(o.model_path);
  if (!is_gguf && !fs::is_directory(o.model_path))
    open_model({o.model_path, {}, o.outside_links()});  // says what it must be
  Ledger ledger;
  Buffer block(ledger, Use::staging, "files", kBlock, Buffer::Touch::lazily);
  const int ranks = o.tensor_parallel_size;
  std::optional<io::GgufCheckpoint> gguf;
  if (is_gguf) gguf = open_gguf_parts({o.model_path, o.outside_links()});
  const io::ModelDirectory directory(o.model_path, o.outside_links());
  const std::string config = is_gguf ? "" : directory.read(kConfig, kMostConfigBytes);
  std::vector<OtherFile> others;
  if (!is_gguf) others = other_files(directory);
  try {
    OutputDirectory out(o.out, o.model_path, request_of(o));
    uint64_t bytes = 0;
    for (int r = 0; r < ranks; ++r) {
      Checkpoint checkpoint = part_of(o, r);
      const fs::path file = out.path() / sharded_state_file(r, is_gguf);
      write_sharded_state(checkpoint.model(), checkpoint.index(), gguf ? &*gguf : nullptr, file,
                          block.bytes(), stop);
      bytes += fs::file_size(file);
      log::info("rank {} of {} is written", r, ranks);
    }
    if (!is_gguf) copy_other_files(others, out, config, block.bytes());
    out.publish();
    if (o.json) print_json({{"out", o.out}, {"ranks", ranks}, {"bytes", bytes}});
  } catch (const fs::filesystem_error& e) {
    fail(ErrorKind::runtime, "{}: cannot be written: {}", o.out, e.code().message());
  }
}

}  // namespace

void define_shard(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<ShardOptions>();
  CLI::App* verb =
      app.add_subcommand("shard", "Cut a checkpoint for several ranks, which read their own files");
  verb->footer(
      "The files have the names of vLLM's sharded_state,\n"
      "model-rank-0-part-0.safetensors.\n"
      "Example:\n"
      "  sluice shard MODEL --tensor-parallel-size 2 --out MODEL-2\n"
      "  sluice run MODEL-2 -p \"Once\" --tensor-parallel-size 2");
  add_basic_options(*verb, *o, stop);
  verb->add_option("--tensor-parallel-size", o->tensor_parallel_size, "Cut it for this many ranks")
      ->check(CLI::Range(1, 1024))
      ->default_str("")
      ->required();
  verb->add_option("--out", o->out, "Write the files to this new directory")
      ->type_name("DIRECTORY")
      ->required();
  verb->callback([o, stop] { run(*o, stop); });
}

}  // namespace sluice::cli
