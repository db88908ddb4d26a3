#!/usr/bin/env python3
"""Writes a small Llama as compressed-tensors packs it with 3, 5 and 6 bits, and as torchao and HQQ have it, and a BitNet, with goldens of transformers.

Needs torch, transformers, compressed-tensors, torchao and hqq (2.15.0, 5.24.0, 0.20.1, 0.18.0 and 0.2.8 when they were made):
make_quantized.py OUT [NAME...]
In three modules words have whole codes, as compressed-tensors packs them up to 0.10; padded() is its definition.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor as Compressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear, Quantizer
from safetensors.torch import save_file
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.prototype.gptq import api as gptq_api
from torchao.quantization import Int4Tensor
from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, MappingType, PerGroup, quantize_
from transformers import BitNetConfig, BitNetForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations.bitnet import pack_weights, unpack_weights
from transformers.integrations.gemma_quant import QuantizedEmbedding, QuantizedLinear
from transformers.integrations.metal_quantization import _affine_dequantize_tensor, _affine_quantize_tensor

GROUP = 32
# Bits, symmetric, padded words.
FORMS = {"q_proj": (3, True, False), "k_proj": (3, False, False), "v_proj": (5, False, False), "o_proj": (6, True, False),
         "gate_proj": (5, True, True), "up_proj": (6, False, True), "down_proj": (3, False, True)}


def padded(value, bits, dim):
    """[..] of codes as int8 in words of 32 bits with 32 // bits codes each."""
    codes = (value.to(torch.int64) + (1 << (bits - 1))).numpy().astype(np.uint32)
    if dim == 0:
        codes = codes.T
    each = 32 // bits
    codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each)))
    words = sum(codes[:, i::each] << np.uint32(bits * i) for i in range(each)).astype(np.uint32).view(np.int32)
    return torch.from_numpy(np.ascontiguousarray(words.T if dim == 0 else words))


def quantize(weight, bits, symmetric):
    """Scales, zeros and the scheme."""
    groups = weight.float().unflatten(-1, (-1, GROUP))
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if symmetric:
        scale, zero = groups.abs().amax(-1) / high, torch.zeros(groups.shape[:2], dtype=torch.int8)
    else:
        least, most = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scale = (most - least) / (high - low)
        zero = (low - least / scale).round().clamp(low, high).to(torch.int8)
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy="group", group_size=GROUP)
    return scale.to(torch.bfloat16), zero, QuantizationScheme(targets=["Linear"], weights=args)


def pack(name, weight, tensors):
    """Returns the dequantized weight, of compressed-tensors."""
    bits, symmetric, old = FORMS[name.split(".")[-2]]
    scale, zero, scheme = quantize(weight, bits, symmetric)
    state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}
    packed = Compressor.compress(dict(state), scheme)
    whole = Compressor.decompress({**packed, "weight_scale": scale.float()}, scheme)["weight"].float()
    if old:
        codes = (whole.unflatten(-1, (-1, GROUP)) / scale.float()[..., None] + (0 if symmetric else zero.float()[..., None])).round()
        packed["weight_packed"] = padded(codes.flatten(-2).to(torch.int8), bits, 1)
        if not symmetric:
            packed["weight_zero_point"] = padded(zero, bits, 0)
    stem = name.removesuffix("weight")
    for key, value in packed.items():
        if key != "weight_zero_point" or not symmetric:
            tensors[stem + key] = value.contiguous()
    return whole


AO = {"q_proj": Int8WeightOnlyConfig(version=2), "k_proj": Float8WeightOnlyConfig(version=2),
      "v_proj": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32), version=2),
      "up_proj": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerGroup(32), mapping_type=MappingType.ASYMMETRIC, version=2),
      "down_proj": Float8WeightOnlyConfig(version=2)}


