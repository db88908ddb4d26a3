// Stands in for libFuzzer with any compiler: runs a fuzz target over files, and over damaged copies
// of them. The damage is the same in each run. SLUICE_FUZZ_TARGETS is X(NAME) for each target.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp.h"

#define X(name) int fuzz_##name(const uint8_t* data, size_t size);
SLUICE_FUZZ_TARGETS
#undef X

namespace sluice::test {
namespace {

constexpr int kCopies = 40;              // damaged ones of each file
constexpr size_t kMostDamaged = 100000;  // bytes of a file that is worth it

using Target = int (*)(const uint8_t*, size_t);

Target find_target(std::string_view wanted) {
#define X(name) \
  if (wanted == #name) return fuzz_##name;
  SLUICE_FUZZ_TARGETS
#undef X
  return nullptr;
}

void run(Target target, const std::string& input) {
  // Without a byte behind the input, so that a sanitizer sees who reads there.
  std::vector<uint8_t> bytes(input.begin(), input.end());
  target(bytes.data(), bytes.size());
}

void damage(std::string& input, std::mt19937_64& random) {
  auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  size_t at = below(input.size());
  size_t length = 1 + below(std::min<size_t>(input.size() - at, 16));
  switch (below(6)) {
    case 0:
      input[at] = static_cast<char>(random());
      break;
    case 1:
      input[at] = static_cast<char>(input[at] ^ 1 << below(8));
      break;
    case 2:
      input.resize(at);
      break;
    case 3:
      input.erase(at, length);
      break;
    case 4:
      input.insert(at, input.substr(below(input.size()), length));
      break;
    default:
      input.replace(at, length, below(2) == 0 ? "-1" : "99999999999999999999");
  }
}

// The files at `path`, a file or a directory, in the order of their names.
std::vector<std::filesystem::path> files_at(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

// Arguments: a target's name, files and directories.
int run_all(int argc, char** argv) {
  const Target target = argc > 1 ? find_target(argv[1]) : nullptr;
  if (target == nullptr) {
    std::fprintf(stderr, "usage: %s TARGET FILE...\n", argv[0]);
    return 2;
  }
  size_t files = 0;
  size_t inputs = 0;
  for (int i = 2; i < argc; ++i) {
    for (const std::filesystem::path& path : files_at(argv[i])) {
      std::printf("%s\n", path.c_str());  // the last one is the one that failed
      std::fflush(stdout);
      std::string whole = read_file(path);
      run(target, whole);
      ++files;
      ++inputs;
      std::mt19937_64 random(inputs);
      for (int copy = 0; copy < kCopies && !whole.empty() && whole.size() <= kMostDamaged; ++copy) {
        std::string input = whole;
        for (size_t times = 1 + random() % 3; times > 0 && !input.empty(); --times)
          damage(input, random);
        run(target, input);
        ++inputs;
      }
    }
  }
  std::printf("%zu files, %zu inputs\n", files, inputs);
  return files == 0 ? 1 : 0;  // a run over nothing shows nothing
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  try {
    return sluice::test::run_all(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "not an answer to a hostile file: %s\n", e.what());
    return 1;
  }
}
