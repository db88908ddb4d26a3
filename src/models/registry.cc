#include "src/models/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/formats/formats.h"
#include "src/models/embeddings.h"
#include "src/models/expert_layout.h"
#include "src/models/hub_shapes.h"
#include "src/models/layout.h"
#include "src/models/own_tensors.h"

namespace sluice {
namespace {

// Tensors that any checkpoint may hold beside its weights: tables that follow from config.json,
// masks, and remains of training.
constexpr std::array<std::string_view, 17> kIgnorable{
    "*.rotary_emb.*", "*.rotary_pos_emb.*", "*inv_freq",        "*cos_cached", "*sin_cached",
    "*rope.freqs",    "rope_freqs.*",       "rope_factors_*",   "*freqs_cis",  "*position_ids",
    "*.masked_bias",  "*.attn.bias",        "*.self_attn.bias", "optimizer.*", "lr_scheduler.*",
    "*.exp_avg",      "*.exp_avg_sq"};

// Modules of wrappers that a language model with its head is: of most, of Qwen's Omni models, of
// Ovis, and of DeepSeek-VL2.
constexpr std::array kWrappers{"language_model.", "model.language_model.", "thinker.", "llm.",
                               "language."};

// Parts that a wrapper has beside its language model.
constexpr std::array<std::string_view, 16> kBesideLanguageModel{"vision_tower.*",
                                                                "*.vision_tower.*",
                                                                "vision_model.*",
                                                                "*.vision_model.*",
                                                                "visual.*",
                                                                "*.visual.*",
                                                                "multi_modal_projector.*",
                                                                "*.multi_modal_projector.*",
                                                                "audio_tower.*",
                                                                "*.audio_tower.*",
                                                                "*.embed_vision.*",
                                                                "*.embed_audio.*",
                                                                "mtp.*",
                                                                "*.mtp.*",
                                                                "mlp_AR.*",
                                                                "*.mlp_AR.*"};

bool same_letters(std::string_view a, std::string_view b) {
  return lower_ascii(a) == lower_ascii(b);
}

// Returns whether a config.json names this family's class, or that of its model without a head.
bool is_class_of(const Family& family, std::string_view name) {
  constexpr std::string_view kEndings[] = {"ForCausalLM", "LMHeadModel"};
  if (same_letters(family.architecture, name)) return true;
  return std::ranges::any_of(kEndings, [&](std::string_view ending) {
    if (!family.architecture.ends_with(ending)) return false;
    const std::string_view stem =
        family.architecture.substr(0, family.architecture.size() - ending.size());
    return same_letters(std::string(stem) + "Model", name);
  });
}

std::vector<std::string> parse_architectures(const JsonFields& config) {
  std::vector<std::string> names;
  if (!config.has("architectures")) return names;
  const Json& list = config.raw("architectures");
  if (!list.is_array() || !std::ranges::all_of(list, &Json::is_string)) {
    fail(ErrorKind::refused, "{}: architectures must be a list of strings", config.where());
  }
  for (const Json& name : list) names.push_back(io::printable(name.get<std::string>()));
  return names;
}

[[noreturn]] void refuse_unknown(const JsonFields& config, const std::vector<std::string>& names,
                                 const std::string& model_type) {
  std::vector<std::string_view> known;
  for (const Family& f : families()) known.push_back(f.architecture);
  if (names.empty() && model_type.empty()) {
    fail(ErrorKind::refused,
         "{}: architectures and model_type are missing; architectures may name {}", config.where(),
         fmt::join(known, ", "));
  }
  std::string named = names.empty() ? "model_type is " + model_type
                                    : fmt::format("architectures names {}", fmt::join(names, ", "));
  const Family& nearest = std::ranges::min(families(), {}, [&](const Family& f) {
    return names.empty() ? edit_distance(model_type, f.model_type)
                         : edit_distance(names.front(), f.architecture);
  });
  fail(ErrorKind::refused,
       "{}: {}, which is not supported; the nearest supported one is {}; supported: {}",
       config.where(), named, nearest.architecture, fmt::join(known, ", "));
}

}  // namespace

std::vector<HubShape> hub_shapes(const Model& model) {
  const std::string& name = model.files.architecture;
  if (name == "DbrxForCausalLM") return dbrx_hub_shapes(model);
  if (name == "KimiLinearForCausalLM") return kimi_linear_hub_shapes(model);
  return {};
}

void refuse_without_class(const Model& model) {
  if (model.files.architecture == "DeepseekV2ForCausalLM") refuse_deepseek_ocr(model);
}

std::span<const Family> families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list;
    for (auto* families :
         {afmoe_families,         apertus_families,       arcee_families,       axk2_families,
          baichuan_families,      bailing_families,       bamba_families,       bitnet_families,
          bloom_families,         cohere_families,        cwm_families,         dbrx_families,
          deci_families,          deepseek_families,      deepseek_v4_families, dots1_families,
          dots3_note_families,    ernie4_5_families,      exaone4_families,     falcon_families,
          falcon_h1_families,     gemma3n_families,       gemma4_families,      gemma_families,
          glm_families,           gpt2_families,          gpt_neo_families,     gpt_neox_families,
          gpt_oss_families,       gptj_families,          granite_families,     helium_families,
          hunyuan_families,       jamba_families,         kimi_linear_families, kolibri1_families,
          laguna_families,        lara_mini_families,     lfm2_families,        llama4_families,
          llama_families,         longcat_flash_families, mamba2_families,      mamba_families,
          mimo_v2_flash_families, minicpm_families,       minimax_families,     minimax_m2_families,
          mistral_families,       mixtral_families,       mpt_families,         nanochat_families,
          nemotron_families,      nemotron_h_families,    olmo_families,        opt_families,
          orion_families,         persimmon_families,     phi3_families,        phi_families,
          phimoe_families,        qwen1_families,         qwen3_5_families,     qwen_families,
          seed_oss_families,      smollm3_families,       stablelm_families,    starcoder2_families,
          stepfun_families})
      std::ranges::copy(families(), std::back_inserter(list));
    return list;
  }();
  return all;
}

