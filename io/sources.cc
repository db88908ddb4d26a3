#include "io/sources.h"

#include <algorithm>

namespace sluice::io {
namespace {

// A disk's rate [bytes/s] before it is measured, the bytes that it counts as, and the bytes after
// which older ones count half.
constexpr double kAssumedRate = 1e9;
constexpr double kAssumedBytes = 1 << 20;
constexpr double kRemembered = 256 << 20;

}  // namespace

Sources::Sources(const CheckpointIndex& index) : index_(index) {
  copies_.resize(index.files().size());
  for (uint32_t i = 0; i < index.files().size(); ++i) add(index.files()[i], i);
  for (const FileCopy& copy : index.copies()) add(copy.file, copy.of);
  extra_file_ = static_cast<uint32_t>(copies_.size());
  checkpoint_files_ = files_.size();
}

void Sources::start_reader(std::span<const CheckpointFile> extra) {
  files_.resize(checkpoint_files_);
  for (size_t i = 0; i < index_.files().size(); ++i)
    if (!states_[i].failed) files_[i] = index_.files()[i];
  states_.resize(checkpoint_files_);
  copies_.resize(extra_file_);
  copies_.emplace_back();
  for (const CheckpointFile& copy : extra) add(copy, extra_file_);
  for (Disk& disk : disks_) disk.in_flight = 0;
}

void Sources::add(const CheckpointFile& file, uint32_t of) {
  auto disk = std::ranges::find(disks_, file.device, &Disk::id);
  if (disk == disks_.end()) {
    Disk fresh;
    fresh.id = file.device;
    fresh.bytes = kAssumedBytes;
    fresh.seconds = kAssumedBytes / kAssumedRate;
    disk = disks_.insert(disks_.end(), fresh);
  }
  copies_[of].push_back(static_cast<uint32_t>(files_.size()));
  files_.push_back(file);
  states_.push_back({of, static_cast<uint32_t>(disk - disks_.begin()), false});
}

double Sources::Disk::seconds_to(uint64_t more, Clock::time_point now) const {
  double busy = in_flight > 0 ? std::chrono::duration<double>(now - busy_since).count() : 0;
  return static_cast<double>(in_flight + more) * (seconds + busy) / bytes;
}

uint32_t Sources::choose(uint32_t file, uint64_t bytes, Clock::time_point now) {
  const std::vector<uint32_t>& copies = copies_[file];
  auto cost = [&](uint32_t f) {
    return states_[f].failed ? 1e300 : disks_[states_[f].disk].seconds_to(bytes, now);
  };
  uint32_t chosen =
      copies.size() == 1 ? copies.front() : *std::ranges::min_element(copies, {}, cost);
  Disk& disk = disks_[states_[chosen].disk];
  if (disk.in_flight == 0) disk.busy_since = now;
  disk.in_flight += bytes;
  return chosen;
}

void Sources::arrived(uint32_t chosen, uint64_t bytes, Clock::time_point now) {
  Disk& disk = disks_[states_[chosen].disk];
  disk.seconds += std::chrono::duration<double>(now - disk.busy_since).count();
  disk.busy_since = now;
  disk.bytes += static_cast<double>(bytes);
  disk.in_flight -= bytes;
  if (disk.bytes > kRemembered) {
    disk.bytes /= 2;
    disk.seconds /= 2;
  }
}

bool Sources::give_up(uint32_t chosen) {
  states_[chosen].failed = true;
  const std::vector<uint32_t>& copies = copies_[states_[chosen].of];
  auto other = std::ranges::find_if(copies, [&](uint32_t f) { return !states_[f].failed; });
  if (other == copies.end()) return false;
  for (uint32_t f : copies) {
    if (states_[f].failed) files_[f] = files_[*other];
  }
  return true;
}

}  // namespace sluice::io
