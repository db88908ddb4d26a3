#!/usr/bin/env python3
"""Runs one shard of a GoogleTest program in one process and writes JUnit results.

A test that crashes or hangs counts as failed, with what it printed; a new process runs the tests of
the shard that come after it. Tests are named PREFIX.SUITE.NAME. The environment variable
SLUICE_TEST_FILTER, a regular expression, selects tests by these names.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree

BEGIN = re.compile(r"\[ RUN      \] (\S+)")
END = re.compile(r"\[ *(OK|FAILED|SKIPPED) *\] (\S+?)(?:, where .*)? \((\d+) ms\)")
SKIP_REASON = re.compile(r": Skipped\n(.*)", re.DOTALL)


def all_tests(program):
    """The names of the program's tests, in its order: SUITE.NAME."""
    listed = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        entry = line.split("#")[0].rstrip()
        if not line.startswith(" "):
            suite = entry
        elif not entry.strip().startswith("DISABLED_") and "DISABLED_" not in suite:
            names.append(suite + entry.strip())
    return names


class Shard:
    """The tests of a shard and their outcomes: {name: (outcome, seconds, output)}."""

    def __init__(self, args, names):
        self.args = args
        self.names = names
        self.outcomes = {}

    def run(self):
        """Runs processes until each test has an outcome."""
        while rest := [name for name in self.names if name not in self.outcomes]:
            self.run_process(rest)

    def run_process(self, names):
        environment = {**os.environ, "GTEST_FILTER": ":".join(names)}
        process = subprocess.Popen([self.args.program, "--gtest_color=no"], env=environment, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        stop = self.watch(process)
        running, begun, output = None, 0.0, []
        for line in process.stdout:
            if begin := BEGIN.search(line):
                running, begun, output = begin[1], time.monotonic(), []
                # Each test has the whole limit.
                stop.cancel()
                stop = self.watch(process)
            elif running is not None and (end := END.search(line)) and end[2] == running:
                output.append(line)
                self.outcomes[running] = (end[1], int(end[3]) / 1000, "".join(output))
                running = None
            else:
                output.append(line)
        status = process.wait()
        stop.cancel()
        if status == 0 or (status == 1 and running is None and all(name in self.outcomes for name in names)):
            for name in names:  # the program left it out, which is no result
                self.outcomes.setdefault(name, ("FAILED", 0.0, "the program did not run it\n"))
            return
        # What ends the process after its last test (a leak, say) is charged to that test.
        died = running or next((n for n in reversed(names) if n in self.outcomes), names[0])
        seconds = time.monotonic() - begun
        output.append(f"the process ended with {describe(status)} after {seconds:.1f} s\n")
        self.outcomes[died] = ("FAILED", seconds, "".join(output))

    def watch(self, process):
        """A started timer that ends the process, and what it started, at the limit."""
        timer = threading.Timer(self.args.limit, os.killpg, (process.pid, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        return timer

    def write(self):
        """Writes the outcomes as JUnit."""
        suite = ElementTree.Element("testsuite", name=self.args.prefix)
        for name, (outcome, seconds, output) in self.outcomes.items():
            case = ElementTree.SubElement(suite, "testcase", name=f"{self.args.prefix}.{name}",
                                          classname=os.path.basename(self.args.program), time=f"{seconds:.3f}",
                                          status={"OK": "run", "SKIPPED": "skipped"}.get(outcome, "fail"))
            if outcome == "SKIPPED":
                reason = SKIP_REASON.search(output)
                text = reason[1].split("[  SKIPPED ]")[0] if reason else ""
                ElementTree.SubElement(case, "skipped", message=" ".join(text.split()) or "no reason given")
            elif outcome != "OK":
                ElementTree.SubElement(case, "failure")
                printable = "".join(c for c in output if c in "\n\t" or c >= " ")
                ElementTree.SubElement(case, "system-out").text = printable
        os.makedirs(os.path.dirname(self.args.results), exist_ok=True)
        ElementTree.ElementTree(suite).write(self.args.results)


def describe(status):
    if status >= 0:
        return f"status {status}"
    if -status == signal.SIGKILL:
        return "SIGKILL (it took longer than its limit, or the system killed it)"
    return f"signal {signal.Signals(-status).name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--shard", type=int, default=0, help="from 0")
    parser.add_argument("--of", type=int, default=1, help="number of shards")
    parser.add_argument("--limit", type=float, default=600, help="most seconds for one test")
    parser.add_argument("--results", required=True, help="JUnit file to write")
    args = parser.parse_args()

    selected = re.compile(os.environ.get("SLUICE_TEST_FILTER", ""))
    names = [name for name in all_tests(args.program) if selected.search(f"{args.prefix}.{name}")]
    shard = Shard(args, names[args.shard::args.of])
    shard.run()
    shard.write()
    failed = [name for name, (outcome, _, _) in shard.outcomes.items() if outcome == "FAILED"]
    for name in failed:
        print(shard.outcomes[name][2])
        print(f"failed: {args.prefix}.{name}")
    print(f"{len(shard.outcomes) - len(failed)} of {len(shard.outcomes)} tests passed or skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
