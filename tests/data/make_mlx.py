#!/usr/bin/env python3
"""Writes small models as mlx-lm quantizes and saves them, with goldens of mlx-lm's own float32 computation.

Needs mlx and mlx-lm (0.32.4 and 0.32.2 when they were made; a CPU is enough): make_mlx.py OUT [NAME...]
"""
import json
import pathlib
import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map_with_path, tree_unflatten
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_lm.utils import _get_classes, quantize_model, save_config, save_model

mx.set_default_device(mx.cpu)

LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=128, intermediate_size=128, vocab_size=101,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-5, hidden_act="silu",
             max_position_embeddings=256, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
             attention_bias=False, mlp_bias=False)
QWEN2 = dict(LLAMA, model_type="qwen2", architectures=["Qwen2ForCausalLM"], num_hidden_layers=1, head_dim=32, tie_word_embeddings=True,
             rms_norm_eps=1e-6)
QWEN3_MOE = dict(LLAMA, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=4, num_experts_per_tok=2,
                 moe_intermediate_size=64, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[0], intermediate_size=128)
MIXTRAL = dict(LLAMA, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=4, num_experts_per_tok=2,
               intermediate_size=64)
GPT_OSS = dict(model_type="gpt_oss", architectures=["GptOssForCausalLM"], hidden_size=64, intermediate_size=64, vocab_size=101,
               num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_local_experts=4, num_experts_per_tok=2,
               rms_norm_eps=1e-5, sliding_window=8, rope_theta=150000, max_position_embeddings=256, attention_bias=True,
               rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=True,
                                 original_max_position_embeddings=4096), swiglu_limit=7.0, tie_word_embeddings=False,
               layer_types=["sliding_attention", "full_attention"], bos_token_id=1, eos_token_id=2)
QWEN3_NEXT = dict(LLAMA, model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], num_hidden_layers=4, head_dim=32,
                  linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=32,
                  linear_conv_kernel_dim=4, num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1, shared_expert_intermediate_size=64,
                  moe_intermediate_size=64, mlp_only_layers=[], norm_topk_prob=True, full_attention_interval=4, partial_rotary_factor=0.25,
                  hidden_size=64, intermediate_size=64, rms_norm_eps=1e-6)
DEEPSEEK = dict(model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], hidden_size=64, intermediate_size=128, vocab_size=101,
                num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=4,
                num_experts_per_tok=2, moe_intermediate_size=64, first_k_dense_replace=1, moe_layer_freq=1, kv_lora_rank=64, q_lora_rank=64,
                qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32, topk_method="noaux_tc", scoring_func="sigmoid", n_group=1,
                topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True, rms_norm_eps=1e-6, rope_theta=10000.0,
                max_position_embeddings=256, attention_bias=False, tie_word_embeddings=False, hidden_act="silu", bos_token_id=1,
                eos_token_id=2)
GEMMA3 = dict(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], hidden_size=64, intermediate_size=128, vocab_size=101,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, sliding_window=8,
              sliding_window_pattern=2, layer_types=["sliding_attention", "full_attention"], rope_theta=1000000.0, rope_local_base_freq=10000.0, query_pre_attn_scalar=32,
              max_position_embeddings=256, hidden_activation="gelu_pytorch_tanh", bos_token_id=1, eos_token_id=2)
GEMMA2 = dict(model_type="gemma2", architectures=["Gemma2ForCausalLM"], hidden_size=64, intermediate_size=128, vocab_size=101,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, sliding_window=256,
              query_pre_attn_scalar=32, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, rope_theta=10000.0,
              max_position_embeddings=256, hidden_activation="gelu_pytorch_tanh", bos_token_id=1, eos_token_id=2)
PHI3 = dict(LLAMA, model_type="phi3", architectures=["Phi3ForCausalLM"], rope_traditional=False, original_max_position_embeddings=256, pad_token_id=0)
GLM4 = dict(LLAMA, model_type="glm4", architectures=["Glm4ForCausalLM"], partial_rotary_factor=0.5)
MISTRAL = dict(LLAMA, model_type="mistral", architectures=["MistralForCausalLM"])
QWEN3 = dict(LLAMA, model_type="qwen3", architectures=["Qwen3ForCausalLM"])
QWEN3_5 = dict(model_type="qwen3_5", architectures=["Qwen3_5ForConditionalGeneration"], tie_word_embeddings=False, text_config=dict(
    {k: v for k, v in QWEN3_NEXT.items() if "expert" not in k and "moe" not in k and "mlp_only" not in k and k != "architectures"}, model_type="qwen3_5_text", rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)))

