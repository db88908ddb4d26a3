// Shared by the fuzz targets: any bytes are taken, or refused by an Error of one line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/base/error.h"
#include "tests/support/temp.h"

// The head of a target, which gets `data` and `size`: libFuzzer's entry, or one of those that
// driver.cc has in one program.
#ifdef SLUICE_FUZZ
#define FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
#define FUZZ_TARGET(name) int fuzz_##name(const uint8_t* data, size_t size)
#endif

namespace sluice::test {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Inputs of several parts: a NUL, which no text file holds, ends each but the last.
inline std::string_view take_part(std::string_view& input) {
  size_t end = std::min(input.find('\0'), input.size());
  std::string_view part = input.substr(0, end);
  input.remove_prefix(std::min(end + 1, input.size()));
  return part;
}

template <class Read>
int taken_or_refused(Read read) {
  try {
    read();
  } catch (const Error& e) {  // the answer to a hostile file
    std::string_view what = e.what();
    check(!what.empty() && what.size() <= kMaxErrorBytes, "an error is one sentence");
    check(std::ranges::none_of(what, [](char c) { return c >= 0 && (c < 0x20 || c == 0x7f); }),
          "an error is one line");
  }
  return 0;
}

}  // namespace sluice::test
