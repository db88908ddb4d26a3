"""A process of `sluice serve`, and what it says of itself."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time

from benchmark.http_clients import ADDRESS
from benchmark.printing import fail


class Served:
    """Ends with the block: `with Served(program, model, *options) as server`."""

    def __init__(self, program, model, *options, enter=None):
        command = [str(program), "serve", str(model), "--port", "0", "--quiet", *map(str, options)]
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=enter)
        url = self.process.stdout.readline().strip()
        if not url:
            fail("sluice serve did not start")
        self.port = int(url.rpartition(":")[2])
        self.wait_until(lambda: self.ask("/health")[0] == 200)
        self.ready = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.stdout.close()

    def wait_until(self, true, seconds=300, pause=0.005):
        until = time.monotonic() + seconds
        while not true():
            if self.process.poll() is not None or time.monotonic() > until:
                fail("sluice serve has ended, or does not come to rest")
            time.sleep(pause)

    def ask(self, path, body=None):
        """Status and text."""
        with contextlib.closing(http.client.HTTPConnection(ADDRESS, self.port, timeout=300)) as connection:
            connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()

    def metric(self, name, label=""):
        lines = self.ask("/metrics")[1].splitlines()
        return float(next(line for line in lines if line.startswith(name + "{") and label in line).rpartition(" ")[2])

    def is_idle(self):
        return self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") == 0

    def holds(self):
        """What requests have taken, and must give back."""
        memory, connections = json.loads(self.ask("/v1/memory")[1]), int(self.metric("sluice:connections"))
        time.sleep(0.2)  # the last connections are closed
        return {"KV blocks": memory["kv_blocks"]["used"], "bytes of requests": memory["requests"]["bytes"],
                "connections": connections,
                "descriptors": len(os.listdir(f"/proc/{self.process.pid}/fd")),
                "leased bytes": memory["used"]["host"]}

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
