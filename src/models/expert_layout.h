// Parts that the layouts of families with experts share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/base/json.h"
#include "src/models/decoder_spec.h"

namespace sluice {

// config.json's keys, and the defaults of the family's config class.
struct ExpertKeys {
  std::initializer_list<const char*> count = {"num_experts", "num_local_experts"};  // either
  int64_t absent_count = 0;
  const char* top_k = "num_experts_per_tok";
  int64_t absent_top_k = 0;
};
// Reads the number of experts, and of those of a token. Throws Error(refused) that names the key.
ExpertsSpec read_experts(const JsonFields& config, const ExpertKeys& keys);

// Defaults of the keys n_group, topk_group, norm_topk_prob and
// routed_scaling_factor, and what a class calls the first and the third.
struct GroupedChoice {
  bool normalized = true;
  int64_t groups = 1;
  int64_t top_k_groups = 1;
  double factor = 1;
  const char* groups_key = "n_group";
  const char* normalized_key = "norm_topk_prob";
  bool may_lack_factor = false;  // a null is the default
};
// Sigmoid scores with a bias for the choice, and groups (DeepSeek-V3's router), of which a null
// means none.
void read_grouped_choice(const JsonFields& config, const GroupedChoice& absent,
                         ExpertsSpec& experts);

// The MLP under another name, and of another width.
MlpSpec mlp_like(const MlpSpec& mlp, const std::string& name, int64_t width);

// Names experts <mlp>.experts.{e}, each with the MLP's matrices without biases, and the router
// <mlp>.gate.
void name_experts(ExpertsSpec& experts, const MlpSpec& mlp, int64_t width);

// Experts whose gate and up are parts of one tensor of all experts, and whose down is another.
void stack_experts(ExpertsSpec& experts, const std::string& gate_up, const std::string& down,
                   bool bare);

// Stacks experts where the checkpoint has tensors of all of them.
void choose_expert_layout(DecoderSpec& spec, const io::CheckpointIndex& index);

// Puts experts in the place of the MLP of those layers for which `sparse` says so.
void use_experts(DecoderSpec& spec, const ExpertsSpec& experts, const std::vector<bool>& sparse);
// All from a layer on.
std::vector<bool> sparse_from(int64_t first, int64_t layers);
// Each decoder_sparse_step-th that mlp_only_layers does not name.
std::vector<bool> read_sparse_layers(const JsonFields& config, int64_t layers);

}  // namespace sluice
