// Copies of the host's memory for ops of a GPU, so that tests of all backends have one body: their
// matrices, weights and caches are the host's (mirrored.cc).
#pragma once

#include <algorithm>
#include <list>
#include <type_traits>
#include <vector>

#include "tests/kernels/backend.h"
#include "tests/kernels/cuda/on_device.h"

namespace sluice::test {

// Pieces of the host's memory for one op, and their copies in the device's, which are exactly as
// large. The op is run in each order of threads; what it may write is copied back. It is an error
// to write anything else, or other bits in another order.
class Mirror {
 public:
  // The device's address of memory that the op reads.
  template <class T>
  const T* read(const T* host, int64_t count) {
    return add(host, count, Access::read);
  }
  // The same of memory that it writes.
  template <class T>
  T* write(T* host, int64_t count) {
    return add(host, count, Access::write);
  }
  // The same, where what is written depends on the order of threads.
  template <class T>
  T* write_in_any_order(T* host, int64_t count) {
    return add(host, count, Access::write_in_any_order);
  }
  Tensor read(const Tensor& x);
  Tensor write(const Tensor& x);
  Weight read(const Weight& w);
  Weight write(const Weight& w);
  KvCache read(const KvCache& cache) { return add(cache, Access::read); }
  KvCache write(const KvCache& cache) { return add(cache, Access::write); }

  // Calls launch() in each order of threads.
  template <class Launch>
  void run(Launch&& launch) {
    run(launch, 0, kSanitized ? 1 : kThreadOrders);
  }
  // Calls it in one of them, another each time.
  template <class Launch>
  void run_in_turn(Launch&& launch) {
    static int turn = 0;
    const int order = turn++ % kThreadOrders;
    run(launch, order, order + 1);
  }

 private:
  enum class Access : uint8_t { read, write, write_in_any_order };
  struct Piece {
    Piece(std::byte* of, size_t size, Access how)
        : host(of), bytes(size), access(how), device(size) {}
    std::byte* host;
    size_t bytes;
    Access access;
    DeviceBytes device;
    std::vector<std::byte> result;
  };

  // Memory that lies within a piece has its place in the copy of that.
  std::byte* add(std::byte* host, size_t bytes, Access access);
  template <class T>
  T* add(T* host, int64_t count, Access access) {
    if (host == nullptr) return nullptr;
    auto* at = reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(host));
    return reinterpret_cast<T*>(add(at, static_cast<size_t>(count) * sizeof(T), access));
  }
  Weight add(const Weight& w, Access access);
  KvCache add(const KvCache& cache, Access access);
  template <class Launch>
  void run(Launch& launch, int first, int end) {
    for (int order = first; order < end; ++order) {
      order_threads(order);
      upload();
      launch();
      download(order == first);
    }
    order_threads(0);
    for (const Piece& piece : pieces_)
      if (piece.access != Access::read) std::ranges::copy(piece.result, piece.host);
  }
  void upload();
  void download(bool first);

  std::list<Piece> pieces_;
};

}  // namespace sluice::test
