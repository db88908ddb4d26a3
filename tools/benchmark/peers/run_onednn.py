#!/usr/bin/env python3
"""The rate of oneDNN's BF16 matrix product, through torch, over the linear layers of a checkpoint."""

import argparse
import json
import pathlib
import statistics
import time

import torch


def shapes(config):
    """Outputs and inputs of a layer's matrices, as Sluice fuses them."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", hidden // heads)
    return [((heads + 2 * kv_heads) * head_dim, hidden), (hidden, heads * head_dim),
            (2 * inner, hidden), (hidden, inner)]


def seconds(outputs, inputs, rows, repeats):
    weight = torch.randn(outputs, inputs).bfloat16()
    x = torch.randn(rows, inputs).bfloat16()
    torch.nn.functional.linear(x, weight)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    config = json.loads((args.checkpoint / "config.json").read_text())
    layer = shapes(config)
    spent = sum(seconds(outputs, inputs, args.rows, args.repeats) for outputs, inputs in layer)
    operations = sum(2 * args.rows * outputs * inputs for outputs, inputs in layer)
    print(json.dumps({"flops_per_second": operations / spent}))


if __name__ == "__main__":
    main()
