"""Runs on several hosts: network namespaces of this one, each with a name of its own, whose link delays and loses frames."""

import fcntl
import heapq
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from program import DEMO, HANGS, SANITIZED, SLUICE, SOURCE, Case, run_json
from ranks_test import MPIRUN, left_running

MODELS = SOURCE / "tests/data/models"
IP = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
DELAY = 0.0005  # seconds that a frame is on its way
LOST = 100  # every frame of so many


class Link(threading.Thread):
    """Carries Ethernet frames between two TAP devices, late, and not all."""

    def __init__(self, names):
        super().__init__(daemon=True)
        self.taps = [self.open_tap(name) for name in names]
        self.stop, self.stopped = os.pipe()
        self.carried = self.lost = 0

    @staticmethod
    def open_tap(name):
        set_interface, tap_without_header = 0x400454CA, 0x0002 | 0x1000
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, set_interface, struct.pack("16sH", name.encode(), tap_without_header))
        return tap

    def run(self):
        late = []  # (when, number, to, frame)
        while True:
            wait = max(late[0][0] - time.monotonic(), 0) if late else None
            ready, _, _ = select.select([*self.taps, self.stop], [], [], wait)
            if self.stop in ready:
                return
            for tap in ready:
                self.carried += 1
                frame = os.read(tap, 65536)
                if self.carried % LOST == 0:
                    self.lost += 1
                else:
                    other = self.taps[1 - self.taps.index(tap)]
                    heapq.heappush(late, (time.monotonic() + DELAY, self.carried, other, frame))
            while late and late[0][0] <= time.monotonic():
                _, _, to, frame = heapq.heappop(late)
                try:
                    os.write(to, frame)
                except OSError:  # the device is down, or its queue is full
                    self.lost += 1

    def close(self):
        os.close(self.stopped)
        self.join()
        for end in (*self.taps, self.stop):
            os.close(end)


class Hosts:
    """Two hosts that reach each other, as a context; `launch` starts ranks on both."""

    def __init__(self):
        self.names = [f"sluice{os.getpid()}-{n}" for n in (1, 2)]
        self.taps = [f"sl{os.getpid()}-{n}" for n in (1, 2)]

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-hosts-")
        self.link = Link(self.taps)
        for n, (name, tap) in enumerate(zip(self.names, self.taps), start=1):
            for args in (f"netns add {name}", f"link set {tap} netns {name}", f"-n {name} link set lo up",
                         f"-n {name} addr add 10.213.0.{n}/24 dev {tap}", f"-n {name} link set {tap} up"):
                subprocess.run([IP, *args.split()], check=True, capture_output=True, text=True)
        self.link.start()
        self.agent = f"{self.folder.name}/agent"
        with open(self.agent, "w") as file:
            file.write(f'#!/bin/sh\nname=sluice{os.getpid()}-${{1##*.}}; shift\n'
                       f'exec {IP} netns exec $name unshare --uts sh -c "hostname $name; $*"\n')
        os.chmod(self.agent, 0o755)
        return self

    def __exit__(self, *_):
        self.link.close()
        for name in self.names:
            subprocess.run([IP, "netns", "del", name], check=False)
        self.folder.cleanup()

    def launch(self, *args):
        """The command line of two ranks, one a host."""
        network = "10.213.0.0/24"
        mpirun = [MPIRUN, "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent, "--mca", "pml",
                  "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include",
                  network, "--host", "10.213.0.1,10.213.0.2", "-n", "2", SLUICE, *map(str, args)]
        name = self.names[0]
        return [IP, "netns", "exec", name, "unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *mpirun]


def processes_of(name):
    """The ids of the processes of a host."""
    return [int(p) for p in subprocess.run([IP, "netns", "pids", name], capture_output=True, text=True,
                                           check=True).stdout.split()]


def is_rank(process):
    with open(f"/proc/{process}/cmdline", "rb") as file:
        return file.read().split(b"\0")[0] == os.fsencode(SLUICE)


@unittest.skipIf(SANITIZED, "OpenMPI's own memory is no business of ours, and a sanitizer reports it")
class HostsTest(Case):
    def setUp(self):
        if MPIRUN is None:
            self.skipTest("OpenMPI is not installed: tools/setup --dev")
        if os.geteuid() != 0 or IP is None or not os.path.exists("/dev/net/tun"):
            self.skipTest("only root can make network namespaces, with iproute2 and /dev/net/tun")

    def test_two_hosts_compute_what_one_rank_does(self):
        what = ["run", MODELS / "llama_rope_dynamic", "--token-ids", "5,6,7,8,9,10,11,12", "-n", "8", "--dtype", "float32",
                "--ignore-eos", "--threads", "1", "--json", "--quiet"]
        one = run_json(*what[:-2])
        with Hosts() as hosts:
            done = subprocess.run(hosts.launch(*what), capture_output=True, text=True, timeout=HANGS,
                                  stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["token_ids"], one["token_ids"])
            self.assertGreater(hosts.link.lost, 0, "no frame was lost")

    def test_a_killed_rank_ends_those_of_other_hosts(self):
        what = ["run", DEMO, "Once", "-n", "100000", "--max-model-len", "100002", "--ignore-eos", "--threads", "1", "--quiet"]
        with Hosts() as hosts:
            run = subprocess.Popen(hosts.launch(*what), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL)
            with run, run.stdout, run.stderr:
                self.assertTrue(run.stdout.read(1))
                all_processes = [p for name in hosts.names for p in processes_of(name)]
                [rank] = filter(is_rank, processes_of(hosts.names[1]))
                os.kill(rank, signal.SIGKILL)
                begin = time.monotonic()
                messages = run.stderr.read()
                self.assertNotEqual(run.wait(timeout=HANGS), 0)
                self.assertLess(time.monotonic() - begin, 10)
            self.assertEqual(messages.count("exited on signal 9"), 1, messages)
            self.assertEqual(left_running(all_processes), [])
