"""Models by their addresses, from a server that has every fault."""

import http.server
import json
import os
import signal
import subprocess
import threading
import time

from program import DEMO, HANGS, SLUICE, SOURCE, Case, sluice

NAMES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json",
         *(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)))
FILES = {name: (DEMO / name).read_bytes() for name in NAMES}
SHARD = "model-00002-of-00003.safetensors"
GGUF = sorted((SOURCE / "tests/data/gguf").rglob("*.gguf"), key=lambda path: path.stat().st_size)[0]


class Server:
    """Serves {name: bytes} below /m/. `cut`: how often the answers for SHARD end half way, or "hang";
    `busy`: how many requests for a part of it are then answered with 503."""

    def __init__(self, files, *, ranges=True, tag='"1"', cut=0, busy=0):
        self.files, self.ranges, self.tag, self.cut, self.busy = dict(files), ranges, tag, cut, busy
        self.requests = []  # (name, the Range header)
        self.half_sent, self.go_on = threading.Event(), threading.Event()
        self.on_cut = lambda: None
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # of clients that went away
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/m/"

    def close(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()

    def asked(self, name):
        return [asked for file, asked in self.requests if file == name]


def handler_of(server):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def head(self, status, length, **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def do_GET(self):
            path = self.path.split("?")[0]
            if path.startswith("/old/"):
                return self.head(302, 0, Location="/m/" + path.removeprefix("/old/"))
            name = path.removeprefix("/m/")
            server.requests.append((name, self.headers.get("Range")))
            if name not in server.files:
                return self.head(404, 0)
            data, begin, asked = server.files[name], 0, self.headers.get("Range")
            if asked and server.busy:
                server.busy -= 1
                return self.head(503, 0, Retry_After="1")
            if asked and server.ranges:
                begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            headers = {"ETag": server.tag} if server.tag else {}
            if begin:
                headers["Content_Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
            self.head(206 if begin else 200, len(data) - begin, **headers)
            if name == SHARD and server.cut:
                self.wfile.write(data[begin:begin + (len(data) - begin) // 2])
                self.wfile.flush()
                if server.cut == "hang":
                    server.half_sent.set()
                    server.go_on.wait()
                else:
                    server.cut -= 1
                server.on_cut()
                self.close_connection = True
                return None
            self.wfile.write(data[begin:])
            return None

    return Handler


class WebTest(Case):
    def setUp(self):
        super().setUp()
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.path / "cache")}
        self.environment.pop("HF_HUB_OFFLINE", None)

    def serve(self, files=None, **how):
        server = Server(FILES if files is None else files, **how)
        self.addCleanup(server.close)
        return server

    def call(self, *args):
        return sluice(*args, env=self.environment)

    def expect_text(self, address, model=DEMO, *options):
        run = ("-n", "4", "--quiet", *(options or ("-p", "Anne")))
        result = self.call("run", address, *run)
        self.assertEqual((result.stdout, result.returncode), (sluice("run", model, *run).stdout, 0), result.stderr)

    def test_a_model_is_fetched_once_and_run(self):
        server = self.serve()
        self.expect_text(server.url)
        asked = len(server.requests)
        self.expect_text(server.url)
        self.expect_text(server.url.removesuffix("/"))
        self.expect_text(server.url + "config.json")
        self.assertEqual(self.call("plan", server.url, "--load-format", "remote").returncode, 0)
        self.assertEqual(len(server.requests), asked, "what is here was fetched again")
        self.assertEqual(self.call("plan", DEMO, "--load-format", "remote").returncode, 2)
        listed = [m for m in json.loads(self.call("list", "--json").stdout)["models"] if m["name"] == server.url]
        self.assertEqual([m["state"] for m in listed], ["complete"])
        self.assertEqual(json.loads(self.call("show", server.url, "--json").stdout), listed[0])
        self.assertGreater(listed[0]["bytes"], sum(map(len, FILES.values())) - 1)
        self.assertIn(server.url, self.call("list").stdout)
        self.assertEqual(self.call("rm", server.url).returncode, 0)
        self.assertEqual(self.call("rm", server.url).returncode, 3)
        self.assertEqual(self.call("show", server.url).returncode, 3)
        self.expect_text(server.url.replace("/m/", "/old/"))  # leads to the other

    def test_a_draft_model_is_fetched_with_pull(self):
        server, run = self.serve(), ("run", DEMO, "-p", "Anne", "-n", "4", "--quiet")
        result = self.call(*run, "--draft-model", server.url)
        self.assertEqual(result.returncode, 3)
        self.assertIn(f"sluice pull {server.url}", result.stderr)
        result = self.call(*run, "--draft-model", server.url, "--pull")
        self.assertEqual((result.stdout, result.returncode), (self.call(*run).stdout, 0), result.stderr)

    def test_a_gguf_file_is_a_model_and_a_single_file_too(self):
        server = self.serve({"tiny.gguf": GGUF.read_bytes()})
        self.expect_text(server.url + "tiny.gguf?key=1", GGUF, "--token-ids", "1,2,3")
        self.assertEqual(server.asked("config.json"), [])

    def test_a_transfer_goes_on_where_it_was_cut_if_the_contents_are_the_same(self):
        begun = [None, f"bytes={len(FILES[SHARD]) // 2}-"]
        for how, asked in (({}, begun), ({"ranges": False}, begun), ({"tag": None}, [None, None]), ({"tag": 'W/"1"'}, [None, None])):
            with self.subTest(how=how):
                server = self.serve(cut=1, **how)
                self.expect_text(server.url)
                self.assertEqual(server.asked(SHARD)[:2], asked)
        server = self.serve(cut=1, busy=1)
        self.expect_text(server.url)
        self.assertEqual(server.asked(SHARD), [*begun, begun[1]])
        server = self.serve(cut=1)
        server.files[SHARD] = bytes(len(FILES[SHARD]))

        def exchange():
            server.tag, server.files[SHARD] = '"2"', FILES[SHARD]

        server.on_cut = exchange
        self.expect_text(server.url)

    def test_a_process_that_ends_half_way_leaves_what_the_next_goes_on_from(self):
        for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, -signal.SIGINT)):
            with self.subTest(signal=number):
                server = self.serve(cut="hang")
                process = subprocess.Popen([SLUICE, "run", server.url, "-p", "Anne"], env=self.environment,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                server.half_sent.wait(HANGS)
                while not any(path.stat().st_size for path in (self.path / "cache").rglob(SHARD + ".incomplete")):
                    time.sleep(0.01)
                process.send_signal(number)
                process.communicate(timeout=HANGS)
                self.assertEqual(process.returncode, status)
                self.assertIn(f"{server.url}  (unfinished)", self.call("list").stdout)
                server.cut = 0
                server.go_on.set()
                self.expect_text(server.url)
                self.assertRegex(server.asked(SHARD)[-1], "bytes=[1-9]")

    def test_pull_fetches_what_has_changed(self):
        server = self.serve()
        self.assertEqual(self.call("pull", server.url, "--quiet").returncode, 0)
        server.files["generation_config.json"], server.tag = b"{}", '"2"'
        pulled = self.call("pull", server.url, "--json", "--quiet")
        self.assertEqual(pulled.returncode, 0, pulled.stderr)
        folder = json.loads(pulled.stdout)["path"]
        with open(os.path.join(folder, "generation_config.json"), "rb") as file:
            self.assertEqual(file.read(), b"{}")
        self.assertEqual([name for name in os.listdir(folder) if name.endswith(".incomplete")], [])
        self.expect_text(server.url)
        del server.files["generation_config.json"]
        self.assertEqual(self.call("pull", server.url, "--quiet").returncode, 0)
        self.assertNotIn("generation_config.json", os.listdir(folder))
        server.files.clear()
        self.assertEqual(self.call("pull", server.url, "--quiet").returncode, 3)
        self.expect_text(server.url)  # what is here is still a model

    def test_what_is_no_model_is_refused_in_one_sentence(self):
        outside = json.dumps({"weight_map": {"a": "../../b.safetensors"}}).encode()
        for files, mention in (({}, "none of config.json"), ({"config.json": b"{}"}, "none of model.safetensors.index.json"),
                               ({"config.json": b"{}", "model.safetensors.index.json": outside}, "refused without opening it"),
                               ({name: FILES[name] for name in FILES if name != SHARD}, SHARD)):
            server = self.serve(files)
            result = self.call("run", server.url, "-p", "Anne", "--quiet")
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertRegex(result.stderr, r"\Asluice: [^\n]*\n\Z")
            self.assertIn(mention, result.stderr)
        self.assertEqual(self.call("run", "http://name:word@127.0.0.1:1/m/", "-p", "Anne").returncode, 2)
        self.environment["HF_HUB_OFFLINE"] = "1"
        self.assertEqual(self.call("run", self.serve().url, "-p", "Anne").returncode, 2)


if __name__ == "__main__":
    import unittest
    unittest.main()
