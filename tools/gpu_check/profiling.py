"""Steps under the CUDA Toolkit's own tools: a profile of a first step by ncu, and tests under compute-sanitizer."""

import collections
import csv
import re
import shutil
import statistics
import sys
import time

from . import running
from .step import MAIN, ROOT, result_of, skipped
from .suites import tests_in

PROFILED_LAYERS, PROFILED_VOCABULARY = "2", "4096"
# Names of kernels of a step, the library's among them; those of loading are others.
OF_A_STEP = ("activate|add|partition|combine|prefill|decode_kernel|plain_rows|embed|finish|gemv|likeliest|norm|rope|bf16|code_kernel|store"
             "|top_kernel|nvjet|gemm|cutlass|xmma")
PROFILED = {"Duration", "Memory Throughput", "DRAM Throughput", "Compute (SM) Throughput", "Achieved Occupancy",
            "Registers Per Thread"}


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
        return context.models[MAIN], None
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
        found = tests_in(ran.said)
        result = result_of(ran, {"summary": summary[-1] if summary else "none"} | found)
        if result["status"] == "passed" and (found["tests"] == 0 or found["skipped"] > 0):
            result |= {"status": "failed", "why": "tests were skipped, or there were none"}
        return result
    return take
