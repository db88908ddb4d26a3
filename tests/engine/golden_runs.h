// The goldens that a program compares with, and the fixture of such tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/how.h"

namespace sluice::test {

// A scheme, and where the weights are: rules of --place, or half_on_disk().
struct Streamed {
  std::string_view scheme;
  std::string place;
};
inline constexpr const char* kHalfOnDisk = "half";

// A program's runs: engine_test's on the CPU (golden_cpu_test.cc), or cuda_engine_test's on an
// emulated GPU (cuda_test.cc), where a token takes as long as a prompt on the CPU.
struct GoldenRuns {
  How how;  // where
  // Bundled models, and shared ones; `paths`: those of them that run in bf16, too; `streamed`:
  // those whose weights are streamed.
  std::vector<std::filesystem::path> bundled, bundled_paths, bundled_streamed, shared;
  // Instruction sets for each type, of which not all may be supported.
  std::vector<Isa> float32_isas, bfloat16_isas;
  int64_t most_tokens;                                   // after a prompt
  size_t (*most_prompts)(const std::filesystem::path&);  // of a model
  std::vector<DtypeChoice> streamed_dtypes;
  std::vector<Streamed> streamed;
  int starts;                // of a model with the same spill
  bool streams_the_longest;  // prompt; else the first
};
const GoldenRuns& golden_runs();  // defined by each program

class GoldenTest : public testing::TestWithParam<std::filesystem::path> {
 protected:
  GoldenTest() {
    const size_t prompts = std::min(file_.prompts(), golden_runs().most_prompts(GetParam()));
    for (size_t i = 0; i < prompts; ++i) {
      Golden& golden = goldens_.emplace_back(file_.golden(i));
      if (std::ssize(golden.greedy) > golden_runs().most_tokens)
        golden.greedy.resize(static_cast<size_t>(golden_runs().most_tokens));
    }
  }
  void SetUp() override { ASSERT_FALSE(goldens_.empty()); }

  GoldenFile file_{GetParam()};
  std::vector<Golden> goldens_;
};

}  // namespace sluice::test
