"""Calls the sluice binary, for the tests around it."""

import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["SLUICE_SOURCE"])
SLUICE = os.environ["SLUICE"]
DEMO = SOURCE / "tools/demo-model"
ORACLE = pathlib.Path(os.environ.get("SLUICE_ORACLE", SOURCE.parent / "shared/oracle/fixtures"))
SANITIZED = bool(os.environ.get("SLUICE_SANITIZE"))
ALL = "SLUICE_TEST_ALL" in os.environ  # tools/test --all
BRIEF = SANITIZED and not ALL
IN_PROCESS = "tests in one process go the same ways under a sanitizer, in a tenth of the time"
# Options for a process that is to take long: sanitized reference kernels would take a second a token.
SLOW = ("--kernels", "portable" if SANITIZED else "reference")
HANGS = 600  # seconds: whoever takes longer has hung, however busy the machine is
# What `tools/setup --dev` has installed for tests alone.
CLIENTS = (pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sluice/clients" /
           f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")

CACHE = tempfile.TemporaryDirectory(prefix="sluice-test-cache-")
os.environ["XDG_CACHE_HOME"] = CACHE.name  # measured rates, spilled weights


def in_turn(variants, turn):
    """All variants of the check number `turn`; under a sanitizer, which makes each take ten times as long, one of them."""
    return [variants[turn % len(variants)]] if SANITIZED else variants


def sluice(*args, limit_memory=False, **options):
    def limits():
        resource.setrlimit(resource.RLIMIT_CPU, (HANGS, HANGS))
        if limit_memory and not SANITIZED:  # sanitizers reserve terabytes of address space
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    return subprocess.run([SLUICE, *map(str, args)], capture_output=True, text=True, errors="replace",
                          timeout=HANGS, preexec_fn=limits, **options)


def run_json(*args):
    result = sluice(*args, "--json", "--quiet")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def copy_without_template(folder):
    """Copies the demonstration model to a new folder, without its chat template."""
    shutil.copytree(DEMO, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def budget_for(needed):
    """A --memory with this much room [bytes] beside what the process itself takes on this machine."""
    return run_json("plan", DEMO)["uses"]["runtime"] + needed


# A process begins with the peak of whoever started it, so that this must be a small one.
MEASURE = """
import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as file:
    print(usage.ru_maxrss * 1024, file=file)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def sluice_and_peak(*args, **options):
    """What sluice() returns, and the largest resident set of the process [bytes], its end included."""
    with tempfile.NamedTemporaryFile("r") as peak:
        command = [sys.executable, "-SEc", MEASURE, peak.name, SLUICE, *map(str, args)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, **options)
        return result, int(peak.read())


def run_json_and_peak(*args):
    """What run_json() returns, and the largest resident set of the process."""
    result, peak = sluice_and_peak(*args, "--json", "--quiet")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout), peak


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def assert_fails(self, status, mention, *args, **options):
        result = sluice(*args, **options)
        self.assertEqual(result.returncode, status, f"{args}: {result.stderr}")
        self.assertIn(mention, result.stderr)
        last = result.stderr.strip().splitlines()[-1]
        self.assertTrue(last.startswith("sluice: "), result.stderr)
        self.assertNotIn("internal error", result.stderr)
