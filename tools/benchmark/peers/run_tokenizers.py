#!/usr/bin/env python3
"""Compares `sluice tokenize` with Hugging Face tokenizers, on one thread, over 10 MB of mixed text.

The text is English, source code, and the strings of tests/data/text in many scripts, in an order
that a seed gives. The two take turns; a pair's ratio is the time of tokenizers over ours, so that
more than 1 means that we are faster. Ours includes printing the ids, less what the program takes
for an empty text; that of tokenizers is `encode` alone, of parts of 64 KiB.

Needs tokenizers (pip install tokenizers).
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

ROOT = pathlib.Path(__file__).resolve().parents[3]


def mixed_text(size):
    english = (ROOT / "tools/demo-model/validation.txt").read_text().splitlines(keepends=True)
    code = [line for path in sorted((ROOT / "src").rglob("*.cc")) for line in path.read_text().splitlines(keepends=True)]
    strings = [json.loads(line)["text"] + "\n" for path in sorted((ROOT / "tests/data/text").glob("*/strings.jsonl"))
               for line in path.open()]
    rng = random.Random(1)
    parts, length = [], 0
    while length < size:
        source = rng.choices((english, code, strings), (5, 3, 2))[0]
        at = rng.randrange(len(source))
        part = "".join(source[at:at + 20])
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


def seconds_of_ours(sluice, directory, path):
    begin = time.perf_counter()
    subprocess.run([sluice, "tokenize", directory, "--file", path, "--no-special-tokens"], check=True,
                   stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def seconds_of_tokenizers(tokenizer, parts):
    begin = time.perf_counter()
    for part in parts:
        tokenizer.encode(part, add_special_tokens=False)
    return time.perf_counter() - begin


def compare(args, directory, text, paths):
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    parts = [text[at:at + 65536] for at in range(0, len(text), 65536)]
    ratios, rates = [], []
    for _ in range(args.repeats):
        start = seconds_of_ours(args.sluice, directory, paths[0])
        ours = seconds_of_ours(args.sluice, directory, paths[1]) - start
        theirs = seconds_of_tokenizers(tokenizer, parts)
        ratios.append(theirs / ours)
        rates.append(len(text.encode()) / ours / 1e6)
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(f"{directory.name:20} {middle:.2f} ({low:.2f} to {high:.2f}), ours {statistics.median(rates):.1f} MB/s",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+", type=pathlib.Path, help="with a tokenizer.json each")
    parser.add_argument("--sluice", default=ROOT / "build/release/sluice", type=pathlib.Path)
    parser.add_argument("--repeats", default=5, type=int)
    parser.add_argument("--bytes", default=10_000_000, type=int, help="of text")
    args = parser.parse_args()
    text = mixed_text(args.bytes)
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / name for name in ("empty", "text")]
        paths[0].write_text("")
        paths[1].write_text(text)
        for directory in args.directories:
            compare(args, directory, text, paths)


if __name__ == "__main__":
    main()
