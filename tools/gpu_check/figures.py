"""Steps that give figures: programs that print JSON."""

import json
import os
import pathlib
import tempfile

from . import machine, running
from .step import MAIN, ROOT, result_of, skipped

NOT_INSTALLED = 77  # peer.py's status without its packages


def json_of(ran):
    try:
        return json.loads(ran.printed) if ran.status == 0 else None
    except ValueError:
        return None


def found_in(ran):
    found = json_of(ran)
    if ran.status == 0 and found is None:
        return result_of(ran) | {"status": "failed", "why": "it printed no JSON"}
    return result_of(ran, found)


def run_json(program, *words):
    def take(context, timeout):
        command = [context.programs[program], *words]
        return found_in(running.run(command, context.log("figures"), timeout, context.env, separate=True))
    return take


def bench(verb, model, *options, device="cuda"):
    def take(context, timeout):
        command = [context.programs["sluice"], "bench", verb, context.models[model], "--device", device, "--json", "--quiet",
                   *options]
        return found_in(running.run(command, context.log("figures"), timeout, context.env, separate=True))
    return take


def peak(scheme):
    """Peaks in a run with a prompt of many rows: the GPU's, predicted and by the ledger, and the process's, predicted and measured."""
    def take(context, timeout):
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            ran = running.run([context.programs["sluice"], "run", context.models[MAIN], "--device", "cuda", "--quiet",
                               "--token-ids", ",".join(["1"] * 512), "-n", "16", "--ignore-eos", "--quantization", scheme, "--report",
                               report.name], context.log("figures"), timeout, context.env)
            if ran.status != 0:
                return result_of(ran)
            # The program puts another file in the place of this one.
            memory = json.loads(pathlib.Path(report.name).read_text(encoding="utf-8"))["memory"]
        device, host = memory["device"], {name: memory[name] for name in ("predicted_peak", "measured_peak")}
        return result_of(ran, device | {
            "predicted_over_measured": device["predicted_peak"] / device["ledger_peak"],
            "host": host | {"predicted_over_measured": host["predicted_peak"] / host["measured_peak"]}})
    return take


def ranks(context, timeout):
    """The first tokens of two GPUs, which NCCL connects, or which are stages of a pipeline: those of one."""
    if machine.count_gpus() < 2:
        return skipped("there is one GPU")
    tokens = {}
    for name, options in {"one": (), "tensor": ("--tensor-parallel-size", "2"), "pipeline": ("--pipeline-parallel-size", "2")}.items():
        ran = running.run([context.programs["sluice"], "run", ROOT / "tools/demo-model", "--device", "cuda", "--quiet", "--json",
                           "--token-ids", "1,2,3,4,5", "-n", "8", "--ignore-eos", "--dtype", "float32", *options],
                          context.log("tests"), timeout / 3, context.env, separate=True)
        result = found_in(ran)
        if result["status"] != "passed":
            return result | {"why": f"{name}: {result.get('why')}"}
        tokens[name] = result["found"].get("token_ids")
    same = all(of == tokens["one"] for of in tokens.values())
    return result_of(ran, tokens) | ({} if same else {"status": "failed", "why": "tokens differ"})


def peer(model, *options):
    """What transformers does with the same files, where the Python on PATH has it."""
    def take(context, timeout):
        command = ["python3", ROOT / "tools/gpu_check/peer.py", context.models[model], *options]
        ran = running.run(command, context.log("peers"), timeout, context.env | {"HF_HUB_OFFLINE": "1"}, separate=True)
        if ran.status == NOT_INSTALLED:
            return skipped(ran.said.strip().splitlines()[-1])
        return found_in(ran)
    return take


def thread_counts():
    """Powers of two below the number of CPUs, and that number."""
    cpus = len(os.sched_getaffinity(0))
    return [1 << i for i in range(cpus.bit_length()) if 1 << i < cpus] + [cpus]