def flatten(name, weight, tensors):
    """Returns the dequantized weight, of torchao."""
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.bfloat16)
    linear.weight = torch.nn.Parameter(weight.clone())
    quantize_(linear, AO[name.split(".")[-2]])
    tensors.update(flatten_tensor_state_dict({name: linear.weight})[0])
    q = linear.weight
    scale = q.scale.float().repeat_interleave(weight.shape[1] // q.scale.shape[1], 1)
    zero = getattr(q, "zero_point", None)
    codes = q.qdata.float() - (0 if zero is None else zero.float().repeat_interleave(weight.shape[1] // zero.shape[1], 1))
    assert ((codes * scale).to(torch.bfloat16) - q.dequantize()).abs().max() <= 0.01 * weight.abs().max()
    return codes * scale


def int4(name, weight, tensors):
    """As Int4Tensor has it, whose quantizer needs a GPU; returns the dequantized weight."""
    grouped = weight.float().unflatten(-1, (-1, GROUP))
    least, most = grouped.amin(-1), grouped.amax(-1)
    scale = ((most - least) / 15).to(torch.bfloat16)
    zero = (least + 8 * scale.float()).to(torch.bfloat16)
    scale, zero = scale.t().contiguous(), zero.t().contiguous()
    codes = gptq_api._int4_row_quantize_zp_precomputed_qparams(weight, scale.float(), zero.float(), GROUP)
    packed = (codes[:, ::2] & 15) | (codes[:, 1::2] << 4)
    tensor = Int4Tensor(packed, scale, zero, [1, GROUP], weight.shape)
    tensors.update(flatten_tensor_state_dict({name: tensor})[0])
    wide = lambda numbers: numbers.float().t().repeat_interleave(GROUP, 1)
    whole = codes.float() * wide(scale) + wide(zero)
    assert (whole - gptq_api._int4_row_dequantize_zp(codes, scale.float(), zero.float(), GROUP)).abs().max() < 1e-6
    return whole


# Bits of a layer's modules, and whether bytes are called floats. In layer 1 all have four, so that some are one matrix in memory.
HQQ = {"q_proj": (4, True), "k_proj": (4, False), "v_proj": (8, False), "o_proj": (2, False), "gate_proj": (1, False), "up_proj": (4, False),
       "down_proj": (2, True)}


def hqq(name, weight, tensors):
    """Returns the dequantized weight, of HQQ, without rounding."""
    bits, as_floats = (4, False) if ".1." in name else HQQ[name.split(".")[-2]]
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.bfloat16)
    linear.weight = torch.nn.Parameter(weight.clone())
    config = BaseQuantizeConfig(nbits=bits, group_size=GROUP, axis=1, view_as_float=as_floats)
    module = HQQLinear(linear, config, compute_dtype=torch.bfloat16, device="cpu")
    tensors.update({name.removesuffix("weight") + key: value for key, value in module.state_dict().items()})
    meta = module.meta
    codes = Quantizer.unpack[meta["packing"]](module.W_q.view(torch.uint8), dtype=torch.float32)
    whole = ((codes - meta["zero"].float()) * meta["scale"].float()).reshape(weight.shape)
    assert (whole - module.dequantize().float()).abs().max() <= 0.02 * whole.abs().max()
    return whole


def ternary(divides):
    """Packs as transformers does; where `divides`, what the scale has is 1 / the value of a code."""
    def pack(name, weight, tensors):
        mean = weight.float().abs().mean().to(torch.bfloat16)
        scale = (1 / mean.float()).to(torch.bfloat16) if divides else mean
        codes = (weight.float() / mean.float()).round().clamp(-1, 1)
        tensors[name], tensors[name + "_scale"] = pack_weights(codes.clone()), scale[None]
        assert torch.equal(unpack_weights(tensors[name], dtype=torch.float32), codes)
        return codes / scale.float() if divides else codes * scale.float()
    return pack


GEMMA = {"q_proj": 4, "k_proj": 2, "v_proj": 8, "o_proj": 2, "gate_proj": 4, "up_proj": 4, "down_proj": 4, "embed_tokens": 4}


def gemma(name, weight, tensors):
    """Returns the dequantized weight, of transformers."""
    module = name.split(".")[-2]
    bits, is_table, (rows, cols) = GEMMA[module], module == "embed_tokens", weight.shape
    wide = GROUP if is_table else cols
    grouped = weight.float().unflatten(-1, (-1, wide))
    scale = grouped.abs().amax(-1) / ((1 << (bits - 1)) - 0.5)
    codes = (grouped / scale[..., None]).round().clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1).flatten(-2).to(torch.int8)
    each = 8 // bits
    unsigned = (codes.to(torch.int32) + (1 << (bits - 1))).unflatten(-1, (-1, each))
    packed = codes if bits == 8 else sum(unsigned[..., i] << (bits * i) for i in range(each)).to(torch.uint8)
    stem = name.removesuffix("weight")
    tensors[stem + ("embedding_quantized" if is_table else "weight")] = packed
    tensors[stem + ("embedding_scale" if is_table else "weight_scale")] = scale
    if is_table:
        table = QuantizedEmbedding(rows, cols, torch.float32, num_bits=bits)
        return table._dequantize_weights(packed, scale)
    tensors.update({stem + f"{side}_activation_scale": torch.tensor(0.05) for side in ("input", "output")})
    linear = QuantizedLinear(cols, rows, num_bits=bits)
    linear.weight.data, linear.weight_scale.data = packed, scale
    return linear._dequantize_weights(torch.float32)


def metal(name, weight, tensors):
    """Returns the dequantized weight, of transformers."""
    packed, scales, biases = _affine_quantize_tensor(weight, GROUP, 4)
    scales, biases = scales.to(torch.bfloat16), biases.to(torch.bfloat16)
    stem = name.removesuffix("weight")
    tensors.update({name: packed, stem + "scales": scales, stem + "qbiases": biases})
    return _affine_dequantize_tensor(packed, scales, biases, GROUP, 4)


LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def random_model(config, model_class):
    model = model_class(config).to(torch.bfloat16)
    for weight in model.state_dict().values():
        weight.copy_(torch.randn_like(weight) / weight.shape[-1] ** 0.5 if weight.ndim > 1 else 1 + 0.1 * torch.randn_like(weight))
    return model.state_dict()


def write(name, modules, quantize_one, quantization, hidden=96, width=160, config_class=LlamaConfig, model_class=LlamaForCausalLM,
          kv_heads=1):
    if sys.argv[2:] and name not in sys.argv[2:]:
        return
    torch.manual_seed(356)
    config = config_class(vocab_size=101, hidden_size=hidden, intermediate_size=width, num_hidden_layers=2, num_attention_heads=hidden // 32,
                         num_key_value_heads=kv_heads,
                         head_dim=32, max_position_embeddings=256, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
    weights, tensors, golden, values, errors, seen = random_model(config, model_class), {}, {}, {}, [], set()
    for weight_name, weight in weights.items():
        module = weight_name.split(".")[-2]
        if module not in modules:
            tensors[weight_name], values[weight_name] = weight.clone(), weight.float()
            continue
        values[weight_name] = quantize_one(weight_name, weight, tensors)
        if module not in seen:
            golden["dequant." + weight_name] = values[weight_name]
        seen.add(module)
    exact = model_class(config).float()
    exact.load_state_dict(values)
    low = model_class(config).to(torch.bfloat16)
    low.load_state_dict({name: value.to(torch.bfloat16) for name, value in values.items()})
    for i, length in enumerate((9, 33)):
        ids = torch.randint(3, 101, (1, length))
        logits = exact(ids).logits[0]
        errors.append((low(ids).logits[0].float() - logits).abs().flatten())
        golden[f"prompt{i}.input_ids"] = ids[0]
        golden[f"prompt{i}.logits"] = logits
        text = exact.generate(ids, max_new_tokens=24, min_new_tokens=24, do_sample=False, eos_token_id=None)
        golden[f"prompt{i}.greedy_ids"] = text[0, length:]
    folder = pathlib.Path(sys.argv[1]) / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({k: v.detach().contiguous() for k, v in golden.items()}, folder / "golden.safetensors")
    text = json.loads(config.to_json_string(use_diff=False))
    keep = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings", "bos_token_id", "eos_token_id", "model_type")
    text = {"architectures": [model_class.__name__], "torch_dtype": "bfloat16", "rope_theta": 10000.0, **{k: text[k] for k in keep},
            "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    errors = torch.cat(errors)
    tolerance = {"fp32_atol": 1e-3, "fp32_rtol": 1e-3, "bf16_mean_abs": 2 * errors.mean().item(),
                 "bf16_p99_abs": 2 * errors.quantile(0.99).item(), "bf16_max_abs": 2 * errors.max().item()}
    manifest = {"schema": 1, "kind": "format", "name": name, "architecture": model_class.__name__, "stored": quantization["quant_method"],
                "golden": "golden.safetensors", "prompts": ["prompt0", "prompt1"], "tolerance": tolerance}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(name, tolerance)


groups = {f"group_{i}": {"targets": [f"re:.*{module}$"], "format": "pack-quantized", "input_activations": None, "output_activations": None,
                         "weights": {"num_bits": bits, "type": "int", "symmetric": symmetric, "group_size": GROUP, "strategy": "group",
                                     "dynamic": False}}
          for i, (module, (bits, symmetric, _)) in enumerate(FORMS.items())}
with torch.no_grad():
    write("ct_int356", FORMS, pack,
          {"config_groups": groups, "format": "pack-quantized", "quant_method": "compressed-tensors", "ignore": ["lm_head"],
           "kv_cache_scheme": None, "quantization_status": "compressed", "version": "0.20.1"})
    write("torchao_mixed", AO, flatten,
          {"quant_method": "torchao", "quant_type": {"default": {"_type": "FqnToConfig"}}, "modules_to_not_convert": None})
    write("hqq_mixed", HQQ, hqq,
          {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": GROUP, "axis": 1, "view_as_float": False}},
           "skip_modules": ["lm_head"]}, 64, 128)
    write("bitnet", LINEARS, ternary(False),
          {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline", "modules_to_not_convert": None},
          64, 128, BitNetConfig, BitNetForCausalLM, kv_heads=2)
    write("bitnet_divides", LINEARS, ternary(True), {"quant_method": "bitnet", "modules_to_not_convert": None}, 64, 128, kv_heads=2)
    write("torchao_int4", LINEARS, int4,
          {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}, "modules_to_not_convert": None}, 64, 128)
    write("gemma_mixed", GEMMA, gemma,
          {"quant_method": "gemma", "num_bits": 4, "quantize_embeddings": True,
           "module_quant_configs": {f"{module}$": {"num_bits": bits} for module, bits in GEMMA.items()}, "modules_to_not_convert": ["lm_head"]},
          64, 128)
    write("metal_int4", LINEARS, metal, {"quant_method": "metal", "bits": 4, "group_size": GROUP, "modules_to_not_convert": ["lm_head"]}, 64, 128)
