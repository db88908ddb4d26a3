#!/usr/bin/env python3
"""Writes config_defaults.json: what the config classes of transformers take for keys that config.json lacks.

Needs transformers (5.24.0 when the file was made), without torch: make_defaults.py > config_defaults.json
"""
import json

import transformers
from transformers import (ApertusConfig, ArceeConfig, BambaConfig, BloomConfig, Cohere2Config, CohereConfig, Ernie4_5Config,
                          Exaone4Config, FalconConfig, FalconH1Config, FalconMambaConfig, Gemma2Config, Gemma3TextConfig,
                          Gemma4TextConfig, GemmaConfig, Glm4Config, GlmConfig, GPT2Config, GPTJConfig, GPTNeoXConfig, GraniteConfig,
                          GraniteMoeHybridConfig, JambaConfig, Lfm2Config, Mamba2Config, MambaConfig, NemotronHConfig, Qwen3_5TextConfig,
                          HunYuanDenseV1Config, LlamaConfig, Ministral3Config, MinistralConfig, MistralConfig,
                          Olmo2Config, Olmo3Config, OPTConfig, Phi3Config, PhiConfig, Qwen2Config, Qwen3Config,
                          SeedOssConfig, SmolLM3Config, StableLmConfig, Starcoder2Config, Dots1Config, Ernie4_5_MoeConfig,
                          Glm4MoeConfig, GraniteMoeConfig, HunYuanMoEV1Config, Lfm2MoeConfig, MiniMaxM2Config, MixtralConfig,
                          OlmoeConfig, Qwen2MoeConfig, Qwen3_5MoeTextConfig, Qwen3MoeConfig, Qwen3NextConfig, DeepseekV2Config,
                          DeepseekV3Config, DeepseekV32Config, DeepseekV4Config, CohereCompassTextConfig, Glm4MoeLiteConfig, GlmMoeDsaConfig, GptOssConfig, Llama4TextConfig, Mistral4Config, PhimoeConfig,
                          AriaTextConfig, BailingHybridConfig, BioGptConfig, BitNetConfig, CodeGenConfig, CwmConfig, DbrxConfig, ExaoneConfig, FlexOlmoConfig, FlintConfig, Gemma4UnifiedTextConfig, KimiLinearConfig,
                          Kolibri1Config, LagunaConfig, Lfm3Config, MiMoV2FlashConfig, OlmoHybridConfig, OpenAIGPTConfig,
                          GPTBigCodeConfig,
                           GraniteMoeSharedConfig, HeliumConfig, Jais2Config, MptConfig, NanoChatConfig,
                          NemotronConfig, OlmoConfig, VaultGemmaConfig, YoutuConfig, AfmoeConfig, SolarOpenConfig, AXK1Config,
                          Cohere2MoeConfig, ExaoneMoeConfig, GPTNeoConfig, GraniteMoeSWAConfig, GraniteSWAConfig, HYV3Config,
                          HyperCLOVAXConfig, MellumConfig, MiniCPM3Config, PersimmonConfig, Phi4MultimodalConfig, SarvamMoEConfig)
from transformers.models.emu3.configuration_emu3 import Emu3TextConfig
from transformers.models.glm4v.configuration_glm4v import Glm4vTextConfig
from transformers.models.glm_ocr.configuration_glm_ocr import GlmOcrTextConfig
from transformers.models.hunyuan_vl.configuration_hunyuan_vl import HunYuanVLTextConfig
from transformers.models.paddleocr_vl.configuration_paddleocr_vl import PaddleOCRTextConfig
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLTextConfig
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
from transformers.models.qwen3_vl_moe.configuration_qwen3_vl_moe import Qwen3VLMoeTextConfig

