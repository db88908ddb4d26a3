"""The steps, in the order of what is wanted most. Each is one program with a time-out of its own."""

import collections
import csv
import json
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
import time

from . import running

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GROUPS = ("tests", "figures", "profile", "sanitizer")
SCHEMES = ("none", "fp8", "fp8_dynamic", "fp8_dynamic_per_block", "int8")
LOADS = 3
PROFILED_LAYERS, PROFILED_VOCABULARY = "2", "4096"
# Filters of gpu_op_test. Products of many rows on a large scale are the library's, and take long.
SUITES = {"attention": "Attention*", "element-wise": "Elementwise*", "cache": "StoreKv*",
          "encoding": "Encode*", "linear layers": "Linear*:CudaLinear*-*ManyRowsEqualFewRows"}
CHECKED = {"memcheck": SUITES, "racecheck": {k: SUITES[k] for k in ("attention", "element-wise")}}
# Names of kernels of a step, the library's among them; those of loading are others.
OF_A_STEP = ("activate|add|partition|combine|prefill|decode_kernel|embed|finish|gemv|likeliest|norm|rope|bf16|code_kernel|store"
             "|top_kernel|nvjet|gemm|cutlass|xmma")
PROFILED = {"Duration", "Memory Throughput", "DRAM Throughput", "Compute (SM) Throughput", "Achieved Occupancy",
            "Registers Per Thread"}

# take(context, timeout) gives a result (results.py). needs_model: it waits for the checkpoint.
Step = collections.namedtuple("Step", "name group timeout take needs_model", defaults=(False,))
# Programs by their names, the model, the environment of children, the group's log by log(group), and the shape of models
# that steps make in `scratch` (none: the model is theirs, too).
Context = collections.namedtuple("Context", "programs model env log shape scratch")


def result_of(ran, found=None):
    status = "timed out" if ran.status is None else "passed" if ran.status == 0 else "failed"
    result = {"status": status, "seconds": round(ran.seconds, 1)}
    if ran.fault():
        result["why"] = ran.fault()
    return result | ({"found": found} if found else {})


def skipped(why):
    return {"status": "skipped", "why": why}


def tests_in(said):
    """Of GoogleTest's lines: counts, the names of those that failed, and the one that did not end."""
    began = re.findall(r"^\[ RUN      \] (\S+)", said, re.M)
    ended = {how: list(dict.fromkeys(re.findall(rf"^\[{how}\] ([^\s,]+).*\(\d+ ms\)", said, re.M)))
             for how in ("       OK ", "  FAILED  ", "  SKIPPED ")}
    failed = ended["  FAILED  "]
    found = {"tests": len(began), "skipped": len(ended["  SKIPPED "]), "failed": failed}
    if began and began[-1] not in sum(ended.values(), []):
        found["did not end"] = began[-1]
    return found


def run_tests(program, *options):
    def take(context, timeout):
        ran = running.run([context.programs[program], *options], context.log("tests"), timeout, context.env)
        found = tests_in(ran.said)
        result = result_of(ran, found)
        if result["status"] == "passed" and (found["tests"] == 0 or found["skipped"] > 0):
            result |= {"status": "failed", "why": "tests were skipped, or there were none"}
        return result
    return take


def json_of(ran):
    try:
        return json.loads(ran.printed) if ran.status == 0 else None
    except ValueError:
        return None


def run_json(*words):
    """A program that prints JSON; MODEL and PROGRAM are put in."""
    def take(context, timeout):
        command = [context.model if w == "MODEL" else context.programs.get(w, w) for w in words]
        ran = running.run(command, context.log("figures"), timeout, context.env, separate=True)
        found = json_of(ran)
        if ran.status == 0 and found is None:
            return result_of(ran) | {"status": "failed", "why": "it printed no JSON"}
        return result_of(ran, found)
    return take


def bench(verb, *options):
    return run_json("sluice", "bench", verb, "MODEL", "--device", "cuda", "--json", "--quiet", *options)


def peak(scheme):
    """Peak of the GPU's memory in a short run: predicted and by the ledger."""
    def take(context, timeout):
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            ran = running.run([context.programs["sluice"], "run", context.model, "--device", "cuda", "--quiet", "--token-ids",
                               "1,2,3", "-n", "16", "--ignore-eos", "--quantization", scheme, "--report", report.name],
                              context.log("figures"), timeout, context.env)
            if ran.status != 0:
                return result_of(ran)
            # The program puts another file in the place of this one.
            memory = json.loads(pathlib.Path(report.name).read_text(encoding="utf-8"))["memory"]["device"]
        return result_of(ran, memory | {"predicted_over_measured": memory["predicted_peak"] / memory["ledger_peak"]})
    return take


def medians(table):
    """Of ncu's CSV, for each kernel in each size: how often it ran, and the median of each figure."""
    rows = list(csv.DictReader(table.splitlines()))
    kernels, runs = collections.defaultdict(lambda: collections.defaultdict(list)), collections.defaultdict(set)
    for row in rows:
        name = re.sub(r"^void |[<(].*", "", row.get("Kernel Name") or "").split("::")[-1]
        name = f"{name} {row.get('Grid Size') or ''}".strip()
        runs[name].add(row.get("ID"))
        if row.get("Metric Name") in PROFILED:
            try:
                value = float(row["Metric Value"].replace(",", ""))
            except ValueError:
                continue
            kernels[name][f"{row['Metric Name']} [{row['Metric Unit']}]"].append(value)
    return {name: {"runs": len(runs[name])} | {k: statistics.median(v) for k, v in figures.items()}
            for name, figures in kernels.items()}


