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
MLP = NAMES["mistral3"][1:]
NAMES["qwen35"] = MLP + [
    (".post_attention_layernorm.", ".post_attention_norm."), (".self_attn.q_norm.", ".attn_q_norm."), (".self_attn.k_norm.", ".attn_k_norm."),
    (".linear_attn.in_proj_qkv.", ".attn_qkv."), (".linear_attn.in_proj_z.", ".attn_gate."), (".linear_attn.in_proj_ba.", ".ssm_ba."),
    (".linear_attn.in_proj_a.", ".ssm_alpha."), (".linear_attn.in_proj_b.", ".ssm_beta."), (".linear_attn.conv1d.", ".ssm_conv1d."),
    (".linear_attn.dt_bias", ".ssm_dt.bias"), (".linear_attn.A_log", ".ssm_a"), (".linear_attn.norm.", ".ssm_norm."),
    (".linear_attn.out_proj.", ".ssm_out.")]
NAMES["qwen3next"] = [(".mlp.shared_expert_gate.", ".ffn_gate_inp_shexp."), (".mlp.shared_expert.gate_proj.", ".ffn_gate_shexp."),
                      (".mlp.shared_expert.up_proj.", ".ffn_up_shexp."), (".mlp.shared_expert.down_proj.", ".ffn_down_shexp."),
                      (".mlp.gate.", ".ffn_gate_inp.")] + NAMES["qwen35"]
NAMES["mamba"] = NAMES["mamba2"] = [
    ("backbone.embeddings.", "token_embd."), ("backbone.norm_f.", "output_norm."), ("backbone.layers.", "blk."), (".mixer.in_proj.", ".ssm_in."),
    (".mixer.conv1d.", ".ssm_conv1d."), (".mixer.x_proj.", ".ssm_x."), (".mixer.dt_proj.", ".ssm_dt."), (".mixer.dt_bias", ".ssm_dt.bias"),
    (".mixer.A_log", ".ssm_a"), (".mixer.D", ".ssm_d"), (".mixer.norm.", ".ssm_norm."), (".mixer.out_proj.", ".ssm_out."),
    (".norm.", ".attn_norm.")]
NAMES["afmoe"] = [
    (".mlp.shared_experts.gate_proj.", ".ffn_gate_shexp."), (".mlp.shared_experts.up_proj.", ".ffn_up_shexp."),
    (".mlp.shared_experts.down_proj.", ".ffn_down_shexp."), (".mlp.router.gate.", ".ffn_gate_inp."), (".mlp.expert_bias", ".exp_probs_b.bias"),
    (".post_attention_layernorm.", ".post_attention_norm."), (".pre_mlp_layernorm.", ".ffn_norm."), (".post_mlp_layernorm.", ".post_ffw_norm."),
    (".self_attn.gate_proj.", ".attn_gate."), (".self_attn.q_norm.", ".attn_q_norm."), (".self_attn.k_norm.", ".attn_k_norm.")] + MLP
NAMES["starcoder"] = [
    ("transformer.wte.", "token_embd."), ("transformer.wpe.", "position_embd."), ("transformer.ln_f.", "output_norm."), ("transformer.h.", "blk."),
    (".ln_1.", ".attn_norm."), (".ln_2.", ".ffn_norm."), (".attn.c_attn.", ".attn_qkv."), (".attn.c_proj.", ".attn_output."),
    (".mlp.c_fc.", ".ffn_up."), (".mlp.c_proj.", ".ffn_down.")]
ARCHITECTURES = {"afmoe": "afmoe", "gpt_bigcode": "starcoder", "falcon_mamba": "mamba", "mamba2": "mamba2", "gpt_oss": "gpt-oss", "ministral3": "mistral3", "lfm2_moe": "lfm2moe", "qwen3_5_text": "qwen35", "qwen3_next": "qwen3next"}


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


def tiled(t, config, dim, size):
    """Value heads of `size` elements by their place among those of a key head."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    return t.unflatten(dim, (keys, values // keys, size)).transpose(dim, dim + 1).flatten(dim, dim + 2)


def common_state(tensors):
    """Qwen's norms with their 1, rates, and convolutions as matrices."""
    for name in tensors:
        if name.startswith("model.") and name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            tensors[name] = tensors[name].float() + 1
        elif name.endswith(".A_log"):
            tensors[name] = -tensors[name].float().exp()
        elif name.endswith("conv1d.weight"):
            tensors[name] = tensors[name].squeeze(1)


