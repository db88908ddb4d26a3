// The interface to devices: a device has memory, streams of work and events between them. The CPU's
// memory is the process's own, and its work is done at once; a GPU has its own memory and works
// asynchronously. Code above this knows no other difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/memory/buffer.h"
#include "src/memory/ledger.h"

struct CUstream_st;

namespace sluice {

struct DeviceInfo {
  std::string name;            // "cpu", "NVIDIA H100 80GB HBM3"
  int compute_capability = 0;  // 89 for 8.9; 0: no GPU
  uint64_t total_bytes = 0;    // of its memory; 0: the machine's
  double memory_rate = 0;      // bytes a second that its memory could give; 0: not known
};

// A point in a stream's work. May be recorded again, which forgets the point before.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Waits until the work before the point is done; returns at once if it was never recorded.
  virtual void synchronize() = 0;
};

// Work that a stream has recorded, to be done again and again: always with the same arguments, so
// that what changes has to be in the device's memory. Ends when none of it is under way.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Bytes of the device's memory beside reserve()'s, as the driver reports them.
  virtual uint64_t bytes() const = 0;
};

// Work that is done in the order of the calls, while other streams do theirs. Calls return at once:
// memory must stay, and host memory that is pinned be left alone, until the work is done. One
// thread at a time may call. A failure of the work itself is thrown by a later call, as
// Error(runtime).
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  // Between any two memories, the device's or the host's. With host memory that is not pinned the
  // call may wait for the work before it, and has looked at it, or written to it, when it returns.
  virtual void copy(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  virtual void clear(std::byte* at, uint64_t bytes) = 0;  // to zeros; of the device
  virtual void record(DeviceEvent& event) = 0;
  // Work that is put in from now on begins after the event's point.
  virtual void wait(const DeviceEvent& event) = 0;
  virtual void synchronize() = 0;  // until all is done
  // Records what `work` puts into this stream, without executing it. `work` may copy within the
  // device and launch kernels, but not wait or query. Null where the device has no graphs or cannot
  // record this work.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) = 0;
  virtual void launch(DeviceGraph& graph) = 0;  // one that a stream of the same device has recorded
  virtual CUstream_st* handle() const = 0;      // for launches of kernels; null: the CPU's
};

// Host memory stays pinned until this ends.
class Pinned {
 public:
  virtual ~Pinned() = default;
};

// Thread-safe. Outlives what it has made.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // The place of its memory in the ledger. Place::host: the process's own, without copies.
  virtual Place place() const = 0;
  bool has_own_memory() const { return place() != Place::host; }

  // Bytes of its own memory that are free now, as the driver reports them.
  virtual uint64_t free_bytes() const = 0;
  // Reserves bytes of its own memory, which memory() hands out. Once, or again when all of it has
  // come back. Error(no_fit) when less is free.
  virtual void reserve(uint64_t bytes) = 0;
  // Zeroed memory, begun on a page's border, of Buffer::charged_bytes. Error(no_fit).
  virtual Buffer memory(Ledger& ledger, Use use, std::string_view owner, uint64_t bytes,
                        Buffer::Touch touch) = 0;

  virtual std::unique_ptr<DeviceStream> stream() = 0;
  virtual std::unique_ptr<DeviceEvent> event() = 0;
  // Pins exactly these bytes, whole pages. Null where pinning changes nothing, or the system does
  // not allow it: then copies are slower.
  virtual std::unique_ptr<Pinned> pin(std::span<std::byte> host) = 0;
};

}  // namespace sluice
