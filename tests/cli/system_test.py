"""The program at the edges of the system: signals, limits, full disks, closed descriptors, help."""

import array
import fcntl
import json
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest

from program import DEMO, HANGS, SANITIZED, SLOW, SLUICE, Case, run_json, sluice


def start(*args, **options):
    """A process that has begun to look after signals."""
    process = subprocess.Popen([SLUICE, *map(str, args)], **options)
    while True:
        with open(f"/proc/{process.pid}/status") as status:
            blocked = re.search(r"SigBlk:\s*([0-9a-f]+)", status.read())
        if process.poll() is not None or (blocked and int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1):
            return process
        time.sleep(0.002)


def read_all(controller):
    """What a process writes to its terminal."""
    text = b""
    with os.fdopen(controller, "rb", buffering=0) as terminal:
        try:
            while piece := terminal.read(4096):
                text += piece
        except OSError:  # all have closed it
            pass
    return text.decode()


class SignalTest(Case):
    def assert_ends(self, process, by):
        process.send_signal(by)
        try:
            process.wait(timeout=HANGS)
        finally:
            process.kill()
        self.assertEqual(process.returncode, -by)

    def test_waiting_for_input_ends_at_one_signal(self):
        os.mkfifo(self.path / "fifo")  # that nobody writes to
        for by, args in ((signal.SIGINT, ("run", DEMO, "--prompt-file", "-", "-n", "1")),
                         (signal.SIGTERM, ("run", DEMO, "--prompt-file", self.path / "fifo")),
                         (signal.SIGTERM, ("tokenize", DEMO, "--file", "-")),
                         (signal.SIGINT, ("detokenize", DEMO, "--jsonl", "/dev/stdin")),
                         (signal.SIGTERM, ("logits", DEMO, "--token-ids", "-", "--out", self.path / "l")),
                         (signal.SIGTERM, ("eval", DEMO, "--text", "/dev/zero"))):
            with self.subTest(args):
                read, write = os.pipe()
                with os.fdopen(write, "wb"), os.fdopen(read, "rb") as stdin:
                    process = start(*args, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    self.assert_ends(process, by)

    def test_a_fifo_is_opened_once_and_waited_for(self):
        os.mkfifo(self.path / "fifo")
        run = ("run", DEMO, "-p", "x", "-n", "1", "--quiet", "--report", self.path / "fifo")
        process = start(*run, stdout=subprocess.PIPE)
        process.stdout.readline()  # comes before the report
        self.assert_ends(process, signal.SIGTERM)
        process.stdout.close()

    def test_the_reader_of_a_fifo_gets_the_whole(self):
        os.mkfifo(self.path / "fifo")
        for args in (("run", DEMO, "-p", "x", "-n", "1", "--quiet", "--report", self.path / "fifo"),
                     ("logits", DEMO, "--token-ids", self.path / "ids", "--quiet", "--out", self.path / "fifo")):
            (self.path / "ids").write_text("[1, 2]")
            reader = subprocess.Popen(["cat", self.path / "fifo"], stdout=subprocess.PIPE)
            self.assertEqual(sluice(*args).returncode, 0)
            got = reader.communicate(timeout=HANGS)[0]
            if args[0] == "run":
                self.assertEqual(json.loads(got)["verb"], "run")
            else:
                self.assertIn(b"logits.0", got[:1000])

    def test_a_reader_of_the_result_that_stopped_reading(self):
        (self.path / "in").write_text('{"text": "And it came to pass"}\n' * 4000)
        process = start("tokenize", DEMO, "--jsonl", self.path / "in", stdout=subprocess.PIPE)
        held = array.array("i", [0])
        while held[0] < 60_000:  # the pipe is about full
            self.assertIsNone(process.poll())
            time.sleep(0.002)
            fcntl.ioctl(process.stdout, termios.FIONREAD, held)
        self.assert_ends(process, signal.SIGTERM)
        process.stdout.close()

    def test_a_second_signal_ends_as_that_signal(self):
        process = start("eval", DEMO, "--text", DEMO / "validation.txt", "--threads", "1", *SLOW,
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.25)
        self.assert_ends(process, signal.SIGTERM)


class LimitsTest(Case):
    @unittest.skipIf(SANITIZED, "a sanitizer has a pthread_create of its own")
    def test_too_few_threads_are_one_sentence(self):
        os.mkdir(self.path / "swap")
        plan = ("plan", DEMO, "--quantization", "fp8", "--prompt-tokens", "2", "-n", "3")
        smallest = run_json(*plan)["smallest"]["memory"]
        plain = ("run", DEMO, "--token-ids", "1,2", "-n", "3", "--threads", "3")
        for args in ((*plain, "--quiet"),
                     (*plain, "--quantization", "fp8", "--memory", smallest + (1 << 20), "--reader", "pread",
                      "--spill-dir", "none", "--swap-dir", self.path / "swap", "--swap-limit", "8MiB")):
            failed = 0
            for threads in range(40):
                environment = {**os.environ, "LD_PRELOAD": os.environ["SLUICE_FEW_THREADS"],
                               "FEW_THREADS": str(threads)}
                result = sluice(*args, env=environment)
                if result.returncode == 0:
                    break
                failed += 1
                self.assertEqual(result.returncode, 1, f"{threads} threads: {result.stderr}")
                self.assertRegex(result.stderr.splitlines()[-1], r"^sluice: cannot start thread \d+ of \d+ for "
                                 r".*--threads.*ulimit -u, pids.max")
            self.assertEqual(result.returncode, 0)
            self.assertGreater(failed, 3)
            self.assertEqual(list((self.path / "swap").iterdir()), [])

    def test_a_limit_on_the_size_of_files_is_an_error_of_the_write(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

        def limited(*args):
            return subprocess.run([SLUICE, *map(str, args)], capture_output=True, text=True, preexec_fn=limit)

        report = self.path / "r.json"
        run_json("run", DEMO, "-p", "x", "-n", "1", "--report", report)
        whole = report.read_text()
        (self.path / "ids").write_text("[1, 2]")
        for option, args in (("--report", ("run", DEMO, "-p", "x", "-n", "1", "--report", self.path / "new")),
                             ("--report", ("run", DEMO, "-p", "x", "-n", "1", "--report", report)),
                             ("--html", ("report", report, "--html", self.path / "new")),
                             ("--trace", ("report", report, "--trace", self.path / "new")),
                             ("new", ("logits", DEMO, "--token-ids", self.path / "ids", "--out", self.path / "new"))):
            with self.subTest(args):
                result = limited(*args)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertRegex(result.stderr.splitlines()[-1], f"^sluice: .*{option}.*File too large$")
                self.assertEqual(report.read_text(), whole)
                self.assertEqual(sorted(f.name for f in self.path.iterdir()), ["ids", "r.json"])

    def test_help_and_version_on_a_full_disk(self):
        for args in (("--help",), ("--version",), ("run", "--help"), ("docs", "man")):
            with open("/dev/full", "w") as full:
                result = subprocess.run([SLUICE, *args], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "^sluice: cannot write the result.*No space left on device\n$")

    def closed(self, descriptors, *args):
        return subprocess.run(["bash", "-c", f'"$0" "$@" {descriptors}', SLUICE, *map(str, args)],
                              capture_output=True, text=True, timeout=HANGS)

    def test_closed_descriptors(self):
        run = ("run", DEMO, "-p", "Anne", "-n", "3")
        self.assertEqual(self.closed("0<&- 1>&- 2>&-", *run).returncode, 1)
        without = self.closed("1>&-", *run, "--quiet")
        self.assertEqual(without.returncode, 1)
        self.assertIn("standard output", without.stderr)
        report = self.path / "r.json"
        self.assertEqual(self.closed("0<&- 2>&-", *run, "--report", report).returncode, 0)
        self.assertEqual(json.loads(report.read_text())["verb"], "run")
        out = self.path / "out"
        (self.path / "in").write_text(json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/completions",
                                                  "body": {"prompt": "x", "max_tokens": 2}}) + "\n")
        self.assertEqual(self.closed("2>&-", "batch", DEMO, "-i", self.path / "in", "-o", out).returncode, 0)
        for line in out.read_text().splitlines():
            json.loads(line)

    def test_a_full_stderr_is_no_fault(self):
        for args, status in ((("run", DEMO, "-p", "x", "-n", "1"), 0), (("run", DEMO), 2)):
            with open("/dev/full", "w") as full:
                result = subprocess.run([SLUICE, *map(str, args)], stdout=subprocess.DEVNULL, stderr=full)
            self.assertEqual(result.returncode, status)


