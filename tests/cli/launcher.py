"""Starts programs from a small process, each in a control group of its own where that may be made, and says what they took."""

import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile

# A process begins with the peak of whoever started it, so that this must be a small one.
SERVER = r"""
import os, sys
for line in sys.stdin:
    out, error, *command = line.rstrip("\n").split("\x1f")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, out, flags, 0o600), (os.POSIX_SPAWN_OPEN, 2, error, flags, 0o600)])
    print(pid, flush=True)
    _, status, usage = os.wait4(pid, 0)
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10, flush=True)
"""


class Group:
    """A control group with a limit of memory, of either version."""

    def __init__(self):
        lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
        own = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
        if "memory" in own:
            self.limit_file, self.hits_file, hierarchy = "memory.limit_in_bytes", "memory.failcnt", "/sys/fs/cgroup/memory"
        else:
            self.limit_file, self.hits_file, hierarchy = "memory.max", "memory.events", "/sys/fs/cgroup"
        path = pathlib.Path(hierarchy + own.get("memory", own.get("", "/")))
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="sluice-test-", dir=path if path.is_dir() else hierarchy))
        enters = subprocess.run(self.enter(["true"]), stderr=subprocess.DEVNULL).returncode == 0
        if not enters or not (self.path / self.limit_file).exists():
            self.remove()
            raise OSError("memory is not controlled here")

    def enter(self, command):
        """The command, from within the group."""
        return ["/bin/sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *command]

    def remove(self):
        self.path.rmdir()

    def limit(self, size):
        empty = self.path / "memory.force_empty"  # of page cache that earlier programs left
        if empty.exists():
            empty.write_text("0")
        (self.path / self.limit_file).write_text(str(size))
        self.before = self.total()

    def total(self):
        text = (self.path / self.hits_file).read_text()
        return int(text) if text.strip().isdigit() else int(re.search(r"(?m)^max (\d+)", text)[1])

    def hits(self):
        """How often the limit was met since it was set."""
        return self.total() - self.before


class Result:
    """Of one program: status, stdout, stderr, its largest resident set, and how often it met its limit (None: had none)."""

    def __init__(self, folder, said, hits):
        self.status, self.peak = map(int, said.split())
        self.out, self.err = ((folder / name).read_text(errors="replace") for name in ("out", "err"))
        self.hits = hits


class Launcher:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        try:
            self.group = Group()
        except OSError:
            self.group = None
        self.server = subprocess.Popen([sys.executable, "-SEc", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       bufsize=0)  # as select() knows nothing of a buffer

    def close(self):
        self.server.communicate()
        if self.group:
            self.group.remove()

    def run(self, command, limit=None, timeout=120):
        self.start(command, limit)
        return self.finish(timeout)

    def start(self, command, limit=None):
        """Its process id; finish() is to follow."""
        command = list(map(str, command))
        if self.group and limit:
            self.group.limit(limit)
            command = self.group.enter(command)
        line = "\x1f".join([str(self.folder / "out"), str(self.folder / "err"), *command])
        self.server.stdin.write(os.fsencode(line) + b"\n")
        self.pid, self.limited = int(self.server.stdout.readline()), bool(limit)
        return self.pid

    def finish(self, timeout=120):
        if not select.select([self.server.stdout], [], [], timeout)[0]:
            os.kill(self.pid, 9)
        return Result(self.folder, self.server.stdout.readline(), self.group.hits() if self.group and self.limited else None)