const Family& find_family(const JsonFields& config) {
  std::vector<std::string> names = parse_architectures(config);
  std::string model_type = io::printable(config.string_or("model_type", ""));
  auto of_type = std::ranges::find_if(families(), [&](const Family& f) {
    return f.model_type == model_type || std::ranges::count(f.text_types, model_type) > 0;
  });
  if (of_type != families().end() && of_type->of_type_alone) return *of_type;
  for (const std::string& name : names) {
    auto family =
        std::ranges::find_if(families(), [&](const Family& f) { return is_class_of(f, name); });
    if (family == families().end()) continue;
    if (of_type != families().end() && of_type != family) {
      log::warning("{}: architectures names {} but model_type is {}; using architectures",
                   config.where(), name, model_type);
    }
    return *family;
  }
  if (of_type == families().end()) refuse_unknown(config, names, model_type);
  if (!names.empty()) {
    log::warning("{}: unknown architecture {}; using {}, because model_type is {}", config.where(),
                 names.front(), of_type->architecture, model_type);
  }
  return *of_type;
}

// Parts of one tensor become tensors of the module `name`.
void take_apart(LinearSpec& linear, const std::string& name,
                std::initializer_list<const char*> parts) {
  if (linear.parts.size() != parts.size() || linear.parts[0].source != linear.parts[1].source ||
      linear.parts[0].stacked)
    return;
  for (size_t i = 0; i < parts.size(); ++i) linear.parts[i] = {name + parts.begin()[i]};
}

void take_latent_parts(MlaSpec& mla) {
  mla.keys = {mla.name + ".k_b_proj"};
  mla.values = {mla.name + ".v_b_proj"};
  mla.transposed_keys = true;
}

// The tensor of q, k and v, if they have one, has all of q, then all of k, then all of v.
void stack_heads(AttentionSpec& attention) {
  const std::vector<PartSpec>& stored = attention.qkv.parts;
  if (stored.size() > 1 && stored[0].source != stored[1].source) return;
  int64_t first = 0;
  for (size_t i = 0; i < attention.qkv.parts.size(); ++i) {
    attention.qkv.parts[i].view = {.first = first};
    first += i == 0 ? attention.heads.size : attention.kv_heads.size;
  }
}

// The same of a gated DeltaNet, whose gate has a tensor of its own.
void stack_heads(GatedDeltaNetSpec& mixer) {
  const std::string source = mixer.input.parts.front().source;
  const int64_t keys = mixer.key_heads.size;
  mixer.input.parts[0] = {source};
  mixer.input.parts[1] = {source, {.first = keys}};
  mixer.input.parts[2] = {source, {.first = 2 * keys}};
  mixer.input.parts[3] = {mixer.name + ".in_proj_z"};
}

