// The list of architectures. A family is one short file that knows its config.json and its
// checkpoint's names; registry.cc lists them.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/base/json.h"
#include "src/models/config.h"
#include "src/models/decoder.h"

namespace sluice {

struct Family {
  std::string_view architecture;  // as `architectures` of config.json names it
  std::string_view model_type;    // as `model_type` does
  DecoderSpec (*parse)(const JsonFields& config);
  // Patterns ('*' matches anything) of checkpoint tensors that the family knows and does not need,
  // beside those that no family needs. They are listed, not read.
  std::vector<std::string_view> ignorable = {};
  // Further values of `model_type` in a text_config: a wrapper's own names for this family.
  std::vector<std::string_view> text_types = {};
  bool reads_layer_config = false;  // `parse` reads per_layer_config
  // transformers has no class for it, and saves checkpoints that name another family's.
  bool of_type_alone = false;
};

std::span<const Family> families();
// A wrapper (Mistral3ForConditionalGeneration) is the family of its text_config; its tensors may
// have "language_model." in front or inside of their names, and its towers and projectors are
// ignored. The first that `architectures` names, in letters of either case; where it names none,
// the one of `model_type`, with a warning. Throws Error(refused) that names the supported ones.
const Family& find_family(const JsonFields& config);

// Each in the file of its name.
std::vector<Family> afmoe_families();
std::vector<Family> apertus_families();
std::vector<Family> arcee_families();
std::vector<Family> axk2_families();
std::vector<Family> baichuan_families();
std::vector<Family> bailing_families();
std::vector<Family> bamba_families();
std::vector<Family> bitnet_families();
std::vector<Family> bloom_families();
std::vector<Family> cohere_families();
std::vector<Family> cwm_families();
std::vector<Family> dbrx_families();
std::vector<Family> deci_families();
std::vector<Family> deepseek_families();
std::vector<Family> deepseek_v4_families();
std::vector<Family> dots1_families();
std::vector<Family> dots3_note_families();
std::vector<Family> ernie4_5_families();
std::vector<Family> exaone4_families();
std::vector<Family> falcon_families();
std::vector<Family> falcon_h1_families();
std::vector<Family> gemma_families();
std::vector<Family> gemma3n_families();
std::vector<Family> gemma4_families();
std::vector<Family> glm_families();
std::vector<Family> gpt2_families();
std::vector<Family> gpt_neo_families();
std::vector<Family> gpt_neox_families();
std::vector<Family> gpt_oss_families();
std::vector<Family> gptj_families();
std::vector<Family> granite_families();
std::vector<Family> helium_families();
std::vector<Family> hunyuan_families();
std::vector<Family> jamba_families();
std::vector<Family> kimi_linear_families();
std::vector<Family> kolibri1_families();
std::vector<Family> laguna_families();
std::vector<Family> lara_mini_families();
std::vector<Family> lfm2_families();
std::vector<Family> llama_families();
std::vector<Family> llama4_families();
std::vector<Family> longcat_flash_families();
std::vector<Family> mamba_families();
std::vector<Family> mamba2_families();
std::vector<Family> mimo_v2_flash_families();
std::vector<Family> minicpm_families();
std::vector<Family> minimax_families();
std::vector<Family> minimax_m2_families();
std::vector<Family> mistral_families();
std::vector<Family> mixtral_families();
std::vector<Family> mpt_families();
std::vector<Family> nanochat_families();
std::vector<Family> nemotron_families();
std::vector<Family> nemotron_h_families();
std::vector<Family> olmo_families();
std::vector<Family> opt_families();
std::vector<Family> orion_families();
std::vector<Family> persimmon_families();
std::vector<Family> phi_families();
std::vector<Family> phi3_families();
std::vector<Family> phimoe_families();
std::vector<Family> qwen_families();
std::vector<Family> qwen1_families();
std::vector<Family> qwen3_5_families();
std::vector<Family> seed_oss_families();
std::vector<Family> smollm3_families();
std::vector<Family> stablelm_families();
std::vector<Family> starcoder2_families();
std::vector<Family> stepfun_families();

// A model as its files describe it: placeholders only.
struct Model {
  ModelFiles files;
  DecoderSpec spec;  // as config.json has it; the root has it as it is
  std::vector<std::string>
      ignorable;  // patterns: of any family, of this one, and those that follow from the rest
  ModulesElsewhere elsewhere;  // which other ranks have
  std::unique_ptr<CausalLM> root;
};
// Reads everything in config.json: the model without its root.
Model read_model(const ModelSource& source);
// The same, of weights that differ from the hub's in `facts`.
Model read_model(const ModelSource& source, const SourceFacts& facts);
// Builds the tree of modules, or a part of it. Embedding and head follow from the tensors that the
// checkpoint has, too (embeddings.h); without an `index`, from config.json alone. Unless it
// `needs_head`, the model has none where the checkpoint has none.
void build_root(Model& model, Rank rank, const io::CheckpointIndex* index, bool needs_head = true,
                const PartRequest& part = {});
// Both, of the model in `directory`.
Model build_model(const std::filesystem::path& directory, Rank rank,
                  const io::CheckpointIndex* index = nullptr);

}  // namespace sluice
