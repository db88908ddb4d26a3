// The parts that quantize and convert share, whatever they write.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "io/model_directory.h"
#include "src/cli/common.h"
#include "src/cli/progress.h"
#include "src/load/checkpoint_writer.h"
#include "src/load/output_directory.h"
#include "src/memory/buffer.h"

namespace sluice::cli {

inline constexpr const char* kGgufFormat = "gguf";

struct ConvertOptions : CommonOptions {
  std::string out;
  std::string format = "compressed-tensors";
  std::string max_shard_size = "5GB";
  bool verify = false;
};

// The memory of a writer that needs at least so much, within the budget.
Buffer writing_memory(const ConvertOptions& o, uint64_t least, Ledger& ledger,
                      std::optional<Lease>& process);
// Refuses what the disk has no room for.
void check_disk(const ConvertOptions& o, uint64_t needed, const OutputDirectory& out);
void report(const ConvertOptions& o, const WriteReport& written, const Ledger& ledger);

// Has a writer write into `out`, with a display of its progress; then `finish` writes what belongs
// to it by the writer's memory, and the directory appears.
template <class Writer, class Finish>
void write_all(const ConvertOptions& o, Writer& writer, OutputDirectory& out, Finish finish) {
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
  finish(memory.bytes());
  out.publish();
  report(o, done, ledger);
}

// The type that --dtype gives numbers; nullopt: they keep theirs.
std::optional<DType> dtype_of(const ConvertOptions& o);

// --format gguf, of a scheme, or without one (convert_gguf.cc).
void write_gguf(const ConvertOptions& o, const std::stop_token& stop);

}  // namespace sluice::cli