def few_layers(context, timeout):
    """A model with the same kernels as the others: before it runs one, ncu saves all memory that this might write to. And
    how its making ended, if not well."""
    if context.shape is None:
        return context.model, None
    path = context.scratch / f"{context.shape}-{PROFILED_LAYERS}"
    ran = running.run([sys.executable, "-I", ROOT / "tools/make-checkpoint", "--shape", context.shape, "--num-hidden-layers",
                       PROFILED_LAYERS, "--vocab-size", PROFILED_VOCABULARY, "--out", path],
                      context.log("profile"), timeout, context.env)
    return path, None if ran.status == 0 else ran


def profile(scheme, tokens=1):
    """The kernels of the first step, of a prompt of so many tokens; it is no graph. The card's clocks stay as they are."""
    def take(context, timeout):
        ncu = shutil.which("ncu", path=context.env.get("PATH"))
        if ncu is None:
            return skipped("ncu is not installed")
        started = time.monotonic()
        model, fault = few_layers(context, timeout)
        if fault is not None:
            return result_of(fault)
        ran = running.run([ncu, "--csv", "--page", "details", "--section", "SpeedOfLight", "--section", "Occupancy",
                           "--section", "LaunchStats", "--clock-control", "none", "--launch-count", "150",
                           "--kernel-name", f"regex:{OF_A_STEP}",
                           context.programs["sluice"], "run", model, "--device", "cuda", "--quiet", "--token-ids",
                           ",".join(["1"] * tokens), "-n", "1", "--ignore-eos", "--quantization", scheme],
                          context.log("profile"), timeout - (time.monotonic() - started), context.env, separate=True)
        lines = ran.printed.splitlines()
        begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
        found = medians("\n".join(lines[begin:]))
        if ran.status == 0 and not found:
            return result_of(ran) | {"status": "failed", "why": "ncu gave no figures"}
        return result_of(ran, found)
    return take


def sanitize(tool, program, tests):
    def take(context, timeout):
        sanitizer = shutil.which("compute-sanitizer", path=context.env.get("PATH"))
        if sanitizer is None:
            return skipped("compute-sanitizer is not installed")
        ran = running.run([sanitizer, "--tool", tool, "--error-exitcode", "9", context.programs[program],
                           f"--gtest_filter={tests}"],
                          context.log("sanitizer"), timeout, context.env | {"SLUICE_EXACT_MEMORY": "1"})
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", ran.said)
        return result_of(ran, {"summary": summary[-1] if summary else "none"} | tests_in(ran.said))
    return take


def all_steps():
    steps = [Step("gpu_op_test", "tests", 240, run_tests("gpu_op_test")),
             Step("gpu_test", "tests", 300, run_tests("gpu_test")),
             Step("ceilings", "figures", 60, run_json("cuda_bench", "--json", "ceilings")),
             Step("products of few rows", "figures", 120, run_json("cuda_bench", "--json", "sweep")),
             Step("products of prompts", "figures", 180, run_json("cuda_bench", "--json", "products"))]

    def figure(name, timeout, take):
        steps.append(Step(name, "figures", timeout, take, True))

    figure("disk and link", 90, bench("disk"))
    for scheme in ("none", "fp8", "fp8_dynamic"):
        figure(f"decode {scheme}", 120, bench("decode", "--tokens", "64", "--quantization", scheme))
    figure("decode from host memory", 120, bench("decode", "--tokens", "16", "--place", "layers.*=host"))
    for i in range(1, LOADS + 1):
        figure(f"load {i}", 90, bench("load"))
    for tokens in ("512", "2048"):
        for scheme in ("none", "fp8", "fp8_dynamic"):
            figure(f"prefill {tokens} {scheme}", 90, bench("prefill", "--tokens", tokens, "--quantization", scheme))
    for scheme in SCHEMES[3:]:
        figure(f"decode {scheme}", 120, bench("decode", "--tokens", "64", "--quantization", scheme))
        figure(f"prefill 2048 {scheme}", 90, bench("prefill", "--tokens", "2048", "--quantization", scheme))
    figure("load fp8", 90, bench("load", "--quantization", "fp8"))
    for scheme in SCHEMES:
        figure(f"memory {scheme}", 90, peak(scheme))
    for scheme in ("none", "fp8_dynamic"):
        steps.append(Step(f"first step {scheme}", "profile", 150, profile(scheme)))
        steps.append(Step(f"prompt of 2048 {scheme}", "profile", 150, profile(scheme, 2048)))
    for tool, suites in CHECKED.items():
        steps += [Step(f"{tool} {name}", "sanitizer", 150, sanitize(tool, "gpu_op_test", tests))
                  for name, tests in suites.items()]
    steps.append(Step("memcheck a model", "sanitizer", 150, sanitize("memcheck", "gpu_test", "*bundled_llama_tied")))
    return steps
