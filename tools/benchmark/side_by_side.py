"""Sluice beside llama.cpp, accelerate and AirLLM: the same model under the same memory limit.

The two programs of a comparison take turns, each run in a fresh memory cgroup and with a cold page
cache. The figure is seconds for a token once the first ones are done; a pair's ratio is the peer's
over ours. Every run is a line of the log, so that an interrupted measurement goes on where it was.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import platform
import re
import resource
import shlex
import shutil
import subprocess
import time

from benchmark import cgroup, disk
from benchmark.contestants import PROGRAMS, PROMPT, SETTLING, Setting
from benchmark.cpu import CpuClock
from benchmark.printing import fail, own_command, say, spread, table_head, table_row
from benchmark.runlog import RunLog

LONGEST_RUN = 900  # seconds
MOST_FAILURES = 2  # of a program under a limit, which is then left out
DISK_RESERVE = 2**30
MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Comparison:
    percent: int  # the limit, of the checkpoint's size
    ours: str
    peer: str
    hold: str  # the ratio asked for

    def __str__(self):
        return f"{self.percent}% {self.ours} {self.peer}"


COMPARISONS = [
    *[Comparison(percent, "sluice-bf16", peer, hold)
      for percent, hold in ((25, "1.5"), (50, "2"), (75, "4"))
      for peer in ("llama.cpp-bf16", "llama.cpp-bf16-default")],
    Comparison(50, "sluice-fp8", "llama.cpp-bf16", "10"),
    Comparison(50, "sluice-fp8", "llama.cpp-q8_0", "5"),
    Comparison(50, "sluice-fp8", "llama.cpp-q8_0-default", "5"),
    Comparison(50, "sluice-bf16", "accelerate", "more than llama.cpp"),
    Comparison(50, "sluice-bf16", "airllm", "more than llama.cpp"),
]


def measure(args, files):
    setting = Setting(args.sluice, args.peers_python, args.dir,
                      sum(file.stat().st_size for file in files), args.work, args.tokens)
    comparisons = [one for one in COMPARISONS if re.search(args.only, str(one))]
    if not comparisons:
        fail(f"--only {args.only} leaves none of: " + "; ".join(map(str, COMPARISONS)))
    names = dict.fromkeys(name for one in comparisons for name in (one.ours, one.peer))
    setup = describe(setting, names)
    log = RunLog(args.log or args.work / "runs.jsonl", setup)
    for key, value in setup.items():
        say(f"{key}: {value}")
    missing = [(turn, one) for turn in range(1, args.rounds + 1) for one in comparisons
               if not log.pair(one, turn).keys() >= {one.ours, one.peer}]
    say(f"{len(missing)} of {args.rounds * len(comparisons)} pairs are not in {log.path} yet")
    unprepared = prepare(setting, {name: PROGRAMS[name] for _, one in missing
                                   for name in (one.ours, one.peer)}) if missing else {}
    shown = set()
    for turn, one in missing:
        measure_pair(setting, log, one, turn, unprepared, shown, files)
    print_table(log, comparisons, args.rounds, unprepared)


def describe(setting, names):
    """What has to be the same in all runs of one log."""
    packages = sorted({package for name in PROGRAMS for package in PROGRAMS[name].packages})
    script = ("import importlib.metadata as m, json, sys\n"
              "found = {d.metadata['Name'].lower().replace('_', '-'): d.version"
              " for d in m.distributions()}\n"
              "print(json.dumps([found.get(name) for name in sys.argv[1:]]))")
    versions = dict(zip(packages, json.loads(output([setting.python, "-c", script, *packages]))))
    lacking = {package for name in names for package in PROGRAMS[name].packages
               if not versions[package]}
    if lacking:
        fail(f"{setting.python} lacks {', '.join(sorted(lacking))}: give --peers-python, or leave "
             "programs out with --only")
    program = hashlib.sha256(setting.sluice.read_bytes()).hexdigest()[:16]
    return {
        "sluice": f"{output([str(setting.sluice), '--version']).splitlines()[0]}, {program}",
        "checkpoint": f"{setting.checkpoint.resolve().name}, {setting.size} bytes of weights",
        "prompt": PROMPT, "tokens": setting.tokens, "threads": setting.threads,
        "machine": f"{cpu_model()}, Linux {platform.release()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions.items())}


def cpu_model():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else platform.machine()


def output(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        fail(f"{shlex.join(command)} failed: {result.stderr.strip()[-500:]}")
    return result.stdout


# ---- what the programs read

def prepare(setting, programs):
    """Makes what is missing; returns why not, for each program that has to be left out."""
    setting.work.mkdir(parents=True, exist_ok=True)
    artifacts = {}
    for program in programs.values():
        if program.artifact and program.artifact.source:
            artifacts[program.artifact.source.kind] = program.artifact.source
        if program.artifact:
            artifacts[program.artifact.kind] = program.artifact
    missing = [one for one in artifacts.values() if not setting.file(one.kind).exists()]
    needed = sum(int(one.share * setting.size) for one in missing) + DISK_RESERVE
    free = shutil.disk_usage(setting.work).free
    if missing and free < needed:
        fail(f"{setting.work} has {free / 1e9:.1f} GB free; {needed / 1e9:.1f} GB are needed")
    failed = {}
    for artifact in missing:
        why = make(setting, artifact)
        if why:
            say(f"  failed: {why}")
            failed[artifact.kind] = why
    return {name: failed[program.artifact.kind] for name, program in programs.items()
            if program.artifact and program.artifact.kind in failed}


def make(setting, artifact):
    """Makes one; returns None or why it could not be made."""
    path = setting.file(artifact.kind)
    partial = path.with_name(path.name + ".partial")
    remove(partial)
    command = artifact.command(setting, partial)
    say("+ " + shlex.join(command))
    result = subprocess.run(command, capture_output=True, text=True, check=False,
                            env=environment(setting))
    if result.returncode != 0 or not partial.exists():
        remove(partial)
        return f"{artifact.kind} was not made: {last_line(result.stderr)}"
    partial.rename(path)
    return None


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def environment(setting):
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": str(setting.threads)}


# ---- the runs

def measure_pair(setting, log, one, turn, unprepared, shown, files):
    names = (one.ours, one.peer)
    if any(name in unprepared or len(log.failures(name, one.percent)) >= MOST_FAILURES
           for name in names):
        return
    # The order turns round from pair to pair, so that a drift favours neither side.
    for name in names if turn % 2 == 1 else reversed(names):
        command = PROGRAMS[name].command(setting, limit_bytes(setting, one))
        if (name, one.percent) not in shown:
            say("+ " + shlex.join(command))
            shown.add((name, one.percent))
        run = {"comparison": str(one), "round": turn, "program": name, "percent": one.percent,
               "time": time.strftime("%Y-%m-%dT%H:%M:%S"), "failure": None,
               **measure_run(setting, PROGRAMS[name], command, limit_bytes(setting, one), files)}
        log.add(run)
        say(f"  {turn}, {one.percent} %: {describe_run(run)}")
    pair = log.pair(one, turn)
    if ratio(one, pair):
        same = pair[one.ours]["token_ids"] == pair[one.peer]["token_ids"]
        say(f"  {turn}, {one}: ratio {ratio(one, pair):.2f}, "
            f"{'the same' if same else 'other'} tokens")


def limit_bytes(setting, one):
    return setting.size * one.percent // 100


def measure_run(setting, program, command, limit, files):
    disk.drop_page_cache([*files, *(file for file in setting.work.rglob("*") if file.is_file())])
    clock, blocks = CpuClock.now(), blocks_read()
    try:
        result, usage = cgroup.run(command, limit, LONGEST_RUN, environment(setting))
    except cgroup.Unavailable as error:
        fail(error)
    except subprocess.TimeoutExpired:
        return {"failure": f"not done after {LONGEST_RUN} s"}
    run = {"limit_bytes": limit, "peak_bytes": usage.peak_bytes, "limit_hits": usage.limit_hits,
           "oom_kills": usage.oom_kills, "major_faults": usage.major_faults,
           "refaults": usage.refaults, "wall_seconds": time.monotonic() - clock.wall,
           "disk_bytes": (blocks_read() - blocks) * 512, "others_share": clock.others_share()}
    if usage.oom_kills:
        return {**run, "failure": "killed by the kernel at the limit"}
    if result.returncode != 0:
        return {**run, "failure": last_line(result.stderr) or f"status {result.returncode}"}
    try:
        figures = program.figures(setting, result.stdout)
    except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        return {**run, "failure": f"no result: {error}"}
    return {**run, **dataclasses.asdict(figures)}


def blocks_read():
    """From disk, by all programs that were started here and have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock


