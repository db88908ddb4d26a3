// Ranges of a run for a profiler, recorded by a library that takes its place.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "src/engine/loaded_model.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

std::string recorded() {
  void* library = dlopen(SLUICE_NVTX_RECORDER, RTLD_NOW);
  auto ranges = reinterpret_cast<const char* (*)()>(dlsym(library, "recorded_ranges"));
  return ranges == nullptr ? dlerror() : ranges();
}

TEST(Ranges, ARunTellsOfItsLoadItsStepsAndTheirLayers) {
  setenv("NVTX_INJECTION64_PATH", SLUICE_NVTX_RECORDER, 1);
  ModelOptions options;
  options.model = test::source_dir() / "tests/data/models/llama_tied";
  options.threads = 1;
  options.block_size = 4;
  Planner planner(options);
  LoadedModel loaded(planner, planner.place(planner.run_shape(8, 4, 1)));
  Sequence sequence = loaded.runner().new_sequence();
  Tensor hidden = loaded.runner().prefill(sequence, std::vector<int32_t>{1, 2, 3}, {});
  loaded.runner().logits(hidden);
  EXPECT_EQ(recorded(), "(load )(step (model.layers.0 )(model.layers.1 ))(logits )");
  loaded.runner().copy_blocks(std::vector<BlockCopy>{{{Tier::device, 0}, {Tier::device, 1}}},
                              false);
  loaded.runner().copy_blocks({}, false);
  EXPECT_TRUE(recorded().ends_with("(logits )(KV block copies )")) << recorded();
}

}  // namespace
}  // namespace sluice
