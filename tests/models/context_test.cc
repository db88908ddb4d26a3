// Number of positions that a model is made for, by its config.json. The configs are those that are
// published, and the numbers what their model cards promise.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "src/models/registry.h"

namespace sluice {
namespace {

struct Context {
  const char* architecture;
  const char* config;
  int64_t usable;
  std::optional<int64_t> most = std::nullopt;  // positions beyond have no meaning
};

std::ostream& operator<<(std::ostream& out, const Context& c) {
  return out << c.architecture << " " << c.config;
}

DecoderSpec parse(const Context& context) {
  Json config = Json::parse(context.config);
  config["architectures"] = {context.architecture};
  const JsonFields fields(config, "config.json");
  return find_family(fields).parse(fields);
}

TEST(ContextLength, IsThatOfTheConfigWithItsScaling) {
  const std::vector<Context> contexts{
      {"LlamaForCausalLM", R"({"max_position_embeddings": 4096})", 4096},
      // The scaling is in max_position_embeddings already.
      {"LlamaForCausalLM", R"({"max_position_embeddings": 131072, "rope_scaling": {
           "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}})",
       131072},
      {"Gemma3ForCausalLM", R"({"max_position_embeddings": 131072, "rope_scaling": {
           "rope_type": "linear", "factor": 8.0}})",
       131072},
      {"MistralForCausalLM", R"({"max_position_embeddings": 262144, "rope_parameters": {
           "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384,
           "rope_theta": 1000000.0}})",
       262144},
      // It comes to them.
      {"LlamaForCausalLM", R"({"max_position_embeddings": 4096, "rope_scaling": {
           "type": "linear", "factor": 4.0}})",
       16384},
      {"LlamaForCausalLM", R"({"max_position_embeddings": 2048, "rope_scaling": {
           "type": "dynamic", "factor": 2.0}})",
       4096},
      {"Qwen2ForCausalLM", R"({"max_position_embeddings": 32768, "rope_scaling": {
           "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}})",
       131072},
      // A window bounds what a token attends to, not the text.
      {"MistralForCausalLM", R"({"max_position_embeddings": 32768, "sliding_window": 4096})",
       32768},
      {"GPT2LMHeadModel", R"({"n_positions": 1024})", 1024, 1024},
      {"OPTForCausalLM", R"({"max_position_embeddings": 2048})", 2048, 2048},
      {"BloomForCausalLM", R"({"seq_length": 2048})", 2048},
  };
  for (const Context& context : contexts) {
    const DecoderSpec spec = parse(context);
    EXPECT_EQ(spec.usable_positions(), context.usable) << context;
    EXPECT_EQ(spec.most_positions(), context.most) << context;
  }
}

TEST(ContextLength, OfLongropeIsThatOfTheLongFactors) {
  const std::vector<double> ones(48, 1.0);
  const Json config{
      {"architectures", {"Phi3ForCausalLM"}},
      {"max_position_embeddings", 131072},
      {"original_max_position_embeddings", 4096},
      {"rope_scaling", {{"type", "longrope"}, {"short_factor", ones}, {"long_factor", ones}}}};
  const JsonFields fields(config, "config.json");
  EXPECT_EQ(find_family(fields).parse(fields).usable_positions(), 131072);
}

}  // namespace
}  // namespace sluice
