#!/usr/bin/env python3
"""Writes a small model of make_models.py as GGUF, beside its golden, as llama.cpp's converter does.

Needs gguf (0.19.0 when they were made), safetensors and torch: make_gguf.py MODEL OUT
"""
import json
import pathlib
import shutil
import sys

import gguf
import torch
from safetensors.torch import load_file

COMMON = [("model.embed_tokens.", "token_embd."), ("model.norm.", "output_norm."), ("lm_head.", "output."),
          (".input_layernorm.", ".attn_norm."), (".self_attn.q_proj.", ".attn_q."), (".self_attn.k_proj.", ".attn_k."),
          (".self_attn.v_proj.", ".attn_v."), (".self_attn.o_proj.", ".attn_output."), ("model.layers.", "blk.")]
NAMES = {"gpt-oss": [(".post_attention_layernorm.", ".post_attention_norm."), (".self_attn.sinks", ".attn_sinks.weight"),
                     (".mlp.router.", ".ffn_gate_inp.")],
         "mistral3": [(".post_attention_layernorm.", ".ffn_norm."), (".mlp.gate_proj.", ".ffn_gate."), (".mlp.up_proj.", ".ffn_up."),
                      (".mlp.down_proj.", ".ffn_down.")]}
FEED_FORWARD = [(".feed_forward.w1.", ".ffn_gate."), (".feed_forward.w3.", ".ffn_up."), (".feed_forward.w2.", ".ffn_down.")]
NAMES["lfm2moe"] = FEED_FORWARD + [
    ("model.embedding_norm.", "token_embd_norm."), (".operator_norm.", ".attn_norm."), (".self_attn.out_proj.", ".attn_output."),
    (".self_attn.q_layernorm.", ".attn_q_norm."), (".self_attn.k_layernorm.", ".attn_k_norm."), (".conv.conv.", ".shortconv.conv."),
    (".conv.in_proj.", ".shortconv.in_proj."), (".conv.out_proj.", ".shortconv.out_proj."),
    (".feed_forward.gate.", ".ffn_gate_inp."), (".feed_forward.expert_bias", ".exp_probs_b.bias")]
ARCHITECTURES = {"gpt_oss": "gpt-oss", "ministral3": "mistral3", "lfm2_moe": "lfm2moe"}


def neighbours(weight, heads):
    """The rows of q or k, so that those of a rotary pair are neighbours."""
    return weight.view(heads, 2, -1, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)


def gpt_oss(tensors, config):
    """Gates and ups apart, all outputs first."""
    for name in [n for n in tensors if ".experts." in n]:
        t = tensors.pop(name)
        at = name[:name.index("mlp.experts.")]
        end = "bias" if name.endswith("_bias") else "weight"
        t = t if end == "bias" else t.transpose(1, 2)
        if "gate_up" in name:
            tensors[f"{at}ffn_gate_exps.{end}"], tensors[f"{at}ffn_up_exps.{end}"] = t[:, ::2], t[:, 1::2]
        else:
            tensors[f"{at}ffn_down_exps.{end}"] = t


def mistral3(tensors, config):
    for name in tensors:
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        for part, count in heads.items():
            if f".{part}." in name:
                tensors[name] = neighbours(tensors[name], count)


def lfm2moe(tensors, config):
    """Experts below one another, and convolutions as matrices."""
    for name in [n for n in tensors if ".experts.0." in n]:
        experts = [tensors.pop(name.replace(".experts.0.", f".experts.{e}.")) for e in range(config["num_experts"])]
        part = {"w1": "gate", "w3": "up", "w2": "down"}[name.split(".")[-2]]
        tensors[name[:name.index("feed_forward")] + f"ffn_{part}_exps.weight"] = torch.stack(experts)
    for name in tensors:
        if name.endswith("conv.conv.weight"):
            tensors[name] = tensors[name].squeeze(1)


def write_lfm2moe_keys(writer, config):
    writer.add_shortconv_l_cache(config["conv_L_cache"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_leading_dense_block_count(config["num_dense_layers"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def write_keys(writer, arch, config):
    rope = config["rope_parameters"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([kv_heads if t == "full_attention" else 0 for t in config["layer_types"]] if arch == "lfm2moe" else kv_heads)
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps") or config["norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    if arch == "lfm2moe":
        return write_lfm2moe_keys(writer, config)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if arch == "gpt-oss":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    else:
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_float32("mistral3.attention.temperature_scale", rope["llama_4_scaling_beta"])


def main(model, out):
    config = json.loads((model / "config.json").read_text())
    arch = ARCHITECTURES[config["model_type"]]
    tensors = load_file(model / "model.safetensors")
    {"gpt-oss": gpt_oss, "mistral3": mistral3, "lfm2moe": lfm2moe}[arch](tensors, config)
    out.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(out / "model.gguf", arch)
    write_keys(writer, arch, config)
    for name, t in tensors.items():
        for old, new in NAMES[arch] + COMMON:
            name = name.replace(old, new)
        t = t.float().contiguous().numpy()
        if t.ndim == 1 or name.endswith((".bias", "_inp.weight", "conv.weight")):
            writer.add_tensor(name, t)
        else:
            writer.add_tensor(name, gguf.quants.quantize(t, gguf.GGMLQuantizationType.BF16), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shutil.copy(model / "golden.safetensors", out)
    shutil.copy(model / "manifest.json", out)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
