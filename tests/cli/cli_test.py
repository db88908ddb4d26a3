#!/usr/bin/env python3
"""The sluice binary as users and scripts meet it: results, exit statuses, sentences."""

import json
import os
import re
import shutil
import signal
import subprocess
import unittest
import unittest.mock

from checkpoints import read_floats
from program import ALL, BRIEF, DEMO, HANGS, IN_PROCESS, ORACLE, SANITIZED, SLOW, SLUICE, SOURCE, Case, in_turn, run_json, sluice
from batch_requests_test import BatchRequestsTest  # run by their names, as the others
from batch_test import BatchTest
from budget_test import BudgetTest
from chat_test import ChatGoldensTest, ConversationTest, RenderTest
from containers_test import ContainersTest
from context_test import ContextTest
from convert_test import ConvertTest
from fault_matrix_test import ChangingFilesTest, FaultMatrixTest
from hosts_test import HostsTest
from hub_test import HubTest
from input_memory_test import InputMemoryTest
from input_test import InputTest
from kv_scales_test import KvScalesTest
from make_checkpoint_test import MakeCheckpointTest
from memory_test import MemoryTest
from page_test import PageFilesTest, PageMarkdownTest, PageTest
from peak_test import PeakTest
from prompt_cache_test import PromptCacheTest
from ranks_test import NoRanksTest, RanksTest
from rates_test import RatesTest
from report_test import ReportTest
from sampling_test import SamplingTest
from serve_agents_test import ServeAgentsTest
from serve_clients_test import ServeClientsTest
from serve_hostile_test import ServeHostileTest
from serve_test import ServeLimitsTest, ServeOptionsTest, ServeTest
from serve_tools_test import ServeAdminTest, ServeToolsTest
from settings_test import SettingsTest
from system_test import HelpTest, LimitsTest, MessagesTest, SchedulerTest, SignalTest
from vocabulary_test import VocabularyTest
from web_test import WebTest


