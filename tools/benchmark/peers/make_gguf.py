#!/usr/bin/env python3
"""Turns a Llama or Qwen3-MoE checkpoint of BF16 safetensors into a GGUF file in BF16.

The file has no vocabulary: llama.cpp is given token ids.
"""

import argparse
import json
import pathlib
import re

import gguf
import numpy as np

BF16 = gguf.GGMLQuantizationType.BF16
ARCHITECTURES = {"llama": ("llama", gguf.MODEL_ARCH.LLAMA), "qwen3_moe": ("qwen3moe", gguf.MODEL_ARCH.QWEN3MOE)}
EXPERT = re.compile(r"(.*\.experts)\.\d+\.(.*)")


def tensors_of(directory):
    """Name, and the values as they lie in the file: 16 bits each."""
    for path in sorted(directory.glob("*.safetensors")):
        with open(path, "rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(header_bytes))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "BF16":
                raise SystemExit(f"{path}: {name} is {entry['dtype']}, not BF16")
            yield name, np.memmap(path, np.uint16, "r", 8 + header_bytes + entry["data_offsets"][0],
                                  tuple(entry["shape"]))


def stacked(tensors):
    """Each expert's matrices become a part of one tensor of all: name, and what lies in it in turn."""
    together = {}
    for name, values in tensors:
        expert = EXPERT.fullmatch(name)
        together.setdefault(f"{expert[1]}.{expert[2]}" if expert else name, []).append(values)
    return together


def interleave(rows, heads):
    """Each head's rows in the order that llama.cpp rotates: pairs side by side, not halves."""
    parted = rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1])
    return np.ascontiguousarray(parted.swapaxes(1, 2)).reshape(rows.shape)


def is_float(name, values):
    return values.ndim == 1 or name.endswith(".mlp.gate.weight")


def converted(name, values, config):
    """What is written: norms and routers as F32, matrices as they are, but Llama's rows of q and k interleaved."""
    if is_float(name, values):
        return (values.astype(np.uint32) << 16).view(np.float32)
    if config["model_type"] != "llama":
        return values
    if name.endswith("self_attn.q_proj.weight"):
        return interleave(values, config["num_attention_heads"])
    if name.endswith("self_attn.k_proj.weight"):
        return interleave(values, config["num_key_value_heads"])
    return values


def add_settings(writer, config):
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("out")
    args = parser.parse_args()
    config = json.loads((args.checkpoint / "config.json").read_text())
    if config["model_type"] not in ARCHITECTURES or config.get("rope_scaling"):
        raise SystemExit("only Llama and Qwen3-MoE without scaled rotary embedding are converted")

    architecture, known = ARCHITECTURES[config["model_type"]]
    names = gguf.get_tensor_name_map(known, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(args.out, architecture)
    add_settings(writer, config)
    tensors = stacked(tensors_of(args.checkpoint))
    for name, parts in tensors.items():
        of_float, shape = is_float(name, parts[0]), parts[0].shape
        if ".experts." in name:
            shape = (len(parts), *shape)
        size = len(parts) * parts[0].size
        writer.add_tensor_info(names.get_name(name, try_suffixes=(".weight",)), shape,
                               np.dtype(np.float32 if of_float else np.uint16),
                               size * (4 if of_float else 2), None if of_float else BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, parts in tensors.items():
        writer.write_tensor_data(converted(name, np.stack(parts) if len(parts) > 1 else parts[0], config))
    writer.close()


if __name__ == "__main__":
    main()
