#!/usr/bin/env python3
"""Writes tests/data/quant/made_blocks.safetensors: rows of numbers, and the blocks that the gguf package makes of them.

Needs gguf (0.19.0 when it was made) and numpy: make_gguf_blocks.py OUT
"""
import json
import struct
import sys

import gguf
import numpy as np


def rows():
    random = np.random.default_rng(7)
    x = (random.standard_normal((6, 256)) * 0.03).astype(np.float32)
    x[1, :64] = 0
    x[2] = np.abs(x[2])
    x[3, 5] = -3
    x[4] = np.round(x[4] * 40) / 8  # many are halfway between codes
    x[5] *= 1e-4
    return x


def main(out):
    x = rows()
    tensors = {"x": ("F32", x)}
    for kind in ("Q8_0", "Q4_0", "MXFP4"):
        tensors[kind.lower()] = ("U8", gguf.quants.quantize(x, gguf.GGMLQuantizationType[kind]))
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main(sys.argv[1])
