#include "src/memory/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/memory/numa.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older C libraries do not name it
#endif

namespace sluice {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2 * MiB;

// Pages are there when this returns, unless the system has none left.
bool populate(std::byte* data, uint64_t bytes) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  for (uint64_t at = 0; at < bytes; at += kPage)
    const_cast<volatile std::byte&>(data[at]) = std::byte{0};
  return true;
}

}  // namespace

uint64_t Buffer::charged_bytes(uint64_t bytes) { return round_up(bytes, kPage); }

Buffer::Buffer(Ledger& ledger, Use use, std::string_view owner, uint64_t bytes, Touch touch) {
  uint64_t size = charged_bytes(bytes);
  if (size == 0) return;
  lease_ = ledger.lease(Place::host, use, owner, size);
  // Address space for a start on a huge page's border; only [bytes_] of it is ever touched.
  mapped_ = size >= kHugePage ? size + kHugePage : size;
  void* mapping = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    fail(ErrorKind::no_fit, "the system refuses {} of memory for {}: {}", format_size(size), owner,
         errno_text(errno));
  }
  mapping_ = static_cast<std::byte*>(mapping);
  std::byte* start = mapping_;
  if (size >= kHugePage) {
    auto address = reinterpret_cast<uint64_t>(mapping_);
    start += round_up(address, kHugePage) - address;
    madvise(start, size, MADV_HUGEPAGE);  // only advice
    spread_over_nodes({start, size});
  }
  bytes_ = {start, size};
  if (touch == Touch::now && !populate(start, size)) {
    int error = errno;
    release();
    fail(ErrorKind::no_fit, "the system has no {} of memory left for {}: {}", format_size(size),
         owner, errno_text(error));
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : lease_(std::move(other.lease_)),
      owner_(std::exchange(other.owner_, nullptr)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      bytes_(std::exchange(other.bytes_, {})) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    lease_ = std::move(other.lease_);
    owner_ = std::exchange(other.owner_, nullptr);
    mapping_ = std::exchange(other.mapping_, nullptr);
    mapped_ = std::exchange(other.mapped_, 0);
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

Buffer::~Buffer() { release(); }

void Buffer::touch(uint64_t offset, uint64_t bytes) const {
  check(offset <= bytes_.size() && bytes <= bytes_.size() - offset, "range outside its buffer");
  if (owner_ != nullptr) return;
  madvise(bytes_.data() + offset, bytes, MADV_POPULATE_WRITE);  // else they come as they are used
}

void Buffer::give_back(uint64_t offset, uint64_t bytes) {
  check(offset <= bytes_.size() && bytes <= bytes_.size() - offset, "range outside its buffer");
  uint64_t begin = round_up(offset, kPage);
  uint64_t end = round_down(offset + bytes, kPage);
  if (owner_ != nullptr || begin >= end ||
      madvise(bytes_.data() + begin, end - begin, MADV_DONTNEED) != 0)
    return;
  lease_.give_back(end - begin);
}

void Buffer::release() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
  if (owner_ != nullptr) owner_->take_back(bytes_);
  mapping_ = nullptr;
  owner_ = nullptr;
}

}  // namespace sluice
