"""What comes in is a stream: memory follows the budget, not the input, which may have no end."""

import json
import random
import struct
import subprocess
import unittest

from checkpoints import write_checkpoint
from program import DEMO, SANITIZED, SLUICE, Case, run_json, sluice, sluice_and_peak

NEED = "a sanitized process needs more memory than it plans"
BUDGET = "40MiB"


def text_of(size):
    words = (DEMO / "validation.txt").read_text().split(" ")
    rng = random.Random(1)
    text = ""
    while len(text) < size:
        text += " ".join(rng.choices(words, k=2000)) + " "
    return text[:size]


class InputTest(Case):
    def run_within(self, *args, **options):
        """Runs the program with BUDGET; its status, output and sentence, after a look at its peak."""
        result, self.peak = sluice_and_peak(*args, "--memory", BUDGET, **options)
        self.assertLessEqual(self.peak, 40 << 20, result.stderr)
        return result.returncode, result.stdout, result.stderr

    def endless(self, command):
        source = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(source.wait)
        self.addCleanup(source.kill)
        self.addCleanup(source.stdout.close)
        return source.stdout

    @unittest.skipIf(SANITIZED, NEED)
    def test_a_long_text_is_evaluated_within_the_budget(self):
        model = write_checkpoint(self.path / "model")
        vocabulary = json.loads((DEMO / "tokenizer.json").read_text())["model"]["vocab"]
        words = sorted((t.replace("\u0120", " ") for t in vocabulary if t.startswith("\u0120")),
                       key=len)[-50:]  # few tokens for much text
        peaks = []
        for size in (30_000, 2_500_000):
            (self.path / "text").write_text("".join(words) * (size // len("".join(words))))
            ids = len(sluice("tokenize", model, "--file", self.path / "text").stdout.split(","))
            status, out, err = self.run_within("eval", model, "--text", self.path / "text", "--json")
            self.assertEqual(status, 0, err)
            self.assertEqual(json.loads(out)["tokens"], ids - (ids + 1023) // 1024)
            peaks.append(self.peak)
        self.assertLess(peaks[1] - peaks[0], 2 << 20)  # of a text that is held as a whole, 10 MiB

    def test_a_text_has_the_perplexity_of_its_windows(self):
        model = write_checkpoint(self.path / "model")
        options = ["eval", model, "--max-model-len", "64", "--text"]
        (self.path / "text").write_text(text_of(40_000))
        whole = run_json(*options, self.path / "text")
        with open(self.path / "text") as text:  # and of a pipe
            piped = subprocess.run([SLUICE, *map(str, options), "-", "--json", "--quiet"], stdin=self.endless(
                f"cat {self.path / 'text'}"), capture_output=True, text=True)
        self.assertEqual(json.loads(piped.stdout)["perplexity"], whole["perplexity"])

    @unittest.skipIf(SANITIZED, NEED)
    def test_a_prompt_that_is_too_long_is_not_read_to_its_end(self):
        (self.path / "text").write_text(text_of(8_000_000))
        status, _, err = self.run_within("run", DEMO, "--prompt-file", self.path / "text", "-n", "2")
        self.assertEqual(status, 2, err)
        self.assertIn("--max-model-len", err)
        status, _, err = self.run_within("run", DEMO, "--prompt-file", "-", "-n", "2", stdin=self.endless("yes"))
        self.assertEqual(status, 2, err)

    @unittest.skipIf(SANITIZED, NEED)
    def test_a_word_without_end_does_not_fit(self):
        for verb in (["run", DEMO, "-n", "2", "--prompt-file"], ["eval", DEMO, "--text"]):
            status, _, err = self.run_within(*verb, "-", stdin=self.endless("yes x | tr -d '\\n'"))
            self.assertEqual(status, 4, err)
            self.assertIn("a word", err)

    def test_devices_are_refused(self):
        for device in ("/dev/zero", "/dev/urandom"):
            for verb in (["run", DEMO, "-n", "2", "--prompt-file"], ["eval", DEMO, "--text"], ["tokenize", DEMO, "--file"],
                         ["tokenize", DEMO, "--jsonl"], ["detokenize", DEMO, "--jsonl"],
                         ["logits", DEMO, "--out", self.path / "out", "--token-ids"]):
                self.assert_fails(3, "is a device", *verb, device)
        with open("/dev/zero") as zero:
            self.assert_fails(3, "is a device", "tokenize", DEMO, "--file", "-", stdin=zero)
        self.assertEqual(run_json("tokenize", DEMO, "--file", "/dev/null")["ids"], [0])
        self.assert_fails(2, "Is a directory", "eval", DEMO, "--text", self.path)
        self.assert_fails(2, "No such file", "eval", DEMO, "--text", self.path / "absent")

    def test_tokenize_prints_ids_as_they_come(self):
        text = text_of(100_000)
        (self.path / "text").write_text(text)
        ids = run_json("tokenize", DEMO, "--file", self.path / "text")["ids"]
        self.assertEqual(ids, list(map(int, sluice("tokenize", DEMO, "--file", self.path / "text").stdout.split(","))))
        self.assertEqual(run_json("tokenize", DEMO, "--text", text)["ids"], ids)
        process = subprocess.Popen([SLUICE, "tokenize", DEMO, "--jsonl", "-"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        for _ in range(3):  # each is answered before the next is there
            process.stdin.write('{"text": "Anne had"}\n')
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["ids"][0], 0)
        process.communicate()
        (self.path / "lines").write_text('{"text": "x"}\n' + "x" * (17 << 20))
        self.assert_fails(3, "line 2: is longer than", "tokenize", DEMO, "--jsonl", self.path / "lines")

    @unittest.skipIf(SANITIZED, NEED)
    def test_logits_leave_as_they_come(self):
        model = write_checkpoint(self.path / "model")
        rng = random.Random(1)
        lists = [[rng.randrange(4096) for _ in range(rng.randrange(1, 300))] for _ in range(25)]
        (self.path / "ids").write_text(json.dumps(lists))
        status, out, err = self.run_within("logits", model, "--token-ids", self.path / "ids", "--out", self.path / "all", "--json")
        self.assertEqual(status, 0, err)
        (self.path / "ids").write_text(json.dumps(lists[-1]))  # one list, without the list around it
        alone = run_json("logits", model, "--token-ids", self.path / "ids", "--out", self.path / "last")
        self.assertEqual(json.loads(out)["logits_hash"], alone["logits_hash"])
        stored = (self.path / "all").read_bytes()
        size = struct.unpack("<Q", stored[:8])[0]
        header = json.loads(stored[8:8 + size])
        begin, end = header["logits.24"]["data_offsets"]
        self.assertEqual(header["logits.24"]["shape"], [len(lists[-1]), 4096])
        self.assertEqual(8 + size + end, len(stored))
        self.assertEqual(stored[8 + size + begin:], (self.path / "last").read_bytes()[-(end - begin):])

    def test_lists_of_token_ids_that_are_none(self):
        def fails(status, mention, text):
            (self.path / "ids").write_text(text)
            self.assert_fails(status, mention, "logits", DEMO, "--token-ids", self.path / "ids", "--out", self.path / "out",
                              "--max-model-len", "4")
        fails(2, "list of lists", "[]")
        fails(2, "list of lists", '{"a": 1}')
        fails(2, "list 1 is empty", "[[1], []]")
        for value in ("-1", "1.5", "1e3", '"1"', "null", "3000000000", "[1]", "NaN"):
            fails(2, "list 0 holds something that is not a token id", f"[[2, {value}]]")
        fails(2, "list 1 has more than 4 tokens", "[[1], [1, 2, 3, 4, 5" + ", 1" * 1000)
        fails(2, "4096", "[[4096]]")
        for text in ("", "[[1", "[[1,]]", "[[1]", "[[1]] 2", "x", "[[01]]", "[[1 2]]", "[[1],]"):
            fails(3, "not valid JSON", text)
