// Pieces of one range of memory, first fit. Bookkeeping only: it touches no byte of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace sluice {

class Arena {
 public:
  Arena() = default;
  explicit Arena(uint64_t bytes);

  // The offset of a piece; nullopt where no gap is wide enough.
  std::optional<uint64_t> take(uint64_t bytes);
  void give_back(uint64_t offset, uint64_t bytes);  // a piece, whole
  bool empty() const { return used_ == 0; }
  uint64_t widest_gap() const;

 private:
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> gaps_;  // offset → bytes; no two touch
};

}  // namespace sluice