def qwen35(tensors, config):
    common_state(tensors)
    size, keys = config["linear_value_head_dim"], 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    for name, t in tensors.items():
        if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            tensors[name] = torch.cat([t[:keys], tiled(t[keys:], config, 0, size)])
        elif name.endswith("in_proj_z.weight"):
            tensors[name] = tiled(t, config, 0, size)
        elif name.endswith(("in_proj_a.weight", "in_proj_b.weight", ".A_log", ".dt_bias")):
            tensors[name] = tiled(t, config, 0, 1)
        elif name.endswith("linear_attn.out_proj.weight"):
            tensors[name] = tiled(t, config, 1, size)


def qwen3next(tensors, config):
    """Queries, keys and values of all heads one after another, their gates apart, and experts below one another."""
    common_state(tensors)
    heads, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    for name in [n for n in tensors if n.endswith("in_proj_qkvz.weight")]:
        parts = [p.flatten(0, 1) for p in tensors.pop(name).unflatten(0, (heads, -1)).split([size, size, values, values], 1)]
        tensors[name.replace("qkvz", "qkv")], tensors[name.replace("qkvz", "z")] = torch.cat(parts[:3]), parts[3]
    stack_experts(tensors, config["num_experts"])
    for name in tensors:
        if name.endswith("shared_expert_gate.weight"):
            tensors[name] = tensors[name].squeeze(0)


def mamba(tensors, config):
    common_state(tensors)


def mamba2(tensors, config):
    """Numbers of heads as columns, and a row of the norm for each group."""
    common_state(tensors)
    for name, t in tensors.items():
        if name.endswith((".A_log", ".D")):
            tensors[name] = t.unsqueeze(1)
        elif name.endswith("mixer.norm.weight"):
            tensors[name] = t.unflatten(0, (config["n_groups"], -1))


def afmoe(tensors, config):
    stack_experts(tensors, config["num_experts"])


def write_afmoe_keys(writer, config):
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["num_shared_experts"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_leading_dense_block_count(config["num_dense_layers"])
    writer.add_expert_weights_norm(True)
    writer.add_expert_weights_scale(config["route_scale"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_sliding_window(config["sliding_window"])


def starcoder(tensors, config):
    tensors.pop("lm_head.weight", None)


def write_starcoder_keys(writer, config):
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_head_count(config["n_head"])
    writer.add_head_count_kv(1)
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])


def write_mamba_keys(writer, arch, config):
    heads = config.get("num_heads")
    writer.add_context_length(2**20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_inner_size(config["hidden_size"] * config["expand"] if heads else config["intermediate_size"])
    writer.add_ssm_state_size(config["state_size"])
    writer.add_ssm_time_step_rank(heads or config["time_step_rank"])
    if heads:
        writer.add_ssm_group_count(config["n_groups"])
    else:
        writer.add_ssm_dt_b_c_rms(True)
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])


def stack_experts(tensors, count):
    for name in [n for n in tensors if ".experts.0." in n]:
        experts = [tensors.pop(name.replace(".experts.0.", f".experts.{e}.")) for e in range(count)]
        part = name.split(".")[-2].removesuffix("_proj")
        tensors[name[:name.index("mlp.")] + f"ffn_{part}_exps.weight"] = torch.stack(experts)


def write_delta_net_keys(writer, config):
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    writer.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def write_lfm2moe_keys(writer, config):
    writer.add_shortconv_l_cache(config["conv_L_cache"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_leading_dense_block_count(config["num_dense_layers"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def write_keys(writer, arch, config):
    if arch.startswith("mamba"):
        return write_mamba_keys(writer, arch, config)
    if arch == "starcoder":
        return write_starcoder_keys(writer, config)
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
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if arch == "lfm2moe":
        return write_lfm2moe_keys(writer, config)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if arch == "afmoe":
        return write_afmoe_keys(writer, config)
    if arch.startswith("qwen3"):
        return write_delta_net_keys(writer, config)
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
    {"afmoe": afmoe, "starcoder": starcoder, "mamba": mamba, "mamba2": mamba2, "gpt-oss": gpt_oss, "mistral3": mistral3, "lfm2moe": lfm2moe, "qwen35": qwen35, "qwen3next": qwen3next}[arch](tensors, config)
    out.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(out / "model.gguf", arch)
    write_keys(writer, arch, config)
    for name, t in tensors.items():
        for old, new in NAMES[arch] + COMMON:
            name = name.replace(old, new)
        t = t.float().contiguous().numpy()
        if t.ndim == 1 or name.endswith((".bias", "ssm_a", "ssm_d", "norm.weight", "_inp.weight", "conv.weight", "conv1d.weight")):
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
