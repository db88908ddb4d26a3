"""The steps, in the order of what is wanted most."""

from . import figures, profiling, suites
from .figures import bench, peer, run_json
from .step import MAIN, Step

GROUPS = ("tests", "figures", "peers", "profile", "sanitizer")
SCHEMES = ("none", "fp8", "fp8_dynamic", "int8", "fp8_dynamic_per_block")
EXPERTS, FOUR_BITS, DELTA, MAMBA, GPT_OSS = SHAPES = ("qwen3_moe", "8b_gptq", "qwen3_5", "jamba", "gpt_oss")  # made beside that of --shape
LOADS = 3
# What has run on the tests' emulator alone (docs/gpu/README.md): right behind the tests.
FIRST = ("ceilings", "products of blocks", "memory none", "load 1", "decode none", "decode after 32768, bf16 keys",
         "Qwen3.5 prefill 2048", "Jamba prefill 2048", "Qwen3.5 decode", "Jamba decode")
# Filters of gpu_op_test. Products of many rows on a large scale are the library's, and take long.
CHECKED_SUITES = {"attention": "Attention*", "products of heads": "MultiplyHeads*", "chosen positions": "ChoosePositions*",
                  "experts": "Experts*", "states": "States*",
                  "element-wise": "Elementwise*", "cache": "StoreKv*", "4-bit weights": "Grouped*",
                  "encoding": "Encode*", "linear layers": "*Linear*-*ManyRowsEqualFewRows"}
RACES = ("attention", "chosen positions", "experts", "states", "element-wise")
CHECKED = {"memcheck": CHECKED_SUITES, "racecheck": {k: CHECKED_SUITES[k] for k in RACES}}


def tests():
    return [Step("gpu_op_test", "tests", 240, suites.run_suites("gpu_op_test", suites.by_suite)),
            Step("gpu_test", "tests", 240, suites.run_suites("gpu_test", suites.by_model, alone=["GpuMemory.*"])),
            Step("two GPUs", "tests", 90, figures.ranks)]


def figure(name, timeout, take, model=MAIN):
    return Step(name, "figures", timeout, take, model)


def decode(scheme):
    return figure(f"decode {scheme}", 60, bench("decode", MAIN, "--tokens", "64", "--quantization", scheme))


def prefill(tokens, scheme):
    return figure(f"prefill {tokens} {scheme}", 60, bench("prefill", MAIN, "--tokens", tokens, "--quantization", scheme))


def of_shapes():
    """Experts, 4-bit weights, layers with states, and experts of 4 bits."""
    steps = []
    for what, shape in (("experts", EXPERTS), ("4-bit", FOUR_BITS), ("Qwen3.5", DELTA), ("Jamba", MAMBA), ("gpt-oss", GPT_OSS)):
        steps.append(figure(f"{what} decode", 60, bench("decode", shape, "--tokens", "64"), shape))
        steps.append(figure(f"{what} prefill 2048", 60, bench("prefill", shape, "--tokens", "2048"), shape))
    many = bench("decode", EXPERTS, "--tokens", "16", "--max-num-seqs", "16")
    return steps + [figure("experts prefill 512", 60, bench("prefill", EXPERTS, "--tokens", "512"), EXPERTS),
                    figure("experts decode 16 sequences", 60, many, EXPERTS)]


def of_attention():
    """After prompts so long that keys and values are a part of what a step reads."""
    steps = []
    for prompt in ("4096", "32768"):
        for kind, cache in (("bf16", "auto"), ("FP8", "fp8_e4m3")):
            steps.append(figure(f"decode after {prompt}, {kind} keys", 60, bench(
                "decode", MAIN, "--tokens", "32", "--prompt-tokens", prompt, "--kv-cache-dtype", cache)))
    return steps


def many_sequences():
    """Few rows, at the border to the library's products, and behind it."""
    return [figure(f"decode {count} sequences {scheme}", 60, bench(
        "decode", MAIN, "--tokens", "16", "--max-num-seqs", count, "--quantization", scheme))
        for count, scheme in (("16", "none"), ("32", "none"), ("40", "none"), ("64", "none"), ("64", "fp8_dynamic"))]


