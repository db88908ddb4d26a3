"""Runs on several ranks, started by mpirun as users start them."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

from program import DEMO, HANGS, SANITIZED, SLUICE, SOURCE, Case, run_json, sluice

MPIRUN = shutil.which("mpirun")
MODELS = SOURCE / "tests/data/models"
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []


def launch(ranks):
    return [MPIRUN, *AS_ROOT, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), SLUICE]


def ranks_of(parent):
    """The process ids of a launcher's ranks."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as stat:
                name, rest = stat.read().rsplit(")", 1)
        except OSError:
            continue
        if int(rest.split()[1]) == parent:
            found.append(int(entry))
    return sorted(found)


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def left_running(processes):
    """Those that do not end: the launcher may end while the last rank does."""
    end = time.monotonic() + HANGS
    while any(map(is_running, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    return [p for p in processes if is_running(p)]


@unittest.skipIf(SANITIZED, "OpenMPI's own memory is no business of ours, and a sanitizer reports it")
class RanksTest(Case):
    def setUp(self):
        if MPIRUN is None:
            self.skipTest("OpenMPI is not installed: tools/setup --dev")

    def run_ranks(self, ranks, *args):
        done = subprocess.run([*launch(ranks), *map(str, args)], capture_output=True, text=True, timeout=HANGS,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_results_are_those_of_one_rank(self):
        for model, ranks in {"llama_rope_dynamic": 2, "gguf_bf16_tied": 2, "mixtral": 2, "qwen3_5": 2, "gptj": 3}.items():
            what = ["run", MODELS / model, "--token-ids", "5,6,7,8,9,10,11,12", "-n", "12", "--dtype", "float32",
                    "--ignore-eos", "--threads", "1", "--json", "--quiet"]
            one = run_json(*what[:-2])
            with self.subTest(model=model, ranks=ranks):
                several = json.loads(self.run_ranks(ranks, *what).stdout)
                self.assertEqual(several["token_ids"], one["token_ids"])
                if model != "llama_rope_dynamic":
                    continue
                streamed = json.loads(self.run_ranks(ranks, *what, "--place", "*=disk").stdout)
                self.assertEqual(streamed["logits_hash"], several["logits_hash"])

    def test_a_pipeline(self):
        ids = ["--token-ids", "5,6,7,8,9,10,11,12", "-n", "8", "--dtype", "float32", "--ignore-eos", "--threads", "1", "--json",
               "--quiet"]
        model = MODELS / "qwen3_5"
        one = run_json("run", model, *ids[:-2])
        with tempfile.TemporaryDirectory() as folder:
            report = f"{folder}/report.json"
            done = sluice("run", model, *ids, "--pipeline-parallel-size", "2", "--report", report)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["logits_hash"], one["logits_hash"])
            with open(report) as file:
                ranks = json.load(file)["ranks"]
        stages = run_json("plan", model, "--pipeline-parallel-size", "2")["pipeline"]
        self.assertEqual([r["first_layer"] for r in ranks], [s["first_layer"] for s in stages])
        self.assertEqual(ranks[1]["first_layer"], ranks[0]["layers"])

    def test_the_option_starts_ranks_which_report(self):
        with tempfile.TemporaryDirectory() as folder:
            report = f"{folder}/report.json"
            done = sluice("run", DEMO, "Once upon a time", "-n", "8", "--tensor-parallel-size", "2", "--report", report,
                          "--threads", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, sluice("run", DEMO, "Once upon a time", "-n", "8", "--threads", "1").stdout)
            with open(report) as file:
                ranks = json.load(file)["ranks"]
            self.assertEqual(len(ranks), 2)
            self.assertTrue(all(r["weights_bytes"] > 0 for r in ranks))
        self.assertEqual(run_json("plan", DEMO, "--tensor-parallel-size", "2")["ranks"], 2)

    def test_logits_and_perplexity(self):
        with tempfile.TemporaryDirectory() as folder:
            ids, text = f"{folder}/ids.json", f"{folder}/text.txt"
            with open(ids, "w") as file:
                json.dump([[5, 6, 7, 8], [9, 10]], file)
            with open(text, "w") as file:
                file.write("Once upon a time there was a rank. ")
            what = ["--threads", "1", "--dtype", "float32", "--json", "--quiet"]
            lists = ["logits", DEMO, "--token-ids", ids, *what, "--out"]
            one = run_json(*lists[:-3], "--out", f"{folder}/one.safetensors")
            stages = json.loads(self.run_ranks(2, *lists, f"{folder}/two.safetensors", "--pipeline-parallel-size", "2").stdout)
            self.assertEqual(stages["logits_hash"], one["logits_hash"])
            perplexity = run_json("eval", DEMO, "--text", text, *what[:-2])["perplexity"]
            several = json.loads(self.run_ranks(2, "eval", DEMO, "--text", text, *what).stdout)
            self.assertAlmostEqual(several["perplexity"], perplexity, delta=perplexity / 1e4)

    def test_ranks_with_other_models_or_options_are_refused(self):
        run = ["run", "--token-ids", "5,6,7", "-n", "2", "--threads", "1", "--quiet"]
        model = MODELS / "llama_tied"
        for other in ([MODELS / "llama_rope_dynamic"], [model, "--quantization", "fp8"]):
            line = [*launch(1), run[0], model, *run[1:], ":", "-n", "1", SLUICE, run[0], *other, *run[1:]]
            done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=HANGS)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("rank 1: has another model than rank 0", done.stderr)

    def test_ranks_with_other_sizes_are_refused_at_once(self):
        run = ["run", DEMO, "--token-ids", "5,6,7", "-n", "2", "--threads", "1", "--quiet"]
        for one, other, said in ((["--tensor-parallel-size", "2"], ["--tensor-parallel-size", "4"], "rank 1: --tensor-parallel-size 4"),
                                 (["--tensor-parallel-size", "4"], [], "sluice: --tensor-parallel-size 4"),
                                 ([], ["--pipeline-parallel-size", "2"], "rank 1: --pipeline-parallel-size 2: rank 0 has 1")):
            with self.subTest(said):
                line = [*launch(1), *run, *one, ":", "-n", "1", SLUICE, *run, *other]
                done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=HANGS)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(said, done.stderr)

    def test_configs_of_other_versions_are_of_one_model(self):
        model = MODELS / "llama_tied"
        with tempfile.TemporaryDirectory() as folder:
            later = shutil.copytree(model, f"{folder}/later")
            with open(f"{later}/config.json") as file:
                config = json.load(file)
            with open(f"{later}/config.json", "w") as file:
                json.dump({**config, "transformers_version": "9.9.9", "_name_or_path": "elsewhere"}, file)
            run = ["--token-ids", "5,6,7", "-n", "2", "--threads", "1", "--quiet"]
            line = [*launch(1), "run", model, *run, ":", "-n", "1", SLUICE, "run", later, *run]
            done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=HANGS)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_plan_knows_what_runs_have_measured(self):
        self.run_ranks(2, "run", DEMO, "Once", "-n", "1", "--threads", "1", "--quiet")
        asked = ["plan", DEMO, "--rank-memory", "1GiB,1GiB"]
        measured = run_json(*asked)["divisions"]
        self.assertEqual(measured["latency_source"], "runs")
        self.assertLess(measured["latency_seconds"], 1)
        stated = run_json(*asked, "--rank-latency", "7", "--rank-link", "2GB")["divisions"]
        self.assertEqual((stated["latency_seconds"], stated["latency_source"]), (7e-6, "stated"))
        self.assertEqual((stated["link_bytes_per_second"], stated["link_bytes_source"]), (2e9, "stated"))
        self.assert_fails(2, "leave them out", *asked, "--tensor-parallel-size", "2")

    def test_batch_and_chat(self):
        with tempfile.TemporaryDirectory() as folder:
            requests = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                         "body": {"prompt": "Once upon a time", "max_tokens": 6 + i, "temperature": 0}} for i in range(3)]
            with open(f"{folder}/in.jsonl", "w") as file:
                file.writelines(json.dumps(r) + "\n" for r in requests)
            texts = {}
            for name, start in {"one": [SLUICE], "two": launch(2)}.items():
                done = subprocess.run([*start, "batch", DEMO, "-i", f"{folder}/in.jsonl", "-o", f"{folder}/{name}.jsonl",
                                       "--threads", "1", "--quiet"], capture_output=True, text=True, timeout=HANGS)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(f"{folder}/{name}.jsonl") as file:
                    lines = map(json.loads, file)
                    texts[name] = {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in lines}
            self.assertEqual(len(texts["one"]), 3)
            self.assertEqual(texts["one"], texts["two"])
        done = subprocess.run([*launch(2), "chat", DEMO, "--threads", "1", "--quiet", "-n", "5"], input="Hello\n",
                              capture_output=True, text=True, timeout=HANGS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.strip())

    def test_experts_on_disk_and_guesses_change_no_token(self):
        ids = ["--token-ids", "5,6,7,5,6,7,5,6", "-n", "16", "--dtype", "float32", "--ignore-eos", "--threads", "1",
               "--json", "--quiet"]
        with tempfile.TemporaryDirectory() as spill:
            def tokens(model, *args):
                return json.loads(self.run_ranks(2, "run", model, *ids, *args).stdout)["token_ids"]
            experts = MODELS / "mixtral"
            resident = tokens(experts)
            for _ in range(2):  # one run fills the spill cache
                self.assertEqual(tokens(experts, "--place", "experts=disk", "--spill-dir", spill), resident)
            model = MODELS / "llama_rope_dynamic"
            plain = tokens(model, "--speculation", "none")
            self.assertEqual(tokens(model, "--speculation", "prompt_lookup"), plain)
            self.assertEqual(tokens(model, "--draft-model", model), plain)

    def test_cut_files(self):
        what = ["--token-ids", "5,6,7,8", "-n", "4", "--dtype", "float32", "--ignore-eos", "--threads", "1", "--json", "--quiet"]
        model = MODELS / "llama_rope_dynamic"
        with tempfile.TemporaryDirectory() as folder:
            cut = f"{folder}/cut"
            done = sluice("shard", model, "--tensor-parallel-size", "2", "--out", cut, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            files = [f"{cut}/model-rank-{r}-part-0.safetensors" for r in (0, 1)]
            self.assertEqual(json.loads(done.stdout), {"out": cut, "ranks": 2, "bytes": sum(map(os.path.getsize, files))})
            whole, parts = (json.loads(self.run_ranks(2, "run", m, *what).stdout) for m in (model, cut))
            self.assertEqual(parts["logits_hash"], whole["logits_hash"])
            self.assert_fails(3, "is cut for 2 ranks", "run", cut, *what)
            self.assert_fails(2, cut, "shard", model, "--tensor-parallel-size", "2", "--out", cut)
            self.assert_fails(3, "config.json", "shard", f"{folder}", "--tensor-parallel-size", "2", "--out", f"{folder}/x")
            self.assertEqual(sorted(os.listdir(folder)), ["cut"])
            large = shutil.copytree(model, f"{folder}/large")
            with open(f"{large}/notes.txt", "wb") as notes:
                notes.truncate(2 << 20)
            limited = f"ulimit -f 1024; exec {SLUICE} shard {large} --tensor-parallel-size 2 --out {folder}/x"
            done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=HANGS)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("cannot take", done.stderr)
            self.assertEqual(sorted(os.listdir(folder)), ["cut", "large"])

    def test_a_rank_that_does_not_come_is_named(self):
        for what, ranks in {"meet": 3, "receive": 2, "sum": 3}.items():
            launcher = subprocess.Popen([*launch(ranks)[:-1], os.environ["SLUICE_LATE_RANK"], what],
                                        stderr=subprocess.PIPE, text=True)
            with launcher, launcher.stderr:
                begin = time.monotonic()
                messages = [line for line in launcher.stderr if line.startswith("sluice: ")]
                self.assertEqual(launcher.wait(timeout=HANGS), 1)
                self.assertLess(time.monotonic() - begin, HANGS)
            # On a busy machine two ranks say it before one has ended the other.
            self.assertEqual(len(set(messages)), 1, messages)
            self.assertTrue(messages[0].startswith("sluice: rank 1: "), messages)

    def test_serves_and_ends_when_a_rank_is_killed(self):
        server = subprocess.Popen([SLUICE, "serve", DEMO, "--port", "0", "--threads", "1", "--tensor-parallel-size", "2"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with server, server.stdout, server.stderr:
            url = server.stdout.readline().strip()
            next(line for line in server.stderr if line.startswith("ready "))
            body = json.dumps({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}).encode()
            ask = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(ask, timeout=HANGS) as answer:
                text = json.load(answer)["choices"][0]["text"]
            self.assertTrue(text)
            ask.data = body.replace(b"{", b'{"stream": true, ', 1)
            with urllib.request.urlopen(ask, timeout=HANGS) as answer:
                parts = [json.loads(line[6:]) for line in answer if line.startswith(b"data: {")]
            self.assertGreater(len(parts), 1)
            self.assertEqual("".join(part["choices"][0]["text"] for part in parts), text)
            [launcher] = ranks_of(server.pid)
            ranks = ranks_of(launcher)
            self.assertEqual(len(ranks), 2)
            os.kill(ranks[1], signal.SIGKILL)
            messages = server.stderr.read()
            status = server.wait(timeout=HANGS)
        self.assertEqual(status, 1)
        self.assertEqual(sum(line.startswith("sluice: ") for line in messages.splitlines()), 1, messages)
        self.assertRegex(messages, "rank 1 .*signal 9")
        self.assertEqual(left_running([launcher, *ranks]), [])

    def test_an_interrupt_ends_all(self):
        run = subprocess.Popen([SLUICE, "run", DEMO, "Once", "-n", "100000", "--ignore-eos", "--threads", "1",
                                "--max-model-len", "100002", "--tensor-parallel-size", "2", "--quiet"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with run, run.stdout, run.stderr:
            self.assertTrue(run.stdout.read(1))
            [launcher] = ranks_of(run.pid)
            ranks = ranks_of(launcher)
            run.send_signal(signal.SIGINT)
            self.assertEqual(run.wait(timeout=HANGS), -signal.SIGINT)
        self.assertEqual(left_running([launcher, *ranks]), [])

    def test_refusals_are_said_once(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/config.json", "w") as file:
                file.write('{"architectures": ["Unknown"]}')
            for args, status in {("run", folder, "x", "--tensor-parallel-size", "2"): 3,
                                 ("run", DEMO, "x", "--tensor-parallel-size", "2", "--memory", "1M"): 4,
                                 ("run", DEMO, "x", "--tensor-parallel-size", "2", "--threads", "0"): 2,
                                 ("run", DEMO, "x", "--tensor-parallel-size", "2", "--quantization", "odd"): 2,
                                 ("run", DEMO, "x", "--tensor-parallel-size", "5"): 2}.items():
                with self.subTest(args=args):
                    done = sluice(*args, "--quiet", stdin=subprocess.DEVNULL)
                    self.assertEqual(done.returncode, status, done.stderr)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertEqual(done.stdout, "")


class NoRanksTest(Case):
    def test_what_is_missing_is_said(self):
        with tempfile.TemporaryDirectory() as empty:
            done = sluice("run", DEMO, "x", "--tensor-parallel-size", "2", env={**os.environ, "PATH": empty})
        self.assertEqual(done.returncode, 2)
        self.assertIn("openmpi-bin", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("run, chat, batch, serve, logits and eval", sluice("inspect", DEMO, "--tensor-parallel-size", "2").stderr)