class RunTest(Case):
    def test_text_ids_and_statistics(self):
        out = run_json("run", DEMO, "-p", "In the beginning", "-n", "24")
        self.assertEqual(len(out["token_ids"]), 24)
        self.assertEqual(out["finish_reason"], "length")
        self.assertEqual(out["timings"]["generated_tokens"], 24)
        self.assertGreater(out["memory"]["measured_peak"], 0)
        ids = ",".join(map(str, out["token_ids"]))
        text = run_json("detokenize", DEMO, "--ids", ids, "--skip-special-tokens")["text"]
        self.assertEqual(out["text"], text)
        plain = sluice("run", DEMO, "-p", "In the beginning", "-n", "24", "--quiet")
        self.assertEqual(plain.stdout, text + "\n")
        self.assertEqual(plain.stderr, "")

    def test_prompt_from_file_ids_and_standard_input(self):
        (self.path / "prompt").write_text("In the beginning")
        want = run_json("run", DEMO, "-p", "In the beginning", "-n", "8")["logits_hash"]
        ids = run_json("tokenize", DEMO, "--text", "In the beginning")["ids"]
        self.assertEqual(run_json("run", DEMO, "--prompt-file", self.path / "prompt", "-n", "8")["logits_hash"], want)
        self.assertEqual(run_json("run", DEMO, "--token-ids", ",".join(map(str, ids)), "-n", "8")["logits_hash"], want)
        result = sluice("run", DEMO, "--prompt-file", "-", "-n", "8", "--json", "--quiet", input="In the beginning")
        self.assertEqual(json.loads(result.stdout)["logits_hash"], want)

    def test_same_bits_for_threads_readers_and_budgets(self):
        for turn, scheme in enumerate(("none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "fp8_dynamic", "int8")):
            def hash_of(*options):
                return run_json("run", DEMO, "-p", "And it came to pass", "-n", "6", "--quantization", scheme,
                                *options)["logits_hash"]
            want = hash_of()
            variants = (["--threads", "1"], ["--threads", "3"], ["--reader", "pread"], ["--reader", "mmap"], ["--reader", "uring"],
                        ["--block-size", "3"])
            for options in in_turn(variants, turn):
                self.assertEqual(hash_of(*options), want, f"{scheme} {options}")

    def test_a_text_ends_with_the_eos_of_any_file(self):
        shutil.copytree(DEMO, self.path / "m")
        run = ("run", self.path / "m", "-p", "In the beginning", "-n", "12")
        whole = run_json(*run)["token_ids"]
        end = whole[5]
        vocabulary = json.loads((DEMO / "tokenizer.json").read_text())["model"]["vocab"]
        text = next(token for token, id_ in vocabulary.items() if id_ == end)
        for name, change in (("tokenizer_config.json", {"eos_token": text}), ("config.json", {"eos_token_id": [1, end]}),
                             ("tokenizer_config.json", {"eos_token": {"__type": "AddedToken", "content": text, "special": True}}),
                             ("generation_config.json", {"eos_token_id": end})):
            file = self.path / "m" / name
            before = file.read_text()
            file.write_text(json.dumps({**json.loads(before), **change}))
            out = run_json(*run)
            self.assertEqual((out["finish_reason"], out["token_ids"]), ("stop", whole[:whole.index(end) + 1]), change)
            file.write_text(before)

    def test_sampling_is_reproducible_and_seeded(self):
        def ids(seed):
            return run_json("run", DEMO, "-p", "The", "-n", "20", "--temperature", "1", "--seed", seed)["token_ids"]
        self.assertEqual(ids(1), ids(1))
        self.assertNotEqual(ids(1), ids(2))

    def test_stop_strings_end_the_text_before_them(self):
        whole = run_json("run", DEMO, "-p", "In the beginning", "-n", "40")["text"]
        stop = whole[20:24]
        out = run_json("run", DEMO, "-p", "In the beginning", "-n", "40", "--stop", stop)
        self.assertEqual(out["finish_reason"], "stop")
        self.assertEqual(out["text"], whole[:whole.index(stop)])

    def interrupt(self, *signals):
        process = subprocess.Popen([SLUICE, "run", DEMO, "-p", "In", "-n", "1000", "--ignore-eos", "--threads", "1",
                                    *SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.read(1)
        for one in signals:
            process.send_signal(one)
        _, err = process.communicate(timeout=HANGS)
        self.assertEqual(process.returncode, -signals[0])
        self.assertIn("interrupted", err)

    def test_interrupt_ends_as_interrupted(self):
        self.interrupt(signal.SIGINT)

    def test_signals_at_the_same_time_are_one(self):
        self.interrupt(signal.SIGINT, signal.SIGTERM)

    def test_full_disk_and_unwritable_paths(self):
        self.assert_fails(1, "--report", "run", DEMO, "-p", "x", "-n", "1", "--report", "/nowhere/r.json")
        self.assert_fails(1, "/dev/full", "run", DEMO, "-p", "x", "-n", "1", "--quiet", "--report", "/dev/full")
        with open("/dev/full", "w") as full:
            result = subprocess.run([SLUICE, "run", DEMO, "-p", "x", "-n", "1"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 1)
        (self.path / "ids").write_text("[[1, 2]]")
        self.assert_fails(1, "nowhere", "logits", DEMO, "--token-ids", self.path / "ids", "--out", "/nowhere/x", "--quiet")

    def test_report_is_written_and_shown(self):
        report = self.path / "r.json"
        run_json("run", DEMO, "-p", "x", "-n", "4", "--quantization", "fp8", "--report", report)
        data = json.loads(report.read_text())
        self.assertEqual(data["schema"], "sluice.report/1")
        errors = [t for t in data["load"]["tensors"] if "relative_rms_error" in t]
        self.assertEqual(len(errors), 56)
        self.assertTrue(all(0 < t["relative_rms_error"] < 0.05 for t in errors))
        shown = sluice("report", report)
        self.assertEqual(shown.returncode, 0)
        self.assertIn("predicted peak", shown.stdout)
        report.write_text("{}")
        self.assert_fails(3, "r.json", "report", report)


class UsageTest(Case):
    def test_wrong_lines(self):
        good = ["run", DEMO, "-p", "x", "-n", "1", "--quiet"]
        for mention, args in {
            "unknown option --no-such-option (see sluice run --help)": [*good, "--no-such-option"],
            "unknown option --memroy; did you mean --memory?": [*good, "--memroy", "8G"],
            "one argument too many; put quotes around": ["run", DEMO, "two", "words"],
            "x: one argument too many (see": ["list", "x"],
            "--top-k is given 2 times; give it once": [*good, "--top-k", "1", "--top-k", "2"],
            "--seed -1: must be a number from 0 to": [*good, "--seed", "-1"],
            "--seed 18446744073709551616: must": [*good, "--seed", "18446744073709551616"],
            "bitsandbytes or gguf": ["quantize", DEMO, "x", "--quantization", "fp8", "--format", "x"],
            "give --format gguf": ["quantize", DEMO, "x", "--quantization", "q4_k_m"],
            "--max-model-len 1: a window": ["eval", DEMO, "--text", "x", "--max-model-len", "1"],
            "unknown option --ctx-size; give --max-model-len (see": [*good, "--ctx-size", "4096"],
            "unknown option -c; give --max-model-len": [*good, "-c", "4096"],
            "unknown option -ngl; give --device cuda": [*good, "-ngl", "99"],
            "give --pipeline-parallel-size": [*good, "--pp-size", "2"],
            "unknown option --gpu-memory-utilization=0.9; give --device-memory": [*good, "--gpu-memory-utilization=0.9"],
            "unknown option -m; give the model behind the command": ["serve", "-m", DEMO],
            "unknown option --trust-remote-code; leave it out": ["serve", DEMO, "--trust-remote-code"],
            "MODEL is missing (see sluice bench load --help)": ["bench", "load"],
            "give one of: load, ": ["bench"],
            "unknown command foo; choose one of: load, ": ["bench", "foo"],
            "--max-tokens 0: must be a number from 1 to ": ["run", DEMO, "x", "-n", "0"],
            "--port 70000: must be a number from 0 to 65535": ["serve", DEMO, "--port", "70000"],
            "--temperature hot: must be a number": [*good, "--temperature", "hot"],
            "--memory needs a value": [*good, "--memory"],
            "KIND foo: choose one of: man, bash, ": ["docs", "foo"],
            "is a path": ["show", DEMO],
            "--mirror /no-such-directory: is not a directory": [*good, "--mirror", "/no-such-directory"],
            "--cors-origin example.org: must be an origin": ["serve", DEMO, "--cors-origin", "example.org"],
            "unknown command compress": ["compress", DEMO],
            "--swap-space": [*good, "--swap-space", "much"],
            "--swap-dir": [*good, "--swap-limit", "1GiB"],
            "--kv-cache-memory": [*good, "--kv-cache-memory", "0"],
            "prompt": ["run", DEMO],
            "one of": [*good, "--token-ids", "1"],
            "token id 99999": ["run", DEMO, "--token-ids", "1,99999"],
            "token id -3": ["run", DEMO, "--token-ids=-3"],
            "1,x": ["run", DEMO, "--token-ids", "1,x"],
            "no-such-file": ["run", DEMO, "--prompt-file", "/no-such-file"],
            "temperature must": [*good, "--temperature", "-1"],
            "top_p must": [*good, "--top-p", "0"],
            "min_p must": [*good, "--min-p", "2"],
            "--quantization int3": [*good, "--quantization", "int3"],
            "--quantize-modules": [*good, "--quantize-modules", "everything"],
            "--dtype": [*good, "--dtype", "float8"],
            "--device": [*good, "--device", "cuda:99"],
            "--device tpu": [*good, "--device", "tpu"],
            "--device-memory": [*good, "--device-memory", "1GiB"],
            "--kv-cache-dtype int4": [*good, "--kv-cache-dtype", "int4"],
            "--speculation": [*good, "--speculation", "clairvoyance"],
            "--reader": [*good, "--reader", "carrier-pigeon"],
            "--memory": [*good, "--memory", "lots"],
            "--max-model-len": ["run", DEMO, "-p", "a b c d e f g h i j k l m n o p", "--max-model-len", "4"],
            "--tensor-parallel-size": [*good, "--tensor-parallel-size", "0"],
            "verb": [],
        }.items():
            with self.subTest(mention):
                self.assert_fails(2, "" if mention == "verb" else mention, *args)

    def test_version_says_which_kernels_and_why(self):
        plain, verbose = sluice("--version").stdout, sluice("--version", "-v").stdout
        self.assertTrue(verbose.startswith(plain.rstrip("\n")))
        best = re.search(r"\(kernels (\w+)\)", plain)[1]
        said = dict(re.findall(r"^  (\S+) +(yes|no: .+)$", verbose, re.MULTILINE))
        self.assertEqual(list(said), ["amx", "avx512_bf16", "avx2", "portable", "reference"])
        self.assertEqual(best, next(name for name, there in said.items() if there == "yes"))
        self.assertRegex(verbose, rf"(?m)^  linear, fp8 weights +{best}$")
        self.assertRegex(verbose, rf"(?m)^  attention, bf16 and fp8 caches +{best}$")
        for name, there in said.items():
            if there != "yes":
                reason = there.removeprefix("no: ")
                self.assert_fails(2, reason, "run", DEMO, "-p", "x", "-n", "1", "--kernels", name)

    def test_version_lists_gpus_or_says_why_there_is_none(self):
        verbose = sluice("--version", "-v").stdout
        none = re.search(r"(?m)^gpus: none: (.+)$", verbose)
        if none:
            self.assert_fails(2, none[1], "run", DEMO, "-p", "x", "-n", "1", "--device", "cuda")
        else:
            self.assertRegex(verbose, r"(?m)^gpus:\n  cuda:0  .+, compute capability \d+\.\d, .+ of memory$")

    def test_models_that_are_not_there(self):
        self.assert_fails(3, "does not exist", "run", self.path / "nowhere", "-p", "x")
        (self.path / "ring").symlink_to("ring")
        self.assert_fails(3, "does not exist", "run", self.path / "ring", "-p", "x")
        self.assert_fails(3, f"{self.path}: has no config.json; give the directory", "run", self.path, "-p", "x")
        self.assert_fails(3, f"neither a directory nor a GGUF file; give its directory, {DEMO}", "run", DEMO / "config.json",
                          "-p", "x")

    def test_links_out_of_the_model_need_an_option(self):
        model = self.path / "model"
        verbs = {"tokenizer.json": ("tokenize", model, "--text", "In the beginning"),
                 "model-00001-of-00003.safetensors": ("inspect", model),
                 "config.json": ("plan", model)}
        shutil.copytree(DEMO, model)
        for name, words in verbs.items():
            with self.subTest(name):
                shutil.move(model / name, self.path / name)
                (model / name).symlink_to(self.path / name)
                reason = f"model/{name}: a symbolic link leads to {self.path / name}, which is outside of the model's directory"
                self.assert_fails(3, reason, *words)
                self.assertEqual(sluice(*words, "--allow-outside-links").returncode, 0)
        with unittest.mock.patch.dict(os.environ, SLUICE_ALLOW_OUTSIDE_LINKS="true"):
            self.assertEqual(sluice("inspect", model).returncode, 0)

    def test_half_downloaded_model(self):
        for name in ("config.json", "tokenizer.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors"):
            shutil.copy(DEMO / name, self.path)
        self.assert_fails(3, "model-00002-of-00003.safetensors", "run", self.path, "-p", "x")

    def test_prompt_of_the_longest_length_generates_to_the_limit(self):
        out = run_json("run", DEMO, "-p", "In the beginning", "-n", "100", "--max-model-len", "10", "--ignore-eos")
        prompt = len(run_json("tokenize", DEMO, "--text", "In the beginning")["ids"])
        self.assertEqual(len(out["token_ids"]), 10 - prompt)
        self.assertEqual(out["finish_reason"], "length")


class TextTest(Case):
    def test_jsonl_both_ways(self):
        lines = [{"text": "Hello there", "add_special_tokens": False}, {"text": "And then\n"}]
        (self.path / "in").write_text("".join(json.dumps(l) + "\n" for l in lines))
        out = sluice("tokenize", DEMO, "--jsonl", self.path / "in")
        ids = [json.loads(l)["ids"] for l in out.stdout.splitlines()]
        self.assertEqual(len(ids), 2)
        (self.path / "ids").write_text("".join(
            json.dumps({"ids": i, "skip_special_tokens": True}) + "\n" for i in ids))
        back = sluice("detokenize", DEMO, "--jsonl", self.path / "ids")
        self.assertEqual([json.loads(l)["text"] for l in back.stdout.splitlines()], [l["text"] for l in lines])
        (self.path / "in").write_text('{"text": "x"}\n{"txet": "x"}\n')
        self.assert_fails(3, "line 2", "tokenize", DEMO, "--jsonl", self.path / "in")


class PerplexityTest(Case):
    def test_bundled_model(self):
        if SANITIZED:
            self.skipTest("six passes over the validation text take minutes under a sanitizer")
        want = json.loads((DEMO / "expected.json").read_text())
        exact = run_json("eval", DEMO, "--text", DEMO / "validation.txt", "--dtype", "float32")
        self.assertEqual(exact["tokens"], want["tokens"])
        self.assertAlmostEqual(exact["perplexity"] / want["perplexity"], 1, delta=1e-4)
        text = DEMO / "validation.txt"
        if not ALL:  # a part tells schemes apart as well
            text = self.path / "text"
            text.write_text((DEMO / "validation.txt").read_text()[:20_000])
            exact = run_json("eval", DEMO, "--text", text, "--dtype", "float32")
        options = ["eval", DEMO, "--text", text]
        bf16 = run_json(*options)["perplexity"]
        self.assertAlmostEqual(bf16 / exact["perplexity"], 1, delta=2e-3)
        schemes = ("fp8_dynamic", "int8", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block")
        for scheme in schemes if ALL else schemes[:1]:
            self.assertLess(run_json(*options, "--quantization", scheme)["perplexity"] / bf16, 1.01, scheme)
        for cache in ("fp8_e4m3", "fp8_e5m2") if ALL else ("fp8_e4m3",):
            self.assertLess(run_json(*options, "--kv-cache-dtype", cache)["perplexity"] / bf16, 1.01, cache)

    @unittest.skipIf(SANITIZED, "passes over the validation text take minutes under a sanitizer")
    def test_bundled_model_with_experts(self):
        model = SOURCE / "tools/demo-moe-model"
        want = json.loads((model / "expected.json").read_text())
        for place in ([], ["--place", "experts=cached"]):
            got = run_json("eval", model, "--text", model / "validation.txt", "--dtype", "float32", *place)
            self.assertEqual(got["tokens"], want["tokens"])
            self.assertAlmostEqual(got["perplexity"] / want["perplexity"], 1, delta=1e-4)


@unittest.skipIf(BRIEF, IN_PROCESS)
class GoldensTest(Case):
    def test_logits_file_matches_transformers(self):
        model = SOURCE / "tests/data/models/llama_tied"
        manifest = json.loads((model / "manifest.json").read_text())
        prompts = [p["input_ids"] for p in manifest["prompts"]]
        (self.path / "ids").write_text(json.dumps(prompts))
        out = sluice("logits", model, "--token-ids", self.path / "ids", "--out", self.path / "l", "--dtype", "float32", "--quiet")
        self.assertEqual(out.returncode, 0, out.stderr)
        ours, golden = read_floats(self.path / "l"), read_floats(model / "golden.safetensors")
        tolerance = manifest["tolerance"]
        for i, ids in enumerate(prompts):
            a, b = ours[f"logits.{i}"], golden[f"prompt{i}.logits"]
            self.assertEqual(len(a), len(b))
            self.assertTrue(all(abs(x - y) <= tolerance["fp32_atol"] + tolerance["fp32_rtol"] * abs(y) for x, y in zip(a, b)))

    def test_greedy_tokens(self):
        for model in sorted((SOURCE / "tests/data/models").iterdir()):
            for prompt in json.loads((model / "manifest.json").read_text())["prompts"]:
                file = model / "model.gguf" if (model / "model.gguf").exists() else model
                out = run_json("run", file, "--token-ids", ",".join(map(str, prompt["input_ids"])), "-n", "24",
                               "--dtype", "float32", "--ignore-eos")
                # transformers computes its cache again where longrope changes its frequencies; keys stay here.
                config = json.loads((model / "config.json").read_text()) if file == model else {}
                switch = config.get("original_max_position_embeddings", 0) - len(prompt["input_ids"]) + 1
                same = min(switch, 24) if switch > 0 else 24
                self.assertEqual(out["token_ids"][:same], prompt["greedy_ids"][:same], model.name)


class DocumentationTest(Case):
    def test_man_page_and_completions_name_every_verb(self):
        verbs = ("run", "plan", "inspect", "logits", "eval", "tokenize", "detokenize", "render", "report", "bench", "serve", "quantize", "convert")
        for kind in ("man", "bash", "zsh", "fish"):
            text = sluice("docs", kind).stdout
            for verb in verbs:
                self.assertIn(verb, text)
            self.assertIn("quantization", text)
        self.assertEqual(subprocess.run(["bash", "-n"], input=sluice("docs", "bash").stdout, text=True).returncode, 0)

    def test_help_of_every_verb_has_an_example(self):
        for verb in ("run", "plan", "inspect", "logits", "eval", "tokenize", "detokenize", "render", "report", "bench", "serve", "quantize", "convert"):
            out = sluice(verb, "--help")
            self.assertEqual(out.returncode, 0)
            self.assertIn("Example", out.stdout)


class MalformedTest(Case):
    """Hostile checkpoints of the shared fixtures: the exit status and the words that each manifest asks for."""

    KINDS = ("st_", "idx_", "cfg_", "w_", "control_", "tok_", "gguf_", "pkl_", "npz_", "zip_")
    FILES = ("st_", "idx_", "control_", "gguf_", "pkl_", "npz_", "zip_")  # which io's tests read under a sanitizer, too

    def test_every_case(self):
        folder = ORACLE / "malformed"
        if not folder.is_dir():
            self.skipTest(f"no shared fixtures at {folder}")
        for turn, case in enumerate(sorted(folder.iterdir())):
            left_out = BRIEF and turn % 5 and case.name.startswith(self.FILES)
            if case.name.startswith(self.KINDS) and not left_out:
                with self.subTest(case.name):
                    self.check(case)

    def check(self, case):
        manifest = json.loads((case / "manifest.json").read_text())
        model = self.path / case.name
        shutil.copytree(case, model)
        for step in manifest.get("setup") or []:
            (model / step["symlink"]).unlink(missing_ok=True)
            (model / step["symlink"]).symlink_to(step["target"])
        prompt = ["-p", "a"] if case.name.startswith("tok_") else ["--token-ids", "1,2"]
        if case.name.startswith("gguf_"):
            model = model / "model.gguf"
        command = ["run", model, *prompt, "-n", "2"]
        if case.name.startswith("tok_template"):
            (self.path / "chat").write_text('[{"role": "user", "content": "Hello"}]')
            command = ["render", model, "--messages", self.path / "chat"]
        result = sluice(*command, limit_memory=True, cwd=self.path)
        if marker := manifest.get("must_not_create"):  # a pickle that was run would have made it
            self.assertEqual(list(self.path.rglob(marker)), [])
        expect = manifest["expect"]
        allowed = {"error": {3}, "error_or_warning": {0, 3}, "error_or_ok": {0, 3}, "ok_or_warning": {0},
                   "ok": {0}, "any_clean": {0, 1, 2, 3, 4}}[expect]
        if case.name == "tok_id_beyond_model":  # warned of; its tokenizer makes no token of the prompt
            allowed = {2}
        self.assertIn(result.returncode, allowed, result.stderr)
        if expect == "error" or (expect == "error_or_warning" and result.returncode == 3):
            for word in manifest.get("message_should_mention", []):
                self.assertIn(word, result.stderr)


if __name__ == "__main__":
    unittest.main()
