#!/usr/bin/env python3
"""Makes tests/data/embeddings.json: for prompts of bundled models the last hidden states, behind the last norm, of a
float32 run of transformers: that of the last token, and their mean.

Needs torch, transformers and safetensors (5.24.0 when it was made): make_embeddings.py > embeddings.json
"""
import json
import pathlib

import torch
import transformers

MODELS = pathlib.Path(__file__).parent / "models"
PROMPTS = ([3, 14, 15, 9, 26], [(7 * i + i * i) % 90 + 3 for i in range(40)])


def rounded(vector):
    return [float(f"{x:.7g}") for x in vector.tolist()]


goldens = []
for name in ("llama_tied", "qwen3_5"):
    config = transformers.AutoConfig.from_pretrained(MODELS / name, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_pretrained(MODELS / name, config=config, dtype=torch.float32).eval()
    for ids in PROMPTS:
        with torch.no_grad():
            states = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0].double()
        goldens.append({"model": name, "prompt": ids, "last": rounded(states[-1]), "mean": rounded(states.mean(0))})
print(json.dumps(goldens))