// A rank has every key head, and value heads of each.
void tile_heads(GatedDeltaNetSpec& mixer) {
  if (mixer.heads.units() == mixer.key_heads.units()) return;
  mixer.tiled = true;
  mixer.heads.multiple_of = mixer.key_heads.units() * mixer.value_dim;
  mixer.key_heads.unit = mixer.key_heads.size;
}

void apply(const SourceFacts& facts, GatedDeltaNetSpec& mixer) {
  if (facts.stacked_heads) stack_heads(mixer);
  if (facts.tiled_heads) tile_heads(mixer);
  mixer.negative_rates = facts.negative_rates;
}

// Refuses what the decoder cannot be made with.
void apply(const SourceFacts& facts, Model& model) {
  const auto refuse = [&](std::string_view what) {
    fail(ErrorKind::refused, "{}: {}, which is not supported; give the model as safetensors",
         model.files.config_name, what);
  };
  DecoderSpec& spec = model.spec;
  if (facts.outputs_first)
    each<PartSpec>(spec, [](PartSpec& part) { part.view.transposed = false; });
  each<AttentionSpec>(spec, [&](AttentionSpec& attention) {
    if (facts.stacked_heads) stack_heads(attention);
    if (facts.parts_apart)
      take_apart(attention.qkv, attention.name, {".q_proj", ".k_proj", ".v_proj"});
    if (facts.interleaved_rope && attention.rope) attention.rope = RopePairing::neighbours;
  });
  if (facts.parts_apart)
    each<MlpSpec>(spec,
                  [](MlpSpec& mlp) { take_apart(mlp.up, mlp.name, {".gate_proj", ".up_proj"}); });
  if (facts.latent_parts) each<MlaSpec>(spec, take_latent_parts);
  each<GatedDeltaNetSpec>(spec, [&](GatedDeltaNetSpec& mixer) { apply(facts, mixer); });
  each<Mamba2Spec>(spec, [&](Mamba2Spec& m) { m.negative_rates = facts.negative_rates; });
  each<MambaSpec>(spec, [&](MambaSpec& m) { m.negative_rates = facts.negative_rates; });
  if (!use_layer_counts(spec, facts.layers))
    refuse(
        "its layers differ in their numbers of KV heads, or in the widths of their MLPs, or are "
        "not as many as those numbers");
  if (facts.norms_have_one) each_norm(spec, [](NormSpec& norm) { norm.params.weight_offset = 0; });
  if (facts.rope_factors.empty() || spec.ropes.empty()) return;
  if (facts.factored_rope >= spec.ropes.size())
    refuse("it has factors of rotary frequencies that no layer of its config uses");
  RopeConfig& rope = spec.ropes[facts.factored_rope];
  std::vector<double> factors = facts.rope_factors;
  // Behind those of a part of a head there may be ones.
  while (std::ssize(factors) > rope.dim / 2 && factors.back() == 1) factors.pop_back();
  if (std::ssize(factors) != rope.dim / 2 ||
      !std::ranges::all_of(factors, [](double f) { return f > 0 && std::isfinite(f); })) {
    fail(ErrorKind::refused,
         "{}: the factors of the rotary frequencies must be {} positive numbers",
         model.files.config_name, rope.dim / 2);
  }
  rope.factors = std::move(factors);
}

// Prefixes that names have in wrappers, where by themselves they have `own`, the first.
std::vector<std::string> prefixes_in_wrappers(const DecoderSpec& spec) {
  const std::string own = spec.embedding.substr(0, spec.embedding.find('.') + 1);
  std::vector<std::string> prefixes{own, "model.language_model."};
  for (const char* wrapper : kWrappers) prefixes.push_back(wrapper + own);
  prefixes.insert(prefixes.end(), {"language_model.", "model.text_model."});
  return prefixes;
}

Model read_model(const ModelSource& source) { return read_model(source, source.facts()); }

