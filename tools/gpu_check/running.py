"""Runs a program for so long and no longer, with what it says in a log."""

import os
import signal
import subprocess
import time

MOST_LOGGED, MOST_READ = 1 << 20, 64 << 20  # bytes of one step
GRACE = 5  # seconds from the request to end to the end by force
WORDS_OF_ERROR = 400
children = set()  # that run now


class Ran:
    """How a program ended. status: None where its time was over."""

    def __init__(self, status, seconds, said, printed):
        self.status, self.seconds, self.said, self.printed = status, seconds, said, printed

    def fault(self):
        """A sentence; None where all is well."""
        if self.status == 0:
            return None
        lines = [line for line in self.said.splitlines() if line.strip()]
        ended = "was ended: its time was over" if self.status is None else f"ended with {self.status}"
        return f"{ended}; last line: {lines[-1][:WORDS_OF_ERROR]}" if lines else ended


def end(child):
    """All of its process group. One that hangs in the driver may stay: nobody waits for it."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, how)
        except ProcessLookupError:
            pass
        try:
            child.wait(GRACE)
            return
        except subprocess.TimeoutExpired:
            continue


def end_all():
    """What other threads have started, too."""
    for child in list(children):
        end(child)


def said_since(file, begin):
    """What was written from there on, of which the log keeps the end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(begin, size - MOST_READ))
    said = file.read()
    if size - begin > MOST_LOGGED:
        file.truncate(begin)
        file.write(b"...\n" + said[-MOST_LOGGED:])
    return said.decode(errors="replace")


def run(command, log, timeout, env, separate=False):
    """Its standard output goes to the log, too, or with `separate` first into `printed`."""
    started = time.monotonic()
    with open(log, "a+b", buffering=0) as file:
        file.write(f"\n$ {' '.join(map(str, command))}\n".encode())
        begin = file.seek(0, os.SEEK_END)
        output = subprocess.PIPE if separate else file
        # A process group of its own, that it can be ended as a whole; no session, that it ends with this machine's command.
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=file, env=env, process_group=0)
        except OSError as e:
            return Ran(127, 0, str(e), "")
        children.add(child)
        try:
            printed = child.communicate(timeout=timeout)[0] or b""
        except subprocess.TimeoutExpired as late:
            end(child)
            printed = late.stdout or b""
        except BaseException:
            end(child)
            raise
        finally:
            children.discard(child)
        seconds = time.monotonic() - started
        said = said_since(file, begin)
        file.write(printed[-MOST_LOGGED:])
    status = child.returncode if seconds < timeout else None
    return Ran(status, seconds, said, printed.decode(errors="replace"))