# Under the first name that a class has.
KEYS = (("vocab_size",), ("hidden_size",), ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
        ("num_hidden_layers",), ("num_attention_heads",), ("num_key_value_heads",), ("max_position_embeddings",),
        ("eps", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
        ("hidden_act", "hidden_activation", "activation_function", "activation"), ("tie_word_embeddings",), ("sliding_window",),
        ("attention_bias", "use_qkv_bias", "use_bias", "enable_bias"), ("attention_out_bias",), ("mlp_bias",),
        ("rope_parameters",), ("use_parallel_residual", "parallel_attn"))
CLASSES = {"ApertusForCausalLM": ApertusConfig, "Step3p5ForCausalLM": Step3p7TextConfig, "CohereCompassForCausalLM": CohereCompassTextConfig, "ArceeForCausalLM": ArceeConfig, "BloomForCausalLM": BloomConfig,
           "Cohere2ForCausalLM": Cohere2Config, "CohereForCausalLM": CohereConfig, "Gemma2ForCausalLM": Gemma2Config,
           "Gemma3ForCausalLM": Gemma3TextConfig, "Gemma4ForCausalLM": Gemma4TextConfig, "GemmaForCausalLM": GemmaConfig,
           "GraniteForCausalLM": GraniteConfig, "Ministral3ForCausalLM": Ministral3Config, "Olmo2ForCausalLM": Olmo2Config,
           "Olmo3ForCausalLM": Olmo3Config,
           "Ernie4_5ForCausalLM": Ernie4_5Config, "Exaone4ForCausalLM": Exaone4Config, "FalconForCausalLM": FalconConfig,
           "GPT2LMHeadModel": GPT2Config, "GPTJForCausalLM": GPTJConfig, "GPTNeoXForCausalLM": GPTNeoXConfig,
           "Glm4ForCausalLM": Glm4Config, "GlmForCausalLM": GlmConfig, "HunYuanDenseV1ForCausalLM": HunYuanDenseV1Config,
           "LlamaForCausalLM": LlamaConfig, "MinistralForCausalLM": MinistralConfig, "MistralForCausalLM": MistralConfig,
           "OPTForCausalLM": OPTConfig, "Phi3ForCausalLM": Phi3Config, "PhiForCausalLM": PhiConfig,
           "Qwen2ForCausalLM": Qwen2Config, "Qwen3ForCausalLM": Qwen3Config, "SeedOssForCausalLM": SeedOssConfig,
           "SmolLM3ForCausalLM": SmolLM3Config, "StableLmForCausalLM": StableLmConfig, "Starcoder2ForCausalLM": Starcoder2Config,
           "Dots1ForCausalLM": Dots1Config, "Ernie4_5_MoeForCausalLM": Ernie4_5_MoeConfig, "Glm4MoeForCausalLM": Glm4MoeConfig,
           "GraniteMoeForCausalLM": GraniteMoeConfig, "HunYuanMoEV1ForCausalLM": HunYuanMoEV1Config,
           "MiniMaxM2ForCausalLM": MiniMaxM2Config, "MixtralForCausalLM": MixtralConfig, "OlmoeForCausalLM": OlmoeConfig,
           "Qwen2MoeForCausalLM": Qwen2MoeConfig, "Qwen3MoeForCausalLM": Qwen3MoeConfig, "GptOssForCausalLM": GptOssConfig,
           "Llama4ForCausalLM": Llama4TextConfig, "PhimoeForCausalLM": PhimoeConfig,
           "CodeGenForCausalLM": CodeGenConfig, "CwmForCausalLM": CwmConfig, "DbrxForCausalLM": DbrxConfig,
           "AriaTextForCausalLM": AriaTextConfig, "FlintForCausalLM": FlintConfig, "BitNetForCausalLM": BitNetConfig,
           "Gemma4UnifiedForCausalLM": Gemma4UnifiedTextConfig, "Kolibri1ForCausalLM": Kolibri1Config, "LagunaForCausalLM": LagunaConfig,
           "MiMoV2FlashForCausalLM": MiMoV2FlashConfig,
           "BioGptForCausalLM": BioGptConfig, "OpenAIGPTLMHeadModel": OpenAIGPTConfig, "ExaoneForCausalLM": ExaoneConfig,
           "FlexOlmoForCausalLM": FlexOlmoConfig, "GPTBigCodeForCausalLM": GPTBigCodeConfig,
            "GraniteMoeSharedForCausalLM": GraniteMoeSharedConfig, "HeliumForCausalLM": HeliumConfig,
           "Jais2ForCausalLM": Jais2Config, "MptForCausalLM": MptConfig,
           "NanoChatForCausalLM": NanoChatConfig, "NemotronForCausalLM": NemotronConfig, "OlmoForCausalLM": OlmoConfig,
           "VaultGemmaForCausalLM": VaultGemmaConfig, "AfmoeForCausalLM": AfmoeConfig,
            "SolarOpenForCausalLM": SolarOpenConfig, "Cohere2MoeForCausalLM": Cohere2MoeConfig,
           "ExaoneMoeForCausalLM": ExaoneMoeConfig, "GPTNeoForCausalLM": GPTNeoConfig, "GraniteMoeSWAForCausalLM": GraniteMoeSWAConfig,
           "GraniteSWAForCausalLM": GraniteSWAConfig, "HYV3ForCausalLM": HYV3Config, "HyperCLOVAXForCausalLM": HyperCLOVAXConfig,
           "MellumForCausalLM": MellumConfig, "SarvamMoEForCausalLM": SarvamMoEConfig, "PersimmonForCausalLM": PersimmonConfig, "Phi4MultimodalForCausalLM": Phi4MultimodalConfig}
# Models with latent attention, and the keys that are compared.
LATENTS = {"DeepseekV2ForCausalLM": DeepseekV2Config, "DeepseekV3ForCausalLM": DeepseekV3Config,
           "DeepseekV32ForCausalLM": DeepseekV32Config, "GlmMoeDsaForCausalLM": GlmMoeDsaConfig,
           "YoutuForCausalLM": YoutuConfig, "MiniCPM3ForCausalLM": MiniCPM3Config, "AXK1ForCausalLM": AXK1Config,
           "Glm4MoeLiteForCausalLM": Glm4MoeLiteConfig, "Mistral4ForCausalLM": Mistral4Config}
LATENT_KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
               "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
               "qk_rope_head_dim", "v_head_dim", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
               "n_shared_experts", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor", "first_k_dense_replace",
               "rope_parameters", "index_topk", "index_head_dim", "index_n_heads")
