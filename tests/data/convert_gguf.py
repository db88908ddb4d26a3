#!/usr/bin/env python3
"""Converts small models of tests/data/models to tests/data/gguf by llama.cpp's own converter: OUT/NAME.gguf of each
directory NAME. They have no tokenizers, and neither have the files. What the converter does not take, make_gguf.py writes.

Needs torch, transformers and safetensors, and in LLAMA_CPP llama.cpp's directories conversion and gguf-py (of November
2026 when they were made): convert_gguf.py LLAMA_CPP OUT MODEL...
"""
import json
import pathlib
import sys
import tempfile

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
    "phimoe": {"architectures": ["PhiMoEForCausalLM"],
               "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "original_max_position_embeddings": 512}},
}
# The beginnings of tensors' names as on the hub.
NAMES = {"kimi_linear": [(f"model.layers.0.block_sparse_moe.{p}_proj", f"model.layers.0.mlp.{p}_proj") for p in ("gate", "up", "down")]}
# Factors of the config become factors of weights, which are exact in float32 alone.
IN_FLOAT32 = {"falcon_h1"}


def hub_like(model, folder):
    """The model as the hub has it, with a vocabulary of numbers, whose size one class asks for."""
    config = json.loads((model / "config.json").read_text()) | CONFIGS.get(model.name, {})
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    words = {str(i): i for i in range(config.get("text_config", config)["vocab_size"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))
    tensors = {}
    for file in sorted(model.glob("model*.safetensors")):
        for name, t in load_file(file).items():
            for old, new in NAMES.get(model.name, []):
                name = name.replace(old, new)
            tensors[name] = t
    save_file(tensors, folder / "model.safetensors")


def convert(model, out):
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    from conversion.mistral3 import Mistral3Model
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        hub_like(model, folder)
        architecture = get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT)
        base = Mistral3Model.Mistral4Model if architecture == "Mistral4ForCausalLM" else get_model_class(architecture)
        own = type(base.__name__, (base,), {"set_vocab": lambda self: None, "model_arch": base.model_arch})
        file_type = gguf.LlamaFileType.ALL_F32 if model.name in IN_FLOAT32 else gguf.LlamaFileType.MOSTLY_BF16
        own(folder, file_type, out / f"{model.name}.gguf", model_name=model.name).write()


def main(llama_cpp, out, models):
    sys.path[:0] = [llama_cpp, llama_cpp + "/gguf-py"]
    import torch
    with torch.inference_mode():
        for model in models:
            convert(pathlib.Path(model), pathlib.Path(out))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
