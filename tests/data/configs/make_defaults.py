#!/usr/bin/env python3
"""Writes config_defaults.json: what the config classes of transformers take for keys that config.json lacks.

Needs transformers (5.24.0 when the file was made), without torch: make_defaults.py > config_defaults.json
"""
import json

import transformers
from transformers import (GPT2Config, GPTNeoXConfig, LlamaConfig, MinistralConfig, MistralConfig, Phi3Config, Qwen2Config,
                          Qwen3Config)

# Under the first name that a class has.
KEYS = (("vocab_size",), ("hidden_size",), ("intermediate_size", "n_inner"), ("num_hidden_layers",), ("num_attention_heads",),
        ("num_key_value_heads",), ("max_position_embeddings",), ("eps", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"),
        ("hidden_act", "activation_function"), ("tie_word_embeddings",), ("sliding_window",), ("attention_bias",),
        ("mlp_bias",), ("rope_parameters",), ("use_parallel_residual",))
CLASSES = {"GPT2LMHeadModel": GPT2Config, "GPTNeoXForCausalLM": GPTNeoXConfig, "LlamaForCausalLM": LlamaConfig,
           "MistralForCausalLM": MistralConfig, "MinistralForCausalLM": MinistralConfig, "Phi3ForCausalLM": Phi3Config,
           "Qwen2ForCausalLM": Qwen2Config, "Qwen3ForCausalLM": Qwen3Config}


def defaults(config):
    values = {}
    for names in KEYS:
        for name in names:
            if hasattr(config, name):
                values[names[0]] = getattr(config, name)
                break
    values["intermediate_size"] = values["intermediate_size"] or 4 * config.hidden_size  # GPT2MLP
    values["num_key_value_heads"] = values.get("num_key_value_heads", config.num_attention_heads)
    values["head_dim"] = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return values


print(json.dumps({"transformers": transformers.__version__,
                  "classes": {name: defaults(cls()) for name, cls in CLASSES.items()}}, indent=1))
