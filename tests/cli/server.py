"""A process of `sluice serve`, and its clients."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from program import DEMO, HANGS, SLUICE, Case

LONG = {"prompt": "In the beginning", "max_tokens": 900, "ignore_eos": True, "temperature": 0, "stream": True}
TEMPLATE = ("{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
            "{% endfor %}{% if add_generation_prompt %}model: {% endif %}")
PROMPTS = ["Anne had", "And the LORD said unto", "It was", "Elizabeth", "In the beginning"]


class Client:
    """Requests to a server at a port of this machine."""

    def __init__(self, port):
        self.port = port

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS)

    def request(self, method, path, body=None, headers=None):
        """Status, headers, and the body: parsed where it is JSON."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            data = response.read().decode()
        is_json = (response.getheader("Content-Type") or "").startswith("application/json")
        return response.status, response.headers, json.loads(data) if is_json else data

    def get(self, path, **options):
        status, _, body = self.request("GET", path, **options)
        return status, body

    def post(self, path, body, **options):
        status, _, answer = self.request("POST", path, json.dumps(body), **options)
        return status, answer


class Server(Client):
    """A process of `sluice serve`, and requests to it."""

    def __init__(self, model, *options, wait=True):
        self.process = subprocess.Popen([SLUICE, "serve", str(model), "--port", "0", *map(str, options)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()  # with --json, the first line of an object
        self.port = int(self.url.rpartition(":")[2] or 0) if self.url != "{" else None
        if wait:
            self.wait_until(lambda: self.get("/health")[0] == 200)

    def wait_until(self, true):
        end = time.monotonic() + HANGS
        while time.monotonic() < end:
            if true():
                return
            assert self.process.poll() is None, self.process.stderr.read()
            time.sleep(0.01)
        raise AssertionError("nothing has changed")

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        out = self.process.communicate(timeout=HANGS)
        return self.process.returncode, *out

    def events(self, path, body):
        """The JSON of each event of a stream, whose end is checked."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("Content-Type") == "text/event-stream"
            text = response.read().decode()
        assert text.endswith("data: [DONE]\n\n"), text[-200:]
        lines = [line for line in text.split("\n\n")[:-2] if not line.startswith(":")]
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    def streamed_text(self, body):
        return "".join(e["choices"][0]["text"] for e in self.events("/v1/completions", {**body, "stream": True}))

    def raw(self, data):
        """All that the server says to these bytes, until it ends the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=HANGS) as connection:
            with contextlib.suppress(ConnectionError):  # it may answer and end before it has all
                connection.sendall(data)
            return self.rest(connection)

    @staticmethod
    def rest(connection):
        said = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                said += piece
        return said.decode()

    def metric(self, name):
        return metric_of(self.get("/metrics")[1], name)

    def holds(self):
        """What requests take, and give back: KV blocks, bytes, leased memory, descriptors. Asked over one connection, once all
        others are closed, which they are by and by."""
        with contextlib.closing(self.connect()) as connection:
            def ask(path):
                connection.request("GET", path)
                return connection.getresponse().read().decode()

            self.wait_until(lambda: metric_of(ask("/metrics"), "sluice:connections") == 1)
            memory = json.loads(ask("/v1/memory"))
            return memory["kv_blocks"]["used"], memory["requests"]["bytes"], memory["used"]["host"], self.descriptors()

    def descriptors(self):
        """As few as there are in a moment: connections that have ended are closed by and by."""
        counts = []
        for _ in range(20):
            counts.append(len(os.listdir(f"/proc/{self.process.pid}/fd")))
            time.sleep(0.005)
        return min(counts)

    def wait_until_idle(self):
        self.wait_until(lambda: self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") +
                        self.metric("sluice:kv_blocks_used") == 0)


def metric_of(text, name):
    line = next(line for line in text.splitlines() if line.startswith(name + "{"))
    return float(line.rpartition(" ")[2])


def http_post(body, path="/v1/completions", **headers):
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n{body}".encode()


class ServedCase(Case):
    """One server for all tests of a class, with a chat template."""

    template = TEMPLATE

    @classmethod
    def options(cls):
        return "--max-num-seqs", "32", "--max-request-bytes", "64KiB", "--cors-origin", "https://example.org"

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="sluice-test-")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.model = cls.directory.name + "/demo"
        shutil.copytree(DEMO, cls.model)
        with open(cls.model + "/chat_template.jinja", "w") as file:
            file.write(cls.template)
        cls.server = Server(cls.model, *cls.options())
        cls.addClassCleanup(cls.server.end, signal.SIGKILL)
