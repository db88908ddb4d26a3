// The table of GGUF's architectures: what keys, names and values are those of the hub's config.json
// and tensors.
#include <algorithm>
#include <array>
#include <iterator>

#include "src/models/gguf/architectures/rows.h"
#include "src/models/gguf/gguf_export.h"

namespace sluice {
namespace {

constexpr std::string_view kEncoder = "an encoder, whose tokens attend to those behind them, too",
                           kDiffusion = "a diffusion model, which fills in tokens in any order",
                           kRwkv = "a recurrence of the RWKV kind",
                           kSounds = "a part of a model, for sounds",
                           kDraft = "a model that drafts tokens for another one";

struct GgufRefusal {
  std::string_view name;
  std::string_view why;
};
constexpr auto kRefusals = std::to_array<GgufRefusal>({
    {"bert", kEncoder},
    {"modern-bert", kEncoder},
    {"nomic-bert", kEncoder},
    {"nomic-bert-moe", kEncoder},
    {"neo-bert", kEncoder},
    {"jina-bert-v2", kEncoder},
    {"jina-bert-v3", kEncoder},
    {"eurobert", kEncoder},
    {"gemma-embedding", kEncoder},
    {"llama-embed", kEncoder},
    {"t5encoder", kEncoder},
    {"t5", "an encoder and a decoder"},
    {"dream", kDiffusion},
    {"llada", kDiffusion},
    {"llada-moe", kDiffusion},
    {"rnd1", kDiffusion},
    {"rwkv6", kRwkv},
    {"rwkv6qwen2", kRwkv},
    {"rwkv7", kRwkv},
    {"arwkv7", kRwkv},
    {"clip", "a part of a model, for images"},
    {"wavtokenizer-dec", kSounds},
    {"qwen3tts", kSounds},
    {"pockettts", kSounds},
    {"eagle3", kDraft},
    {"dflash", kDraft},
    {"gemma4-assistant", kDraft},
    {"gptoss", "Ollama's own form of gpt-oss"},
    {"cogvlm", "a model with other weights for images in each layer"},
});

}  // namespace

std::string_view why_gguf_is_refused(std::string_view architecture) {
  const auto found = std::ranges::find(kRefusals, architecture, &GgufRefusal::name);
  return found == kRefusals.end() ? std::string_view() : found->why;
}

const std::vector<GgufArchitecture>& gguf_architectures() {
  static const std::vector<GgufArchitecture> all = [] {
    namespace from = gguf_rows;
    std::vector<GgufArchitecture> list;
    for (auto* rows : {from::expert_decoders, from::latent_decoders, from::stream_decoders,
                       from::decoders, from::state_decoders, from::window_decoders, from::gemmas})
      std::ranges::copy(rows(), std::back_inserter(list));
    return list;
  }();
  return all;
}

std::vector<const GgufArchitecture*> gguf_rows_for(const Model& model) {
  bool has_latents = false, has_experts = false;
  each<MlaSpec>(model.spec, [&](const MlaSpec&) { has_latents = true; });
  each<ExpertsSpec>(model.spec, [&](const ExpertsSpec&) { has_experts = true; });
  std::vector<std::string_view> classes{model.files.architecture};
  if (has_latents) {
    classes.insert(classes.end(), {"DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM"});
  } else {
    classes.emplace_back("LlamaForCausalLM");
  }
  std::vector<const GgufArchitecture*> rows;
  for (const std::string_view name : classes) {
    for (const bool fits : {true, false}) {
      for (const GgufArchitecture& row : gguf_architectures()) {
        const bool does_fit = has_experts == (row.scores != GgufScores::none);
        if (row.architecture == name && does_fit == fits &&
            std::ranges::find(rows, &row) == rows.end())
          rows.push_back(&row);
      }
    }
  }
  return rows;
}

std::vector<GgufDivision> gguf_divisions(const LayerSpec& layer) {
  std::vector<GgufDivision> all;
  const auto add = [&](const std::string& name, int64_t rows) {
    all.push_back({name + ".weight", rows});
  };
  each<ConvolutionSpec>(layer, [&](const ConvolutionSpec& convolution) {
    add(convolution.name, convolution.width);
    for (const std::string& source : convolution.sources) add(source, convolution.width);
  });
  each<Mamba2Spec>(layer, [&](const Mamba2Spec& mixer) {
    if (mixer.norm_parts > 0) add(mixer.norm.name, mixer.heads.size / mixer.norm_parts);
  });
  each<MlaSpec>(layer, [&](const MlaSpec& mla) {
    add(mla.keys.source, mla.transposed_keys ? mla.rank : mla.nope_dim);
    add(mla.values.source, mla.value_dim);
  });
  return all;
}

}  // namespace sluice
