"""What `sluice plan` says beforehand, beside what the run then did."""

import json
import statistics
import subprocess

from benchmark.printing import fail, own_command, say, spread, table_head, table_row

MIB = 2**20
PROMPT = "1,2,3,4,5,6,7"
TOKENS = 8


def run_json(command):
    result = subprocess.run([*map(str, command), "--json", "--quiet"], capture_output=True,
                            text=True, check=False)
    if result.returncode != 0:
        fail(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def measure(args, checkpoints):
    """For each checkpoint, scheme and budget (percent of the checkpoint's size) a row: the median of
    the speeds, and the peak that is farthest from its prediction."""
    rows = []
    for directory, files in checkpoints:
        size = sum(file.stat().st_size for file in files)
        for scheme in args.quantization:
            for percent in args.percent:
                rows.append(combination(args, directory, scheme, size * percent // 100, percent))
    say()
    table_head("checkpoint", "scheme", "budget", "tokens/s", "measured / predicted", "spread",
               "peak MiB", "measured / predicted", "command")
    for row in rows:
        table_row(*row["cells"], own_command())
    say()
    for what in ("speed", "peak"):
        say(f"{what}: {len(rows)} combinations, measured / predicted "
            f"{spread([row[what] for row in rows])}, "
            f"median distance {statistics.median(abs(row[what] - 1) for row in rows):.3f}")


def combination(args, directory, scheme, budget, percent):
    options = [directory, "--memory", budget, "--quantization", scheme]
    run = [args.sluice, "run", *options, "--token-ids", PROMPT, "-n", TOKENS, "--ignore-eos",
           "--speculation", "none"]
    run_json(run)  # fills the spill cache, and shows the rates
    rates, speeds, peaks = [], [], []
    for _ in range(args.pairs):
        plan = run_json([args.sluice, "plan", *options, "--prompt-tokens", 7, "-n", TOKENS])
        ran = run_json(run)
        rates.append(ran["timings"]["decode_tokens_per_second"])
        speeds.append(rates[-1] / plan["tokens_per_second"])
        peaks.append((ran["memory"]["measured_peak"], plan["peak_bytes"]["host"]))
    peak, predicted = max(peaks, key=lambda pair: abs(pair[0] / pair[1] - 1))
    row = {"speed": statistics.median(speeds), "peak": peak / predicted}
    row["cells"] = (directory.name, f"`{scheme}`", f"{percent} % ({budget / MIB:.0f} MiB)",
                    f"{statistics.median(rates):.2f}", f"{row['speed']:.3f}",
                    f"{min(speeds):.3f} to {max(speeds):.3f}", f"{peak / MIB:.0f}",
                    f"{row['peak']:.3f}")
    say(f"  {' '.join(row['cells'])}")
    return row
