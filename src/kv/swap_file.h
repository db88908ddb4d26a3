// KV blocks on disk: a file of slots that is gone when its process ends. Slots are written by a
// thread of its own, while whoever gave them computes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/new_file.h"
#include "io/reader.h"
#include "src/memory/buffer.h"

namespace sluice {

class SwapFile {
 public:
  // Takes room for all slots, of `slot_bytes` each, a multiple of io::kDirectAlignment. Throws
  // Error(runtime) where the directory cannot be written or has no room for them.
  SwapFile(Ledger& ledger, const std::filesystem::path& directory, int64_t slots,
           uint64_t slot_bytes);
  ~SwapFile();
  static uint64_t memory_bytes(uint64_t slot_bytes);  // that it takes

  // Where a slot's contents are put together, to be written by write(). Waits where all memory for
  // that is still being written. Rethrows what an earlier write failed with.
  std::span<std::byte> begin_write();
  void write(int32_t slot);
  void finish_writes();  // waits for them; likewise
  // Of what has been written: after finish_writes().
  io::ReadRequest read_request(int32_t slot) const;
  io::Reader& reader() const { return *reader_; }

 private:
  struct Write {
    int32_t slot = 0;
    size_t buffer = 0;
  };
  std::span<std::byte> buffer(size_t index) const {
    return memory_.bytes().subspan(index * slot_bytes_, slot_bytes_);
  }
  void work();

  uint64_t slot_bytes_;
  Buffer memory_;  // what is being written, then the reader's slots
  io::NewFile file_;
  std::unique_ptr<io::Reader> reader_;
  size_t next_ = 0;  // buffer of the next write: they are used in turn

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Write> writes_;  // not finished yet, oldest first
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sluice