def outside_of_the_gpu(shapes):
    """Weights that come over the link, and what the CPU makes of them where they are."""
    steps = [figure("decode from host memory", 90, bench(
        "decode", MAIN, "--tokens", "8", "--place", "layers.*=host", "--cpu-rows", "0"))]
    steps += beside_the_cpu("", MAIN, "layers.0-20.*=host", ("none", "int8"))
    steps += [figure(f"CPU decode {n} threads", 90, bench("decode", MAIN, "--tokens", "4", "--threads", str(n), device="cpu"))
              for n in reversed(figures.thread_counts())]
    steps.append(figure("CPU prefill 512", 90, bench("prefill", MAIN, "--tokens", "512", "--repeats", "1", device="cpu")))
    if shapes:
        steps.append(figure("experts decode from host memory", 60, bench(
            "decode", EXPERTS, "--tokens", "8", "--place", "layers.*=host", "--cpu-rows", "0"), EXPERTS))
        steps += beside_the_cpu("experts ", EXPERTS, "experts.*=host", ("none",))
        steps += [figure(f"{what} CPU decode", 60, bench("decode", shape, "--tokens", "8", device="cpu"), shape)
                  for what, shape in (("experts", EXPERTS), ("4-bit", FOUR_BITS))]
    return steps


def beside_the_cpu(what, model, place, schemes):
    """Two thirds of the layers, or all experts, in host memory: multiplied by the CPU there, with one sequence and at the border."""
    steps = []
    for scheme in schemes:
        options = ("--tokens", "16", "--place", place, "--quantization", scheme, "--cpu-rows", "256")
        steps.append(figure(f"{what}decode beside the CPU {scheme}", 90, bench("decode", model, *options), model))
    for rows in ("8", "16", "32", "64"):
        for by, most in (("the CPU", "256"), ("the link", "0")):
            steps.append(figure(f"{what}decode of {rows} sequences by {by}", 90, bench(
                "decode", model, "--tokens", "4", "--max-num-seqs", rows, "--place", place, "--cpu-rows", most), model))
    return steps


def loads():
    return [figure("disk and link", 60, bench("disk", MAIN))] + [
        figure(f"load {i}", 60, bench("load", MAIN)) for i in range(1, LOADS + 1)] + [
        figure("load fp8", 60, bench("load", MAIN, "--quantization", "fp8"))]


def peers(shapes):
    steps = [Step("transformers", "peers", 90, peer(MAIN), MAIN)]
    if shapes:
        steps.append(Step("transformers experts", "peers", 60, peer(EXPERTS, "--experts", "grouped_mm"), EXPERTS))
        steps += [Step(f"transformers {what}", "peers", 60, peer(shape), shape)
                  for what, shape in (("Qwen3.5", DELTA), ("Jamba", MAMBA))]
    return steps


def profiles():
    return [Step(f"{what} {scheme}", "profile", 100, profiling.profile(scheme, tokens))
            for scheme in ("none", "fp8_dynamic") for what, tokens in (("first step", 1), ("prompt of 2048", 2048))]


def sanitizers():
    steps = [Step(f"{tool} {name}", "sanitizer", 100, profiling.sanitize(tool, "gpu_op_test", filters))
             for tool, checked in CHECKED.items() for name, filters in checked.items()]
    return steps + [Step("memcheck a model", "sanitizer", 100, profiling.sanitize(
        "memcheck", "gpu_test", "*Bfloat16WithinItsTolerance/llama_tied"))]


def all_steps(shapes=True):
    """shapes: whether those beside that of --shape are made."""
    steps = tests() + [Step("ceilings", "figures", 30, run_json("cuda_bench", "--json", "ceilings"))]
    steps += [decode("none"), prefill("2048", "none"), prefill("512", "none")] + (of_shapes() if shapes else [])
    steps += [step for scheme in SCHEMES[1:] for step in (decode(scheme), prefill("2048", scheme))]
    steps += [prefill("512", scheme) for scheme in ("fp8", "fp8_dynamic")]
    steps += outside_of_the_gpu(shapes) + of_attention() + peers(shapes) + loads() + many_sequences()
    steps += [figure(f"memory {scheme}", 60, figures.peak(scheme)) for scheme in SCHEMES]
    steps += [Step("products of blocks", "figures", 60, run_json("cuda_bench", "--json", "blocks")),
              Step("products of few rows", "figures", 60, run_json("cuda_bench", "--json", "sweep")),
              Step("products of experts", "figures", 60, run_json("cuda_bench", "--json", "experts")),
              Step("products of prompts", "figures", 60, run_json("cuda_bench", "--json", "products"))]
    steps.sort(key=lambda step: 0 if step.group == "tests" else 1 if step.name in FIRST else 2)
    return steps + profiles() + sanitizers()
