// Files as hands and converters leave them: one value of a config, a generation config, a
// quantization config or a tokenizer is of another kind, absurd, or not there. Such a model runs or
// is refused in one sentence, and nothing else happens. SLUICE_TEST_ALL tries all values, else some
// of each file are tried.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include "src/base/log.h"
#include "src/engine/sampling_defaults.h"
#include "src/text/tokenizer.h"
#include "tests/engine/how.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Each value that is tried in the place of another; nullopt: its key is not there.
const std::vector<std::optional<Json>>& odd_values() {
  static const std::vector<std::optional<Json>> values{
      nullptr,     "x", -1, 0, 3.5, 1e99, Json::array(), Json::object(), true, UINT64_MAX / 2 + 1,
      std::nullopt};
  return values;
}

struct OddValue {
  Json::json_pointer at;
  std::optional<Json> value;
};

// Adds the places in `json`, to a depth: of a list, or a vocabulary, the first.
void add_places(const Json& json, const Json::json_pointer& at, int depth,
                std::vector<Json::json_pointer>& places) {
  constexpr size_t kMostKeys = 100;
  if (depth == 0 || !json.is_structured()) return;
  for (const auto& [key, value] : json.items()) {
    const Json::json_pointer inner = json.is_array() ? at / size_t{0} : at / key;
    places.push_back(inner);
    add_places(value, inner, depth - 1, places);
    if (json.is_array() || json.size() > kMostKeys) return;
  }
}

std::vector<OddValue> odd_values_of(const Json& json) {
  constexpr int kDepth = 5;
  std::vector<Json::json_pointer> places;
  add_places(json, Json::json_pointer(), kDepth, places);
  std::vector<OddValue> values;
  for (const Json::json_pointer& place : places) {
    for (const std::optional<Json>& value : odd_values()) values.push_back({place, value});
  }
  return values;
}

Json with_odd_value(Json json, const OddValue& odd) {
  if (odd.value) {
    json[odd.at] = *odd.value;
    return json;
  }
  Json& around = json[odd.at.parent_pointer()];
  if (around.is_array())
    around.erase(0);
  else
    around.erase(odd.at.back());
  return json;
}

// The current case, printed in a crash.
std::string now_tried;
void say_what_is_tried() {
  [[maybe_unused]] const auto written = write(2, now_tried.data(), now_tried.size());
}

class OddFiles : public testing::TestWithParam<fs::path> {
 protected:
  OddFiles() {
    log::set_level(log::Level::error);  // some warn, rightly
    std::signal(SIGABRT, [](int) { say_what_is_tried(); });
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(say_what_is_tried);
#endif
    for (const auto& file : fs::directory_iterator(GetParam()))
      fs::copy_file(file.path(), dir_ / file.path().filename().string());
  }
  ~OddFiles() override {
    std::signal(SIGABRT, SIG_DFL);
    log::set_level(log::Level::warning);
  }

  // `use` with each odd value in the file of this name, which has `json`: some of them, at random.
  template <class Use>
  void try_odd_values(const std::string& name, const Json& json, int64_t some, const Use& use) {
    const fs::path path = dir_ / name;
    fs::remove(path);
    test::write_file(path, json.dump());
    use();  // nothing is wrong with that
    std::vector<OddValue> values = odd_values_of(json);
    if (!test::runs_all()) {
      std::ranges::shuffle(values, random_.engine());
      values.resize(std::min(values.size(), static_cast<size_t>(some)));
    }
    for (const OddValue& odd : values) {
      now_tried = fmt::format("{}: {}: {} = {}\n", GetParam().filename().string(), name,
                              odd.at.to_string(), odd.value ? odd.value->dump() : "(absent)");
      test::write_file(path, with_odd_value(json, odd).dump());
      try {
        use();
      } catch (const Error& e) {
        // A factor of 1e99 may be meant so, and is seen in what is computed.
        const bool overflowed = std::string_view(e.what()).find("hold a NaN") != std::string::npos;
        EXPECT_EQ(e.kind(), overflowed ? ErrorKind::runtime : ErrorKind::refused)
            << now_tried << e.what();
        EXPECT_THAT(e.what(), AllOf(Not(HasSubstr("std::")), Not(HasSubstr("json.exception")),
                                    Not(HasSubstr("basic_string"))))
            << now_tried;
      } catch (const std::exception& e) {
        ADD_FAILURE() << now_tried << "an error without a type: " << e.what();
      }
    }
    now_tried.clear();
    test::write_file(path, json.dump());
  }

  test::TempDir dir_;
  test::Random random_{"odd files"};
};

// A run of a few tokens, with what generation_config.json recommends.
void run_some_tokens(const fs::path& model) {
  static const auto pool = std::make_shared<ThreadPool>(1);
  static const std::shared_ptr<Backend> backend = make_cpu_backend(Isa::automatic, *pool);
  Planner planner(test::options_for(model, {.backend = [] { return backend; }, .threads = 1}));
  Request request;
  request.prompt = {5, 6, 7};
  request.max_tokens = 2;
  request.eos_ids = planner.checkpoint().model().files.eos_ids;
  if (const std::optional<Json> config = open_model(model)->generation_config())
    take_sampling_defaults(*config, [](const std::string&) { return false; }, request.sampling);
  LoadedModel loaded(planner, planner.place(planner.run_shape(5, 3, 3)));
  Engine engine(loaded.runner(), nullptr, 1);
  engine.add(request);
  while (!engine.idle()) engine.step({});
}