class SchedulerTest(Case):
    def test_the_slice_is_asked_for_where_weights_stream(self):
        none = {"slice": 0, "in_force": False}
        run = ("run", DEMO, "-p", "x", "-n", "1")
        self.assertEqual(run_json(*run)["scheduler"], none)
        streamed = (*run, "--place", "model.layers.0.*=disk")
        self.assertAlmostEqual(run_json(*streamed)["scheduler"]["slice"], 1e-4)
        self.assertEqual(run_json(*streamed, "--scheduler-slice", "0")["scheduler"], none)
        for value in ("99", "100001", "-1"):
            self.assert_fails(2, "must be 0, or 100 to 100000 microseconds", *run, f"--scheduler-slice={value}")


class MessagesTest(Case):
    UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

    def stderr_of(self, *args):
        result = subprocess.run([SLUICE, *args], capture_output=True, timeout=HANGS)
        self.assertIn(result.returncode, (2, 3))
        text = result.stderr.decode()  # is UTF-8
        self.assertIsNone(self.UNSEEN.search(text), ascii(text))
        return text

    def test_files_cannot_turn_a_line_around(self):
        shutil.copytree(DEMO, self.path / "m")
        config = json.loads((DEMO / "config.json").read_text())
        for text in ("X\u202ex", "\u2066y\u2069", "\u2028", "\u200f\ufeff", "\x1b[31m"):
            (self.path / "m/config.json").write_text(json.dumps({**config, "architectures": [text], "model_type": text}))
            self.stderr_of("run", str(self.path / "m"), "-p", "a")

    def test_arguments_cannot_either(self):
        for argument in (b"--\x1b[31mopt", "--\u202eopt".encode(), b"--\xffopt", b"--reader=\xff\x1b[0m"):
            self.assertIn("?", self.stderr_of(b"run", os.fsencode(DEMO), b"-p", b"a", argument))
        self.assertIn("?", self.stderr_of(b"run", b"nowhere-\xff", b"-p", b"a"))
        self.assertIn("?", self.stderr_of(b"\xe2\x80\xaerun"))


