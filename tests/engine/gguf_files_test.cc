// GGUF files that llama.cpp's converter made of bundled models (tests/data/convert_gguf.py): they
// compute what the models do, whose own goldens golden_test.cc has.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/engine/how.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

// Settings of config.json that the files do not have, as the format has them.
const std::map<std::string, Json>& settings_of_the_format() {
  static const std::map<std::string, Json> all{
      {"falcon_h1", {{"time_step_limit", nullptr}}},
      {"granite_swa", {{"layer_rope_theta", nullptr}}},
      {"laguna",
       {{"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}},
        {"moe_router_logit_softcapping", 0}}},
      {"llama4_text", {{"attention_chunk_size", 8192}, {"floor_scale", 8192}, {"attn_scale", 0.1}}},
      {"minicpm3", {{"dim_model_base", 256}}},
      {"nemotron_h", {{"time_step_min", 0.001}}}};
  return all;
}

// The model of the file, with the format's settings.
class Original {
 public:
  explicit Original(const std::string& name) : path_(test::bundled_model(name.c_str())) {
    const auto settings = settings_of_the_format().find(name);
    if (settings == settings_of_the_format().end()) return;
    for (const fs::directory_entry& file : fs::directory_iterator(path_))
      fs::copy_file(file.path(), copy_.path() / file.path().filename());
    Json config = Json::parse(test::read_file(copy_ / "config.json"));
    config.merge_patch(settings->second);  // null: without the key
    test::write_file(copy_ / "config.json", config.dump());
    path_ = copy_.path();
  }
  const fs::path& path() const { return path_; }

 private:
  test::TempDir copy_;
  fs::path path_;
};

class GgufFiles : public testing::TestWithParam<fs::path> {};

// "MODEL.gguf", or "MODEL.FORM.gguf" for another form of one.
TEST_P(GgufFiles, ComputeWhatTheirModelsDo) {
  const Original original(GetParam().stem().stem().string());
  const test::GoldenFile file(original.path());
  const test::How how{.dtype = DtypeChoice::f32};
  for (size_t i = 0; i < file.prompts(); ++i) {
    const std::vector<int32_t> prompt = file.golden(i).ids;
    const Outcome expected = run_model(original.path(), prompt, 2, how);
    const Outcome actual = run_model(GetParam(), prompt, 2, how);
    EXPECT_LE(test::relative_difference(actual, expected), 1e-5);
    EXPECT_EQ(actual.greedy, expected.greedy);
  }
}

INSTANTIATE_TEST_SUITE_P(Bundled, GgufFiles,
                         testing::ValuesIn(test::models_in(test::source_dir() / "tests/data/gguf")),
                         [](const testing::TestParamInfo<fs::path>& file) {
                           std::string name = file.param.stem().string();
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice
