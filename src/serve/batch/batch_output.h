// The file of a batch's responses, a line each, that grows as they come.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>

#include "io/input_file.h"
#include "io/stream.h"
#include "src/base/json_writer.h"
#include "src/memory/buffer.h"
#include "src/serve/batch/batch_file.h"

namespace sluice {

// Lines are written as they come, whole ones only: what a kill has left of one is cut off by the
// next start, which goes on with the requests that have no line yet. A pipe, a device or standard
// output has no lines to go on from, and is not read. A file belongs to one process at a time.
class BatchOutput {
 public:
  // "-" is standard output. Error(refused) for a file whose lines are no responses (a text of more
  // than `longest_text` bytes included), or that another process writes; Error(runtime) when it
  // cannot be written, or when `stop` is requested while it waits for a pipe's reader.
  BatchOutput(std::filesystem::path path, uint64_t longest_text, Ledger& ledger,
              const std::stop_token& stop);

  // Returns whether the file had a response of this id when it was opened; until forget_done().
  bool done(const Digest& id) const;
  void forget_done() {
    done_ = {};
    done_count_ = 0;
  }

  // `write_body` writes the response's body; what it throws leaves half a line.
  void add(const BatchLine& line, int status, const std::function<void(JsonWriter&)>& write_body);

 private:
  void read_done(const std::filesystem::path& path, uint64_t longest_text, Ledger& ledger,
                 const std::stop_token& stop);
  std::span<Digest> done_digests() const {
    return {reinterpret_cast<Digest*>(done_.data()), done_count_};
  }

  io::Fd lock_;  // of a regular file
  Buffer done_;  // the digests of ids, ascending
  size_t done_count_ = 0;
  uint64_t size_ = 0;
  io::CacheDropper cache_;
  std::optional<io::OutputStream> file_;
};

}  // namespace sluice