# Models with attention to summaries of windows.
SUMMARIES = {"DeepseekV4ForCausalLM": DeepseekV4Config}
SUMMARY_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim", "q_lora_rank", "max_position_embeddings",
                "rms_norm_eps", "tie_word_embeddings", "sliding_window", "o_groups", "o_lora_rank", "index_n_heads", "index_head_dim",
                "index_topk", "hc_mult", "hc_sinkhorn_iters", "hc_eps", "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok",
                "routed_scaling_factor", "swiglu_limit", "compress_rates", "layer_types", "mlp_layer_types", "rope_parameters")
# Classes of language models in wrappers that share a family with another class, by their model_type.
TEXT_TYPES = {cls.model_type: cls for cls in (Qwen2VLTextConfig, Qwen2_5_VLTextConfig, Qwen3VLTextConfig, Qwen3VLMoeTextConfig, Emu3TextConfig,
                                            Glm4vTextConfig, GlmOcrTextConfig, HunYuanVLTextConfig, PaddleOCRTextConfig)}
# How many experts, and how many a token has.
EXPERT_KEYS = {"count": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
               "used": ("num_experts_per_tok", "moe_k", "moe_topk"), "normalized": ("norm_topk_prob",),
               "width": ("moe_intermediate_size",)}
# What config.json has to say for the class to make a model.
GIVEN = {"Dots1ForCausalLM": {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2},
         "Glm4MoeForCausalLM": {"head_dim": 128}}
