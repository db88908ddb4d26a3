"""Two builds of the program in turns: what a change costs, or gains."""

import os
import statistics
import tempfile

from .cpu import CpuClock
from .printing import own_command, say, spread, table_head, table_row

# Budgets of streamed decode, as the share of the checkpoint's bytes.
QUARTER, SIXTEENTH = 0.25, 0.06
# name, words after `sluice bench VERB DIR`, field; a share stands for so many bytes
FP8 = ("--quantization", "fp8")
FIGURES = (
    ("load, BF16", ("load",), "bytes_per_second"),
    ("load, FP8", ("load", *FP8), "bytes_per_second"),
    ("memory above the weights, BF16", ("load",), "above"),
    ("memory above the weights, FP8", ("load", *FP8), "above"),
    ("decode, BF16", ("decode", "--tokens", 24), "tokens_per_second"),
    ("decode, FP8", ("decode", "--tokens", 24, *FP8), "tokens_per_second"),
    ("decode, int8", ("decode", "--tokens", 24, "--quantization", "int8"), "tokens_per_second"),
    ("streamed decode, BF16, 25 %", ("decode", "--tokens", 5, "--memory", QUARTER), "tokens_per_second"),
    ("streamed decode, FP8, 25 %", ("decode", "--tokens", 8, "--memory", QUARTER, *FP8), "tokens_per_second"),
    ("streamed decode, FP8, 6 %", ("decode", "--tokens", 8, "--memory", SIXTEENTH, *FP8), "tokens_per_second"),
    ("prompt of 512 tokens, BF16", ("prefill", "--tokens", 512), "tokens_per_second"),
    ("prompt of 512 tokens, FP8", ("prefill", "--tokens", 512, *FP8), "tokens_per_second"),
    ("prompt of 2048 tokens, BF16", ("prefill", "--tokens", 2048, "--repeats", 1), "tokens_per_second"),
    ("16 sequences, BF16", ("engine", "--max-num-seqs", 16, "--requests", 16, "--tokens", 16),
     "tokens_per_second"),
    ("16 sequences, FP8", ("engine", "--max-num-seqs", 16, "--requests", 16, "--tokens", 16, *FP8),
     "tokens_per_second"),
)


def value(result, field):
    if field == "above":
        return result["measured_peak_bytes"] - result["weights_bytes"]
    return result[field]


def measure(args, files, run):
    """`run(program, words)` returns what `sluice bench WORDS --json` prints."""
    size = sum(file.stat().st_size for file in files)
    with tempfile.TemporaryDirectory() as this, tempfile.TemporaryDirectory() as other:
        compare(args, run, (this, other), size)


def compare(args, run, caches, size):
    rows, known = [], {}
    for name, (verb, *words), field in FIGURES:
        if args.only and not args.only.search(name):
            continue
        command = (verb, args.dir, *(int(w * size) if isinstance(w, float) else w for w in words))
        if command not in known:
            known[command] = alternate(args, run, caches, name, command)
        ours, theirs = ([value(result, field) for result in results] for results in known[command])
        ratios = [b / a if field == "above" else a / b for a, b in zip(ours, theirs)]
        unit = 2**30 if field == "bytes_per_second" else 2**20 if field == "above" else 1
        rows.append((name, *(f"{statistics.median(side) / unit:.2f}" for side in (ours, theirs)), spread(ratios)))
        say(f"  {name}: {spread(ratios)}")
    say()
    table_head("what", "this", "other", "this over other; of memory, other over this")
    for row in rows:
        table_row(*row)
    say(own_command())


def alternate(args, run, caches, name, command):
    """The results of both, pair by pair; the order turns round, so that a drift favours neither.
    Each has a cache of its own: spilled weights of one build may be none to the other."""
    results = ([], [])

    def bench(side):
        os.environ["XDG_CACHE_HOME"] = caches[side]
        return run((args.sluice, args.other)[side], command)

    for side in (0, 1):
        bench(side)  # fills the caches
    for pair in range(args.pairs):
        clock = CpuClock.now()
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            results[side].append(bench(side))
        say(f"  {name} {pair + 1}: other programs took {clock.others_share():.0%} of the CPUs")
    return results
