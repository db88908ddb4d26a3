#!/usr/bin/env python3
"""Makes the small models of tests/data/models that transformers itself is the oracle of: random weights, exact in
bfloat16, with the logits and greedy tokens of a float32 run, and tolerances of twice what a bfloat16 run changes.

Needs torch and transformers (5.24.0 when they were made): make_models.py OUT [NAME...]
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (AfmoeConfig, ApertusConfig, BloomConfig, CodeGenConfig, Cohere2Config, CohereConfig, CwmConfig,
                          DeepseekV32Config, ExaoneConfig, FalconConfig, FalconH1Config,
                          FalconMambaConfig, FlexOlmoConfig, GPTBigCodeConfig, GPTJConfig, Glm4Config,
                          Glm4MoeConfig, GlmMoeDsaConfig, GraniteMoeConfig, GraniteMoeSharedConfig, HeliumConfig,
                          Jais2Config, JambaConfig, Lfm2Config, Mamba2Config, MambaConfig,
                          MixtralConfig, MptConfig, NanoChatConfig, NemotronConfig, NemotronHConfig, Olmo3Config,
                          OlmoConfig, PhiConfig, Qwen3_5MoeTextConfig, Qwen3_5TextConfig, SmolLM3Config, SolarOpenConfig,
                          StableLmConfig, VaultGemmaConfig, YoutuConfig)

COMMON = {"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SMALL = COMMON | {"hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 6,
                  "num_key_value_heads": 2, "max_position_embeddings": 256}
FOUR = SMALL | {"num_hidden_layers": 4}
TINY = COMMON | {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
GROUPED = TINY | {"num_key_value_heads": 2}
ROUTED = GROUPED | {"num_hidden_layers": 3, "moe_intermediate_size": 16, "num_experts_per_tok": 2, "head_dim": 8}
LATENT = SMALL | {"num_key_value_heads": 6, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
                  "v_head_dim": 12, "moe_intermediate_size": 24, "n_routed_experts": 4, "num_experts_per_tok": 2,
                  "first_k_dense_replace": 1, "index_head_dim": 12, "index_n_heads": 16}
MODELS = {
    "afmoe": AfmoeConfig(**ROUTED, num_experts=4, num_shared_experts=1, route_scale=1.5, sliding_window=16, mup_enabled=True,
                         global_attn_every_n_layers=2),
    "apertus": ApertusConfig(**SMALL, rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                                       "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                       "original_max_position_embeddings": 32}),
    "bloom": BloomConfig(**COMMON, hidden_size=48, n_layer=2, n_head=6),
    "cohere": CohereConfig(**SMALL, use_qk_norm=True, logit_scale=0.25),
    "cohere2": Cohere2Config(**FOUR, sliding_window=16, logit_scale=0.25),
    "codegen": CodeGenConfig(**COMMON, n_embd=24, n_layer=2, n_head=4, rotary_dim=4, n_inner=40, n_positions=256),
    "cwm": CwmConfig(**GROUPED | {"num_hidden_layers": 3}, head_dim=8, sliding_window=16),
    "deepseek_v32": DeepseekV32Config(**LATENT, n_group=2, topk_group=1, index_topk=13),
    "exaone": ExaoneConfig(**GROUPED, layer_norm_epsilon=1e-4),
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
    "glm4": Glm4Config(**SMALL, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                                               "partial_rotary_factor": 0.5}),
    "glm4_moe": Glm4MoeConfig(**SMALL | {"num_hidden_layers": 3}, head_dim=16, moe_intermediate_size=24, n_routed_experts=8,
                              num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=2, routed_scaling_factor=1.5,
                              first_k_dense_replace=1, use_qk_norm=True, num_nextn_predict_layers=0),
    "glm_moe_dsa": GlmMoeDsaConfig(**LATENT | {"num_hidden_layers": 3}, index_topk=17, indexer_types=["full", "shared", "full"]),
    "gpt_bigcode": GPTBigCodeConfig(**COMMON, n_embd=24, n_layer=2, n_head=4, n_inner=40, n_positions=256),
    "gptj": GPTJConfig(**COMMON, n_embd=48, n_layer=2, n_head=3, rotary_dim=8, n_inner=72, n_positions=256),
    "granitemoe": GraniteMoeConfig(**SMALL | {"intermediate_size": 24}, num_local_experts=5, num_experts_per_tok=2,
                                   attention_multiplier=0.3, embedding_multiplier=2.0, logits_scaling=2.0, residual_multiplier=0.7),
    "granitemoeshared": GraniteMoeSharedConfig(**GROUPED | {"intermediate_size": 16}, num_local_experts=4, num_experts_per_tok=2,
                                               shared_intermediate_size=24, attention_multiplier=0.3, residual_multiplier=0.7),
    "helium": HeliumConfig(**GROUPED, head_dim=6),
    "jais2": Jais2Config(**GROUPED),
    "jamba_dense": JambaConfig(**SMALL | {"num_hidden_layers": 3}, num_experts=1, attn_layer_period=3, attn_layer_offset=1,
                               mamba_d_state=8, mamba_d_conv=4, mamba_dt_rank=5, rms_norm_eps=1e-4),
    "lfm2": Lfm2Config(**SMALL | {"num_hidden_layers": 3}, conv_L_cache=2, conv_bias=True, block_multiple_of=8,
                       layer_types=["conv", "full_attention", "conv"]),
    "mamba": MambaConfig(**COMMON, hidden_size=40, num_hidden_layers=2, state_size=17, use_bias=True, use_conv_bias=False,
                         conv_kernel=2, time_step_rank=20),
    "mamba2": Mamba2Config(**COMMON, hidden_size=42, num_hidden_layers=2, num_heads=6, head_dim=14, state_size=9, n_groups=1,
                           use_bias=True, use_conv_bias=False, conv_kernel=3, tie_word_embeddings=True),
    "mixtral": MixtralConfig(**SMALL | {"intermediate_size": 40}, num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
    "mpt": MptConfig(**COMMON, d_model=24, n_layers=2, n_heads=3, max_seq_len=256),
    "nanochat": NanoChatConfig(**GROUPED, final_logit_softcapping=5.0),
    "nemotron": NemotronConfig(**GROUPED, head_dim=8),
    "nemotron_h": NemotronHConfig(**SMALL | {"num_hidden_layers": 4}, head_dim=16, mamba_num_heads=6, mamba_head_dim=10, n_groups=2,
                                  ssm_state_size=12, conv_kernel=3, use_bias=True, time_step_min=0.4, time_step_limit=(0.0, 0.5),
                                  layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"]),
    "olmo": OlmoConfig(**GROUPED),
    "olmo3": Olmo3Config(**FOUR, sliding_window=16, rope_parameters={
        "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "attention_factor": 1.2,
                           "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}),
    "phi": PhiConfig(**SMALL, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "phi_tied": PhiConfig(**SMALL, qk_layernorm=True, tie_word_embeddings=True),
    "qwen3_5": Qwen3_5TextConfig(**SMALL | {"num_hidden_layers": 3}, head_dim=16, linear_conv_kernel_dim=3, linear_key_head_dim=12,
                                 linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=6,
                                 layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "qwen3_5_moe": Qwen3_5MoeTextConfig(**SMALL | {"num_hidden_layers": 3}, head_dim=16, linear_key_head_dim=12,
                                        linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=6, num_experts=6,
                                        num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=36,
                                        layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "smollm3": SmolLM3Config(**FOUR, no_rope_layers=[1, 0, 1, 1]),
    "solar_open": SolarOpenConfig(**{k: v for k, v in ROUTED.items() if k != "intermediate_size"}, n_routed_experts=4),
    "stablelm": StableLmConfig(**SMALL, qk_layernorm=True, use_parallel_residual=True),
    "vaultgemma": VaultGemmaConfig(**GROUPED, head_dim=8, query_pre_attn_scalar=8, sliding_window=16),
    "youtu": YoutuConfig(**TINY, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8),
}
LENGTHS, NEW = (9, 40), 24
FIRST_SEEDS = {"mamba": 9}  # with those before, one token's logits are much further from float32's than all others
STATE_LENGTHS = (2, 70)  # fewer than a convolution's inputs, more than a chunk of transformers' recurrences
IN_CHUNKS = {"falcon_h1", "lfm2", "mamba2", "nemotron_h", "qwen3_5", "qwen3_5_moe"}  # in float32 transformers' sums over chunks are further from float64's
WITH_STATES = IN_CHUNKS | {"falcon_mamba", "jamba_dense", "mamba"}


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


def greedy(model, ids):
    out, margins = list(ids), []
    for _ in range(NEW):
        logits = model(torch.tensor([out]), use_cache=False).logits[0, -1]
        top = torch.topk(logits, 2).values
        margins.append(float(top[0] - top[1]))
        out.append(int(logits.argmax()))
    return out[len(ids):], min(margins)


def watch_choices(model):
    """A list that each run appends the chosen experts of each layer to."""
    chosen = []
    for module in model.modules():
        if type(module).__name__.endswith(("Router", "router")):
            module.register_forward_hook(lambda _, inputs, outputs: chosen.append(outputs[-1].sort().values))
    return chosen


def make(name, config, out, seed):
    """None where two tokens are too near for other sums."""
    # Of Falcon the eager attention adds ALiBi twice.
    config._attn_implementation = "sdpa" if name == "falcon_alibi" else "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    randomize(model, seed)
    random = torch.Generator().manual_seed(seed + 1)
    prompts = [torch.randint(3, config.vocab_size, (n,), generator=random).tolist()
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
    half = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    half.load_state_dict({k: v.to(torch.bfloat16) for k, v in model.state_dict().items()})
    chosen = watch_choices(half)
    for i, ids in enumerate(prompts):
        errors.append((half(torch.tensor([ids]), use_cache=False).logits[0].float() - golden[f"prompt{i}.logits"]).abs().flatten())
    if any(not torch.equal(a, b) for a, b in zip(chosen, expected, strict=True)):
        return None
    errors = torch.cat(errors)
    half.save_pretrained(out / name)
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
