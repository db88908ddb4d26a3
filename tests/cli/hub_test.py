"""Models by name: the hub's cache, and fetching into it from a server that has every fault."""

import fcntl
import json
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import termios

import containers
from hub import COMMIT, Hub, git_hash
from program import DEMO, HANGS, SLUICE, Case, sluice


def demo_files():
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
             "model.safetensors.index.json", *(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)))
    return {name: (DEMO / name).read_bytes() for name in names}


FILES = demo_files()


class HubTest(Case):
    def setUp(self):
        super().setUp()
        self.home = self.path / "home"
        self.environment = {**os.environ, "HF_HOME": str(self.home)}
        for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
            self.environment.pop(variable, None)
        self.repository = self.home / "hub/models--acme--tiny"

    def hub(self, files=None, **how):
        server = Hub(files if files is not None else FILES, **how)
        self.addCleanup(server.close)
        self.environment["HF_ENDPOINT"] = server.url
        return server

    def call(self, *args):
        return sluice(*args, env=self.environment)

    def pull(self, name="acme/tiny", *options):
        return self.call("pull", name, "--json", "--quiet", *options)

    def expect_whole(self, files=None):
        """The snapshot has these files, the cache nothing unfinished."""
        snapshot = self.repository / "snapshots" / COMMIT
        files = FILES if files is None else files
        found = {str(path.relative_to(snapshot)): path.read_bytes() for path in snapshot.rglob("*") if path.is_file()}
        self.assertEqual(found.keys(), files.keys())
        for name, data in files.items():
            self.assertEqual(found[name], data, name)
        self.assertEqual([p.name for p in (self.repository / "blobs").iterdir() if p.suffix == ".incomplete"], [])
        self.assertEqual((self.repository / "refs/main").read_text(), COMMIT)

    def test_a_model_is_fetched_listed_run_and_removed(self):
        hub = self.hub(FILES | {"README.md": b"read me", "onnx/model.safetensors": bytes(100_000)})
        result = self.pull()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.expect_whole()
        link = self.repository / "snapshots" / COMMIT / "config.json"
        self.assertEqual(os.readlink(link), f"../../blobs/{git_hash(FILES['config.json'])}")
        asked = len(hub.requests)
        self.assertEqual(self.pull().returncode, 0)
        self.assertEqual(len(hub.requests), asked, "what is here was fetched again")

        want = sluice("run", DEMO, "-p", "Anne", "-n", "4", "--quiet").stdout
        for name in ("acme/tiny", "acme/tiny@main", f"acme/tiny@{COMMIT}", "hf.co/acme/tiny", self.repository,
                     f"{self.repository}/"):
            result = self.call("run", name, "-p", "Anne", "-n", "4", "--quiet")
            self.assertEqual((result.stdout, result.returncode), (want, 0), f"{name}: {result.stderr}")
        listed = json.loads(self.call("list", "--json").stdout)["models"]
        self.assertEqual([(m["name"], m["state"]) for m in listed], [("acme/tiny", "complete")])
        self.assertEqual(json.loads(self.call("show", "acme/tiny", "--json").stdout)["commit"], COMMIT)
        self.assertEqual(self.call("rm", "acme/tiny").returncode, 0)
        self.assertFalse(self.repository.exists())

    def test_weights_of_every_container_are_fetched_and_found(self):
        tensors = {}
        for file in sorted(DEMO.glob("model*.safetensors")):
            tensors |= containers.read_safetensors(file)
        texts = {name: data for name, data in FILES.items() if name.endswith(".json") and "index" not in name}
        want = sluice("run", DEMO, "-p", "Anne", "-n", "2", "--quiet").stdout
        last = "pytorch_model-00002-of-00002.bin"
        folder = self.path / "weights"
        for write in (lambda: containers.write_torch(folder / "pytorch_model.bin", tensors),
                      lambda: self.write_torch_shards(folder, tensors),
                      lambda: containers.write_npz(folder / "model.npz", tensors),
                      lambda: containers.write_npcache(folder / "np", tensors),
                      lambda: containers.write_safetensors(folder / "consolidated.safetensors", tensors)):
            folder.mkdir()
            write()
            files = texts | {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            shutil.rmtree(folder)
            with self.subTest(weights=sorted(files.keys() - texts.keys())[0]):
                self.hub(files)
                self.assertEqual(self.pull().returncode, 0)
                self.expect_whole(files)
                self.assertEqual(json.loads(self.call("show", "acme/tiny", "--json").stdout)["state"], "complete")
                result = self.call("run", "acme/tiny", "-p", "Anne", "-n", "2", "--quiet")
                self.assertEqual((result.stdout, result.returncode), (want, 0), result.stderr)
                if last in files:
                    (self.repository / "snapshots" / COMMIT / last).unlink()
                    shown = json.loads(self.call("show", "acme/tiny", "--json").stdout)
                    self.assertEqual((shown["state"], shown["missing"]), ("unfinished", [last]))
                self.call("rm", "acme/tiny")

    @staticmethod
    def write_torch_shards(folder, tensors):
        weight_map = {}
        for i, names in enumerate((list(tensors)[::2], list(tensors)[1::2]), 1):
            file = f"pytorch_model-0000{i}-of-00002.bin"
            containers.write_torch(folder / file, {name: tensors[name] for name in names})
            weight_map |= dict.fromkeys(names, file)
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))

    def test_texts_need_no_weights(self):
        self.hub()
        self.assertEqual(self.pull("acme/tiny", "--include", "tokenizer*", "--include", "config.json").returncode, 0)
        result = self.call("tokenize", "acme/tiny", "--text", "Anne had")
        self.assertEqual((result.stdout, result.returncode), ("0,3892,370\n", 0), result.stderr)
        self.assertEqual(self.call("plan", "acme/tiny", "--load-format", "dummy").returncode, 0)
        result = self.call("run", "acme/tiny", "-p", "Anne")
        self.assertEqual(result.returncode, 3)
        self.assertIn("its weights are not here", result.stderr)

    def test_what_is_not_here_is_said_with_the_command_to_type(self):
        result = self.call("run", "acme/tiny", "-p", "Anne")
        self.assertEqual(result.returncode, 3)
        self.assertIn("sluice pull acme/tiny", result.stderr)
        self.hub()
        self.assertEqual(self.pull("acme/tiny", "--include", "*.json").returncode, 0)
        result = self.call("run", "acme/tiny", "-p", "Anne")
        self.assertEqual(result.returncode, 3)
        self.assertIn("sluice pull acme/tiny", result.stderr)
        self.assertEqual(json.loads(self.call("list", "--json").stdout)["models"][0]["state"], "unfinished")
        result = self.call("run", "acme/tiny", "--pull", "-p", "Anne", "-n", "4", "--quiet")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.expect_whole()

    def test_a_damaged_model_is_listed_and_can_be_removed(self):
        snapshot = self.repository / "snapshots" / COMMIT
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors.index.json").write_text("{")
        listed = json.loads(self.call("list", "--json").stdout)["models"]
        self.assertEqual([(m["name"], m["state"]) for m in listed], [(f"acme/tiny@{COMMIT}", "damaged")])
        result = self.call("run", f"acme/tiny@{COMMIT}", "-p", "Anne")
        self.assertEqual(result.returncode, 3)
        self.assertIn("model.safetensors.index.json: not valid JSON", result.stderr)
        self.assertEqual(self.call("rm", f"acme/tiny@{COMMIT}").returncode, 0)
        self.assertFalse(self.repository.exists())

    def test_a_name_without_an_owner_is_found_in_the_cache_alone(self):
        repository = self.repository.with_name("models--tiny")
        snapshot = repository / "snapshots" / COMMIT
        snapshot.parent.mkdir(parents=True)
        shutil.copytree(DEMO, snapshot)
        (repository / "refs").mkdir()
        (repository / "refs/main").write_text(COMMIT)
        self.assertEqual([m["name"] for m in json.loads(self.call("list", "--json").stdout)["models"]], ["tiny"])
        self.assertIn(COMMIT, self.call("show", "tiny").stdout)
        run = ("-p", "Anne", "-n", "4", "--quiet")
        self.assertEqual(self.call("run", "tiny", *run).stdout, self.call("run", DEMO, *run).stdout)
        self.assertEqual(self.call("run", "other", *run).returncode, 3)
        self.assertEqual(self.call("rm", "tiny").returncode, 0)
        self.assertFalse(repository.exists())

    def test_the_draft_model_is_fetched_too(self):
        self.hub()
        run = ("run", DEMO, "-p", "Anne", "-n", "4", "--quiet", "--draft-model", "acme/tiny")
        result = self.call(*run)
        self.assertEqual(result.returncode, 3)
        self.assertIn("sluice pull acme/tiny", result.stderr)
        result = self.call(*run, "--pull")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.expect_whole()
        self.assertEqual(result.stdout, self.call(*run).stdout)

    def test_faults_of_the_connection_cost_time_only(self):
        for fault in (500, 429, "reset", "too long", "too short", "other bytes"):
            with self.subTest(fault=fault):
                self.hub(faults=[fault])
                result = self.pull()
                self.assertEqual(result.returncode, 0, result.stderr)
                self.expect_whole()
                self.call("rm", "acme/tiny")
        self.hub(faults=[500])
        self.assertRegex(self.call("pull", "acme/tiny").stderr, r"model-\S+: status 500; trying again\n")

    def test_a_transfer_goes_on_where_it_was_cut(self):
        hub = self.hub(faults=["reset"])
        self.assertEqual(self.pull().returncode, 0)
        self.assertEqual(sum(asked is not None for _, asked in hub.requests), 1)
        self.expect_whole()
        self.call("rm", "acme/tiny")
        self.hub(faults=["reset"], ranges=False)  # a server that begins again
        self.assertEqual(self.pull().returncode, 0)
        self.expect_whole()

    def test_a_process_that_ends_half_way_leaves_what_the_next_goes_on_from(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(signal=number):
                hub = self.hub(faults=["hang"])
                process = subprocess.Popen([SLUICE, "pull", "acme/tiny", "--connections", "1"], env=self.environment,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                hub.half_sent.wait(HANGS)
                process.send_signal(number)
                _, said = process.communicate(timeout=HANGS)
                self.assertNotEqual(process.returncode, 0)
                self.assertNotIn("internal error", said)
                self.assertFalse((self.repository / "refs/main").exists())
                self.assertEqual(self.call("run", "acme/tiny", "-p", "Anne").returncode, 3)
                hub.go_on.set()
                self.assertEqual(self.pull().returncode, 0)
                self.expect_whole()
                self.call("rm", "acme/tiny")

    def test_progress_is_no_wider_than_the_terminal(self):
        columns = 60
        hub = self.hub(faults=["hang"])
        controller, terminal = pty.openpty()
        self.addCleanup(os.close, controller)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        process = subprocess.Popen([SLUICE, "pull", "acme/tiny", "--connections", "1"], env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=terminal)
        os.close(terminal)
        shown = b""
        while shown.count(b"\r") < 3:
            shown += os.read(controller, 4096)
        hub.go_on.set()
        self.assertEqual(process.wait(HANGS), 0)
        lines = [line.removeprefix("\x1b[K") for line in shown.decode().split("\r")]
        self.assertTrue(any(line.startswith("fetching [") for line in lines), shown)
        self.assertLess(max(map(len, lines)), columns)

    def test_waiting_for_the_hub_is_said(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            self.environment["HF_ENDPOINT"] = f"http://127.0.0.1:{closed.getsockname()[1]}"
            process = subprocess.Popen([SLUICE, "pull", "acme/tiny"], env=self.environment, text=True,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            said = process.stderr.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=HANGS)
        self.assertRegex(said, "^acme/tiny: .+; trying again$")

    def test_what_cannot_be_fetched_is_refused_in_one_sentence(self):
        hub = self.hub(token="secret")
        for status, mention, name in ((3, "HF_TOKEN", "acme/tiny"), (2, "ORG/NAME", "tiny")):
            result = self.pull(name)
            self.assertEqual(result.returncode, status, result.stderr)
            self.assertIn(mention, result.stderr)
        self.environment["HF_TOKEN"] = "secret"
        result = self.pull("acme/other")
        self.assertEqual(result.returncode, 3)
        self.assertIn("404", result.stderr)
        self.assertEqual(self.pull().returncode, 0)
        self.call("rm", "acme/tiny")
        # What huggingface-cli has stored, wherever the models are.
        del self.environment["HF_TOKEN"]
        (self.home / "token").write_text("secret\n")
        self.environment["HF_HUB_CACHE"] = str(self.path / "models")
        self.assertEqual(self.pull().returncode, 0)
        del self.environment["HF_HUB_CACHE"]
        self.assertEqual(hub.strangers, [], "the token went to another host")
        self.hub(faults=["other bytes", "other bytes"])
        result = self.pull("acme/tiny", "--connections", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("hash", result.stderr)
        self.hub().extra = 1
        result = self.pull("acme/tiny", "--connections", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("is shorter than the hub says", result.stderr)
        self.hub({"../../escape.json": b"{}"})
        result = self.pull()
        self.assertEqual(result.returncode, 3)
        self.assertIn("outside", result.stderr)
        self.hub({"a.json": b"{}", "a.json/b.json": b"{}"})  # which no disk can hold
        result = self.pull("acme/tiny", "--connections", "1")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"sluice: \S+a.json: Not a directory\n$")
        self.environment["HF_ENDPOINT"] = "ftp://localhost"
        result = self.pull()
        self.assertEqual(result.returncode, 2)
        self.assertIn("HF_ENDPOINT is ftp://localhost, but must begin with https://", result.stderr)
        self.environment["HF_HUB_OFFLINE"] = "1"
        self.assertEqual(self.pull().returncode, 2)

    def test_a_tag_chooses_a_gguf_file(self):
        files = {f"tiny-{tag}.gguf": tag.encode() * 40_000 for tag in ("Q4_K_M", "Q8_0")}
        files |= {f"tiny-BF16-0000{i}-of-00002.gguf": bytes([i]) * 100_000 for i in (1, 2)}
        self.hub(files | {"mmproj-F16.gguf": bytes(1000)})
        self.assertEqual(self.pull("acme/tiny:q8_0").returncode, 0)
        self.expect_whole({"tiny-Q8_0.gguf": files["tiny-Q8_0.gguf"]})
        self.assertEqual(self.pull("acme/tiny").returncode, 0)
        self.assertEqual(self.pull("acme/tiny:BF16").returncode, 0)
        self.expect_whole(files)
        result = self.pull("acme/tiny:Q2_K")
        self.assertEqual(result.returncode, 3)
        self.assertIn("acme/tiny:Q8_0", result.stderr)
        # An index of other weights is none of the file's.
        index = self.repository / "snapshots" / COMMIT / "model.safetensors.index.json"
        for text in (FILES[index.name], b"{"):
            index.write_bytes(text)
            self.assertIn("not a GGUF file", self.call("plan", "acme/tiny:Q8_0").stderr)

    def test_a_directory_of_gguf_files_is_one_of_them(self):
        for name in ("tiny-Q8_0.gguf", "tiny-BF16.gguf", "mmproj-F16.gguf"):
            (self.path / name).write_bytes(b"GGUF")
        result = self.call("plan", self.path)
        self.assertEqual(result.returncode, 3)
        self.assertIn("has 2 GGUF models; give one of its files: tiny-BF16.gguf, tiny-Q8_0.gguf", result.stderr)
        (self.path / "tiny-BF16.gguf").unlink()
        self.assertIn("tiny-Q8_0.gguf: ", self.call("plan", self.path).stderr)  # whose rest is missing