class HelpTest(Case):
    def test_without_a_verb(self):
        result = sluice()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        for line in ("\n  run  ", "\n  batch  ", "\n  sluice run MODEL -p", "\nsluice: give a command"):
            self.assertIn(line, result.stderr)
        self.assertNotIn("docs", result.stderr)

    def test_options_have_groups_and_sentences(self):
        text = sluice("run", "--help").stdout
        groups = re.findall(r"^(\w+):$", text, re.MULTILINE)
        self.assertEqual(groups[:7], ["Options", "Model", "Memory", "Quantization", "Generation", "Output", "Advanced"])
        for group, option in (("Memory", "--swap-dir"), ("Generation", "--top-k"), ("Output", "--report"),
                              ("Advanced", "--threads"), ("Model", "MODEL"), ("Quantization", "--kv-cache-dtype")):
            self.assertRegex(text, rf"(?s)\n{group}:\n((?!\n\n).)*?\n? +{option}\b")
        self.assertTrue(all(len(line) <= 120 for line in text.splitlines()))
        man = sluice("docs", "man").stdout
        self.assertIn(".I Quantization", man)
        self.assertTrue(re.search(r"\n\.B \\-\\-port N\nListen at this port;.+ \(0 to 65535\) \(default: 8000\)\n", man))
        for verb in ("run", "batch", "plan", "inspect", "logits", "eval", "tokenize", "detokenize", "report", "spill"):
            described = re.search(rf"(?s)\.SS sluice {verb}\n.*?(?=\.SS|\.SH)", man)[0]
            sentences = re.findall(r"^\.TP\n\.B .+\n(.+)$", described, re.MULTILINE)
            self.assertGreater(len(sentences), 2)
            for sentence in sentences:
                self.assertRegex(sentence, r"^[A-Z][a-z]+,? \S+")

    def test_help_is_no_wider_than_the_terminal(self):
        columns = 80
        verbs = re.findall(r"^  (\w+) ", sluice().stderr.split("commands:")[1].split("example:")[0], re.MULTILINE)
        inner = [f"bench {verb}" for verb in ("load", "disk", "decode", "prefill", "engine")]
        for verb in ("", *verbs, *inner):
            controller, terminal = pty.openpty()
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
            process = subprocess.Popen([SLUICE, *verb.split(), "--help"], stdout=terminal)
            os.close(terminal)
            text = read_all(controller)
            self.assertEqual(process.wait(HANGS), 0)
            with self.subTest(verb):
                self.assertEqual([line for line in text.splitlines() if len(line) > columns], [])
            self.assertIn("Usage: sluice", text)

    def test_help_names_values_by_what_they_are(self):
        for verb in ("run", "serve", "batch", "plan", "pull", "bench engine"):
            text = sluice(*verb.split(), "--help").stdout
            self.assertRegex(text, r"(?m)^Usage: sluice .+ \[options\]")
            self.assertNotRegex(text, r"(?m)^  .* (TEXT|U?INT|FLOAT|REQUIRED|SUBCOMMAND)\b[:= ]|Excludes", verb)
        serve = " ".join(sluice("serve", "--help").stdout.split())
        for said in ("--memory SIZE Keep", "--port N=8000 Listen at this port; 0 picks a free one and prints it (0 to 65535)",
                     "--report FILE Write", "--tool-format VALUE=auto Tell", "(auto, generic, none)"):
            self.assertIn(said, serve)

    def test_quantization_lists_the_schemes(self):
        refused = sluice("run", DEMO, "-p", "x", "--quantization", "int3").stderr
        names = re.search(r"choose one of: (.+)\n", refused)[1]
        self.assertIn(names, " ".join(sluice("run", "--help").stdout.split()))

    def test_sizes_say_what_is_wrong_with_them(self):
        run = ("run", DEMO, "-p", "x", "-n", "1", "--quiet")
        for option in ("--memory", "--spill-limit"):
            for size, mention in (("9223372036854775807", "from 0 to 1EiB"), ("150%", "from 0% to 100%"),
                                  ("-1GiB", "from 0 to 1EiB"), ("much", "not a size")):
                self.assert_fails(2, mention, *run, f"{option}={size}")
        self.assert_fails(2, "must be more than 0", *run, "--memory", "0")
        self.assert_fails(2, "not a size", *run, "--swap-space", "50%")
        self.assert_fails(2, "a block of the KV cache takes", *run, "--kv-cache-memory", "1")

    def test_a_swap_directory_is_not_made(self):
        self.assert_fails(2, "is not a directory", "run", DEMO, "-p", "x", "--swap-dir", self.path / "nowhere")
        self.assertEqual(list(self.path.iterdir()), [])