# What the modules fix, whatever the config says.
FIXED = {"BloomForCausalLM": {"hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 2048},
         "BioGptForCausalLM": {"eps": 1e-5}, "OpenAIGPTLMHeadModel": {"hidden_act": "gelu_new"},
         "DbrxForCausalLM": {"hidden_act": "silu", "eps": 1e-5,
                             "experts": {"count": 4, "used": 1, "normalized": True, "width": 3584}},
         "CodeGenForCausalLM": {"use_parallel_residual": True}, "GPTBigCodeForCausalLM": {"num_key_value_heads": 1},
         "MptForCausalLM": {"hidden_act": "gelu", "max_position_embeddings": 2048}, "OlmoForCausalLM": {"eps": 1e-5},
         "Cohere2MoeForCausalLM": {"use_parallel_residual": True, "eps": 1e-5}, "GPTNeoForCausalLM": {"windows": [0, 256] * 12},
         "MellumForCausalLM": {"sliding_window": None},  # no layer has one
         "LagunaForCausalLM": {"sliding_window": None},
         "CohereCompassForCausalLM": {"use_parallel_residual": True, "sliding_window": None},
         "Cohere2ForCausalLM": {"use_parallel_residual": True}, "CohereForCausalLM": {"use_parallel_residual": True},
         "Dots1ForCausalLM": {"sliding_window": None},  # max_window_layers are all
         "FalconForCausalLM": {"num_key_value_heads": 1}, "GPTJForCausalLM": {"use_parallel_residual": True},
         "Llama4ForCausalLM": {"intermediate_size": 16384,  # of layers without experts
                               "experts": {"count": 16, "used": 1, "normalized": None, "width": 8192}},
         "GlmForCausalLM": {"attention_out_bias": False}, "Glm4ForCausalLM": {"attention_out_bias": False},
         "OPTForCausalLM": {"eps": 1e-5}, "PhiForCausalLM": {"use_parallel_residual": True},
         "StableLmForCausalLM": {"attention_out_bias": False}}
# Models with states, and what config.json has to say that they are dense.
HYBRIDS = {"BambaForCausalLM": (BambaConfig, {}), "FalconH1ForCausalLM": (FalconH1Config, {}),
           "GraniteMoeHybridForCausalLM": (GraniteMoeHybridConfig, {"num_local_experts": 0}),
           "FalconMambaForCausalLM": (FalconMambaConfig, {}), "JambaForCausalLM": (JambaConfig, {}),
           "Lfm2ForCausalLM": (Lfm2Config, {}), "Mamba2ForCausalLM": (Mamba2Config, {}), "MambaForCausalLM": (MambaConfig, {}),
           "NemotronHForCausalLM": (NemotronHConfig, {"hybrid_override_pattern": "M*-"}),
           "Qwen3_5ForCausalLM": (Qwen3_5TextConfig, {}), "Qwen3_5MoeForCausalLM": (Qwen3_5MoeTextConfig, {}),
           "Qwen3NextForCausalLM": (Qwen3NextConfig, {}), "OlmoHybridForCausalLM": (OlmoHybridConfig, {}),
           "KimiLinearForCausalLM": (KimiLinearConfig, {}), "BailingHybridForCausalLM": (BailingHybridConfig, {}),
           "Lfm3ForCausalLM": (Lfm3Config, {}),
           "Lfm2MoeForCausalLM": (Lfm2MoeConfig, {"num_hidden_layers": 3, "layer_types": ["conv", "conv", "full_attention"]})}
STATE_KEYS = {"heads": ("mamba_n_heads", "mamba_num_heads", "num_heads", "linear_num_value_heads", "linear_num_heads"),
              "value_dim": ("mamba_d_head", "mamba_head_dim", "linear_value_head_dim", "linear_head_dim", "head_dim"),
              "key_heads": ("mamba_n_groups", "n_groups", "linear_num_key_heads", "linear_num_heads"),
              "key_dim": ("mamba_d_state", "ssm_state_size", "state_size", "linear_key_head_dim", "linear_head_dim"),
              "width": ("mamba_d_conv", "conv_kernel", "linear_conv_kernel_dim", "conv_L_cache"),
              "expand": ("mamba_expand", "expand"), "step_rank": ("mamba_dt_rank", "time_step_rank"),
              "bias": ("mamba_conv_bias", "use_conv_bias", "conv_bias")}


def windows(config):
    """Of each layer, where these differ."""
    types = getattr(config, "layer_types", None) or []
    sizes = [config.sliding_window if t == "sliding_attention" else 0 for t in types]
    return {"windows": sizes} if len(set(sizes)) > 1 else {}


def first(config, names):
    return next((getattr(config, name) for name in names if hasattr(config, name)), None)


def experts(config):
    values = {name: first(config, keys) for name, keys in EXPERT_KEYS.items()}
    return {"experts": values} if values["count"] else {}


def defaults(name, config):
    config.allow_global_per_layer_attribute_access = True
    values = {}
    for names in KEYS:
        for key in names:
            if hasattr(config, key):
                values[names[0]] = getattr(config, key)
                break
    values["intermediate_size"] = values.get("intermediate_size") or 4 * config.hidden_size  # GPT2MLP
    values["num_key_value_heads"] = values.get("num_key_value_heads", config.num_attention_heads)
    values["head_dim"] = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if hasattr(config, "rotary_dim"):
        values["rope_parameters"] = {"rope_theta": 10000.0, "partial_rotary_factor": config.rotary_dim / values["head_dim"],
                                     "rope_type": "default"}
    given = {"given": GIVEN[name]} if name in GIVEN else {}
    return values | windows(config) | experts(config) | FIXED.get(name, {}) | given


def hybrid(cls, given):
    config = cls(**given)
    kinds = {"linear_attention": "s", "conv": "s", "full_attention": "a", "sliding_attention": "a", "mlp": "-", "hybrid": "as"}
    values = {"given": given, "layers": [kinds[t] for t in config.layer_types],
              "state": {name: first(config, keys) for name, keys in STATE_KEYS.items()}}
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
            "max_position_embeddings", "tie_word_embeddings", "rope_parameters")
    values |= {key: getattr(config, key) for key in keys if hasattr(config, key)}
    values["eps"] = first(config, ("rms_norm_eps", "layer_norm_epsilon", "norm_eps"))
    return values | ({} if "hybrid_override_pattern" in given else experts(config))


