// Chooses the copy of a file to read, when a checkpoint lies on several disks: each request goes
// where it will be done first, so that all disks are busy and each gives what it can.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "io/checkpoint/index.h"

namespace sluice::io {

// One thread at a time; belongs to one reader.
class Sources {
 public:
  using Clock = std::chrono::steady_clock;

  // The index outlives this.
  explicit Sources(const CheckpointIndex& index);

  // The files to open the reader with: the checkpoint's in order, then their copies, then those of
  // the extra file. One that was given up has become another of its copies.
  const std::vector<CheckpointFile>& files() const { return files_; }

  // Call before a reader is opened: takes the index's files as they are now. `extra`: a file that
  // is not the checkpoint's, in some copies, or none. Reads in flight from an earlier reader will
  // not arrive.
  void start_reader(std::span<const CheckpointFile> extra);
  uint32_t extra_file() const { return extra_file_; }  // as choose() takes it
  bool is_extra(uint32_t chosen) const { return chosen >= checkpoint_files_; }

  // A copy of one of the checkpoint's files, or of the extra one, as an index into files(). `bytes`
  // are going to be read.
  uint32_t choose(uint32_t file, uint64_t bytes, Clock::time_point now = Clock::now());
  void arrived(uint32_t chosen, uint64_t bytes, Clock::time_point now = Clock::now());
  // Gives up a copy that cannot be read: choose() does not return it any more. False when there is
  // no other copy.
  bool give_up(uint32_t chosen);

 private:
  // Bytes a second are counted while something is in flight, recent ones most.
  struct Disk {
    uint64_t id = 0;  // st_dev
    uint64_t in_flight = 0;
    double bytes = 0;
    double seconds = 0;
    Clock::time_point busy_since;

    double seconds_to(uint64_t more, Clock::time_point now) const;
  };
  struct File {
    uint32_t of = 0;
    uint32_t disk = 0;
    bool failed = false;
  };

  void add(const CheckpointFile& file, uint32_t of);

  const CheckpointIndex& index_;
  std::vector<CheckpointFile> files_;
  std::vector<File> states_;  // of files_
  // Copies of each file of the checkpoint, the file itself first; then of the extra file.
  std::vector<std::vector<uint32_t>> copies_;
  uint32_t extra_file_ = 0;
  size_t checkpoint_files_ = 0;  // of files_, copies included
  std::vector<Disk> disks_;
};

}  // namespace sluice::io
