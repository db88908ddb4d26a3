#!/usr/bin/env python3
"""Makes the small models of tests/data/models that transformers itself is the oracle of: random weights, exact in
bfloat16, with the logits and greedy tokens of a float32 run, and tolerances of twice what a bfloat16 run changes.

Needs torch and transformers (5.24.0 when they were made): make_models.py OUT [NAME...]
"""
import copy
import json
import pathlib
import sys
import types

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (AXK1Config, AXK2Config, AfmoeConfig, Apertus1p5TextConfig, ApertusConfig, AriaTextConfig, BioGptConfig, BitNetConfig, BloomConfig, CTRLConfig, CodeGenConfig, Cohere2Config, Cohere2MoeConfig,
                          CohereConfig, CwmConfig, DbrxConfig, Dots3NoteTextConfig,
                          CohereCompassTextConfig, DeepseekV32Config, DeepseekV4Config, ExaoneConfig, ExaoneMoeConfig, FalconConfig, FalconH1Config,
                          FalconMambaConfig, FlexOlmoConfig, FlintConfig, GPTBigCodeConfig, GPTJConfig, GPTNeoConfig, Gemma3nTextConfig, Gemma4UnifiedTextConfig, Glm4Config, GptOssConfig,
                          Glm4MoeConfig, GlmConfig, GlmMoeDsaConfig, GraniteConfig, GraniteMoeConfig, GraniteMoeSharedConfig,
                          GraniteMoeSWAConfig, GraniteSWAConfig, HYV3Config, HeliumConfig, HyperCLOVAXConfig,
                          Jais2Config, JambaConfig, KimiLinearConfig, BailingHybridConfig, Kolibri1Config, LagunaConfig, LaraMiniConfig, Lfm2Config, Lfm2MoeConfig, Lfm3Config, LlamaConfig, LongcatFlashConfig, MiMoV2FlashConfig, MiniMaxConfig, Mamba2Config, MambaConfig, MellumConfig, MiniCPM3Config, Ministral3Config,
                          MixtralConfig, MptConfig, NanoChatConfig, NemotronConfig, NemotronHConfig, Olmo3Config,
                          OlmoConfig, OlmoHybridConfig, OlmoeConfig, OpenAIGPTConfig, PersimmonConfig, Phi3Config, PhiConfig, Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3NextConfig, SarvamMoEConfig, SmolLM3Config, SolarOpenConfig,
                          StableLmConfig, Step3p7Config, VaultGemmaConfig, XGLMConfig, YoutuConfig)
from transformers import (DeepseekV2Config, HunYuanDenseV1Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig)
from transformers.models.deepseek_ocr2.configuration_deepseek_ocr2 import DeepseekOcr2TextConfig
from transformers.models.deepseek_ocr2.modeling_deepseek_ocr2 import DeepseekOcr2TextModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mllama.configuration_mllama import MllamaTextConfig
from transformers.models.paddleocr_vl.configuration_paddleocr_vl import PaddleOCRTextConfig
from transformers.models.paddleocr_vl.modeling_paddleocr_vl import PaddleOCRTextModel

COMMON = {"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SMALL = COMMON | {"hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 6,
                  "num_key_value_heads": 2, "max_position_embeddings": 256}