using OddConfigs = OddFiles;
TEST_P(OddConfigs, RunOrAreRefused) {
  const Json config = Json::parse(test::read_file(GetParam() / "config.json"));
  try_odd_values("config.json", config, test::is_brief() ? 3 : 10,
                 [&] { run_some_tokens(dir_.path()); });
}

TEST_P(OddConfigs, OfGenerationRunOrAreRefused) {
  const char* name = "generation_config.json";
  const Json config = Json::parse(test::read_file(GetParam() / name));
  try_odd_values(name, config, 1, [&] { run_some_tokens(dir_.path()); });
}

std::vector<fs::path> models_with_config() {
  std::vector<fs::path> models = test::bundled_models();
  std::erase_if(models, [](const fs::path& m) { return !fs::exists(m / "config.json"); });
  return models;
}

INSTANTIATE_TEST_SUITE_P(Bundled, OddConfigs, testing::ValuesIn(models_with_config()),
                         test::golden_name);

using OddQuantization = OddFiles;
TEST_P(OddQuantization, RunsOrIsRefused) {
  Json config = Json::parse(test::read_file(GetParam() / "config.json"));
  config["quantization_config"] = {{"quant_method", "gptq"},
                                   {"bits", 4},
                                   {"group_size", 32},
                                   {"desc_act", true},
                                   {"sym", true},
                                   {"true_sequential", true},
                                   {"checkpoint_format", "gptq"},
                                   {"dynamic", Json::object()},
                                   {"damp_percent", 0.01},
                                   {"meta", {{"quantizer", {"gptqmodel:1.0"}}}}};
  try_odd_values("config.json", config, 20, [&] { run_some_tokens(dir_.path()); });
}

INSTANTIATE_TEST_SUITE_P(Bundled, OddQuantization,
                         testing::Values(test::bundled_model("llama_tied")), test::golden_name);

using OddStoredFormats = OddFiles;
TEST_P(OddStoredFormats, RunOrAreRefused) {
  const Json config = Json::parse(test::read_file(GetParam() / "config.json"));
  const std::string modelopt = "hf_quant_config.json";
  const auto run = [&] { run_some_tokens(dir_.path()); };
  if (fs::exists(GetParam() / modelopt))
    try_odd_values(modelopt, Json::parse(test::read_file(GetParam() / modelopt)), 10, run);
  try_odd_values("config.json", config, 20, run);
}

fs::path bundled_format(const char* name) {
  return test::source_dir() / "tests/data/formats" / name;
}
INSTANTIATE_TEST_SUITE_P(Bundled, OddStoredFormats,
                         testing::Values(bundled_format("ct_int4_g32_asym"),
                                         bundled_format("modelopt_nvfp4_hfq")),
                         test::golden_name);

void read_text(const fs::path& model) {
  const Tokenizer tokenizer = Tokenizer::load(model);
  const std::vector<int32_t> ids = tokenizer.encode(" Hello wörld, 12345 \n\t\xff<s>", true);
  tokenizer.decode(ids, true);
  read_chat_files(model);
}

using OddTokenizers = OddFiles;
TEST_P(OddTokenizers, ReadOrAreRefused) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "tekken.json"}) {
    if (!fs::exists(GetParam() / name)) continue;
    const Json json = Json::parse(test::read_file(GetParam() / name));
    try_odd_values(name, json, test::is_brief() ? 6 : 20, [&] { read_text(dir_.path()); });
  }
}

// The files of tokens that a vocabulary which is no tokenizer.json has beside it.
TEST_P(OddTokenizers, WithOddNamesOfTokens) {
  const Json token{{"content", "<s>"}, {"lstrip", false},      {"normalized", false},
                   {"special", true},  {"single_word", false}, {"rstrip", false}};
  const Json special{{"bos_token", token}, {"eos_token", "</s>"}, {"extra_tokens", {"<a>"}}};
  const Json config{{"bos_token", token},
                    {"eos_token", "</s>"},
                    {"add_bos_token", true},
                    {"model_max_length", 1e30},
                    {"added_tokens_decoder", {{"300", token}}},
                    {"additional_special_tokens", {"<a>", token}},
                    {"chat_template", {{{"name", "default"}, {"template", "{{ messages }}"}}}}};
  for (const auto& [name, json] :
       {std::pair{"special_tokens_map.json", special},
        {"tokenizer_config.json", config},
        {"added_tokens.json", Json{{"<a>", 301}}},
        {"chat_template.json", Json{{"chat_template", "{{ bos_token }}"}}}})
    try_odd_values(name, json, test::is_brief() ? 2 : 5, [&] { read_text(dir_.path()); });
}

std::vector<fs::path> tokenizers() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(test::source_dir() / "tests/data/text"))
    if (entry.is_directory()) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

INSTANTIATE_TEST_SUITE_P(Bundled, OddTokenizers, testing::ValuesIn(tokenizers()),
                         test::golden_name);

}  // namespace
}  // namespace sluice
