#!/usr/bin/env python3
"""Writes vocab_and_merges.json: tokenizers of vocab.json and merges.txt (those of gpt2_bpe/tokenizer.json) with some
configs, and what transformers makes of texts: a list of {config, rows: [{text, ids, decoded}]}.

Needs transformers (5.24.0).
"""
import json
import pathlib
import tempfile

from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = [json.loads(line)["text"] for line in (HERE / "gpt2_bpe/strings.jsonl").open()][::5]
TEXTS += ["Hello world 12345", "a</s> b", "<|im_start|>user\nHi<|endoftext|>", "e\u0301 \u00e9", " x<tok>  y", ""]
FLAGS = {"lstrip": False, "rstrip": False, "single_word": False}
END = {"content": "</s>", "normalized": True, "__type": "AddedToken"} | FLAGS
OPT = {"bos_token": END, "eos_token": END, "unk_token": END, "pad_token": "<pad>", "add_prefix_space": False,
       "add_bos_token": True, "tokenizer_class": "GPT2Tokenizer"}
QWEN = {"added_tokens_decoder": {"900": {"content": "<|endoftext|>", "special": True, "normalized": False} | FLAGS,
                                 "901": {"content": "<|im_start|>", "special": True, "normalized": False} | FLAGS,
                                 "902": {"content": "<tok>", "special": False, "normalized": False} | FLAGS},
        "eos_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer"}
CONFIGS = [{"tokenizer_class": "GPT2Tokenizer"},
           {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": True}, OPT, QWEN]


def rows_of(config):
    model = json.loads((HERE / "gpt2_bpe/tokenizer.json").read_text())["model"]
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        (directory / "vocab.json").write_text(json.dumps(model["vocab"]))
        lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        (directory / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]) + "\n")
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = AutoTokenizer.from_pretrained(directory)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        yield {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, clean_up_tokenization_spaces=False)}


(HERE / "vocab_and_merges.json").write_text(
    json.dumps([{"config": config, "rows": list(rows_of(config))} for config in CONFIGS]) + "\n")