Model read_model(const ModelSource& source, const SourceFacts& facts) {
  Model model;
  model.files = read_model_files(source);
  JsonFields fields(model.files.config, model.files.config_name);
  const Family& family = find_family(fields);
  model.files.architecture = family.architecture;
  model.spec = family.parse(fields);
  if (!family.reads_layer_config &&
      !use_layer_counts(model.spec, read_layer_counts(fields, model.spec.layers.size())))
    fail(ErrorKind::refused, "{}: per_layer_config has sizes that layers of a {} cannot have",
         model.files.config_name, family.architecture);
  apply(facts, model);
  model.ignorable.assign(kIgnorable.begin(), kIgnorable.end());
  model.ignorable.insert(model.ignorable.end(), family.ignorable.begin(), family.ignorable.end());
  if (!model.files.wrapper) return model;
  model.ignorable.insert(model.ignorable.end(), kBesideLanguageModel.begin(),
                         kBesideLanguageModel.end());
  std::ranges::copy(prefixes_in_wrappers(model.spec), std::back_inserter(model.spec.prefixes));
  return model;
}

namespace {

// The prefix under which the checkpoint has the embedding or the final norm. Where it has both
// under none of those that the family knows, it may be the model without its head, whose names have
// no prefix at all.
void choose_prefix(DecoderSpec& spec, const io::CheckpointIndex& index,
                   const StoredFormats& formats) {
  const std::string base = spec.embedding.substr(0, spec.embedding.find('.') + 1);
  const std::string declared = spec.prefixes.empty() ? base : spec.prefixes.front();
  auto is_under = [&](const std::string& from, const std::string& to) {
    return std::ranges::any_of(std::array{spec.norm.name, spec.embedding}, [&](const auto& name) {
      return name.starts_with(from) && index.is_named(to + name.substr(from.size()) + ".weight");
    });
  };
  auto known = std::ranges::find_if(
      spec.prefixes, [&](const std::string& prefix) { return is_under(declared, prefix); });
  if (known != spec.prefixes.end()) {
    replace_prefix(spec, declared, *known);
  } else if (!is_under(base, base) && is_under(base, "")) {
    replace_prefix(spec, base, "");
  }
  // A head of a language model that is a module of a wrapper.
  for (const char* wrapper : kWrappers) {
    const std::string wrapped = wrapper + spec.head;
    if (formats.has(wrapped + ".weight")) spec.head = wrapped;
  }
}

void choose_other_names(DecoderSpec& spec, const io::CheckpointIndex& index,
                        const StoredFormats& formats) {
  const auto has = [&](const std::string& name) {
    for (int64_t l = 0; l < std::ssize(spec.layers); ++l) {
      const std::string there = name_in_layer(name, l);
      if (formats.has(there + ".weight") || index.is_named(there)) return true;
    }
    return false;
  };
  for (const auto& [name, other] : std::vector(spec.other_names))
    if (!has(name) && has(other)) replace_prefix(spec, name, other);
}

std::string component(std::string_view name, size_t begin) {
  return std::string(name.substr(begin, name.find('.', begin) - begin));
}

// Patterns of a wrapper's tensors beside its language model, of which all names but the head's have
// this prefix: of each tensor the components up to the first that is another one than the prefix's,
// or behind a prefix that is not the model's alone, than those of its names.
std::set<std::string> other_parts(const DecoderSpec& spec, std::string_view prefix,
                                  const io::CheckpointIndex& index) {
  const bool alone = !prefix.empty() && prefix != spec.prefixes.front();
  std::set<std::string> own, patterns;
  each<std::string>(spec, [&](const std::string& name) {
    if (name.starts_with(prefix)) own.insert(component(name, prefix.size()));
  });
  for (const io::StoredTensor& tensor : index.tensors()) {
    const std::string_view name = tensor.name;
    const auto same = static_cast<size_t>(std::ranges::mismatch(name, prefix).in1 - name.begin());
    const bool is_own = same == prefix.size() && (alone || own.contains(component(name, same)));
    if (is_own || name.starts_with(spec.head)) continue;
    const size_t end = name.find('.', same);
    patterns.insert(end == std::string_view::npos ? tensor.name
                                                  : tensor.name.substr(0, end) + ".*");
  }
  return patterns;
}

// Parts of a linear layer become views of one tensor, where the checkpoint has it under the name
// that they have together (vLLM's sharded_state).
void choose_fused(DecoderSpec& spec, const io::CheckpointIndex& index) {
  const auto is_stored = [&](const LinearSpec& linear) {
    const size_t at = linear.name.find("{}");
    if (at == std::string::npos || linear.parts.front().source == linear.name) return false;
    for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
      std::string name = linear.name + ".weight";
      if (index.is_named(name.replace(at, 2, std::to_string(layer)))) return true;
    }
    return false;
  };
  each<AttentionSpec>(spec, [&](AttentionSpec& a) {
    const int64_t heads = a.heads.size, kv_heads = a.kv_heads.size;
    if (a.qkv.parts.size() == 3 && is_stored(a.qkv))
      fuse(a.qkv, std::string(a.qkv.name), {0, heads, heads + kv_heads});
  });
  each<MlpSpec>(spec, [&](MlpSpec& mlp) {
    if (mlp.up.parts.size() == 2 && is_stored(mlp.up))
      fuse(mlp.up, std::string(mlp.up.name), {0, mlp.width.size});
  });
}