def rope_without_theta(cls, given):
    """What a class makes of rope fields that have a type and no rope_theta."""
    return getattr(cls(**given, rope_parameters={"rope_type": "default"}), "rope_parameters", None)


ropes = {name: rope_without_theta(cls, GIVEN.get(name, {})) for name, cls in CLASSES.items()}
ropes |= {name: rope_without_theta(*of) for name, of in HYBRIDS.items() if name != "Lfm3ForCausalLM"}  # which wants them by layers
print(json.dumps({"transformers": transformers.__version__,
                  "classes": {name: defaults(name, cls(**GIVEN.get(name, {}))) for name, cls in CLASSES.items()},
                  "text_types": {name: defaults(name, cls()) for name, cls in TEXT_TYPES.items()},
                  "ropes_without_theta": {name: rope for name, rope in ropes.items() if rope and len(rope) > 1 and rope.get("rope_theta", 0) is not None},
                  "latents": {name: {key: getattr(cls(), key) for key in LATENT_KEYS if hasattr(cls(), key)}
                              for name, cls in LATENTS.items()},
                  "summaries": {name: {key: getattr(cls(), key) for key in SUMMARY_KEYS} for name, cls in SUMMARIES.items()},
                  "hybrids": {name: hybrid(*of) for name, of in HYBRIDS.items()}}, indent=1))