def last_line(text):
    return (text.strip().splitlines() or [""])[-1][-300:]


def describe_run(run):
    if "peak_bytes" not in run:
        return f"{run['program']}: {run['failure']}"
    memory = (f"peak {run['peak_bytes'] / MIB:.0f} MiB; "
              f"other programs took {run['others_share']:.0%} of the CPUs")
    if run["failure"]:
        return f"{run['program']}: {run['failure']}; {memory}"
    return (f"{run['program']}: {run['seconds_per_token']:.3f} s/token, "
            f"{run['bytes_per_token'] / 1e9:.2f} GB/token from disk, {memory}")


# ---- the table

def ratio(one, pair):
    """The peer's seconds over ours, if both came through."""
    if not pair.keys() >= {one.ours, one.peer} or any(run["failure"] for run in pair.values()):
        return None
    return pair[one.peer]["seconds_per_token"] / pair[one.ours]["seconds_per_token"]


def print_table(log, comparisons, rounds, unprepared):
    say()
    table_head("limit", "Sluice", "peer", "peer's seconds / ours", "asked for", "pairs",
               "s/token", "peer's", "GB/token from disk", "peer's", "peak MiB", "peer's")
    for one in comparisons:
        pairs = [pair for pair in (log.pair(one, turn + 1) for turn in range(rounds))
                 if ratio(one, pair)]
        if pairs:
            cells = [spread([ratio(one, pair) for pair in pairs], "{:.2f}"), one.hold,
                     f"{len(pairs)} of {rounds}",
                     *(spread([pair[name][field] / unit for pair in pairs], form)
                       for field, unit, form in (("seconds_per_token", 1, "{:.3f}"),
                                                 ("bytes_per_token", 1e9, "{:.2f}"),
                                                 ("peak_bytes", MIB, "{:.0f}"))
                       for name in (one.ours, one.peer))]
        else:
            why = [f"{name}: {text}" for name in (one.ours, one.peer)
                   for text in dict.fromkeys([*log.failures(name, one.percent),
                                              *filter(None, [unprepared.get(name)])])]
            cells = ["none: " + "; ".join(text[:120] for text in why or ["no pair"]), one.hold,
                     f"0 of {rounds}", *["-"] * 6]
        table_row(f"{one.percent} %", one.ours, one.peer, *cells)
    say()
    say(own_command())


def add_arguments(parser, positive, root):
    parser.add_argument("--peers-python", default="python3", metavar="PROGRAM",
                        help="a Python that has the peers' packages: llama-cpp-python, gguf, "
                        "torch, transformers, accelerate, airllm (default: %(default)s)")
    parser.add_argument("--work", type=pathlib.Path, default=root / "build/bench/peers",
                        help="where what the peers read is put, about three times the checkpoint's "
                        "size (default: build/bench/peers)")
    parser.add_argument("--only", default="", metavar="REGEX",
                        help="comparisons, such as '50%% sluice-fp8' or airllm (default: all)")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N",
                        help="default: %(default)s")
    parser.add_argument("--tokens", type=positive, default=6, metavar="N",
                        help=f"of each run, after {1 + SETTLING} that do not count "
                        "(default: %(default)s)")
    parser.add_argument("--log", type=pathlib.Path, metavar="FILE",
                        help="JSON lines of all runs; a measurement goes on from its log "
                        "(default: runs.jsonl in --work)")