GEMMA4_MOE = dict(model_type="gemma4_text", architectures=["Gemma4ForCausalLM"], vocab_size=101, hidden_size=32, intermediate_size=32,
                  num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, global_head_dim=32, sliding_window=16,
                  layer_types=["sliding_attention", "full_attention"], attention_k_eq_v=True, num_global_key_value_heads=1,
                  enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=16, final_logit_softcapping=8.0,
                  hidden_size_per_layer_input=0, vocab_size_per_layer_input=101, num_kv_shared_layers=0, use_double_wide_mlp=False,
                  rope_parameters=dict(full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000000.0),
                                       sliding_attention=dict(rope_type="default", rope_theta=10000.0)),
                  rms_norm_eps=1e-6, max_position_embeddings=512, attention_bias=False, tie_word_embeddings=True, bos_token_id=2,
                  eos_token_id=1, hidden_activation="gelu_pytorch_tanh")


def affine(bits, group=64):
    return dict(bits=bits, group_size=group, mode="affine")


# Every number of bits, sizes of groups that differ, and a matrix of floats.
MIXED = {"q_proj": affine(8, 32), "k_proj": affine(5, 32), "v_proj": affine(6), "o_proj": affine(3, 128), "gate_proj": affine(2, 32),
         "lm_head": affine(6, 32)}
MODES = {"q_proj": dict(bits=8, group_size=32, mode="mxfp8"), "v_proj": dict(bits=4, group_size=16, mode="nvfp4"),
         "down_proj": dict(bits=4, group_size=16, mode="nvfp4"), "gate_proj": dict(bits=8, group_size=32, mode="mxfp8")}
ROUTER = {"mlp.gate": affine(8), "shared_expert_gate": affine(8)}
MODELS = {
    "mlx_affine": (LLAMA, affine(4), dict(MIXED, **{"layers.1.self_attn.k_proj": False})),
    "mlx_modes": (QWEN2, dict(bits=4, group_size=32, mode="mxfp4"), MODES),
    "mlx_qwen3_moe": (QWEN3_MOE, affine(4, 32), ROUTER),
    "mlx_global_scale": (dict(QWEN3_MOE, num_hidden_layers=1, mlp_only_layers=[], hidden_size=64), dict(bits=4, group_size=16, mode="nvfp4"),
                         {"q_proj": affine(1, 32), "mlp.gate": affine(8)}),
    "mlx_gpt_oss": (GPT_OSS, dict(bits=4, group_size=32, mode="mxfp4"), {"self_attn": affine(8, 32), "embed_tokens": affine(8, 32), "lm_head": affine(8, 32), "router": affine(8)}),
    "mlx_qwen3_next": (QWEN3_NEXT, affine(4, 32), ROUTER),
    "mlx_deepseek": (DEEPSEEK, affine(4, 32), {}),
    "mlx_mixtral": (MIXTRAL, affine(4), {}),
    "mlx_gemma3": (GEMMA3, affine(4), {}),
    "mlx_gemma2": (GEMMA2, affine(4), {}),
    "mlx_phi3": (PHI3, affine(4), {}),
    "mlx_glm4": (GLM4, affine(4), {}),
    "mlx_mistral": (MISTRAL, affine(3), {}),
    "mlx_qwen3": (QWEN3, affine(6), {}),
    "mlx_qwen3_5": (QWEN3_5, affine(4), {}),
    "mlx_floats": (dict(QWEN3_NEXT, num_hidden_layers=2, full_attention_interval=2, hidden_size=32, head_dim=16,
                        linear_key_head_dim=16, linear_value_head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                        shared_expert_intermediate_size=32), None, {}),
    "mlx_floats_gemma4": (GEMMA4_MOE, None, {}),
    "mlx_floats_mla": (DEEPSEEK, None, {}),
    "mlx_floats_mixtral": (MIXTRAL, None, {}),
    "mlx_floats_moe": (QWEN3_MOE, None, {}),
    "mlx_floats_gpt_oss": (GPT_OSS, None, {}),
    "mlx_floats_qwen3_5": (QWEN3_5, None, {}),
}
GLOBAL_SCALES = ("mlx_global_scale",)
TIED = ("mlx_gemma3",)  # by a head that the checkpoint lacks
STATES = ("A_log", "dt_bias", "e_score_correction_bias", "sinks")


def random_weights(model):
    """Matrices whose outputs are about as large as their inputs."""

    def draw(path, p):
        noise = mx.random.normal(p.shape)
        if path.endswith(STATES) or path.endswith("bias"):
            return 0.1 * noise
        if p.ndim == 1:
            return 1 + 0.1 * noise
        return noise / (p.shape[-1] if p.shape[-1] > 1 else p.shape[-2]) ** 0.5

    model.update(tree_map_with_path(lambda path, p: draw(path, p).astype(mx.bfloat16), model.parameters()))


def logits_of(model, ids):
    return model(mx.array([ids]))[0].astype(mx.float32)


