#!/usr/bin/env python3
"""Compares Sluice with transformers on small models of random configurations: fields that the config class has, with odd
sizes, booleans and factors other than the class's, rope scalings, windows, kinds of layers, tied and untied heads, and
config.json as transformers 4 or 5 writes it, with keys left out or null. A model_type of a wrapper (qwen2_vl) compares
the language model in it.

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
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

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
# Fields without which a class makes no config.
GIVEN = {"lfm2_moe": {"num_hidden_layers": 3, "layer_types": ["conv", "conv", "full_attention"]}}
# Fields that do not change the logits, or that make no language model.
KEPT = {"use_cache", "is_decoder", "is_encoder_decoder", "add_cross_attention", "output_hidden_states", "output_attentions",
        "output_router_logits", "return_dict", "chunk_size_feed_forward", "tie_word_embeddings", "initializer_range",
        "rope_theta", "use_bidirectional_attention", "use_mamba_kernels", "use_mambapy", "use_conv_kernel", "torchscript",
        "rescale_prenorm_residual",  # divides weights that were loaded, too
        "time_step_min", "time_step_max", "time_step_floor", "mamba_expand", "expand"}
# Sizes of towers beside a language model.
TOWER = {"hidden_size": 32, "embed_dim": 32, "d_model": 32, "intermediate_size": 32, "mlp_dim": 32, "num_hidden_layers": 1,
         "num_layers": 1, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32, "depth": 1,
         "num_attention_heads": 2, "num_key_value_heads": 2, "num_heads": 2, "head_dim": 16, "image_size": 56, "patch_size": 14,
         "vision_output_dim": 32, "projector_hidden_size": 32, "out_hidden_size": 48}


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


def changed_flags(default, rng):
    """Some booleans and factors of a class, other than its own."""
    values = {}
    for field, value in default.to_dict().items():
        if field in KEPT or "dropout" in field or "loss" in field or "aux" in field or rng.random() < 0.75:
            continue
        if isinstance(value, bool):
            values[field] = not value
        elif isinstance(value, float) and ("factor" in field or "multiplier" in field or "scale" in field or "scaling" in field):
            values[field] = value * rng.choice([0.5, 0.9, 1.5])
    return values


def small_tower(part):
    return type(part)(**{k: v for k, v in TOWER.items() if hasattr(part, k)}).to_dict()


def random_config(config_class, rng):
    default = config_class(**GIVEN.get(config_class.model_type, {}))
    default.allow_global_per_layer_attribute_access = True

    def has(field):
        return not isinstance(getattr(config_class, field, None), property) and hasattr(default, field)

    heads, head_dim, layers = rng.choice([2, 3, 4, 6]), rng.choice([8, 12, 16, 20]), rng.choice([2, 3, 4])
    hidden = rng.choice([36, 40, 48]) if has("head_dim") and rng.random() < 0.5 else heads * head_dim
    values = {"vocab_size": rng.choice([83, 96, 101]), "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
              "max_position_embeddings": rng.choice([64, 256]), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    latent = has("kv_lora_rank")
    if has("head_dim") and not latent:
        values["head_dim"] = head_dim
    if has("num_key_value_heads"):
        values["num_key_value_heads"] = heads if latent else rng.choice([k for k in (1, 2, 3, 6) if heads % k == 0])
    values |= {field: rng.choice(of) for field, of in ALWAYS.items() if has(field)}
    values |= {field: rng.choice(of) for field, of in SOMETIMES.items() if has(field) and rng.random() < 0.5}
    values = changed_flags(default, rng) | values
    if has("attention_types"):
        values["attention_types"] = [[[rng.choice(["global", "local"])], 1] for _ in range(layers)]
        values["window_size"] = rng.choice([7, 16])
    for key in ("vision_config", "audio_config"):
        if hasattr(default, key):
            values[key] = small_tower(getattr(default, key))
    for count, size in (("mamba_n_heads", "mamba_d_head"), ("num_heads", "head_dim")):
        if has(count) and has(size) and (has("mamba_expand") or has("expand")):
            values |= {count: rng.choice([2, 4])} | {key: 2 for key in ("mamba_expand", "expand") if has(key)}
            values[size] = 2 * hidden // values[count]
            values |= {key: rng.choice([8, 12]) for key in ("mamba_d_state", "state_size") if has(key)}
            values |= {key: rng.choice([1, 2]) for key in ("mamba_n_groups", "n_groups") if has(key)}
            values |= {"mamba_d_ssm": 2 * hidden} if has("mamba_d_ssm") else {}
    if has("vocab_size_per_layer_input"):
        values["vocab_size_per_layer_input"] = values["vocab_size"]
    kinds = sorted(set(getattr(default, "layer_types", None) or []))
    if has("layer_types") and kinds and not latent and not isinstance(getattr(config_class, "layers_block_type", None), property):
        values["layer_types"] = [rng.choice(kinds) for _ in range(layers)]
    ropes = getattr(default, "rope_parameters", None)
    if isinstance(ropes, dict) and "rope_type" in ropes and rng.random() < 0.75:
        part = ropes.get("partial_rotary_factor")
        dim = values.get("qk_rope_head_dim", int(head_dim * (part or 1)))
        own = {k: v for k, v in ropes.items() if k in ("partial_rotary_factor", "llama_4_scaling_beta")}
        values["rope_parameters"] = random_rope(rng, dim) | own
    if isinstance(ropes, dict) and "mrope_section" in ropes:
        third = head_dim // 6
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [head_dim // 2 - 2 * third, third, third]}
    return config_class(**values)


def wrapper_config(model_type, rng):
    """A wrapper's config, its language model's random and its towers small."""
    outer = CONFIG_MAPPING[model_type]()
    text_class = type(outer.get_text_config())
    parts = {"text_config": random_config(text_class, rng)}
    for key in getattr(type(outer), "sub_configs", {}):
        part = getattr(outer, key, None)
        if key == "text_config" or part is None:
            continue
        parts[key] = small_tower(part)
    parts["text_config"] = parts["text_config"].to_dict()
    tokens = {key: 3 + i for i, key in enumerate(k for k in outer.to_dict() if k.endswith(("token_id", "token_index")))}
    return type(outer)(**parts, **tokens, tie_word_embeddings=parts["text_config"].get("tie_word_embeddings", False))


def first_valid(make):
    """The first config of several that its class takes."""
    for _ in range(8):
        try:
            return make()
        except Exception as fault:  # of many kinds
            last = fault
    raise last


def edit_config(path, rng):
    """config.json as transformers 4 wrote it, or without keys, or with a null."""
    config = json.loads(path.read_text())
    text = config.get("text_config", config)
    if rng.random() < 0.5:
        write_older(text)
    kind = CONFIG_MAPPING.get(text.get("model_type"), None) if rng.random() < 0.4 else None
    if kind is not None:
        own = kind().to_dict()
        for key in [k for k in text if k in own and own[k] == text[k] and k != "model_type" and rng.random() < 0.7]:
            del text[key]
    if rng.random() < 0.1:
        keys = [k for k, v in text.items() if k not in ("model_type", "architectures") and not k.endswith("token_id") and "dropout" not in k
                and not isinstance(v, bool | int)]
        text[rng.choice(keys)] = None
    path.write_text(json.dumps(config))


def write_older(config):
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and "rope_type" in rope:
        del config["rope_parameters"]
        config["rope_theta"] = rope.pop("rope_theta", 1e4)
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        if rope.get("rope_type") != "default":
            rope["type"] = rope.pop("rope_type")
            config["rope_scaling"] = rope
        else:
            config["rope_scaling"] = None
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")


NEW = 5


def greedy(model, ids):
    """The tokens of a greedy run up to the first that is not clear."""
    out = list(ids)
    for _ in range(NEW):
        logits = model(torch.tensor([out]), use_cache=False).logits[0, -1]
        top = torch.topk(logits.float(), 2).values
        if float(top[0] - top[1]) < 0.02:
            break
        out.append(int(logits.argmax()))
    return out[len(ids):]


def generated(sluice, directory, ids):
    run = subprocess.run([sluice, "run", directory, "--token-ids", ",".join(map(str, ids)), "-n", str(NEW), "--ignore-eos", "--temperature",
                          "0", "--dtype", "float32", "--memory", "1GiB", "--json"], capture_output=True, text=True, check=False)
    return json.loads(run.stdout)["token_ids"] if run.returncode == 0 else run.stderr


def compare(sluice, model_type, seed, directory):
    rng = random.Random(f"{model_type} {seed}")
    wrapped = model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    names = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES if wrapped else MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    try:
        model_class = getattr(transformers, names[model_type])
        config = first_valid(lambda: wrapper_config(model_type, rng) if wrapped else random_config(CONFIG_MAPPING[model_type], rng))
        model = model_class._from_config(config, dtype=torch.float32).eval()
        randomize(model, seed)
        model.save_pretrained(directory)
        edit_config(directory / "config.json", rng)
        model = model_class.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
        text = model.config.get_text_config()
        positions = getattr(text, "max_position_embeddings", None) or 256
        prompts = [[rng.randrange(40, text.vocab_size) for _ in range(n)] for n in (5, min(positions - NEW - 1, rng.choice([30, 100])))]
        golden = [model(torch.tensor([ids]), use_cache=False).logits[0].float() for ids in prompts]
        if not all(bool(torch.isfinite(logits).all()) for logits in golden):
            return "skip", "logits that are not finite"
        tokens = greedy(model, prompts[1]) if seed % 4 == 0 else None
    except Exception as fault:  # transformers itself refuses many combinations, in many ways
        return "skip", f"{type(fault).__name__}: {fault}"
    (directory / "ids.json").write_text(json.dumps(prompts))
    run = subprocess.run([sluice, "logits", directory, "--token-ids", directory / "ids.json", "--out", directory / "out.safetensors",
                          "--dtype", "float32", "--memory", "1GiB", "--quiet"], capture_output=True, text=True, check=False)
    config_text = (directory / "config.json").read_text()
    if run.returncode:
        return "refused", f"{run.returncode} {run.stderr} {config_text}"
    out = load_file(directory / "out.safetensors")
    over = max(float(((out[f"logits.{i}"] - logits).abs() - 1e-3 * logits.abs()).max()) for i, logits in enumerate(golden))
    if not over < 5e-3:
        return "differs", f"{over} {config_text}"
    follows = any(kind in config_text for kind in ('"dynamic"', '"longrope"'))  # a cache keeps keys of other lengths
    if tokens and not follows:
        ours = generated(sluice, directory, prompts[1])
        if ours[:len(tokens)] != tokens:
            return "differs", f"greedy {tokens} {ours} {config_text}"
    return "same", ""


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
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
