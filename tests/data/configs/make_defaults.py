#!/usr/bin/env python3
"""Writes config_defaults.json: what the config classes of transformers take for keys that config.json lacks.

Needs transformers (5.24.0 when the file was made), without torch: make_defaults.py > config_defaults.json
"""
import json

import transformers
from transformers import LlamaConfig, MinistralConfig, MistralConfig

KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings",
        "sliding_window", "attention_bias", "mlp_bias", "rope_parameters")
CLASSES = {"LlamaForCausalLM": LlamaConfig, "MistralForCausalLM": MistralConfig, "MinistralForCausalLM": MinistralConfig}


def defaults(config):
    values = {key: getattr(config, key) for key in KEYS if hasattr(config, key)}
    values["head_dim"] = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return values


print(json.dumps({"transformers": transformers.__version__,
                  "classes": {name: defaults(cls()) for name, cls in CLASSES.items()}}, indent=1))
