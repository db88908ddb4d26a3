// Defaults of families with attention to summaries of windows: what they take for absent keys.
#include <gtest/gtest.h>

#include <string>

#include "tests/models/families.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

void expect_sizes(const SummaryAttentionSpec& a, const Json& expected) {
  EXPECT_EQ(a.heads.units(), expected["num_attention_heads"]);
  EXPECT_EQ(a.head_dim, expected["head_dim"]);
  EXPECT_EQ(a.query_rank, expected["q_lora_rank"]);
  EXPECT_EQ(a.window, expected["sliding_window"]);
  EXPECT_EQ(a.groups, expected["o_groups"]);
  EXPECT_EQ(a.group_rank, expected["o_lora_rank"]);
  if (!a.indexer) return;
  EXPECT_EQ(a.indexer->heads, expected["index_n_heads"]);
  EXPECT_EQ(a.indexer->keys.dim, expected["index_head_dim"]);
  EXPECT_EQ(a.indexer->chosen, expected["index_topk"]);
}

void expect_sizes(const ExpertsSpec& experts, const Json& expected) {
  EXPECT_EQ(experts.count, expected["n_routed_experts"]);
  EXPECT_EQ(experts.choice.top_k, expected["num_experts_per_tok"]);
  EXPECT_EQ(experts.choice.factor, expected["routed_scaling_factor"].get<float>());
  EXPECT_EQ(experts.expert.width.size, expected["moe_intermediate_size"]);
  EXPECT_EQ(experts.expert.limit, expected["swiglu_limit"].get<float>());
}

TEST(Families, AbsentKeysOfModelsWithSummariesHaveTheDefaultsOfTransformers) {
  const Json golden =
      parse_json(test::read_file(test::source_dir() / "tests/data/configs/config_defaults.json"),
                 "config_defaults.json");
  for (const auto& [architecture, expected] : golden["summaries"].items()) {
    const DecoderSpec c = parse_family(architecture, Json::object());
    EXPECT_EQ(c.vocab_size, expected["vocab_size"]);
    EXPECT_EQ(c.hidden_size, expected["hidden_size"]);
    EXPECT_EQ(c.max_positions, expected["max_position_embeddings"]);
    EXPECT_EQ(c.norm.params.eps, expected["rms_norm_eps"].get<float>());
    EXPECT_EQ(c.tie_word_embeddings, expected["tie_word_embeddings"]);
    EXPECT_EQ(c.streams.count, expected["hc_mult"]);
    EXPECT_EQ(c.streams.iterations, expected["hc_sinkhorn_iters"]);
    EXPECT_EQ(c.streams.eps, expected["hc_eps"].get<float>());
    ASSERT_EQ(c.layers.size(), expected["layer_types"].size());
    for (size_t l = 0; l < c.layers.size(); ++l) {
      const auto& a = std::get<SummaryAttentionSpec>(c.layer(l).mixers.front().mixer);
      const ExpertsSpec& experts = *c.layer(l).mlps.front().experts;
      expect_sizes(a, expected);
      expect_sizes(experts, expected);
      const std::string type = expected["layer_types"][l];
      ASSERT_EQ(a.summaries.has_value(), expected["compress_rates"].contains(type));
      if (a.summaries) {
        EXPECT_EQ(a.summaries->tokens, expected["compress_rates"][type]);
      }
      EXPECT_EQ(a.indexer.has_value(), type == "compressed_sparse_attention");
      EXPECT_EQ(experts.choice_table.empty(), expected["mlp_layer_types"][l] == "moe");
      const Json& rope = expected["rope_parameters"][a.summaries ? "compress" : "main"];
      EXPECT_EQ(c.ropes[a.angles].theta, rope["rope_theta"]);
      EXPECT_EQ(static_cast<double>(c.ropes[a.angles].dim),
                static_cast<double>(a.head_dim) * rope["partial_rotary_factor"].get<double>());
    }
  }
}

// Keys of checkpoints as DeepSeek publishes them: one rope, numbers of tokens, lists for more
// layers.
TEST(Families, DeepseekV4HasKeysOfTwoKinds) {
  const Json published{{"num_hidden_layers", 3},
                       {"compress_ratios", {0, 4, 128, 0}},
                       {"num_hash_layers", 1},
                       {"head_dim", 64},
                       {"qk_rope_head_dim", 16},
                       {"rope_theta", 5000},
                       {"compress_rope_theta", 70000},
                       {"rope_scaling",
                        {{"type", "yarn"},
                         {"factor", 16},
                         {"original_max_position_embeddings", 65536},
                         {"beta_fast", 32},
                         {"beta_slow", 1}}}};
  const DecoderSpec c = parse_family("DeepseekV4ForCausalLM", published);
  const auto attention = [&](size_t layer) {
    return std::get<SummaryAttentionSpec>(c.layer(layer).mixers.front().mixer);
  };
  EXPECT_FALSE(attention(0).summaries);
  EXPECT_EQ(attention(1).summaries->tokens, 4);
  EXPECT_EQ(attention(2).summaries->tokens, 128);
  EXPECT_FALSE(c.layer(0).mlps.front().experts->choice_table.empty());
  EXPECT_TRUE(c.layer(1).mlps.front().experts->choice_table.empty());
  const RopeConfig &own = c.ropes[attention(0).angles], &with = c.ropes[attention(1).angles];
  EXPECT_EQ(own.kind, RopeKind::plain);
  EXPECT_EQ(own.theta, 5000);
  EXPECT_EQ(own.dim, 16);
  EXPECT_EQ(with.kind, RopeKind::yarn);
  EXPECT_EQ(with.theta, 70000);
  EXPECT_EQ(with.attention_factor, 1);
  EXPECT_TRUE(c.ropes[attention(1).reversed_angles].reversed);
  EXPECT_EQ(c.ropes[attention(1).summaries->angles].window, 4);
}

TEST(Families, DeepseekV4RefusesWhatItHasNot) {
  const auto refused = [](const Json& fields) {
    return refusal("DeepseekV4ForCausalLM", fields) != "accepted";
  };
  EXPECT_TRUE(refused({{"num_hidden_layers", 2}, {"compress_ratios", {0, 5}}}));
  EXPECT_TRUE(refused({{"num_hidden_layers", 2}, {"compress_ratios", {4}}}));
  EXPECT_TRUE(refused({{"compress_rates", {{"heavily_compressed_attention", 100}}}}));
  EXPECT_TRUE(refused({{"o_groups", 7}}));
  EXPECT_TRUE(refused({{"hc_mult", 9}}));
  EXPECT_TRUE(refused({{"scoring_func", "softmax"}}));
  EXPECT_TRUE(refused({{"index_head_dim", 32}}));
  EXPECT_TRUE(refused({{"swiglu_limit", nullptr}}));
}

}  // namespace
}  // namespace sluice