// Gives each rank some of the experts.
void divide_experts(DecoderSpec& spec, Rank rank, const io::CheckpointIndex* index) {
  if (index != nullptr && index->ranks() > 1)
    fail(ErrorKind::usage,
         "--enable-expert-parallel: the checkpoint is cut for ranks that each have a part of every "
         "expert; leave the option out");
  int64_t fewest = 0;
  each<ExpertsSpec>(spec, [&](ExpertsSpec& experts) {
    experts.whole = true;
    fewest = fewest == 0 ? experts.count : std::min(fewest, experts.count);
  });
  if (fewest < rank.size)
    fail(ErrorKind::usage, "--enable-expert-parallel: {} experts are too few for {} ranks", fewest,
         rank.size);
}

// Refuses more layers than there are tensors, or more experts than rows of tensors: each costs
// memory before it is seen that its weights are missing.
void check_counts(const Model& model, const io::CheckpointIndex& index) {
  constexpr int64_t kFewModules = 256;
  const auto layers = static_cast<int64_t>(model.spec.layers.size());
  int64_t modules = layers, tensors = std::ssize(index.tensors()), rows = 0;
  for (const size_t kind : model.spec.layers)
    for (const MlpBranch& mlp : model.spec.kinds[kind].mlps)
      modules += mlp.experts ? mlp.experts->count : 0;
  if (modules <= kFewModules) return;
  for (const io::StoredTensor& tensor : index.tensors())
    rows += tensor.shape.size() > 0 ? tensor.shape[0] : 1;
  for (const io::AbsentTensors& absent : index.absent()) tensors += std::ssize(absent.names);
  if (layers <= tensors && modules <= rows * index.ranks()) return;
  for (const io::AbsentTensors& absent : index.absent()) index.refuse_absent(absent.names.front());
  fail(ErrorKind::refused,
       "{}: num_hidden_layers is {}, with {} experts in all; the checkpoint's {} tensors are too "
       "few",
       model.files.config_name, layers, modules - layers, tensors);
}

}  // namespace

void build_root(Model& model, Rank rank, const io::CheckpointIndex* index, bool needs_head,
                const PartRequest& part) {
  if (index != nullptr) {
    const StoredFormats formats(model.files.config, *index);
    choose_prefix(model.spec, *index, formats);
    choose_other_names(model.spec, *index, formats);
    const std::string& first = model.spec.embedding;
    const std::string prefix = first.substr(0, first.rfind('.') + 1);
    if (model.files.wrapper)
      std::ranges::copy(other_parts(model.spec, prefix, *index),
                        std::back_inserter(model.ignorable));
    choose_fused(model.spec, *index);
    // Classes of wrappers have defaults of their own, which hold where neither config says it.
    if (model.files.wrapper && !model.files.config.contains("tie_word_embeddings") &&
        !formats.has(model.spec.head + ".weight"))
      model.spec.tie_word_embeddings = true;
    choose_embeddings(model.spec, *index, formats);
    if (!needs_head) leave_out_head(model.spec, formats);
    choose_expert_layout(model.spec, *index);
    check_counts(model, *index);
  }
  model.ignorable.insert(model.ignorable.end(), model.spec.ignorable.begin(),
                         model.spec.ignorable.end());
  if (model.spec.tie_word_embeddings) model.ignorable.push_back(model.spec.head + ".weight");
  if (part.whole_experts) divide_experts(model.spec, rank, index);
  Stage stage = divide_layers(model.spec, index, part);
  model.elsewhere = modules_elsewhere(model.spec, rank, stage);
  model.root = std::make_unique<CausalLM>(model.spec, rank, std::move(stage));
  if (index != nullptr && index->ranks() > 1) read_own_tensors(*model.root);
}

Model build_model(const std::filesystem::path& directory, Rank rank,
                  const io::CheckpointIndex* index) {
  Model model = read_model(*open_model(directory));
  build_root(model, rank, index);
  return model;
}

}  // namespace sluice
