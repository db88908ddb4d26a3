"""Writes small checkpoints of any shape, with the demo model's tokenizer and vocabulary; reads a file's floats."""

import array
import json
import random
import struct

from program import DEMO

VOCABULARY = 4096


def weights_of(dtype, seed):
    """Some thousand weights as they are stored; a prime number of them, so that rows differ when they are repeated."""
    numbers = [random.Random(seed).uniform(-0.3, 0.3) for _ in range(10_007)]
    if dtype == "F16":
        return struct.pack(f"<{len(numbers)}e", *numbers)
    stored = struct.pack(f"<{len(numbers)}f", *numbers)
    if dtype == "F32":
        return stored
    return array.array("H", stored)[1::2].tobytes()  # the upper half of a float32 is its BF16


def shapes_of(config):
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": [VOCABULARY, hidden], "model.norm.weight": [hidden]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [VOCABULARY, hidden]
    for i in range(config["num_hidden_layers"]):
        layer = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden],
                 "self_attn.q_proj": [queries, hidden], "self_attn.k_proj": [keys, hidden],
                 "self_attn.v_proj": [keys, hidden], "self_attn.o_proj": [hidden, queries]}
        mlps = {"mlp": intermediate}
        if experts := config.get("num_experts"):  # as Qwen3-MoE has them
            layer |= {"mlp.gate": [experts, hidden], "self_attn.q_norm": [config["head_dim"]],
                      "self_attn.k_norm": [config["head_dim"]]}
            mlps = {f"mlp.experts.{e}": config["moe_intermediate_size"] for e in range(experts)}
        for mlp, width in mlps.items():
            layer |= {f"{mlp}.gate_proj": [width, hidden], f"{mlp}.up_proj": [width, hidden],
                      f"{mlp}.down_proj": [hidden, width]}
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def write_shard(path, shapes, dtype, pattern):
    width = 4 if dtype == "F32" else 2
    one = struct.pack("<f", 1.0)
    ones = {"F32": one, "F16": struct.pack("<e", 1.0), "BF16": one[2:]}[dtype]
    header, end = {}, 0
    for name, shape in shapes.items():
        size = width * (shape[0] * shape[1] if len(shape) == 2 else shape[0])
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for i, tensor in enumerate(header.values()):
            begin, end = tensor["data_offsets"]
            turn = width * 997 * i % len(pattern)  # or a head would be as an embedding
            data = pattern[turn:] + pattern[:turn] if len(tensor["shape"]) == 2 else ones
            file.write((data * ((end - begin) // len(data) + 1))[:end - begin])


def write_checkpoint(path, *, model_type="llama", dtype="BF16", shards=1, seed=1, **changes):
    """`changes` are those of config.json; without them it is as small as can be: fast."""
    path.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).write_bytes((DEMO / name).read_bytes())
    config = json.loads((DEMO / "config.json").read_text())
    config.update(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                  head_dim=32, model_type=model_type, architectures=[f"{model_type.title()}ForCausalLM"])
    config.update(changes)
    (path / "config.json").write_text(json.dumps(config))
    shapes = shapes_of(config)
    names, pattern = list(shapes), weights_of(dtype, seed)
    weight_map = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        held = names[i::shards]
        write_shard(path / file, {name: shapes[name] for name in held}, dtype, pattern)
        weight_map |= dict.fromkeys(held, file)
    if shards > 1:
        (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return path


def read_floats(path):
    """Each float32 tensor of a safetensors file as its elements in a row."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and t["dtype"] == "F32":
            begin, end = t["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
    return tensors
