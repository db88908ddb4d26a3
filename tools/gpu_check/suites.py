"""GoogleTest's programs in several processes at once, so that a crash or a hang costs one suite, or one model."""

import concurrent.futures
import os
import pathlib
import re
import tempfile
import time

from . import running
from .step import result_of

MOST_AT_ONCE = 8  # each has a context on the GPU, of about half a gigabyte
LISTING_SECONDS = 60


def listed(said):
    """Of --gtest_list_tests: the tests, by their full names."""
    tests, suite = [], None
    for line in said.splitlines():
        word = line.split("#")[0].rstrip()
        if re.fullmatch(r"\S+\.", word):
            suite = word
        elif suite is not None and re.fullmatch(r"  \S+", word):
            tests.append(suite + word.strip())
    return tests


def by_suite(test):
    return test.split(".")[0] + ".*"


def by_model(test):
    """The model is the last part of a test's name. A suite without models is one by itself."""
    return "*/" + test.rsplit("/", 1)[1] if "/" in test.split(".")[1] else by_suite(test)


def tests_in(said):
    """Of GoogleTest's lines: counts, the names of those that failed, and of the one that did not end."""
    began = re.findall(r"^\[ RUN      \] (\S+)", said, re.M)
    ended = {how: list(dict.fromkeys(re.findall(rf"^\[{how}\] ([^\s,]+).*\(\d+ ms\)", said, re.M)))
             for how in ("       OK ", "  FAILED  ", "  SKIPPED ")}
    cut = began[-1:] if began and began[-1] not in sum(ended.values(), []) else []
    return {"tests": len(began), "skipped": len(ended["  SKIPPED "]), "failed": ended["  FAILED  "], "did not end": cut}


class Run:
    """The processes of one program, each with the tests that a filter names, and what they found together."""

    def __init__(self, context, program, timeout):
        self.context, self.program = context, context.programs[program]
        self.deadline, self.most = time.monotonic() + timeout, timeout / 2  # one that hangs leaves time for the others
        self.found = {"processes": 0, "tests": 0, "skipped": 0, "failed": [], "did not end": [], "without tests": []}
        self.faults, self.late = [], False

    def one(self, scratch, number, tests):
        """Given to a thread. Its log is its own until it has ended."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return tests, None, None
        log = pathlib.Path(scratch) / str(number)
        ran = running.run([self.program, f"--gtest_filter={tests}"], log, min(left, self.most), self.context.env)
        return tests, ran, log.read_bytes()

    def add(self, tests, ran, said):
        if ran is None:
            self.late = True
            self.found["did not end"].append(tests)
            return
        with open(self.context.log("tests"), "ab") as log:
            log.write(said)
        self.late |= ran.status is None
        one = tests_in(ran.said)
        self.found["processes"] += 1
        if one["tests"] == 0:
            self.found["without tests"].append(tests)
        for key, value in one.items():
            self.found[key] += value
        if ran.fault():
            self.faults.append(f"{tests} {ran.fault()}")

    def together(self, scratch, filters):
        with concurrent.futures.ThreadPoolExecutor(min(MOST_AT_ONCE, max(2, len(os.sched_getaffinity(0)) // 2))) as pool:
            jobs = [pool.submit(self.one, scratch, i, tests) for i, tests in enumerate(filters)]
            try:
                for job in concurrent.futures.as_completed(jobs):
                    self.add(*job.result())
            except BaseException:  # a request to end comes to this thread alone
                self.deadline = 0
                while not all(job.done() for job in jobs):
                    running.end_all()
                    time.sleep(0.05)
                raise

    def result(self, seconds):
        found = {key: value for key, value in self.found.items() if value != [] or key == "failed"}
        result = {"status": "timed out" if self.late else "failed" if self.faults else "passed", "seconds": round(seconds, 1)}
        if self.faults:
            result["why"] = "; ".join(self.faults)
        elif self.late:
            result["why"] = "its time was over"
        elif found["skipped"] or "without tests" in found:
            result |= {"status": "failed", "why": "tests were skipped, or a filter named none"}
        return result | {"found": found}


def run_suites(program, divide, alone=()):
    """alone: filters of tests that measure the GPU's memory, and run when no others do."""
    def take(context, timeout):
        started = time.monotonic()
        listing = running.run([context.programs[program], "--gtest_list_tests"], context.log("tests"),
                              min(timeout, LISTING_SECONDS), context.env)
        filters = list(dict.fromkeys(divide(test) for test in listed(listing.said)))
        if listing.status != 0 or not filters:
            result = result_of(listing)
            return result if listing.status != 0 else result | {"status": "failed", "why": "there are no tests"}
        run = Run(context, program, timeout - (time.monotonic() - started))
        together = [tests for tests in filters if tests not in alone]
        with tempfile.TemporaryDirectory() as scratch:
            run.together(scratch, together)
            for i, tests in enumerate(alone):
                run.add(*run.one(scratch, f"alone{i}", tests))
        return run.result(time.monotonic() - started)
    return take
