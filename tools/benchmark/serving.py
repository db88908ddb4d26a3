"""sluice serve under load: many streams at once, clients that die, overload, and what it costs."""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import tempfile
import time

from benchmark import cgroup
from benchmark.cpu import CpuClock
from benchmark.http_clients import Exchange, exchange_all, post
from benchmark.printing import fail, own_command, say, spread, table_head, table_row
from benchmark.served import Served

MIB = 2**20
COMPLETIONS = "/v1/completions"
CLIENT_BYTES = 40 * 1024  # of request memory, for a connection and its request
WORDS = ["Anne had", "And the LORD said unto", "It was", "Elizabeth", "In the beginning", "The", "He", "She said"]


def some_body(i, tokens):
    """The i-th of many different requests."""
    return {"prompt": f"{WORDS[i % len(WORDS)]} {i}", "max_tokens": tokens, "temperature": 0.8 * (i % 2), "seed": i,
            "ignore_eos": True, "stream": True}


def of_words(seconds):
    """Median and 99th percentile, in words."""
    last = sorted(seconds)[min(len(seconds) - 1, int(0.99 * len(seconds)))]
    return f"{1e3 * statistics.median(seconds):.2f} ms, p99 {1e3 * last:.2f} ms"


@contextlib.contextmanager
def another_process(work):
    """Does `work()`, which never ends, beside this one, until the block ends."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# ---- many streams at once, in a memory cgroup whose limit is the budget

def streams(args):
    distinct = [some_body(i, args.tokens) for i in range(max(1, args.clients // 5))]
    options = ("--memory", args.memory, "--request-memory", args.clients * CLIENT_BYTES, "--max-num-seqs", args.running)
    try:
        with cgroup.memory_group(args.memory) as (group, controller):
            with Served(args.sluice, args.model, *options, enter=lambda: cgroup.enter(group)) as server:
                requests = [post(COMPLETIONS, body) for body in distinct]
                alone = [one.text() for one in exchange_all(server.port, requests, together=1)]
                if None in alone:
                    fail("a stream that was alone is not whole")
                clock = CpuClock.now()
                wanted = [i % len(distinct) for i in range(args.clients)]
                got = exchange_all(server.port, [requests[i] for i in wanted])
                seconds = time.monotonic() - clock.wall
                usage = cgroup.usage(group, controller)
    except cgroup.Unavailable as error:
        fail(error)
    texts = [one.text() for one in got]
    whole = [text for text in texts if text is not None]
    unequal = sum(text not in (None, alone[i]) for text, i in zip(texts, wanted))
    yield f"{args.clients} streams at once: dropped, other than alone", "0, 0", f"{len(texts) - len(whole)}, {unequal}"
    yield "limit hits and OOM kills of the cgroup", "0, 0", f"{usage.limit_hits}, {usage.oom_kills}"
    yield "its peak [MiB]", f"{args.memory / MIB:.0f}", f"{usage.peak_bytes / MIB:.0f}"
    yield "tokens/s of all", "", f"{len(whole) * args.tokens / seconds:.0f}"
    yield "to the first event", "", of_words([one.first - one.began for one in got if one.first])


# ---- clients that are killed

def kills(args):
    random.seed(1)
    options = ("--memory", args.memory, "--request-memory", 4 * args.together * CLIENT_BYTES)
    with Served(args.sluice, args.model, *options) as server:
        warm = [post(COMPLETIONS, some_body(i, 8)) for i in range(16)]
        exchange_all(server.port, warm)
        server.wait_until(server.is_idle)
        before, resident = server.holds(), server.resident_bytes()
        clock = CpuClock.now()
        for first in range(0, args.kills, args.together):
            with another_process(lambda: send_and_wait(server.port, range(first, min(first + args.together, args.kills)))):
                time.sleep(random.uniform(0.02, 0.4))
        seconds = time.monotonic() - clock.wall
        server.wait_until(lambda: server.is_idle() and server.metric("sluice:connections") <= before["connections"])
        after, grown = server.holds(), server.resident_bytes() - resident
        begun = server.metric("vllm:request_success_total", 'finished_reason="abort"')
        whole = [one.text() is not None for one in exchange_all(server.port, warm)]
    leaked = [f"{name}: {after[name] - before[name]}" for name in before if after[name] != before[name]]
    yield (f"left of {args.kills} requests of killed clients ({seconds:.0f} s; {begun:.0f} were cut by it)", "nothing",
           ", ".join(leaked) or "nothing")
    yield "resident, over before [MiB]", "", f"{grown / MIB:.1f}"
    yield "streams after it that are not whole", "0", str(whole.count(False))


def send_and_wait(port, numbers):
    """Reads nothing, so that some connections are reset; of some requests the end is missing."""
    kept = []
    for i in numbers:
        request = post(COMPLETIONS, {**some_body(i, 400), "n": 1 + i % 2})
        kept.append(Exchange(port, request[:-9] if i % 10 == 9 else request))
    signal.pause()


# ---- what has no room

def overload(args):
    long = post(COMPLETIONS, some_body(0, 900))
    short = post(COMPLETIONS, some_body(0, 1))
    with Served(args.sluice, args.model, "--max-num-seqs", 4, "--max-queue", 4) as server:
        with another_process(lambda: exchange_all(server.port, [long] * 10**6, together=8)):
            time.sleep(1)
            yield refused(server, args.rejections, short, 429, "the queue is full")
    with Served(args.sluice, args.model, "--max-num-seqs", 4, "--max-connections", 64) as server:
        with another_process(lambda: hold(server.port, 64, long)):
            time.sleep(1)
            yield refused(server, args.rejections, short, 503, "connections are all taken")
    half = post(COMPLETIONS, b" " * 1_400_000, 1_900_000)
    large = post(COMPLETIONS, b"{", 600_000)
    with Served(args.sluice, args.model, "--max-num-seqs", 4, "--request-memory", "2MiB") as server:
        with another_process(lambda: hold(server.port, 1, half)):
            with another_process(lambda: exchange_all(server.port, [long] * 10**6, together=4)):
                time.sleep(1)
                yield refused(server, args.rejections, large, 503, "the memory of requests is full")


def hold(port, count, request):
    kept = [Exchange(port, request) for _ in range(count)]
    while kept:
        signal.pause()


def refused(server, count, request, status, what):
    got = exchange_all(server.port, [request] * count, together=16)
    times = [one.ended - one.began for one in got if one.status == status]
    unheard = sum(one.status == 0 for one in got)
    if not times:
        fail(f"{what}: nothing was refused")
    return (f"{status} where {what}: until the whole answer has come ({len(times)} of {count} refused, "
            f"{unheard} without an answer)", "median under 10 ms", of_words(times))


# ---- the server beside the engine alone

def overhead(args):
    words = ["--max-num-seqs", args.streams, "--quantization", args.quantization]
    bench = [str(args.sluice), "bench", "engine", str(args.model), *map(str, words), "--requests", str(args.streams),
             "--prompt-tokens", str(PROMPT_TOKENS), "--tokens", str(args.tokens), "--json"]
    ratios, rates = [], []
    with Served(args.sluice, args.model, *words) as server:
        with open(pathlib.Path(args.model) / "config.json", encoding="utf-8") as file:
            vocabulary = json.load(file)["vocab_size"]
        exchange_all(server.port, [engine_request(i, -1, vocabulary, args.tokens) for i in range(args.streams)])
        for pair in range(args.pairs):
            clock, pair_rates = CpuClock.now(), {}
            for side in ("engine", "served") if pair % 2 == 0 else ("served", "engine"):
                pair_rates[side] = (engine_rate(bench) if side == "engine" else
                                    served_rate(server, args, pair, vocabulary))
            rates.append(pair_rates["served"])
            ratios.append(pair_rates["served"] / pair_rates["engine"])
            say(f"  {pair + 1}: {pair_rates['served']:.1f} tokens/s served, {pair_rates['engine']:.1f} by the engine; "
                f"other programs took {clock.others_share():.0%} of the CPUs")
    yield f"tokens/s of {args.streams} streams over those of the engine alone", "0.95", spread(ratios)
    yield "tokens/s served", "", spread(rates, "{:.1f}")


PROMPT_TOKENS = 32


def engine_request(i, pair, vocabulary, tokens):
    """The i-th of `sluice bench engine`, with other ids in each pair, so that none are known."""
    length = lambda mean: max(1, mean // 2 + i * 7919 % (mean + 1))
    seed = i + 1000 * (pair + 1)
    ids = [(seed * 131 + t * 7919 + 13) % vocabulary for t in range(length(PROMPT_TOKENS))]
    return post(COMPLETIONS, {"prompt": ids, "max_tokens": length(tokens), "temperature": 0, "ignore_eos": True,
                              "stream": True, "stream_options": {"include_usage": True}})


def engine_rate(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        fail(result.stderr.strip()[-500:])
    return json.loads(result.stdout)["tokens_per_second"]


def served_rate(server, args, pair, vocabulary):
    start = time.monotonic()
    got = exchange_all(server.port, [engine_request(i, pair, vocabulary, args.tokens) for i in range(args.streams)])
    seconds = time.monotonic() - start
    counts = [re.findall(rb'"completion_tokens":(\d+)', bytes(one.data)) for one in got]
    if not all(counts):
        fail("a stream is not whole")
    return sum(int(count[-1]) for count in counts) / seconds


# ---- from start to first token

def start(args):
    options = ["--memory", args.memory, "--quantization", args.quantization, "--max-num-seqs", 4]
    ratios, wholes, loads = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        for pair in range(args.pairs + 1):  # the first one fills the spill cache
            clock = CpuClock.now()
            with Served(args.sluice, args.model, *options, "--report", report) as server:
                first = first_token(server, 0)
                whole = first.first - server.began
                again = first_token(server, 1)
            load = json.loads(report.read_text())["load"]["seconds"]
            prompt = again.first - again.began
            say(f"  {pair}: {whole:.2f} s from start to first token; the load {load:.2f} s, a prompt {prompt:.2f} s; "
                f"ready after {server.ready - server.began:.2f} s; others took {clock.others_share():.0%} of the CPUs")
            if pair > 0:
                ratios.append(whole / (load + prompt))
                wholes.append(whole)
                loads.append(load)
    yield "from start to first token, over the load and one prompt", "1.2", spread(ratios)
    yield "the same [s]", "", spread(wholes, "{:.2f}")
    yield "the load [s]", "", spread(loads, "{:.2f}")


def first_token(server, i):
    ids = [(i * 131 + t * 79 + 13) % 1000 for t in range(PROMPT_TOKENS)]
    return exchange_all(server.port, [post(COMPLETIONS, {"prompt": ids, "max_tokens": 2, "temperature": 0,
                                                         "ignore_eos": True, "stream": True})])[0]


SECTIONS = (streams, kills, overload, overhead, start)


def measure(args):
    rows = []
    for section in SECTIONS:
        for row in section(args) if re.fullmatch(args.only, section.__name__) else ():
            say("  " + ": ".join(row))
            rows.append(row)
    if not rows:
        fail(f"--only {args.only} leaves none of: " + ", ".join(s.__name__ for s in SECTIONS))
    say()
    table_head("what", "hold", "figure")
    for row in rows:
        table_row(*row)
    say()
    say(own_command())


def add_arguments(parser, positive, parse_size, schemes, root):
    parser.add_argument("model", type=pathlib.Path, nargs="?", default=root / "tools/demo-model", metavar="MODEL",
                        help="default: tools/demo-model")
    parser.add_argument("--sluice", type=pathlib.Path, default=root / "build/release/sluice",
                        help="the program to measure (default: build/release/sluice)")
    parser.add_argument("--only", default="streams|kills|overload", metavar="REGEX",
                        help="of " + ", ".join(s.__name__ for s in SECTIONS) + " (default: %(default)s)")
    parser.add_argument("--clients", type=positive, default=500, metavar="N", help="of streams (default: %(default)s)")
    parser.add_argument("--running", type=positive, default=64, metavar="N",
                        help="of these at once (default: %(default)s)")
    parser.add_argument("--kills", type=positive, default=10_000, metavar="N",
                        help="requests whose clients are killed (default: %(default)s)")
    parser.add_argument("--together", type=positive, default=100, metavar="N",
                        help="requests of a client that is killed (default: %(default)s)")
    parser.add_argument("--rejections", type=positive, default=2000, metavar="N",
                        help="requests to be refused of each kind (default: %(default)s)")
    parser.add_argument("--streams", type=positive, default=32, metavar="N",
                        help="beside the engine alone (default: %(default)s)")
    parser.add_argument("--tokens", type=positive, default=48, metavar="N", help="of a stream (default: %(default)s)")
    parser.add_argument("--memory", type=parse_size, default=512 * MIB, metavar="SIZE",
                        help="budget of streams, kills and start (default: 512MiB)")
    parser.add_argument("--quantization", choices=schemes, default="none", help="of overhead and start")
