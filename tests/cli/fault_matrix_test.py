"""Every verb, beside every fault from outside: a documented status, one sentence, nothing half or foreign in an output."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from checkpoints import write_checkpoint
from program import DEMO, HANGS, SANITIZED, SLUICE, Case, in_turn, run_json, sluice
from system_test import start

# OUT is the file of an output option, as the words in capitals below are files of the test's folder.
VERBS = {
    "run": ("run MODEL --token-ids 5,6,7,8,9,5,6,7,8,9,5,6,7,8,9,5,6,7,8,9 -n 3", {"--report": "json", "--prompt-cache": "cache"}, {"--prompt-file": "run MODEL -n 3", "--messages": "run MODEL -n 3 --chat-template TEMPLATE"}),
    "batch": ("batch MODEL -i REQUESTS", {"-o": "lines", "--report": "json"}, {"-i": "batch MODEL -o OUT"}),
    "plan": ("plan MODEL", {"--report": "json"}, {}),
    "inspect": ("inspect MODEL", {}, {}),
    "logits": ("logits MODEL --token-ids IDS", {"--out": "logits", "--report": "json"},
               {"--token-ids": "logits MODEL --out OUT"}),
    "eval": ("eval MODEL --text TEXT", {"--report": "json"}, {"--text": "eval MODEL"}),
    "tokenize": ("tokenize MODEL --text Anne", {}, {"--file": "tokenize MODEL", "--jsonl": "tokenize MODEL"}),
    "detokenize": ("detokenize MODEL --ids 5,6,7", {}, {"--jsonl": "detokenize MODEL"}),
    "render": ("render MODEL --messages CHAT --chat-template TEMPLATE", {},
               {"--messages": "render MODEL --chat-template TEMPLATE", "--jsonl": "render MODEL --chat-template TEMPLATE",
                "--chat-template": "render MODEL --messages CHAT",
                "--tools": "render MODEL --messages CHAT --chat-template TEMPLATE"}),
    "report": ("report REPORT", {"--html": "html", "--trace": "json"}, {"report": "report"}),
    "spill": ("spill --spill-dir SPILL", {}, {}),
    "bench": ("bench load MODEL", {"--report": "json"}, {}),
    "docs": ("docs man", {}, {}),
}
NEEDED = {"batch": ("-o", "/dev/null"), "logits": ("--out", "/dev/null")}  # the verb is not called without


def is_whole(kind, data):
    if kind == "json":
        return isinstance(json.loads(data), dict)
    if kind == "lines":
        return data.endswith(b"\n") and all(isinstance(json.loads(line), dict) for line in data.splitlines())
    if kind == "html":
        return data.rstrip().endswith(b"</html>")
    return len(data) > 16_000 if kind == "logits" else len(data) > 0


class FaultMatrixTest(Case):
    printing = {}  # what prints() has found

    def setUp(self):
        super().setUp()
        self.model = write_checkpoint(self.path / "MODEL", num_hidden_layers=2)
        (self.path / "SPILL").mkdir()
        (self.path / "TEXT").write_text("It is a truth " * 20)
        (self.path / "CHAT").write_text('[{"role": "user", "content": "It is"}]')
        (self.path / "TEMPLATE").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        (self.path / "IDS").write_text("[[1, 2, 3], [4]]")
        request = {"method": "POST", "url": "/v1/completions", "body": {"prompt": [5, 6], "max_tokens": 2}}
        (self.path / "REQUESTS").write_text("".join(json.dumps({"custom_id": str(i), **request}) + "\n" for i in range(3)))
        run_json("run", self.model, "-p", "x", "-n", "1", "--report", self.path / "REPORT")
        self.before = set(os.listdir(self.path))

    def words(self, line):
        """The words of a command, those in capitals as paths."""
        return [str(self.path / w) if w.isupper() else w for w in line.split()]

    def commands(self):
        """Each verb, with each of its outputs: the words, the option or None, and what the file must be."""
        for verb, (line, outputs, _) in VERBS.items():
            words = self.words(line)
            if verb not in NEEDED:
                yield [*words], None, None
            for option, kind in outputs.items():
                needed = NEEDED.get(verb, ())
                yield [*words, *(() if option in needed else needed)], option, kind

    def call(self, words, *, closed="", limit=None, **options):
        """Runs with descriptors closed, files limited in size."""
        def limits():
            resource.setrlimit(resource.RLIMIT_CPU, (HANGS, HANGS))
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        command = ["/bin/sh", "-c", f'exec "$0" "$@" {closed}', SLUICE, *map(str, words)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
        return subprocess.run(command, text=True, errors="replace", timeout=HANGS, preexec_fn=limits, **streams)

    def check(self, result, statuses, said=True):
        self.assertIn(result.returncode, statuses, result.stderr)
        if result.returncode and said:
            lines = result.stderr.splitlines()
            self.assertTrue(lines and lines[-1].startswith("sluice: "), result.stderr)
            self.assertEqual(sum(line.startswith("sluice: ") and "warning" not in line for line in lines), 1, result.stderr)
            self.assertNotIn("internal error", result.stderr)

    def prints(self, words, option):
        """Whether the command prints a result. It is called once in all, without a fault: that is no warning either."""
        if (words[0], option) not in self.printing:
            result = self.call([*words, *([option, self.path / "OUT"] if option else [])])
            self.assertEqual((result.returncode, result.stderr.count("warning")), (0, 0), result.stderr)
            (self.path / "OUT").unlink(missing_ok=True)
            self.printing[words[0], option] = bool(result.stdout)
        return self.printing[words[0], option]

    def nothing_left(self, *expected):
        self.assertEqual(set(os.listdir(self.path)) - self.before - set(expected), set())

    def test_closed_descriptors(self):
        for turn, (words, option, kind) in enumerate(self.commands()):
            out = self.path / "OUT"
            prints = self.prints(words, option)
            for closed in in_turn(("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"), turn):
                with self.subTest(words=words[:3], option=option, closed=closed):
                    result = self.call([*words, *([option, out] if option else [])], closed=closed)
                    self.check(result, {1} if "1>" in closed and prints else {0}, said="2>" not in closed)
                    if option and (result.returncode == 0 or out.exists()):
                        self.assertTrue(is_whole(kind, out.read_bytes()))
                        out.unlink()
                    self.nothing_left()

    def test_full_outputs(self):
        full = self.path / "FULL"
        full.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", full], capture_output=True).returncode == 0
        if mounted:
            self.addCleanup(subprocess.run, ["umount", full], check=True)
        self.before.add("FULL")
        for turn, (words, option, kind) in enumerate(self.commands()):
            prints = self.prints(words, option)
            with self.subTest(words=words[:3], option=option), open("/dev/full", "w") as device:
                result = self.call([*words, *([option, self.path / "OUT"] if option else [])], stdout=device)
                self.check(result, {1} if prints else {0})
                if (self.path / "OUT").exists():
                    self.assertTrue(is_whole(kind, (self.path / "OUT").read_bytes()))
                    (self.path / "OUT").unlink()
                self.nothing_left()
            if not option:
                continue
            statuses = {0, 1} if kind == "cache" else {1}  # a run can do without
            with self.subTest(words=words[:3], device=option):
                self.check(self.call([*words, option, "/dev/full"]), {1, 3} if kind == "cache" else {1})
            faults = [(there, disk) for there in (None, "what was there") for disk in ((False, True) if mounted else (False,))]
            for there, disk in in_turn(faults, turn):
                with self.subTest(words=words[:3], option=option, there=there, disk=disk):
                    if disk:
                        shutil.rmtree(full / "x", ignore_errors=True)
                        (full / "x").mkdir()
                        self.check_limited(words, option, kind, there, statuses, full / "x" / "OUT", fill=full / "x" / "fill")
                    else:
                        self.check_limited(words, option, kind, there, statuses, self.path / "OUT", limit=100)

    def test_disks_without_room_for_spill_and_swap(self):
        """A process goes on without a spill file; swap space is taken at the start."""
        run = self.words("run MODEL --token-ids 5,6,7 -n 3 --json --quiet --place layers.*=disk --quantization fp8 --spill-dir")
        body = {"prompt": list(range(5, 69)), "max_tokens": 60, "temperature": 0, "ignore_eos": True}
        (self.path / "REQUESTS").write_text("".join(json.dumps({
            "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n" for i in range(8)))
        batch = self.words("batch MODEL -i REQUESTS -o - --quiet --kv-cache-memory 128KiB --swap-limit 1MiB --swap-dir")
        for command in (run, batch):
            results = set()
            for limit in (None, 100, 100_000):
                with self.subTest(verb=command[0], limit=limit):
                    shutil.rmtree(self.path / "DISK", ignore_errors=True)
                    (self.path / "DISK").mkdir()
                    result = self.call([*command, self.path / "DISK"], limit=limit)
                    self.check(result, {1} if limit and command is batch else {0})
                    if limit != 100_000 or command is batch:
                        self.assertEqual(bool(os.listdir(self.path / "DISK")), limit is None and command is run)
                    self.nothing_left("DISK")
                    if result.returncode:
                        self.assertEqual(result.stdout, "")
                        continue
                    found = json.loads(result.stdout)["logits_hash"] if command is run else sorted(
                        str(json.loads(line)["response"]["body"]["choices"]) for line in result.stdout.splitlines())
                    results.add(str(found))
            self.assertEqual(len(results), 1)

    def check_limited(self, words, option, kind, there, statuses, out, limit=None, fill=None):
        out.unlink(missing_ok=True)
        if there and kind not in ("lines", "cache"):  # these are gone on with
            out.write_text(there)
        if fill:
            with open(fill, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
        beside = set(os.listdir(out.parent)) | {"OUT"}
        self.check(self.call([*words, option, out], limit=limit), statuses)
        self.assertEqual(set(os.listdir(out.parent)) - beside, set())
        if out.exists():
            if kind == "lines":
                self.assertTrue(all(json.loads(line) for line in out.read_text().split("\n")[:-1]))
            elif kind != "cache":
                self.assertEqual(out.read_text(), there)
            out.unlink()

    def test_few_threads(self):
        if SANITIZED:  # a sanitizer has a pthread_create of its own
            return
        for words, option, kind in self.commands():
            for threads in range(4):
                with self.subTest(words=words[:3], option=option, threads=threads):
                    environment = {**os.environ, "LD_PRELOAD": os.environ["SLUICE_FEW_THREADS"], "FEW_THREADS": str(threads)}
                    out = self.path / "OUT"
                    result = self.call([*words, *([option, out] if option else [])], env=environment)
                    self.check(result, {0, 1})
                    if result.returncode:
                        self.assertIn("cannot start thread", result.stderr)
                    if out.exists():
                        self.assertTrue(result.returncode == 0 or kind == "lines")
                        out.unlink()
                    self.nothing_left()

    def test_few_descriptors(self):
        if SANITIZED:  # a sanitizer has some of its own
            return
        def limits():
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        for descriptors in range(4, 10):
            for line in ("run MODEL --token-ids 5,6 -n 1", "plan MODEL"):
                with self.subTest(line=line, descriptors=descriptors):
                    result = subprocess.run([SLUICE, *self.words(line)], capture_output=True, text=True, timeout=HANGS, preexec_fn=limits)
                    self.check(result, {0, 1})

    def hostile(self, path, kind):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        {"device": lambda: path.symlink_to("/dev/zero"), "directory": path.mkdir, "absent": lambda: None,
         "fifo": lambda: os.mkfifo(path), "ring": lambda: path.symlink_to(path.name)}[kind]()

    def ended(self, words):
        """What becomes of a process that may wait, and is sent a SIGTERM then."""
        process = start(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = process.communicate(timeout=0.1)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                out, err = process.communicate(timeout=HANGS)
            finally:
                process.kill()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def test_inputs_that_are_no_files(self):
        for verb, (_, _, inputs) in VERBS.items():
            for turn, (option, line) in enumerate(inputs.items(), len(verb)):
                for kind in in_turn(("device", "directory", "absent", "fifo", "ring"), turn):
                    with self.subTest(verb=verb, option=option, kind=kind):
                        self.hostile(self.path / "IN", kind)
                        words = [*self.words(line), *([] if verb == option else [option]), self.path / "IN"]
                        result = self.ended(words) if kind == "fifo" else self.call(words)
                        self.check(result, {"fifo": {-signal.SIGTERM, 3}, "device": {3}}.get(kind, {2, 3}),
                                   said=result.returncode > 0)
                        self.assertEqual(result.stdout, "")
                        self.nothing_left("IN")

    def test_parts_of_a_model_that_are_no_files(self):
        self.before.add("BROKEN")
        for turn, part in enumerate(("config.json", "tokenizer.json", "model.safetensors", "generation_config.json")):
            for kind in in_turn(("device", "directory", "fifo", "ring"), turn):
                shutil.rmtree(self.path / "BROKEN", ignore_errors=True)
                shutil.copytree(self.model, self.path / "BROKEN")
                self.hostile(self.path / "BROKEN" / part, kind)
                for line in ("run BROKEN --token-ids 1,2 -n 2", "run BROKEN -p Anne -n 1", "plan BROKEN", "inspect BROKEN",
                             "tokenize BROKEN --text x", "bench disk BROKEN"):
                    if line.startswith("bench") and part != "model.safetensors":
                        continue  # reads weights only
                    with self.subTest(part=part, kind=kind, line=line):
                        self.check(self.call(self.words(line)), {0, 2, 3})
                        self.nothing_left()


class ChangingFilesTest(Case):
    """Files that are cut, written over or removed while they are read for every pass."""

    def setUp(self):
        super().setUp()
        self.model = write_checkpoint(self.path / "model", num_hidden_layers=4, hidden_size=128, intermediate_size=256)
        self.spill = self.path / "spill"
        self.out = self.path / "out"
        (self.path / "ids").write_text(json.dumps([[i, 5] for i in range(3, 1003)]))
        line = {"method": "POST", "url": "/v1/completions", "body": {"prompt": [5, 6], "max_tokens": 40, "ignore_eos": True}}
        (self.path / "requests").write_text("".join(json.dumps({"custom_id": str(i), **line}) + "\n" for i in range(100)))

    def commands(self):
        common = [self.model, "--reader", "pread", "--place", "layers.*=disk", "--json", "--quiet", "--kernels", "portable"]
        yield ["run", *common, "--token-ids", "1,2,3", "--ignore-eos", "--speculation", "none", "-n", "1000"]
        yield ["eval", *common, "--text", DEMO / "validation.txt", "--max-model-len", "16"]
        yield ["logits", *common, "--token-ids", self.path / "ids", "--out", self.out]
        yield ["batch", *common, "-i", self.path / "requests", "-o", self.out, "--max-num-seqs", "1"]

    def await_read(self, process, size):
        """Until it has read so much."""
        while True:
            self.assertIsNone(process.poll(), "ends before the file is changed")
            with open(f"/proc/{process.pid}/io") as text:
                read = int(re.search(r"rchar: (\d+)", text.read())[1])
            if read > size:
                return read
            time.sleep(0.002)

    def changed(self, command, file, change, end=False):
        """The result of a process whose file changes when it has been read a few times; it is ended when it goes on."""
        size = file.stat().st_size
        process = start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        read = self.await_read(process, 4 * size + (8 << 20))
        change(file)
        if end:
            self.await_read(process, read + 4 * size)
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANGS)
        return process.returncode, out, err

    @staticmethod
    def cut(file):
        os.truncate(file, file.stat().st_size // 2)

    @staticmethod
    def write_over(file):
        with file.open("r+b") as opened:
            opened.seek(file.stat().st_size // 3)
            opened.write(os.urandom(file.stat().st_size // 2))

    def test_a_checkpoint(self):
        file = self.model / "model.safetensors"
        whole = file.read_bytes()
        for turn, command in enumerate(self.commands()):
            for change in in_turn((self.cut, self.write_over, os.unlink), turn):
                with self.subTest(verb=command[0], change=change.__name__):
                    file.write_bytes(whole)
                    self.out.unlink(missing_ok=True)
                    status, out, err = self.changed(command, file, change, end=change == os.unlink)
                    self.assertEqual((status, out), (-signal.SIGTERM if change == os.unlink else 1, ""), err)
                    if status == 1:
                        self.assertRegex(err, r"\Asluice: .*(changed while|has changed since).*\n\Z")
                    if command[0] != "batch":
                        self.assertFalse(self.out.exists())

    def test_a_spill_file(self):
        (command, *_) = self.commands()
        command = [*command[:-2], "--quantization", "fp8", "--spill-dir", self.spill, "-n", "300"]
        want = json.loads(sluice(*command).stdout)["logits_hash"]
        for change in (self.cut, self.write_over, os.unlink):
            with self.subTest(change=change.__name__):
                sluice(*command[:-1], "1")  # fills it again
                (file,) = self.spill.iterdir()
                status, out, err = self.changed(command, file, change)
                self.assertEqual((status, err.count("internal")), (0, 0), err)
                self.assertEqual(json.loads(out)["logits_hash"], want)
