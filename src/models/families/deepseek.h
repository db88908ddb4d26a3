// Multi-head latent attention (MLA, arXiv:2405.04434) of DeepSeek, which other
// families have, too.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/json.h"
#include "src/models/decoder_spec.h"
#include "src/models/layout.h"

namespace sluice {

// Defaults of the config class for absent keys.
struct MlaDefaults {
  int64_t query_rank = 1536;  // q_lora_rank; where that is null, queries have no smaller rank
  int64_t rank = 512;         // kv_lora_rank
  int64_t rope_dim = 64;
  int64_t nope_dim = 128;
  int64_t value_dim = 128;
  bool may_interleave = true;  // there is a key rope_interleave; else pairs are neighbours
};

// The elements of a head that are rotated, and all of a query's.
int64_t read_rope_dim(const JsonFields& config, const MlaDefaults& defaults);
int64_t read_query_dim(const JsonFields& config, const MlaDefaults& defaults);
// Defaults of the layout with heads of the rotated elements, whatever head_dim says: the classes
// set it so, and releases have other sizes there.
LayoutDefaults latent_defaults(const JsonFields& config, const MlaDefaults& mla,
                               LayoutDefaults defaults);

// Puts MLA in the place of a layer's attention. `rope`: of its rotated part, the model's first.
void use_mla(const JsonFields& config, const MlaDefaults& defaults, const RopeConfig& rope,
             LayerSpec& layer);

// Makes vectors of lower rank as long as those of the residual stream. Error(refused) where queries
// have none.
void scale_low_ranks(const JsonFields& config, int64_t hidden_size, MlaSpec& mla);

// The positions of a row that an indexer may choose: each takes room in every run.
inline constexpr int64_t kMostChosen = 65536;

// Refuses an indexer's heads of sizes that are not supported.
void check_indexer(const JsonFields& config, int64_t heads, int64_t head_dim, int64_t rope_dim);

// Lets a layer with MLA attend to the positions that its indexer chooses (DeepSeek-V3.2,
// arXiv:2512.02556), or with `shared` to those of the layer before.
struct IndexerDefaults {
  int64_t heads = 64;
  RopePairing rope = RopePairing::halves;
};
void use_indexer(const JsonFields& config, const IndexerDefaults& defaults, bool shared,
                 LayerSpec& layer);

// DeepSeek-V3's experts: <mlp>.gate, its e_score_correction_bias, experts and
// shared_experts. How they are chosen is left to the family.
struct DeepseekExperts {
  int64_t count = 256;
  int64_t top_k = 8;
  int64_t width = 2048;
  int64_t shared = 1;
};
ExpertsSpec deepseek_experts(const JsonFields& config, const DeepseekExperts& defaults,
                             const MlpSpec& mlp);

// Finds the layers with experts: those that mlp_layer_types calls sparse, or all after the first
// first_k_dense_replace.
std::vector<bool> read_mlp_layer_types(const JsonFields& config, int64_t layers,
                                       int64_t absent_dense);
// The same, where without mlp_layer_types experts are in each moe_layer_freq-th of them.
std::vector<bool> read_spaced_experts(const JsonFields& config, int64_t layers,
                                      int64_t absent_dense);

// Lets tensors of layers for several tokens at once, behind the others, be
// ignored.
void ignore_more_layers(const JsonFields& config, DecoderSpec& spec);

}  // namespace sluice
