"""The checkpoint of the figures, made beside the tests by a process that outlives a command."""

import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Checkpoint:
    """`path` exists when it is whole. Its process number is beside it, for whoever goes on."""

    def __init__(self, path, shape):
        self.path, self.shape = path, shape
        self.number, self.log = path.with_name(path.name + ".pid"), path.with_name(path.name + ".log")
        self.child = None

    def is_made(self):
        if self.child is not None:
            return self.child.poll() is None
        try:
            words = pathlib.Path(f"/proc/{int(self.number.read_text())}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return False
        return str(self.path).encode() in words

    def start(self):
        if self.path.exists() or self.is_made():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen([sys.executable, "-I", ROOT / "tools/make-checkpoint", "--shape", self.shape, "--out",
                                           self.path], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.number.write_text(str(self.child.pid))

    def wait(self, until):
        """None, or why there is none: the maker's words, or nothing where it is still at work."""
        while not self.path.exists() and self.is_made() and time.monotonic() < until:
            time.sleep(0.2)
        if self.path.exists():
            return None
        if self.is_made():
            return ""
        said = self.log.read_text(errors="replace").strip() if self.log.exists() else ""
        return "the checkpoint could not be made: " + (said.splitlines() or ["its maker said nothing"])[-1]