FOUR = SMALL | {"num_hidden_layers": 4}
TINY = COMMON | {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
GROUPED = TINY | {"num_key_value_heads": 2}
ROUTED = GROUPED | {"num_hidden_layers": 3, "moe_intermediate_size": 16, "num_experts_per_tok": 2, "head_dim": 8}
STATES = {"linear_conv_kernel_dim": 3, "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_num_key_heads": 2,
          "linear_num_value_heads": 6}
LATENT = SMALL | {"num_key_value_heads": 6, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
                  "v_head_dim": 12, "moe_intermediate_size": 24, "n_routed_experts": 4, "num_experts_per_tok": 2,
                  "first_k_dense_replace": 1, "index_head_dim": 12, "index_n_heads": 16}
MODELS = {
    "afmoe": AfmoeConfig(**ROUTED, num_experts=4, num_shared_experts=1, route_scale=1.5, sliding_window=16, mup_enabled=True,
                         global_attn_every_n_layers=2),
    "apertus": ApertusConfig(**SMALL, rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                                       "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                       "original_max_position_embeddings": 32}),
    "apertus1p5": Apertus1p5TextConfig(**GROUPED, output_vocab_size=80),
    "aria": AriaTextConfig(**GROUPED | {"intermediate_size": 16}, moe_num_experts=4, moe_topk=2, mlp_bias=True),
    "axk1": AXK1Config(**LATENT | {"num_hidden_layers": 3}, n_group=2, topk_group=1),
    "axk2": AXK2Config(**LATENT | {"q_lora_rank": 32}, gated_norm_rank=8, index_topk=13),
    "bailing_moe": GraniteMoeSharedConfig(**GROUPED | {"intermediate_size": 16}, num_local_experts=4, num_experts_per_tok=2,
                                          shared_intermediate_size=32, attention_multiplier=6**-0.5),
    "bailing_moe_v2": Glm4MoeConfig(**ROUTED, n_routed_experts=4, n_group=2, topk_group=1, n_shared_experts=2, routed_scaling_factor=1.5,
                                    first_k_dense_replace=1, use_qk_norm=True, num_nextn_predict_layers=0),
    "biogpt": BioGptConfig(**{k: v for k, v in TINY.items() if k != "num_key_value_heads"}),
    "bailing_hybrid": BailingHybridConfig(**{k: v for k, v in LATENT.items() if not k.startswith(("index", "n_routed", "max_position"))}
                                          | {"q_lora_rank": None, "num_hidden_layers": 3, "num_attention_heads": 4,
                                             "num_key_value_heads": 4}, num_local_experts=4, n_group=2, topk_group=1, head_dim=8,
                                          max_position_embeddings=256, short_conv_kernel_size=3, num_mtp_layers=0,
                                          layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "baichuan": LlamaConfig(**TINY),
    "baichuan_alibi": LlamaConfig(**TINY | {"hidden_size": 36, "num_attention_heads": 3}),
    "bitnet": BitNetConfig(**GROUPED),
    "bloom": BloomConfig(**COMMON, hidden_size=48, n_layer=2, n_head=6),
    "chatglm": GlmConfig(**GROUPED, head_dim=8),
    "cohere": CohereConfig(**SMALL, use_qk_norm=True, logit_scale=0.25),
    "cohere2": Cohere2Config(**FOUR, sliding_window=16, logit_scale=0.25),
    "cohere2_moe": Cohere2MoeConfig(**ROUTED | {"intermediate_size": 16, "num_hidden_layers": 4}, num_experts=4, num_shared_experts=2,
                                    expert_selection_fn="sigmoid", rms_norm_eps=1e-5, first_k_dense_replace=1,
                                    prefix_dense_intermediate_size=40, sliding_window=16, sliding_window_pattern=2, logit_scale=0.25),
    "codegen": CodeGenConfig(**COMMON, n_embd=24, n_layer=2, n_head=4, rotary_dim=4, n_inner=40, n_positions=256),
    "cohere_compass": CohereCompassTextConfig(**FOUR, sliding_window=16, logit_scale=0.25,
                                              layer_types=["sliding_attention", "full_attention"] * 2,
                                              rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 50000.0,
                                                                                     "mrope_section": [2, 1, 1], "mrope_interleaved": True},
                                                               "full_attention": None}),
    "ctrl": CTRLConfig(**COMMON, n_embd=24, dff=40, n_layer=2, n_head=4, n_positions=256),
    "cwm": CwmConfig(**GROUPED | {"num_hidden_layers": 3}, head_dim=8, sliding_window=16),
    "dbrx": DbrxConfig(**COMMON, d_model=24, n_heads=4, n_layers=2, max_seq_len=256,
                       attn_config={"clip_qkv": 1.5, "kv_n_heads": 2, "rope_theta": 500000.0},
                       rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
                       ffn_config={"ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2}),
    "deci": LlamaConfig(**TINY | {"hidden_size": 16, "intermediate_size": 256, "num_hidden_layers": 4}, num_key_value_heads=4),
    "deepseek": DeepseekOcr2TextConfig(**GROUPED | {"num_hidden_layers": 3}, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2,
                                       moe_intermediate_size=16, mlp_layer_types=["dense", "sparse", "sparse"]),
    "deepseek_v32": DeepseekV32Config(**LATENT, n_group=2, topk_group=1, index_topk=13),
    "deepseek_v4": DeepseekV4Config(**COMMON, hidden_size=24, num_hidden_layers=4, num_attention_heads=4, head_dim=16, moe_intermediate_size=16,
                                    q_lora_rank=12, n_routed_experts=4, num_experts_per_tok=2, max_position_embeddings=256, sliding_window=6,
                                    hc_mult=3, hc_sinkhorn_iters=4, o_groups=2, o_lora_rank=8, index_n_heads=16, index_head_dim=12, index_topk=3,
                                    swiglu_limit=0.5, compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
                                    layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                                                 "compressed_sparse_attention"], num_hash_layers=1, partial_rotary_factor=0.5,
                                    rope_parameters={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
                                                     "beta_fast": 32, "beta_slow": 1}),
    "dots3_note": Dots3NoteTextConfig(**{k: v for k, v in LATENT.items() if k != "first_k_dense_replace"} | {"num_hidden_layers": 3, "head_dim": 20},
                                      mlp_layer_types=["dense", "dense", "sparse"], n_group=2, topk_group=1, index_topk=13, sliding_window=16,
                                      shared_experts_intermediate_size=16, routed_scaling_factor=1.5,
                                      layer_types=["indexed_attention", "sliding_attention", "full_attention"],
                                      swa_num_attention_heads=4, swa_num_key_value_heads=4, swa_q_lora_rank=20, swa_kv_lora_rank=24,
                                      swa_head_dim=20, swa_qk_nope_head_dim=12, swa_v_head_dim=10, use_dsa=None),
    "exaone": ExaoneConfig(**GROUPED, layer_norm_epsilon=1e-4),
    "exaone_moe": ExaoneMoeConfig(**ROUTED, num_experts=4, sliding_window=16, sliding_window_pattern=2, n_group=2, topk_group=1),
    "falcon_alibi": FalconConfig(**COMMON, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, multi_query=False, bias=True,
                                 parallel_attn=False, alibi=True, ffn_hidden_size=72, max_position_embeddings=256),
    "falcon_grouped": FalconConfig(**COMMON, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_kv_heads=2,
                                   new_decoder_architecture=True, bias=False, ffn_hidden_size=72,
                                   max_position_embeddings=256),
    "falcon_h1": FalconH1Config(**SMALL, head_dim=16, mamba_d_ssm=60, mamba_n_heads=6, mamba_d_head=10, mamba_n_groups=2,
                                mamba_d_state=12, mamba_d_conv=5, mamba_rms_norm=True, mamba_norm_before_gate=False,
                                time_step_limit=(0.2, 0.9), lm_head_multiplier=0.5, embedding_multiplier=2.5,
                                mlp_multipliers=[0.9, 0.7], key_multiplier=0.8, attention_in_multiplier=1.2,
                                attention_out_multiplier=0.9, ssm_multipliers=[0.9, 0.8, 0.7, 1.1, 0.6],
                                ssm_in_multiplier=1.25, ssm_out_multiplier=0.8),
    "falcon_mamba": FalconMambaConfig(**COMMON, hidden_size=36, num_hidden_layers=2, state_size=16, expand=16, intermediate_size=60,
                                      conv_kernel=3, time_step_rank=12, mixer_rms_eps=1e-3, tie_word_embeddings=False),
    "flex_olmo": FlexOlmoConfig(**GROUPED | {"intermediate_size": 16}, num_experts=4, num_experts_per_tok=2),
    "flint": FlintConfig(**ROUTED | {"num_hidden_layers": 5}, num_experts=4, shared_expert_intermediate_size=24, sliding_window=16),
    "gemma3n": Gemma3nTextConfig(**GROUPED | {"num_hidden_layers": 5, "intermediate_size": [40, 32, 40, 40, 32]}, head_dim=8, sliding_window=16,
                                 vocab_size_per_layer_input=90, hidden_size_per_layer_input=8, laurel_rank=6, num_kv_shared_layers=2,
                                 altup_num_inputs=3, altup_active_idx=1, activation_sparsity_pattern=[0.5, 0.0, 0.7, 0.0, 0.5],
                                 layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]),
    "gemma4_unified": Gemma4UnifiedTextConfig(**GROUPED | {"num_hidden_layers": 3}, head_dim=8, global_head_dim=12, sliding_window=16,
                                              final_logit_softcapping=5.0,
                                              layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
    "glm4": Glm4Config(**SMALL, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                                               "partial_rotary_factor": 0.5}),
    "glm4_moe": Glm4MoeConfig(**SMALL | {"num_hidden_layers": 3}, head_dim=16, moe_intermediate_size=24, n_routed_experts=8,
                              num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=2, routed_scaling_factor=1.5,
                              first_k_dense_replace=1, use_qk_norm=True, num_nextn_predict_layers=0),
    "glm_moe_dsa": GlmMoeDsaConfig(**LATENT | {"num_hidden_layers": 3}, index_topk=17, indexer_types=["full", "shared", "full"]),
    "gpt_bigcode": GPTBigCodeConfig(**COMMON, n_embd=24, n_layer=2, n_head=4, n_inner=40, n_positions=256),
    "gpt_neo": GPTNeoConfig(**COMMON, hidden_size=24, num_layers=2, num_heads=4, intermediate_size=40, max_position_embeddings=256,
                            attention_types=[[["global", "local"], 1]], window_size=16),
    "gguf_gpt_oss": GptOssConfig(**GROUPED | {"intermediate_size": 16}, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=16,
                            rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "truncate": False,
                                             "original_max_position_embeddings": 32}),
    "gptj": GPTJConfig(**COMMON, n_embd=48, n_layer=2, n_head=3, rotary_dim=8, n_inner=72, n_positions=256),
    "gpt_oss_three": GptOssConfig(**TINY | {"num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 16}, head_dim=8,
                                  num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
    "granitemoe": GraniteMoeConfig(**SMALL | {"intermediate_size": 24}, num_local_experts=5, num_experts_per_tok=2,
                                   attention_multiplier=0.3, embedding_multiplier=2.0, logits_scaling=2.0, residual_multiplier=0.7),
    "granitemoeshared": GraniteMoeSharedConfig(**GROUPED | {"intermediate_size": 16}, num_local_experts=4, num_experts_per_tok=2,
                                               shared_intermediate_size=24, attention_multiplier=0.3, residual_multiplier=0.7),
    "granite_swa": GraniteSWAConfig(**GROUPED | {"num_hidden_layers": 3}, sliding_window=16, attention_multiplier=0.3,
                                    residual_multiplier=0.7, layer_rope_theta=[0, 10000.0, 500.0]),
    "granitemoe_swa": GraniteMoeSWAConfig(**GROUPED | {"intermediate_size": 16}, num_local_experts=4, num_experts_per_tok=2,
                                          shared_intermediate_size=24, sliding_window=16, attention_multiplier=0.3),
    "helium": HeliumConfig(**GROUPED, head_dim=6),
    "hy_v3": HYV3Config(**ROUTED, num_experts=4),
    "hyperclovax": HyperCLOVAXConfig(**GROUPED, attention_multiplier=0.3, embedding_multiplier=2.0, logits_scaling=0.5,
                                     residual_multiplier=0.7),
    "gguf_bitnet": BitNetConfig(**GROUPED, tie_word_embeddings=True),
    "gguf_deepseek4": DeepseekV4Config(**COMMON, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, head_dim=16, moe_intermediate_size=16,
                                       q_lora_rank=12, n_routed_experts=4, num_experts_per_tok=2, max_position_embeddings=256, sliding_window=6,
                                       hc_mult=3, hc_sinkhorn_iters=4, o_groups=2, o_lora_rank=8, index_n_heads=16, index_head_dim=12, index_topk=3,
                                       swiglu_limit=0.5, compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
                                       layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
                                       num_hash_layers=1, partial_rotary_factor=0.5,
                                       rope_parameters={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
                                                        "beta_fast": 32, "beta_slow": 1}),
    "gguf_dots3_note": Dots3NoteTextConfig(**{k: v for k, v in LATENT.items() if k != "first_k_dense_replace"} | {"hidden_size": 32, "num_hidden_layers": 3, "head_dim": 20},
                                           mlp_layer_types=["dense", "sparse", "sparse"], index_topk=13, sliding_window=16,
                                           shared_experts_intermediate_size=24, routed_scaling_factor=1.5,
                                           layer_types=["indexed_attention", "sliding_attention", "indexed_attention"],
                                           swa_num_attention_heads=4, swa_num_key_value_heads=4, swa_q_lora_rank=24, swa_kv_lora_rank=24,
                                           swa_head_dim=20, swa_qk_nope_head_dim=12, swa_v_head_dim=10, use_dsa=None),
    "gguf_gemma3n": Gemma3nTextConfig(**TINY | {"num_hidden_layers": 4, "intermediate_size": [40, 40, 40, 40], "hidden_size": 16}, num_key_value_heads=2,
                                      head_dim=8, sliding_window=16, vocab_size_per_layer_input=96, hidden_size_per_layer_input=8, laurel_rank=6,
                                      num_kv_shared_layers=1, altup_num_inputs=4, activation_sparsity_pattern=[0.5, 0.0, 0.7, 0.0],
                                      layer_types=["sliding_attention", "full_attention"] * 2),
    "gguf_hunyuan_vl": HunYuanDenseV1Config(**GROUPED, head_dim=8, tie_word_embeddings=True,
                                            rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": 50.0}),
    "gguf_mellum": MellumConfig(**ROUTED, num_experts=4, sliding_window=16, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                mlp_layer_types=["sparse"] * 3,
                                rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0,
                                                                    "original_max_position_embeddings": 32},
                                                 "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "gguf_nemotron_h_moe": NemotronHConfig(**{k: v for k, v in GROUPED.items() if k not in ("intermediate_size", "num_hidden_layers")}, head_dim=8,
                                           layers_block_type=["mamba", "moe", "attention", "moe"], mamba_num_heads=4, mamba_head_dim=8,
                                           ssm_state_size=8, n_groups=2, conv_kernel=3, n_routed_experts=4, num_experts_per_tok=2,
                                           moe_intermediate_size=16, moe_shared_expert_intermediate_size=24, n_shared_experts=1,
                                           intermediate_size=40, routed_scaling_factor=1.5),
    "gguf_paddleocr": PaddleOCRTextConfig(**GROUPED, head_dim=8, tie_word_embeddings=False,
                                          rope_parameters={"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [2, 1, 1]}),
    "gguf_pangu": LlamaConfig(**GROUPED, attention_bias=True),
    "gguf_qwen2vl": Qwen2Config(**GROUPED),
    "gguf_qwen35moe": Qwen3_5MoeTextConfig(**GROUPED | STATES | {"num_hidden_layers": 2, "linear_num_value_heads": 4}, head_dim=8, num_experts=4,
                                           num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24,
                                           layer_types=["linear_attention", "full_attention"]),
    "gguf_qwen3vl": Qwen3Config(**GROUPED, head_dim=8),
    "gguf_qwen3vlmoe": Qwen3MoeConfig(**ROUTED | {"num_hidden_layers": 2}, num_experts=4, norm_topk_prob=True),
    "gguf_xverse": LlamaConfig(**GROUPED),
    "internlm": LlamaConfig(**GROUPED, attention_bias=True),
    "internlm2": LlamaConfig(**GROUPED, rope_parameters={"rope_type": "linear", "rope_theta": 1000000.0, "factor": 2.0}),
    "jais2": Jais2Config(**GROUPED),
    "jamba_dense": JambaConfig(**SMALL | {"num_hidden_layers": 3}, num_experts=1, attn_layer_period=3, attn_layer_offset=1,
                               mamba_d_state=8, mamba_d_conv=4, mamba_dt_rank=5, rms_norm_eps=1e-4),
    "kimi_linear": KimiLinearConfig(**{k: v for k, v in LATENT.items() if not k.startswith(("index", "n_routed", "max_position"))}
                                    | {"q_lora_rank": None, "num_hidden_layers": 3}, num_local_experts=4, linear_head_dim=8,
                                    linear_num_heads=3, linear_conv_kernel_dim=3, max_position_embeddings=256,
                                    layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "kolibri1": Kolibri1Config(**{k: v for k, v in ROUTED.items() if k != "intermediate_size"}, num_experts=4, norm_topk_prob=True,
                               shared_expert_intermediate_size=24, sliding_window=16,
                               layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "laguna": LagunaConfig(**ROUTED, num_experts=4, shared_expert_intermediate_size=24, sliding_window=16, moe_routed_scaling_factor=1.5,
                           moe_router_logit_softcapping=3.0, num_attention_heads_per_layer=[4, 6, 4],
                           layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "lara_mini": LaraMiniConfig(**{k: v for k, v in GROUPED.items() if k != "intermediate_size"} | STATES | {"num_hidden_layers": 4}, head_dim=8,
                                num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=12,
                                sliding_window=16),
    "lfm2": Lfm2Config(**SMALL | {"num_hidden_layers": 3}, conv_L_cache=2, conv_bias=True, block_multiple_of=8,
                       layer_types=["conv", "full_attention", "conv"]),
    "lfm3": Lfm3Config(**GROUPED | {"num_hidden_layers": 3}, head_dim=8, conv_L_cache=3, sliding_window=16,
                       layer_types=["conv", "sliding_attention", "full_attention"]),
    "longcat_flash": LongcatFlashConfig(**{k: v for k, v in TINY.items() if k not in ("num_hidden_layers", "intermediate_size")}, num_layers=2,
                                        q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, head_dim=4, v_head_dim=8,
                                        ffn_hidden_size=40, expert_ffn_hidden_size=16, n_routed_experts=4, zero_expert_num=3, moe_topk=3,
                                        routed_scaling_factor=1.5),
    "maincoder": HunYuanDenseV1Config(**GROUPED, head_dim=8),
    "mamba": MambaConfig(**COMMON, hidden_size=40, num_hidden_layers=2, state_size=17, use_bias=True, use_conv_bias=False,
                         conv_kernel=2, time_step_rank=20),
    "mamba2": Mamba2Config(**COMMON, hidden_size=42, num_hidden_layers=2, num_heads=6, head_dim=14, state_size=9, n_groups=1,
                           use_bias=True, use_conv_bias=False, conv_kernel=3, tie_word_embeddings=True),
    "mellum": MellumConfig(**ROUTED, num_experts=4, sliding_window=16,
                           layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                           mlp_layer_types=["dense", "sparse", "sparse"],
                           rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0,
                                                               "original_max_position_embeddings": 32},
                                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "mimo_v2_flash": MiMoV2FlashConfig(**ROUTED | {"num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 12}, v_head_dim=8,
                                       n_routed_experts=4, sliding_window=16, layer_types=["full_attention", "sliding_attention"] * 2),
    "minicpm": GraniteConfig(**GROUPED, attention_multiplier=6**-0.5, embedding_multiplier=12.0, logits_scaling=2.0,
                             residual_multiplier=1.4 / 2**0.5, tie_word_embeddings=True),
    "minicpm3": MiniCPM3Config(**{k: v for k, v in LATENT.items() if k in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
                                                                         "qk_rope_head_dim")} | SMALL | {"num_key_value_heads": 6, "v_head_dim": 8},
                               dim_model_base=24),
    "gguf_lfm2_moe": Lfm2MoeConfig(**GROUPED | {"num_hidden_layers": 3}, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                   num_dense_layers=1, layer_types=["conv", "full_attention", "conv"]),
    "gguf_qwen3_5": Qwen3_5TextConfig(**GROUPED | STATES | {"num_hidden_layers": 3, "linear_num_value_heads": 4}, head_dim=8, tie_word_embeddings=True,
                                      layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "gguf_qwen3_next": Qwen3NextConfig(**GROUPED, head_dim=8, **STATES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                       shared_expert_intermediate_size=24, layer_types=["linear_attention", "full_attention"]),
    "gguf_falcon_mamba": FalconMambaConfig(**COMMON, hidden_size=24, num_hidden_layers=2, state_size=7, conv_kernel=3, time_step_rank=5),
    "gguf_mamba2": Mamba2Config(**COMMON, hidden_size=24, num_hidden_layers=2, state_size=12, conv_kernel=3, num_heads=6, head_dim=8, n_groups=2),
    "gguf_afmoe": AfmoeConfig(**ROUTED | {"num_hidden_layers": 4, "head_dim": 4}, num_experts=4, num_shared_experts=1, route_scale=1.5, sliding_window=16,
                              mup_enabled=True),
    "gguf_gpt_bigcode": GPTBigCodeConfig(**COMMON, n_embd=24, n_layer=2, n_head=4, n_positions=256),
    "gguf_ministral3": Ministral3Config(**GROUPED, head_dim=8, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
        "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0, "llama_4_scaling_beta": 0.1}),
    "minimax": MiniMaxConfig(**GROUPED | {"intermediate_size": 16, "num_hidden_layers": 3}, num_local_experts=4, head_dim=8, block_size=32,
                             full_attn_alpha_factor=1.5, full_attn_beta_factor=0.8, linear_attn_alpha_factor=1.2, mlp_alpha_factor=1.3,
                             mlp_beta_factor=0.9, layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "mixtral": MixtralConfig(**SMALL | {"intermediate_size": 40}, num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
    "mllama": MllamaTextConfig(**GROUPED | {"num_hidden_layers": 3}, cross_attention_layers=[2], rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}),
    "mpt": MptConfig(**COMMON, d_model=24, n_layers=2, n_heads=3, max_seq_len=256, attn_config={"clip_qkv": 1.5}),
    "nanochat": NanoChatConfig(**GROUPED, final_logit_softcapping=5.0),
    "nemotron": NemotronConfig(**GROUPED, head_dim=8),
    "nemotron_h": NemotronHConfig(**SMALL | {"num_hidden_layers": 4}, head_dim=16, mamba_num_heads=6, mamba_head_dim=10, n_groups=2,
                                  ssm_state_size=12, conv_kernel=3, use_bias=True, time_step_min=0.4, time_step_limit=(0.0, 0.5),
                                  layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"]),
    "nemotron_h_latent": NemotronHConfig(**{k: v for k, v in GROUPED.items() if k not in ("intermediate_size", "num_hidden_layers")}, head_dim=8,
                                         layers_block_type=["linear_attention", "moe", "full_attention", "moe"], mamba_num_heads=4,
                                         mamba_head_dim=8, ssm_state_size=8, n_groups=2, conv_kernel=3, n_routed_experts=4,
                                         num_experts_per_tok=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=24,
                                         moe_latent_size=16, n_shared_experts=1, intermediate_size=40, routed_scaling_factor=1.5),
    "olmo": OlmoConfig(**GROUPED, clip_qkv=1.5),
    "olmo3": Olmo3Config(**FOUR, sliding_window=16, rope_parameters={
        "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "attention_factor": 1.2,
                           "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}),
    "olmo_hybrid": OlmoHybridConfig(**GROUPED | {"num_hidden_layers": 3}, linear_num_key_heads=4, linear_num_value_heads=4,
                                    linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=3,
                                    layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "olmoe": OlmoeConfig(**GROUPED | {"intermediate_size": 16}, num_experts=4, num_experts_per_tok=2, clip_qkv=1.5),
    "openai_gpt": OpenAIGPTConfig(**COMMON, n_embd=24, n_layer=2, n_head=4, n_positions=256),
    "persimmon": PersimmonConfig(**TINY | {"num_attention_heads": 3}),
    "phi": PhiConfig(**SMALL, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "phi_tied": PhiConfig(**SMALL, qk_layernorm=True, tie_word_embeddings=True),
    "qwen3_5": Qwen3_5TextConfig(**SMALL | {"num_hidden_layers": 3}, head_dim=16, linear_conv_kernel_dim=3, linear_key_head_dim=12,
                                 linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=6,
                                 layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "qwen3_5_moe": Qwen3_5MoeTextConfig(**SMALL | {"num_hidden_layers": 3}, head_dim=16, linear_key_head_dim=12,
                                        linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=6, num_experts=6,
                                        num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=36,
                                        layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "orion": StableLmConfig(**GROUPED, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}),
    "plm": DeepseekV2Config(**TINY, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8,
                            mlp_layer_types=["dense", "dense"], tie_word_embeddings=True),
    "qwen1": Qwen2Config(**TINY, num_key_value_heads=4),
    "sarvam_moe": SarvamMoEConfig(**ROUTED, n_routed_experts=4, n_group=2, topk_group=1, attention_bias=True),
    "smollm3": SmolLM3Config(**FOUR, no_rope_layers=[1, 0, 1, 1]),
    "solar_open": SolarOpenConfig(**{k: v for k, v in ROUTED.items() if k != "intermediate_size"}, n_routed_experts=4),
    "stablelm": StableLmConfig(**SMALL, qk_layernorm=True, use_parallel_residual=True),
    "step3p7": Step3p7Config(text_config={**ROUTED | {"num_hidden_layers": 4}, "n_routed_experts": 4, "share_expert_dim": 24, "sliding_window": 16,
                                          "num_sliding_attention_heads": 6, "layer_types": ["full_attention", "sliding_attention"] * 2,
                                          "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "swiglu_limits": [None, None, 0.5, 0.0],
                                          "swiglu_limits_shared": [0.5, None, 0.5, 0.0], "moe_router_scaling_factor": 1.5,
                                          "rope_theta": [500000.0, 10000.0] * 2, "partial_rotary_factors": [0.5, 1.0] * 2},
                             vision_config={"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}),
    "vaultgemma": VaultGemmaConfig(**GROUPED, head_dim=8, query_pre_attn_scalar=8, sliding_window=16),
    "xglm": XGLMConfig(**COMMON | {"pad_token_id": 1, "bos_token_id": 0}, d_model=24, ffn_dim=40, num_layers=2, attention_heads=4,
                       max_position_embeddings=256),
    "youtu": YoutuConfig(**TINY, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8),
}


def stacked(tensors, into, names):
    tensors[into] = torch.cat([tensors.pop(name) for name in names])


def fuse_heads(tensors, attention, fused, dense):
    """q, k and v of a layer as one tensor."""
    stacked(tensors, f"{attention}.{fused}.weight", [f"{attention}.{p}_proj.weight" for p in "qkv"])
    tensors[f"{attention}.{dense}.weight"] = tensors.pop(f"{attention}.o_proj.weight")


def renamed(tensors, *pairs):
    for old, new in pairs:
        tensors = {name.replace(old, new): t for name, t in tensors.items()}
    return tensors


def to_internlm2(tensors, config):
    heads, d = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    for i in range(config.num_hidden_layers):
        name = f"model.layers.{i}.self_attn"
        q, k, v = (tensors.pop(f"{name}.{p}_proj.weight") for p in "qkv")
        groups = [torch.cat([part.view(heads, -1, d, config.hidden_size)[g].flatten(0, 1) for part in (q, k, v)]) for g in range(heads)]
        tensors[f"{name}.wqkv.weight"] = torch.cat(groups)
    return renamed(tensors, ("self_attn.o_proj", "self_attn.wo"), ("self_attn", "attention"), ("input_layernorm", "attention_norm"),
                   ("post_attention_layernorm", "ffn_norm"), ("mlp.gate_proj", "feed_forward.w1"), ("mlp.up_proj", "feed_forward.w3"),
                   ("mlp.down_proj", "feed_forward.w2"), ("embed_tokens", "tok_embeddings"), ("lm_head", "output"))


def to_chatglm(tensors, config):
    for i in range(config.num_hidden_layers):
        name = f"model.layers.{i}.self_attn"
        fuse_heads(tensors, name, "query_key_value", "dense")
        stacked(tensors, f"{name}.query_key_value.bias", [f"{name}.{p}_proj.bias" for p in "qkv"])
    return renamed(tensors, ("self_attn", "self_attention"), ("gate_up_proj", "dense_h_to_4h"), ("down_proj", "dense_4h_to_h"),
                   ("model.layers", "transformer.encoder.layers"), ("model.norm", "transformer.encoder.final_layernorm"),
                   ("model.embed_tokens", "transformer.embedding.word_embeddings"), ("lm_head", "transformer.output_layer"))


def to_bailing(tensors, config):
    for i in range(config.num_hidden_layers):
        fuse_heads(tensors, f"model.layers.{i}.self_attn", "query_key_value", "dense")
        moe = f"model.layers.{i}.block_sparse_moe"
        if f"{moe}.input_linear.weight" not in tensors:
            continue
        both, down = tensors.pop(f"{moe}.input_linear.weight"), tensors.pop(f"{moe}.output_linear.weight")
        shared = f"model.layers.{i}.shared_mlp"
        pairs = [(f"experts.{e}", both[e], down[e]) for e in range(both.shape[0])]
        pairs.append(("shared_experts", tensors.pop(f"{shared}.input_linear.weight"), tensors.pop(f"{shared}.output_linear.weight")))
        for name, up, out in pairs:
            for part, t in zip(("gate_proj", "up_proj", "down_proj"), (*up.chunk(2), out), strict=True):
                tensors[f"model.layers.{i}.mlp.{name}.{part}.weight"] = t.contiguous()
        tensors[f"model.layers.{i}.mlp.gate.weight"] = tensors.pop(f"{moe}.router.layer.weight")
    return renamed(tensors, ("self_attn.q_norm", "attention.query_layernorm"), ("self_attn.k_norm", "attention.key_layernorm"),
                   ("self_attn", "attention"), ("gate.e_score_correction_bias", "gate.expert_bias"), ("embed_tokens", "word_embeddings"))


def pack_qkv(tensors, config):
    for i in range(config.num_hidden_layers):
        name = f"model.layers.{i}.self_attn"
        stacked(tensors, f"{name}.W_pack.weight", [f"{name}.{p}_proj.weight" for p in "qkv"])
    return tensors


def to_qwen1(tensors, config):
    for i in range(config.num_hidden_layers):
        name = f"model.layers.{i}.self_attn"
        for end in ("weight", "bias"):
            stacked(tensors, f"{name}.c_attn.{end}", [f"{name}.{p}_proj.{end}" for p in "qkv"])
    return renamed(tensors, ("self_attn.o_proj", "self_attn.c_proj"), ("self_attn", "attn"), ("input_layernorm", "ln_1"),
                   ("post_attention_layernorm", "ln_2"), ("gate_proj", "w2"), ("up_proj", "w1"), ("down_proj", "c_proj"),
                   ("model.layers", "transformer.h"), ("model.norm", "transformer.ln_f"), ("model.embed_tokens", "transformer.wte"))


def to_deepseek(tensors, config):
    for name in [n for n in tensors if n.endswith("experts.gate_up_proj")]:
        both, down = tensors.pop(name), tensors.pop(name.replace("gate_up", "down"))
        for e in range(both.shape[0]):
            for part, t in zip(("gate_proj", "up_proj", "down_proj"), (*both[e].chunk(2), down[e]), strict=True):
                tensors[name.replace("gate_up_proj", f"{e}.{part}.weight")] = t
    return tensors


def to_maincoder(tensors, config):
    """The two of a rotary pair become neighbours."""
    tensors = renamed(tensors, ("query_layernorm", "q_norm"), ("key_layernorm", "k_norm"))
    for name, t in tensors.items():
        if any(part in name for part in ("q_proj", "k_proj", "q_norm", "k_norm")):
            tensors[name] = t.unflatten(0, (-1, 2, config.head_dim // 2)).transpose(1, 2).flatten(0, 2)
    return tensors


def without_zeros(tensors, config):
    """Without what layers do not have, whose matrices give zeros."""
    missing = {name.rsplit(".", 2)[0] for name, t in tensors.items() if name.endswith(("o_proj.weight", "down_proj.weight")) and not t.any()}
    norms = {name.replace("self_attn", "input_layernorm").replace("mlp", "post_attention_layernorm") for name in missing}
    return {name: t for name, t in tensors.items() if not any(name.startswith(m + ".") for m in missing | norms)}


def without_vision(tensors, config):
    return {name: t for name, t in tensors.items() if not name.startswith("vi")}


def to_deepseek_v4(tensors, config):
    """transformers saves the names that are published but for some."""
    return {"head.weight": tensors.pop("head.weight")} | renamed(tensors, ("model.", ""), ("embed_tokens", "embed"), (".attn.norm.", ".attn.kv_norm."),
                                                                 ("hc_head.hc_", "hc_head_"))


SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "max_position_embeddings", "rms_norm_eps", "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings")
# Models whose code comes with their checkpoints: those of a relative in transformers with the same arithmetic, under the names and
# keys that are published. Without keys: names alone.
PUBLISHED = {
    "deepseek_v4": (to_deepseek_v4, None),
    "gguf_deepseek4": (to_deepseek_v4, None),
    "step3p7": (without_vision, None),
    "internlm2": (to_internlm2, {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": False, "rope_theta": 1000000.0,
                                 "rope_scaling": {"type": "linear", "factor": 2.0}}),
    "chatglm": (to_chatglm, {"architectures": ["ChatGLMModel"], "model_type": "chatglm", "padded_vocab_size": 96, "num_layers": 2,
                             "ffn_hidden_size": 40, "kv_channels": 8, "multi_query_attention": True, "multi_query_group_num": 2,
                             "seq_length": 256, "layernorm_epsilon": 1.5625e-07, "add_qkv_bias": True, "add_bias_linear": False, "rmsnorm": True,
                             "post_layer_norm": True, "apply_residual_connection_post_layernorm": False, "rope_ratio": 1}),
    "bailing_moe": (to_bailing, {"architectures": ["BailingMoeForCausalLM"], "model_type": "bailing_moe", "num_experts": 4,
                                 "num_experts_per_tok": 2, "moe_intermediate_size": 16, "num_shared_experts": 2, "norm_topk_prob": True,
                                 "first_k_dense_replace": 0, "use_qkv_bias": False, "use_bias": False, "rope_theta": 10000.0}),
    "bailing_moe_v2": (to_bailing, {"architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "num_experts": 4,
                                    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "num_shared_experts": 2, "norm_topk_prob": True,
                                    "first_k_dense_replace": 1, "use_qkv_bias": False, "use_bias": False, "use_qk_norm": True, "head_dim": 8,
                                    "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5, "score_function": "sigmoid",
                                    "partial_rotary_factor": 0.5, "moe_router_enable_expert_bias": True, "rope_theta": 10000.0}),
    "baichuan": (pack_qkv, {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan"}),
    "baichuan_alibi": (pack_qkv, {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "model_max_length": 256}),
    "deci": (without_zeros, {"architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas", "num_key_value_heads": None, "intermediate_size": None,
                             "rope_theta": 10000.0,
                             "block_configs": [{"attention": {"no_op": kv == 0, "n_heads_in_group": 4 // kv if kv else None, "replace_with_linear": False},
                                                "ffn": {"no_op": width == 0, "ffn_mult": width / 48 if width else None, "replace_with_linear": False}}
                                               for kv, width in [(2, 256), (0, 256), (1, 0), (0, 0)]]}),
    "deepseek": (to_deepseek, {"architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "n_routed_experts": 4, "num_experts_per_tok": 2,
                               "n_shared_experts": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "moe_layer_freq": 1,
                               "norm_topk_prob": False, "scoring_func": "softmax", "rope_theta": 10000.0}),
    "internlm": (lambda tensors, config: tensors, {"architectures": ["InternLMForCausalLM"], "model_type": "internlm", "bias": True}),
    "maincoder": (to_maincoder, {"architectures": ["MaincoderForCausalLM"], "model_type": "maincoder", "head_dim": 8, "rope_theta": 10000.0}),
    "orion": (lambda tensors, config: tensors, {"architectures": ["OrionForCausalLM"], "model_type": "orion", "rms_norm_eps": 1e-5, "rope_theta": 10000.0}),
    "plm": (lambda tensors, config: tensors, {"architectures": ["PLMForCausalLM"], "model_type": "plm", "kv_lora_rank": 16, "qk_nope_head_dim": 8,
                                              "qk_rope_head_dim": 4, "v_head_dim": 8, "hidden_act": "relu2", "rope_theta": 10000.0}),
    "qwen1": (to_qwen1, {"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "intermediate_size": 80, "layer_norm_epsilon": 1e-6,
                         "seq_length": 256, "rotary_emb_base": 10000.0}),
    "minicpm": (lambda tensors, config: tensors, {"architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm", "scale_emb": 12,
                                                  "scale_depth": 1.4, "dim_model_base": 12, "rope_theta": 10000.0}),
}


def publish(name, config, folder):
    convert, keys = PUBLISHED[name]
    tensors = convert(load_file(folder / "model.safetensors"), config)
    save_file({k: t.contiguous() for k, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    if keys is None:
        return
    sizes = {key: getattr(config, key) for key in SIZES if hasattr(config, key) and (name != "chatglm" or key not in ("vocab_size", "intermediate_size", "num_hidden_layers"))}
    transformers.GenerationConfig.from_model_config(config).save_pretrained(folder)
    if name == "baichuan_alibi":
        del sizes["max_position_embeddings"]
    (folder / "config.json").write_text(json.dumps(sizes | keys | {"torch_dtype": "bfloat16"}, indent=1) + "\n")


LENGTHS, NEW = (9, 40), 24
FIRST_SEEDS = {"mamba": 9, "gguf_qwen3_5": 15, "lara_mini": 1349, "dots3_note": 43}  # with those before, one token's logits are much further from float32's than all others
STATE_LENGTHS = (2, 70)  # fewer than a convolution's inputs, more than a chunk of transformers' recurrences
IN_CHUNKS = {"falcon_h1", "gguf_lfm2_moe", "gguf_mamba2", "gguf_qwen3_5", "gguf_qwen3_next", "kimi_linear", "lara_mini", "bailing_hybrid", "lfm2", "lfm3", "mamba2", "minimax", "nemotron_h", "nemotron_h_latent", "olmo_hybrid", "qwen3_5",
             "qwen3_5_moe"}  # in float32 transformers' sums over chunks are further from float64's
WITH_STATES = IN_CHUNKS | {"falcon_mamba", "gguf_falcon_mamba", "jamba_dense", "mamba"}


def randomize(model, seed):
    random = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        scale = 0.35 if p.dim() > 1 else 0.2
        noise = torch.randn(p.shape, generator=random) * scale
        norm = p.dim() == 1 and name.endswith("weight")
        p.data = ((1 + noise) if norm else noise).to(torch.bfloat16).to(torch.float32)
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            b.copy_((torch.randn(b.shape, generator=random) * 0.1).to(torch.bfloat16))
        elif name.endswith("tid2eid"):  # experts of tokens
            b.copy_(torch.rand(b.shape[0], 4, generator=random).argsort(dim=1)[:, :b.shape[1]])


def greedy(model, ids):
    out, margins = list(ids), []
    for _ in range(NEW):
        logits = model(torch.tensor([out]), use_cache=False).logits[0, -1]
        top = torch.topk(logits, 2).values
        margins.append(float(top[0] - top[1]))
        out.append(int(logits.argmax()))
    return out[len(ids):], min(margins)


def experts_of(outputs):
    """Of a router: the last of its outputs; of DBRX's, which has logits alone, the two largest."""
    return outputs[-1] if isinstance(outputs, tuple) else outputs.topk(2).indices


def watch_choices(model):
    """A list that each run appends the chosen experts of each layer to."""
    chosen = []
    for module in model.modules():
        if type(module).__name__.endswith(("Router", "router")):
            module.register_forward_hook(lambda _, inputs, outputs: chosen.append(experts_of(outputs).sort().values))
    return chosen


class WithHead(transformers.PreTrainedModel):
    """A language model whose class has no head."""
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.model = self.model_class(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids, use_cache=False):
        return types.SimpleNamespace(logits=self.lm_head(self.model(input_ids, use_cache=use_cache).last_hidden_state))


class DeepseekMoe(WithHead):
    """DeepseekForCausalLM: OCR's language model."""
    config_class, model_class = DeepseekOcr2TextConfig, DeepseekOcr2TextModel


class PaddleOcr(WithHead):
    config_class, model_class = PaddleOCRTextConfig, PaddleOCRTextModel


def use_alibi(model, config):
    """Positions do not turn anything; scores have slopes (3 heads: those of 2, and the first of 4)."""
    plain = model.forward
    slopes = torch.tensor([2**-4.0, 2**-8.0, 2**-2.0])

    def forward(ids, use_cache=False):
        n = ids.shape[1]
        distances = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        mask = (slopes[:, None, None] * distances).masked_fill(distances > 0, float("-inf"))
        dtype = next(model.parameters()).dtype
        return plain(ids, use_cache=use_cache, position_ids=torch.zeros_like(ids), attention_mask=mask[None].to(dtype))
    model.forward = forward
    return model


def use_own_sizes(model, config):
    """The layers of "deci", as block_configs there has them."""
    for i, (kv, width) in enumerate([(2, 256), (0, 256), (1, 0), (0, 0)]):
        own = copy.deepcopy(config)
        own.num_key_value_heads, own.intermediate_size = kv or 1, width or 1
        layer = LlamaDecoderLayer(own, i)
        model.model.layers[i] = layer
        layer.self_attn.o_proj.absent, layer.mlp.down_proj.absent = kv == 0, width == 0
    return model


class PlainMlp(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(torch.relu(self.up_proj(x))**2)


def use_plain_mlps(model, config):
    for layer in model.model.layers:
        layer.mlp = PlainMlp(config)
    return model


def build(config, dtype, name=""):
    """The model, of a wrapper with its language model."""
    for own in (DeepseekMoe, PaddleOcr):
        if isinstance(config, own.config_class):
            return own._from_config(config, dtype=dtype).eval()
    changes = {"baichuan_alibi": use_alibi, "deci": use_own_sizes, "plm": use_plain_mlps}
    if name in changes:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        return changes[name](model, config).to(dtype).eval()
    if isinstance(config, Step3p7Config):
        return transformers.Step3p7ForConditionalGeneration(config).to(dtype).eval()
    if isinstance(config, MllamaTextConfig):  # which the automatic class does not know
        return transformers.MllamaForCausalLM._from_config(config, dtype=dtype).eval()
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def make(name, config, out, seed):
    """None where two tokens are too near for other sums."""
    # Of Falcon the eager attention adds ALiBi twice.
    config._attn_implementation = "sdpa" if name == "falcon_alibi" else "eager"
    model = build(config, torch.float32, name)
    randomize(model, seed)
    for module in model.modules():
        if getattr(module, "absent", False):
            module.weight.data.zero_()
    random = torch.Generator().manual_seed(seed + 1)
    known = getattr(config.get_text_config(), "output_vocab_size", None) or config.get_text_config().vocab_size
    prompts = [torch.randint(3, known, (n,), generator=random).tolist()
               for n in (STATE_LENGTHS if name in WITH_STATES else LENGTHS)]
    golden, entries, errors = {}, [], []
    chosen, expected = watch_choices(model), []
    for i, ids in enumerate(prompts):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        expected += chosen
        tokens, margin = greedy(model, ids)
        if margin < 0.02:
            return None
        chosen.clear()
        golden |= {f"prompt{i}.input_ids": torch.tensor(ids), f"prompt{i}.greedy_ids": torch.tensor(tokens),
                   f"prompt{i}.logits": logits.contiguous()}
        entries.append({"input_ids": ids, "greedy_ids": tokens, "greedy_min_margin": margin})
    half = build(config, torch.bfloat16, name)
    half.load_state_dict({k: v.to(torch.bfloat16) for k, v in model.state_dict().items()})
    chosen = watch_choices(half)
    for i, ids in enumerate(prompts):
        errors.append((half(torch.tensor([ids]), use_cache=False).logits[0].float() - golden[f"prompt{i}.logits"]).abs().flatten())
    if any(not torch.equal(a, b) for a, b in zip(chosen, expected, strict=True)):
        return None
    errors = torch.cat(errors)
    half.save_pretrained(out / name)
    if name in PUBLISHED:
        publish(name, config, out / name)
    save_file(golden, out / name / "golden.safetensors")
    manifest = {"name": name, "made_by": "tests/data/make_models.py", "seed": seed, "prompts": entries,
                "tolerance": {"fp32_atol": 4e-3 if name in IN_CHUNKS else 1e-3, "fp32_rtol": 1e-3, "bf16_max_abs": 2 * float(errors.max()),
                              "bf16_p99_abs": 2 * float(errors.quantile(0.99)), "bf16_mean_abs": 2 * float(errors.mean())},
                "versions": {"transformers": transformers.__version__, "torch": torch.__version__}}
    (out / name / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    for model_name in sys.argv[2:] or MODELS:
        seed = FIRST_SEEDS.get(model_name, 1)
        while make(model_name, MODELS[model_name], pathlib.Path(sys.argv[1]), seed) is None:
            seed += 2
        print(model_name, "seed", seed)
