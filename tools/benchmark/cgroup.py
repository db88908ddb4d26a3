"""Runs one command in a memory cgroup of its own, v1 or v2, and says what the kernel counted."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import time


class Unavailable(Exception):
    """This machine or user cannot make a memory cgroup; the text says why."""


@dataclasses.dataclass(frozen=True)
class Usage:
    peak_bytes: int  # everything charged: anonymous memory, page cache, kernel memory
    limit_hits: int  # charges that met the limit (v1: memory.failcnt; v2: max in memory.events)
    oom_kills: int
    major_faults: int
    refaults: int  # pages of files that had been evicted and were read again


@dataclasses.dataclass(frozen=True)
class Controller:
    """Where one version of the memory controller keeps its numbers."""

    root: pathlib.Path
    limit: str
    swap_limit: str
    swap_limit_includes_memory: bool
    peak: str
    limit_hits: tuple  # file, and the key in it (None: the file is one number)
    oom_kills: tuple


def find_controller():
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        fields = [line.split() for line in mounts]
    for _, directory, kind, options, *_ in fields:
        if kind == "cgroup" and "memory" in options.split(","):
            return Controller(pathlib.Path(directory), "memory.limit_in_bytes",
                              "memory.memsw.limit_in_bytes", True, "memory.max_usage_in_bytes",
                              ("memory.failcnt", None), ("memory.oom_control", "oom_kill"))
    for _, directory, kind, *_ in fields:
        root = pathlib.Path(directory)
        if kind == "cgroup2" and "memory" in (root / "cgroup.controllers").read_text().split():
            return Controller(root, "memory.max", "memory.swap.max", False, "memory.peak",
                              ("memory.events", "max"), ("memory.events", "oom_kill"))
    raise Unavailable("no memory cgroup controller is mounted")


def number(group, file, key=None):
    """The file's one number, or the number behind `key`; 0 where this kernel has none."""
    try:
        words = (group / file).read_text().split()
    except FileNotFoundError:
        return 0
    if key is None:
        return int(words[0])
    return int(words[words.index(key) + 1]) if key in words else 0


@contextlib.contextmanager
def memory_group(limit_bytes):
    """A new group with that limit and no swap: yields its directory and its controller."""
    controller = find_controller()
    group = controller.root / f"sluice-bench-{os.getpid()}"
    try:
        if controller.limit == "memory.max":
            (controller.root / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
    except OSError as error:
        raise Unavailable(f"cannot make a memory cgroup, which needs root: {error}") from error
    try:
        (group / controller.limit).write_text(str(limit_bytes))
        if (group / controller.swap_limit).exists():
            swap_limit = limit_bytes if controller.swap_limit_includes_memory else 0
            (group / controller.swap_limit).write_text(str(swap_limit))
        yield group, controller
    finally:
        remove(group)


def remove(group):
    """The kernel lets a group go a moment after its last process."""
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.02)


def run(command, limit_bytes, timeout=None, env=None):
    """Runs `command` under the limit. Returns subprocess's result and the Usage. After `timeout`
    seconds the program is killed, and subprocess.TimeoutExpired raised.
    """
    with memory_group(limit_bytes) as (group, controller):
        result = subprocess.run(command, preexec_fn=lambda: enter(group), capture_output=True,
                                text=True, check=False, timeout=timeout, env=env)
        return result, usage(group, controller)


def enter(group):
    """Puts this process into the group."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


def usage(group, controller):
    """What the kernel has counted so far."""
    return Usage(peak_bytes=number(group, controller.peak),
                 limit_hits=number(group, *controller.limit_hits),
                 oom_kills=number(group, *controller.oom_kills),
                 major_faults=number(group, "memory.stat", "pgmajfault"),
                 refaults=number(group, "memory.stat", "workingset_refault_file"))
