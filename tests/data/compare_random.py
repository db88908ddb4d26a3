#!/usr/bin/env python3
"""Compares Sluice with transformers on small models of random configurations: fields that the config class has, with odd
sizes, rope scalings, windows, kinds of layers, tied and untied heads, and config.json as transformers 4 or 5 writes it.

Needs torch and transformers (5.24.0 when it was written): compare_random.py SLUICE MODEL_TYPE,... SEEDS [FIRST_SEED]

A line for each seed that differs, is refused by Sluice, or by transformers itself (skip); then their numbers.
"""
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from make_models import randomize
from safetensors.torch import load_file
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

# Values of fields, of which one is taken where the class has the field; ALWAYS, or for every other model.
ALWAYS = {"intermediate_size": [40, 56, 72], "num_experts": [4, 6], "num_local_experts": [4, 6], "n_routed_experts": [4, 8],
          "num_experts_per_tok": [1, 2, 3], "moe_intermediate_size": [24, 20], "shared_expert_intermediate_size": [36],
          "n_shared_experts": [1, 2], "q_lora_rank": [24], "kv_lora_rank": [20, 32], "qk_nope_head_dim": [12, 16],
          "qk_rope_head_dim": [8, 12], "n_group": [2], "topk_group": [2], "v_head_dim": [12, 16], "index_topk": [5, 16], "index_head_dim": [16], "index_n_heads": [16],
          "linear_key_head_dim": [8, 12], "linear_value_head_dim": [8, 20], "linear_num_key_heads": [2],
          "linear_num_value_heads": [2, 4, 6], "sliding_window": [7, 16], "num_nextn_predict_layers": [0]}
SOMETIMES = {"tie_word_embeddings": [True, False], "attention_bias": [True, False], "mlp_bias": [True, False], "use_bias": [True, False],
             "use_qkv_bias": [True, False], "qk_layernorm": [True, False], "use_qk_norm": [True, False], "norm_topk_prob": [True, False],
             "use_parallel_residual": [True, False], "rms_norm_eps": [1e-6, 1e-3], "layer_norm_eps": [1e-6, 1e-3],
             "layer_norm_epsilon": [1e-3], "use_sliding_window": [True], "max_window_layers": [0, 1, 2],
             "final_logit_softcapping": [None, 5.0], "attn_logit_softcapping": [None, 20.0], "query_pre_attn_scalar": [5, 16],
             "logit_scale": [0.25], "embedding_multiplier": [2.0], "residual_multiplier": [0.5], "attention_multiplier": [0.3],
             "logits_scaling": [2.0], "routed_scaling_factor": [1.7], "first_k_dense_replace": [0, 1], "decoder_sparse_step": [1, 2],
             "linear_conv_kernel_dim": [2, 4], "conv_L_cache": [2, 3], "conv_bias": [True, False]}


def random_rope(rng, dim):
    kind = rng.choice(["default", "linear", "dynamic", "yarn", "llama3", "longrope"])
    rope = {"rope_type": kind, "rope_theta": rng.choice([1e4, 5e5])}
    if kind != "default":
        rope |= {"factor": rng.choice([2.0, 8.0])}
    if kind in ("yarn", "llama3", "longrope"):
        rope["original_max_position_embeddings"] = 32
    if kind == "yarn" and rng.random() < 0.5:
        rope |= {"attention_factor": 1.3, "beta_fast": 16.0, "truncate": False}
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "longrope":
        rope |= {"short_factor": [1 + 0.1 * i for i in range(dim // 2)], "long_factor": [2 + 0.3 * i for i in range(dim // 2)]}
    return rope


def random_config(model_type, rng):
    config_class = CONFIG_MAPPING[model_type]
    default = config_class()

    def has(field):
        return not isinstance(getattr(config_class, field, None), property) and hasattr(default, field)

    heads, head_dim, layers = rng.choice([2, 3, 4, 6]), rng.choice([8, 12, 16, 20]), rng.choice([2, 3, 4])
    hidden = rng.choice([36, 40, 48]) if has("head_dim") else heads * head_dim
    values = {"vocab_size": rng.choice([83, 96, 101]), "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
              "max_position_embeddings": rng.choice([64, 256]), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    latent = has("kv_lora_rank")
    if has("head_dim") and not latent:
        values["head_dim"] = head_dim
    if has("num_key_value_heads"):
        values["num_key_value_heads"] = heads if latent else rng.choice([k for k in (1, 2, 3, 6) if heads % k == 0])
    values |= {field: rng.choice(of) for field, of in ALWAYS.items() if has(field)}
    values |= {field: rng.choice(of) for field, of in SOMETIMES.items() if has(field) and rng.random() < 0.5}
    kinds = sorted(set(getattr(default, "layer_types", None) or []))
    if has("layer_types") and kinds and not latent:
        values["layer_types"] = [rng.choice(kinds) for _ in range(layers)]
    ropes = getattr(default, "rope_parameters", None)
    if isinstance(ropes, dict) and "rope_type" in ropes and rng.random() < 0.75:
        part = ropes.get("partial_rotary_factor")
        dim = values.get("qk_rope_head_dim", int(head_dim * (part or 1)))
        values["rope_parameters"] = random_rope(rng, dim) | ({"partial_rotary_factor": part} if part else {})
    return config_class(**values)


def write_older_config(path):
    """config.json as transformers 4 wrote it."""
    config = json.loads(path.read_text())
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and "rope_type" in rope:
        del config["rope_parameters"]
        config["rope_theta"] = rope.pop("rope_theta", 1e4)
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    path.write_text(json.dumps(config))


def compare(sluice, model_type, seed, directory):
    rng = random.Random(f"{model_type} {seed}")
    model_class = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type])
    try:
        config = random_config(model_type, rng)
        model = model_class._from_config(config, dtype=torch.float32).eval()
        randomize(model, seed)
        model.save_pretrained(directory)
        if rng.random() < 0.5:
            write_older_config(directory / "config.json")
        model = model_class.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
        longest = min(config.max_position_embeddings - 1, rng.choice([30, 100])) if hasattr(config, "max_position_embeddings") else 100
        prompts = [[rng.randrange(3, config.vocab_size) for _ in range(n)] for n in (5, longest)]
        golden = [model(torch.tensor([ids]), use_cache=False).logits[0].float() for ids in prompts]
    except Exception as fault:  # transformers itself refuses many combinations, in many ways
        return "skip", f"{type(fault).__name__}: {fault}"
    (directory / "ids.json").write_text(json.dumps(prompts))
    run = subprocess.run([sluice, "logits", directory, "--token-ids", directory / "ids.json", "--out", directory / "out.safetensors",
                          "--dtype", "float32", "--memory", "1GiB", "--quiet"], capture_output=True, text=True, check=False)
    if run.returncode:
        return "refused", f"{run.returncode} {run.stderr}"
    out = load_file(directory / "out.safetensors")
    over = max(float(((out[f"logits.{i}"] - logits).abs() - 1e-3 * logits.abs()).max()) for i, logits in enumerate(golden))
    return ("same" if over < 5e-3 else "differs"), f"{over} {(directory / 'config.json').read_text()}"


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    first_seed = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    for name in sys.argv[2].split(","):
        counts = collections.Counter()
        for number in range(first_seed, first_seed + int(sys.argv[3])):
            with tempfile.TemporaryDirectory() as folder:
                outcome, text = compare(sys.argv[1], name, number, pathlib.Path(folder))
            counts[outcome] += 1
            if outcome != "same":
                print(name, number, outcome, " ".join(text.split())[:1500], flush=True)
        print(name, dict(counts), flush=True)
