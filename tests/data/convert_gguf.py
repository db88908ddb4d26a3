#!/usr/bin/env python3
"""Converts small models of tests/data/models to tests/data/gguf by llama.cpp's own converter: OUT/NAME.gguf of each
directory NAME. They have no tokenizers, and neither have the files. What the converter does not take, make_gguf.py writes.

Needs torch, transformers and safetensors, and in LLAMA_CPP llama.cpp's directories conversion and gguf-py (of November
2026 when they were made): convert_gguf.py LLAMA_CPP OUT MODEL...
"youtu@kv_b" is an older form of a file, OUT/youtu.kv_b.gguf, and "@fused" one with q, k and v, and gates and ups, in one tensor.
"""
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

# Keys of config.json as on the hub, where transformers saves others; None: without the key.
CONFIGS = {
    "kimi_linear": {"num_local_experts": 4,
                    "linear_attn_config": {"full_attn_layers": [2], "short_conv_kernel_size": 3, "head_dim": 8, "num_heads": 3}},
    "mimo_v2_flash": {"model_type": "unknown", "swa_head_dim": 12, "swa_num_attention_heads": 4, "swa_v_head_dim": 8,
                      "swa_num_key_value_heads": 2, "topk_method": "noaux_tc", "hybrid_layer_pattern": [0, 1, 0, 1],
                      "layernorm_epsilon": 1e-5, "partial_rotary_factor": 0.334, "swa_rope_theta": 10000.0,
                      "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0}},
    "mpt": {"architectures": ["MPTForCausalLM"]},
    "nemotron_h": {"model_type": "unknown", "layers_block_type": None, "hybrid_override_pattern": "M-*M", "num_hidden_layers": 4,
                   "mamba_d_head": 10, "num_experts_per_tok": None, "n_routed_experts": None},
    "nemotron": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.67}},
    "laguna": {"gating": True},
    "deepseek.ocr": {"architectures": ["DeepseekOCRForCausalLM"], "model_type": "unknown", "use_mla": False, "qk_rope_head_dim": 0},
    "gguf_qwen35moe": {"full_attention_interval": 2},
    "gguf_deepseek4": {"model_type": "unknown", "num_hash_layers": 1, "compress_ratios": [0, 4, 128], "rope_theta": 10000.0,
                       "rope_parameters": None, "scoring_func": "sqrtsoftplus",
                       "rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1}},
    "gguf_dots3_note": {"model_type": "unknown", "topk_method": "noaux_tc", "scoring_func": "sigmoid", "n_group": 1, "topk_group": 1,
                        "layer_types": ["full_attention", "sliding_attention", "full_attention"], "first_k_dense_replace": 1,
                        "sliding_window_size": 16, "apply_mla_qkv_lora_rescale": True, "swa_num_attention_heads": 4,
                        "swa_q_lora_rank": 24, "swa_kv_lora_rank": 24, "swa_head_dim": 20, "swa_qk_nope_head_dim": 12,
                        "swa_qk_rope_head_dim": 8, "swa_v_head_dim": 10, "per_layer_config": None,
                        "rope_parameters": {"full_attention": {"rope_theta": 80000000.0}, "sliding_attention": {"rope_theta": 50000.0}}},
    "gguf_nemotron_h_moe": {"model_type": "unknown", "mamba_d_head": 8},
    "step3p7": {"text_config": None, "architectures": ["Step3p5ForCausalLM"], "model_type": "unknown", "num_attention_groups": 2, "moe_num_experts": 4, "moe_top_k": 2,
                "attention_other_setting": {"num_attention_heads": 6}, "moe_layers_enum": "1,2,3", "partial_rotary_factors": [0.5, 1.0] * 2},
    "phimoe": {"architectures": ["PhiMoEForCausalLM"],
               "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "original_max_position_embeddings": 512}},
}
# Language models of wrappers, and others of a class that files call otherwise.
for name, architecture in [("gguf_hunyuan_vl", "HunYuanVLForConditionalGeneration"), ("gguf_paddleocr", "PaddleOCRVLForConditionalGeneration"),
                           ("gguf_pangu", "PanguEmbeddedForCausalLM"), ("gguf_qwen2vl", "Qwen2VLForConditionalGeneration"),
                           ("gguf_qwen3vl", "Qwen3VLForConditionalGeneration"), ("gguf_qwen3vlmoe", "Qwen3VLMoeForConditionalGeneration"),
                           ("gguf_xverse", "XverseForCausalLM")]:
    CONFIGS[name] = {"architectures": [architecture]}
CONFIGS["gguf_hunyuan_vl"]["rope_parameters"] = {"rope_type": "xdrope", "rope_theta": 10000.0, "factor": 1.0, "alpha": 50.0,
                                                 "xdrope_section": [1, 1, 1, 1]}
# The beginnings of tensors' names as on the hub.
NAMES = {"gguf_bitnet": [("ffn_sub_norm", "ffn_layernorm"), ("attn_sub_norm", "inner_attn_ln")],
         "kimi_linear": [(f"model.layers.0.block_sparse_moe.{p}_proj", f"model.layers.0.mlp.{p}_proj") for p in ("gate", "up", "down")]}
# Factors of the config become factors of weights, which are exact in float32 alone.
IN_FLOAT32 = {"falcon_h1"}


def hub_like(model, folder, form):
    """The model as the hub has it, with a vocabulary of numbers, whose size one class asks for."""
    config = json.loads((model / "config.json").read_text())
    config = config | config.get("text_config", {}) | CONFIGS.get(model.name + form, CONFIGS.get(model.name, {}))
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    words = {str(i): i for i in range(config["vocab_size"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))
    tensors = {}
    for file in sorted(model.glob("model*.safetensors")):
        for name, t in load_file(file).items():
            for old, new in NAMES.get(model.name, []):
                name = name.replace(old, new)
            tensors[name] = t
    save_file(tensors, folder / "model.safetensors")


def modify_baichuan(self, t, name, bid):
    from conversion.baichuan import BaichuanModel
    if name.endswith("W_pack.weight"):
        yield from BaichuanModel.modify_tensors(self, t, name, bid)
    else:
        yield self.map_tensor_name(name), t


def write_experts(self, layer, matrix, key):
    """DeepSeek-V4's as they are, where the converter knows MXFP4 alone."""
    import gguf
    from conversion.base import LazyTorchTensor
    names = [f"layers.{layer}.ffn.experts.{e}.{matrix}.weight" for e in range(self.hparams["n_routed_experts"])]
    stack = torch.stack([LazyTorchTensor.to_eager(self.model_tensors[name]()).float() for name in names])
    kept = gguf.GGMLQuantizationType.BF16
    self.gguf_writer.add_tensor(self.format_tensor_name(key, layer), gguf.quants.quantize(stack.numpy(), kept), raw_dtype=kept)
    return names


def older_latent(base):
    """DeepSeek-V2's as converters wrote it before keys and values were two tensors, without keys for that."""
    def modify_tensors(self, t, name, bid):
        if name.endswith("kv_b_proj.weight"):
            yield self.map_tensor_name(name), t
        else:
            yield from base.modify_tensors(self, t, name, bid)

    def set_gguf_parameters(self):
        base.set_gguf_parameters(self)
        values = self.gguf_writer.kv_data[0]
        for key in ("key_length", "value_length"):
            values[f"deepseek2.attention.{key}"] = values.pop(f"deepseek2.attention.{key}_mla")
        values["deepseek2.attention.head_count_kv"] = values["deepseek2.attention.head_count"]
    return {"modify_tensors": modify_tensors, "set_gguf_parameters": set_gguf_parameters}


def convert(model, out, form=""):
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    from conversion.mistral3 import Mistral3Model
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        hub_like(model, folder, form)
        architecture = get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT)
        base = Mistral3Model.Mistral4Model if architecture == "Mistral4ForCausalLM" else get_model_class(architecture)
        changes = {"set_vocab": lambda self: None, "model_arch": base.model_arch, "no_mtp": True}
        if architecture == "BaichuanForCausalLM":  # its method calls itself without end
            changes["modify_tensors"] = modify_baichuan
        if model.name == "gguf_deepseek4":
            changes["_write_mxfp4_expert_tensor"] = write_experts
        if model.name == "gguf_gemma3n":
            changes["set_vocab"] = lambda self: self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])
        if model.name == "gguf_bitnet":  # its weights are not of three values, and are kept
            changes["weight_quant"] = lambda self, weight: weight
        if form == ".kv_b":
            changes |= older_latent(base)
        own = type(base.__name__, (base,), changes)
        file_type = gguf.LlamaFileType.ALL_F32 if model.name in IN_FLOAT32 else gguf.LlamaFileType.MOSTLY_BF16
        file = out / f"{model.name}{form}.gguf"
        if model.name.startswith("gguf_"):  # a model of its own, of which only the file is kept
            file = out / model.name / "model.gguf"
            file.parent.mkdir(exist_ok=True)
            for golden in ("golden.safetensors", "manifest.json"):
                shutil.copy(model / golden, file.parent)
        own(folder, file_type, file, model_name=model.name, fuse_qkv=form == ".fused", fuse_gate_up_exps=form == ".fused").write()


def main(llama_cpp, out, models):
    sys.path[:0] = [llama_cpp, llama_cpp + "/gguf-py"]
    with torch.inference_mode():
        for model in models:
            path, _, form = model.partition("@")
            convert(pathlib.Path(path), pathlib.Path(out), "." + form if form else "")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
