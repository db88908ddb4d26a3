"""Writes small checkpoints of any shape, with the demo model's tokenizer and vocabulary; reads a file's floats."""

import array
import json
import math
import random
import struct

from program import DEMO

VOCABULARY = 4096


def weights_of(dtype, seed):
    """Some thousand weights as they are stored; a prime number of them, so that rows differ when they are repeated."""
    chosen = random.Random(seed)
    numbers = [chosen.uniform(-0.3, 0.3) for _ in range(10_007)]
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
    def mlp_of(prefix, width, gate="gate_proj", up="up_proj", down="down_proj"):
        return {f"{prefix}.{gate}": [width, hidden], f"{prefix}.{up}": [width, hidden], f"{prefix}.{down}": [hidden, width]}

    mlp = mlp_of("mlp", intermediate)
    if experts := config.get("num_local_experts"):  # as Mixtral has them
        mlp = {"block_sparse_moe.gate": [experts, hidden]}
        for e in range(experts):
            mlp |= mlp_of(f"block_sparse_moe.experts.{e}", intermediate, "w1", "w3", "w2")
    elif experts := config.get("num_experts"):  # as Qwen3-MoE has them, with norms of queries and keys
        mlp = {"mlp.gate": [experts, hidden], "self_attn.q_norm": [config["head_dim"]], "self_attn.k_norm": [config["head_dim"]]}
        for e in range(experts):
            mlp |= mlp_of(f"mlp.experts.{e}", config["moe_intermediate_size"])
    for i in range(config["num_hidden_layers"]):
        layer = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden],
                 "self_attn.q_proj": [queries, hidden], "self_attn.k_proj": [keys, hidden],
                 "self_attn.v_proj": [keys, hidden], "self_attn.o_proj": [hidden, queries]} | mlp
        for name, shape in layer.items():
            shapes |= stored_shapes(f"model.layers.{i}.{name}", shape, config.get("quantization_config"))
    return shapes


def stored_shapes(name, shape, gptq):
    """Of a matrix that GPTQ has quantized: codes of 4 bits, zeros and scales of its groups, and the groups of inputs."""
    if not gptq or len(shape) == 1:
        return {f"{name}.weight": shape}
    outputs, inputs = shape
    groups = inputs // gptq["group_size"]
    order = {f"{name}.g_idx": [inputs]} if gptq["desc_act"] else {}
    return {f"{name}.qweight": [inputs // 8, outputs], f"{name}.qzeros": [groups, outputs // 8],
            f"{name}.scales": [groups, outputs]} | order


def stored_as(name, shape, dtype, pattern):
    """A tensor's type, and elements that are repeated."""
    if name.endswith(".qweight"):
        return "I32", random.Random(len(pattern)).randbytes(4 * 1009)
    if name.endswith(".qzeros"):
        return "I32", b"\x77"  # 8, less 1 as the format has it
    if name.endswith(".g_idx"):  # of 32 inputs, from all over the matrix
        return "I32", array.array("i", range(shape[0] // 32)).tobytes()
    if name.endswith(".scales"):
        return "F16", struct.pack("<e", 0.02)
    one = struct.pack("<f", 1.0)
    return dtype, pattern if len(shape) == 2 else {"F32": one, "F16": struct.pack("<e", 1.0), "BF16": one[2:]}[dtype]


def write_shard(path, shapes, dtype, pattern):
    header, elements, end = {}, [], 0
    for name, shape in shapes.items():
        stored, data = stored_as(name, shape, dtype, pattern)
        elements.append(data)
        size = (2 if "16" in stored else 4) * math.prod(shape)
        header[name] = {"dtype": stored, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for i, (tensor, data) in enumerate(zip(header.values(), elements)):
            begin, end = tensor["data_offsets"]
            width = 2 if "16" in tensor["dtype"] else 4
            turn = width * 997 * i % len(data) if len(data) > width else 0  # or a head would be as an embedding
            data = data[turn:] + data[:turn]
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