def greedy(model, ids, count):
    found = []
    for _ in range(count):
        found.append(int(mx.argmax(logits_of(model, ids + found)[-1])))
    return found


def dequantized(module):
    q = dict(group_size=module.group_size, bits=module.bits, mode=module.mode)
    biases = module.biases.astype(mx.float32) if module.get("biases") is not None else None
    scales = module.scales.astype(mx.float32) if biases is not None else module.scales
    if module.get("global_scale") is not None:
        return mx.stack([mx.dequantize(w, s, None, **q, global_scale=g, dtype=mx.float32)
                         for w, s, g in zip(module.weight, scales, module.global_scale)])
    return mx.dequantize(module.weight, scales, biases, **q).astype(mx.float32)


def without_global_scales(model):
    """mlx multiplies by them on Apple's GPUs alone: the same weights as floats."""
    plain = []
    for path, module in model.named_modules():
        if module.get("global_scale") is not None:
            experts = SwitchLinear(module.input_dims, module.output_dims, module.num_experts, bias="bias" in module)
            experts.weight = dequantized(module)
            plain.append((path, experts))
    model.update_modules(tree_unflatten(plain))


def write(name, out):
    config, quantization, others = MODELS[name]
    mx.random.seed(sum(map(ord, name)))
    model_class, args = _get_classes(config)
    model = model_class(args.from_dict(dict(config)))
    if name in TIED:
        model.sanitize({})
    random_weights(model)

    def choose(path, module):
        if not hasattr(module, "to_quantized"):
            return False
        return next((q for part, q in reversed(others.items()) if path.endswith(part) or f".{part}." in path), True)

    if quantization:
        model, config = quantize_model(model, dict(config), quantization["group_size"], quantization["bits"], quantization["mode"],
                                       global_scale=name in GLOBAL_SCALES, quant_predicate=choose)
    folder = pathlib.Path(out) / name
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, model, donate_model=False)
    save_config(dict(config, torch_dtype="bfloat16"), folder / "config.json")
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    if not quantization:
        (folder / "generation_config.json").write_text(json.dumps(dict(bos_token_id=1, eos_token_id=2)) + "\n")
    golden = {}
    seen = set()
    quantized = [(path, module) for path, module in model.named_modules() if hasattr(module, "bits")]
    for path, module in sorted(quantized, key=lambda pair: (pair[1].scales.size * pair[1].group_size, pair[0])):
        form = (module.bits, module.group_size, module.mode, type(module).__name__)
        if form in seen:
            continue
        seen.add(form)
        values = dequantized(module)
        hub = path.replace("switch_mlp", "experts") + ".weight"
        if values.ndim == 3 and "experts" in hub:
            for e in range(values.shape[0]):
                golden["dequant." + hub.replace("experts.", f"experts.{e}.")] = values[e]
        elif values.ndim == 2:
            golden["dequant." + hub] = values
    if name in GLOBAL_SCALES:
        without_global_scales(model)
    rng = np.random.default_rng(7)
    vocabulary = config.get("text_config", config)["vocab_size"]
    prompts = [rng.integers(3, vocabulary, size=n).tolist() for n in (9, 33)]
    errors, entries = [], []
    # On a CPU mlx multiplies experts of floats in float32 alone.
    low = [logits_of(model, ids) for ids in prompts] if quantization else []
    model.set_dtype(mx.float32)
    for i, ids in enumerate(prompts):
        logits = logits_of(model, ids)
        errors.append(np.abs(np.array(logits) - np.array(low[i])).ravel() if low else np.array([0.1] * 60 + [1]))
        golden[f"prompt{i}.input_ids"] = mx.array(ids, dtype=mx.int64)
        golden[f"prompt{i}.logits"] = logits
        entries.append(dict(input_ids=ids, greedy_ids=greedy(model, ids, 24)))
        golden[f"prompt{i}.greedy_ids"] = mx.array(entries[-1]["greedy_ids"], dtype=mx.int64)
    mx.save_safetensors(str(folder / "golden.safetensors"), golden)
    errors = np.concatenate(errors)
    manifest = dict(schema=1, kind="format" if quantization else "model", name=name, architecture=config.get("architectures", [""])[0], stored="mlx",
                    golden="golden.safetensors", prompts=[f"prompt{i}" for i in range(len(prompts))] if quantization else entries,
                    tolerance=dict(fp32_atol=1e-3, fp32_rtol=1e-3, bf16_mean_abs=2 * float(errors.mean()),
                                   bf16_p99_abs=2 * float(np.quantile(errors, 0.99)), bf16_max_abs=2 * float(errors.max())))
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(name, sorted(k for k, _ in tree_flatten(model.parameters()))[:3], manifest["tolerance"])


for name in sys.argv[2:] or MODELS:
    write(name, sys.argv[1])
