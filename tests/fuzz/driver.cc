// Stands in for libFuzzer with any compiler: runs a fuzz target over files, and over damaged copies
// of them. The damage is the same in each run. SLUICE_FUZZ_TARGETS is X(NAME) for each target.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/sanitized.h"
#include "tests/support/temp.h"

#define X(name) int fuzz_##name(const uint8_t* data, size_t size);
SLUICE_FUZZ_TARGETS
#undef X

namespace sluice::test {
namespace {

constexpr size_t kMostCopies = 40;       // damaged ones of each file
constexpr size_t kEnoughCopies = 2000;   // of all files together
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

// The files at the paths, files or directories, those of a directory in the order of their names.
std::vector<std::filesystem::path> files_at(std::span<char* const> paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    const auto first = std::ssize(files);
    for (const auto& entry : std::filesystem::directory_iterator(path))
      files.push_back(entry.path());
    std::sort(files.begin() + first, files.end());
  }
  return files;
}

// Runs the target over a file and damaged copies of it. Returns how many inputs that were.
size_t run_file(Target target, const std::filesystem::path& path, size_t copies, uint64_t seed) {
  std::printf("%s\n", path.c_str());  // the last one is the one that failed
  std::fflush(stdout);
  const std::string whole = read_file(path);
  run(target, whole);
  if (whole.empty() || whole.size() > kMostDamaged) return 1;
  std::mt19937_64 random(seed);
  for (size_t copy = 0; copy < copies; ++copy) {
    std::string input = whole;
    for (size_t times = 1 + random() % 3; times > 0 && !input.empty(); --times)
      damage(input, random);
    run(target, input);
  }
  return 1 + copies;
}

// Arguments: a target's name, files and directories.
int run_all(std::span<char* const> arguments) {
  const Target target = arguments.size() > 1 ? find_target(arguments[1]) : nullptr;
  if (target == nullptr) {
    std::fprintf(stderr, "usage: %s TARGET FILE...\n", arguments[0]);
    return 2;
  }
  const std::vector<std::filesystem::path> files = files_at(arguments.subspan(2));
  if (files.empty()) return 1;  // a run over nothing shows nothing
  const size_t copies =
      runs_all() ? kMostCopies : std::clamp(kEnoughCopies / files.size(), size_t{1}, kMostCopies);
  size_t inputs = 0;
  for (const auto& path : files) inputs += run_file(target, path, copies, inputs + 1);
  std::printf("%zu files, %zu inputs\n", files.size(), inputs);
  return 0;
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  try {
    return sluice::test::run_all({argv, static_cast<size_t>(argc)});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "not an answer to a hostile file: %s\n", e.what());
    return 1;
  }
}
