// KV blocks on disk: a file of slots that is removed when its process ends. A thread of its own
// writes and reads them in the order of the calls, while the caller computes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "io/new_file.h"
#include "io/reader.h"
#include "src/kv/kv_areas.h"
#include "src/memory/buffer.h"

namespace sluice {

class SwapFile {
 public:
  // Takes room for all slots, of `slot_bytes` each, a multiple of io::kDirectAlignment. Reads go to
  // the blocks of `areas`, which outlive it, as work of `stream`. Throws Error(runtime) if the
  // directory cannot be written or has no room for them.
  SwapFile(Ledger& ledger, const std::filesystem::path& directory, int64_t slots,
           uint64_t slot_bytes, const KvAreas& areas, std::unique_ptr<DeviceStream> stream);
  ~SwapFile();
  static uint64_t memory_bytes(uint64_t slot_bytes);  // memory it leases

  // Returns memory for a slot's contents, which write() then writes. Waits if all such memory is
  // still being written. Rethrows an earlier failure.
  std::span<std::byte> begin_write();
  void write(int32_t slot);
  // Reads to a device block that nobody touches until finish_reads().
  void read(int32_t slot, int32_t block);
  void finish_reads();  // all of them; rethrows what has failed

 private:
  struct Job {
    bool read = false;
    int32_t slot = 0;
    size_t buffer = 0;  // of a write
    int32_t block = 0;  // of a read
  };
  std::span<std::byte> buffer(size_t index) const {
    return memory_.bytes().subspan(index * slot_bytes_, slot_bytes_);
  }
  void add(const Job& job);
  void work();
  void write_slot(const Job& job);
  void read_slots(std::span<const Job> jobs);

  uint64_t slot_bytes_;
  const KvAreas& areas_;
  std::unique_ptr<DeviceStream> stream_;
  Buffer memory_;  // bytes being written, then the reader's slots
  io::NewFile file_;
  std::unique_ptr<io::Reader> reader_;
  size_t next_ = 0;  // buffer of the next write: they are used in turn

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;           // not finished yet, oldest first
  size_t writes_ = 0, reads_ = 0;  // of these
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sluice
