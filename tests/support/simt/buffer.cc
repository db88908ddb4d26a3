#include "tests/support/simt/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "src/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace sluice::simt {
namespace {

constexpr size_t kAlignment = 16;
constexpr std::byte kFresh{0xa5}, kAround{0xff};  // what is read around a buffer is NaN

struct Range {
  const std::byte *begin, *end;
};
std::vector<Range>& live() {
  static std::vector<Range> ranges;
  return ranges;
}

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

bool all_are(const std::byte* begin, const std::byte* end, std::byte value) {
  return std::all_of(begin, end, [&](std::byte b) { return b == value; });
}

void poison([[maybe_unused]] const std::byte* begin, [[maybe_unused]] const std::byte* end,
            [[maybe_unused]] bool on) {
#if defined(__SANITIZE_ADDRESS__)
  const size_t bytes = static_cast<size_t>(end - begin);
  if (on) {
    __asan_poison_memory_region(begin, bytes);
  } else {
    __asan_unpoison_memory_region(begin, bytes);
  }
#endif
}

}  // namespace

GuardedBytes::GuardedBytes(size_t bytes) : bytes_(bytes) {
  const size_t page = page_bytes();
  const size_t usable = (bytes + kAlignment + page - 1) / page * page;
  mapping_bytes_ = usable + 2 * page;
  void* p = mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(p != MAP_FAILED, "memory for a guarded buffer");
  map_ = static_cast<std::byte*>(p) + page;
  std::byte* end = map_ + usable;
  check(mprotect(map_, usable, PROT_READ | PROT_WRITE) == 0, "mprotect");
  data_ = end - (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::fill(map_, end, kAround);
  std::fill_n(data_, bytes, kFresh);
  poison(map_, data_, true);
  poison(data_ + bytes, end, true);
  live().push_back({data_, data_ + bytes});
}

GuardedBytes::GuardedBytes(GuardedBytes&& other) noexcept
    : map_(std::exchange(other.map_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      data_(other.data_),
      bytes_(other.bytes_) {}

GuardedBytes::~GuardedBytes() {
  if (map_ == nullptr) return;
  check(intact(), "nothing was written around a buffer of an emulated kernel");
  std::erase_if(live(), [&](const Range& r) { return r.begin == data_; });
  poison(map_, usable_end(), false);
  munmap(map_ - page_bytes(), mapping_bytes_);
}

std::byte* GuardedBytes::usable_end() const { return map_ + mapping_bytes_ - 2 * page_bytes(); }

bool GuardedBytes::intact() const {
  const std::byte* end = usable_end();
  poison(map_, end, false);
  const bool is = all_are(map_, data_, kAround) && all_are(data_ + bytes_, end, kAround);
  poison(map_, data_, true);
  poison(data_ + bytes_, end, true);
  return is;
}

void GuardedBytes::repair() {
  std::byte* end = usable_end();
  poison(map_, end, false);
  std::fill(map_, data_, kAround);
  std::fill(data_ + bytes_, end, kAround);
  poison(map_, data_, true);
  poison(data_ + bytes_, end, true);
}

void GuardedBytes::allow(bool on) {
  const size_t usable = mapping_bytes_ - 2 * page_bytes();
  check(mprotect(map_, usable, on ? PROT_READ | PROT_WRITE : PROT_NONE) == 0, "mprotect");
}

const char* describe_address(const void* address) {
  static std::array<char, 96> text;
  const std::byte* at = static_cast<const std::byte*>(address);
  const std::ptrdiff_t near = static_cast<std::ptrdiff_t>(2 * page_bytes());
  text[0] = 0;
  for (const Range& r : live()) {
    const bool behind = at >= r.end;
    const std::ptrdiff_t distance = behind ? at - r.end : r.begin - at;
    if (distance < 0 || distance > near) continue;
    std::snprintf(text.data(), text.size(), ", %td bytes %s a buffer of %td bytes", distance,
                  behind ? "behind" : "before", r.end - r.begin);
    if (behind) break;
  }
  return text.data();
}

}  // namespace sluice::simt
