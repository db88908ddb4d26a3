"""--memory decides what stays and what is streamed, never the result."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from checkpoints import write_checkpoint
from program import DEMO, HANGS, SANITIZED, SLUICE, SOURCE, Case, run_json, sluice


class MemoryTest(Case):
    def test_too_small_a_budget_names_one_that_works(self):
        result = sluice("run", DEMO, "-p", "x", "-n", "4", "--memory", "12MiB")
        self.assertEqual(result.returncode, 4, result.stderr)
        smallest = result.stderr.split("--memory ")[1].split("MiB")[0]
        if SANITIZED:
            self.skipTest("a sanitized process needs more memory than it plans")
        out = run_json("run", DEMO, "-p", "x", "-n", "4", "--memory", f"{smallest}MiB")
        self.assertLessEqual(out["memory"]["measured_peak"], int(smallest) << 20)
        self.assertEqual(out["logits_hash"], run_json("run", DEMO, "-p", "x", "-n", "4")["logits_hash"])

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_the_budget_that_is_named_works_for_every_verb(self):
        lists, template = self.path / "lists", self.path / "template"
        lists.write_text("[[1, 2, 3], [4]]")
        template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        for verb in (("run", DEMO, "--token-ids", "1,2", "-n", "4", "--max-model-len", "auto"),
                     ("run", DEMO, "--chat", "--chat-template", template, "-n", "4", "--max-model-len", "200", "--draft-model", DEMO),
                     ("logits", DEMO, "--token-ids", lists, "--out", self.path / "logits"),
                     ("eval", DEMO, "--text", template, "--max-model-len", "16"), ("bench", "load", DEMO, "--repeats", "2"),
                     ("bench", "decode", DEMO, "--tokens", "2", "--max-num-seqs", "20", "--dtype", "float32"),
                     ("bench", "prefill", DEMO, "--tokens", "30", "--repeats", "1")):
            with self.subTest(verb=verb):
                refused = sluice(*verb, "--memory", "1MiB", input="hello\n")
                self.assertEqual(refused.returncode, 4, refused.stderr)
                named = refused.stderr.split("the smallest budget that works is --memory ")[1].split("MiB")[0]
                result = sluice(*verb, "--memory", f"{named}MiB", input="hello\n")
                self.assertEqual(result.returncode, 0, result.stderr)

    def gptq(self):
        """A model that is streamed from its packed copy alone: its directory, a command, and that without a budget."""
        quantization = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False}
        model = write_checkpoint(self.path / "gptq", hidden_size=256, intermediate_size=4096, num_hidden_layers=8,
                                 quantization_config=quantization)
        return model, ("run", model, "--token-ids", "1,2,3", "-n", "4", "--ignore-eos")

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_a_plan_knows_whether_there_is_room_for_a_copy_that_it_needs(self):
        model, run = self.gptq()
        expected = run_json(*run, "--spill-dir", "none")["logits_hash"]
        smallest = {}
        for limit in ("1GiB", "1MiB", "100KiB"):
            options = ("--spill-dir", self.path / f"spill-{limit}", "--spill-limit", limit)
            smallest[limit] = run_json("plan", model, "--prompt-tokens", 3, "-n", 4, *options)["smallest"]["memory"]
            out = run_json(*run, "--memory", smallest[limit], *options)
            self.assertEqual(out["logits_hash"], expected)
            memory = out["memory"]
            self.assertLessEqual(memory["measured_peak"], smallest[limit])
            self.assertLessEqual(memory["ledger_peak"], memory["predicted_peak"])
        self.assertLess(smallest["1GiB"], smallest["1MiB"] - (4 << 20))
        self.assertAlmostEqual(smallest["1MiB"], smallest["100KiB"], delta=1 << 20)
        self.assert_fails(4, "a --spill-dir that has room", *run, "--place", "layers.*=disk", "--spill-limit", "100KiB",
                          "--spill-dir", self.path / "spill")

    def test_a_copy_that_another_process_writes_is_waited_for(self):
        model, run = self.gptq()
        spill = self.path / "spill"
        run = (*run, "--place", "layers.*=disk", "--spill-dir", spill)
        expected = run_json(*run)["logits_hash"]
        (file,) = spill.iterdir()
        part = file.with_name(file.name + ".part")
        for ends in (False, True):  # the other is killed, or this one is interrupted
            with self.subTest(ends=ends):
                file.unlink()
                other = os.open(part, os.O_RDWR | os.O_CREAT)
                fcntl.flock(other, fcntl.LOCK_EX)
                with subprocess.Popen([SLUICE, *map(str, run), "--json"], text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE) as process:
                    while "waiting for it" not in (line := process.stderr.readline()):
                        self.assertTrue(line)
                    if ends:
                        process.send_signal(signal.SIGTERM)
                    else:
                        os.close(other)
                    out, err = process.communicate(timeout=HANGS)
                if ends:
                    os.close(other)
                self.assertEqual(process.returncode, -signal.SIGTERM if ends else 0, err)
                if not ends:
                    self.assertEqual(json.loads(out)["logits_hash"], expected)

    def test_an_fp8_kv_cache_takes_about_half(self):
        long = ("--prompt-tokens", "500", "-n", "524")  # 64 blocks: whole pages
        plain, fp8 = (run_json("plan", DEMO, *long, "--kv-cache-dtype", d) for d in ("bf16", "fp8_e4m3"))
        # Heads of 64 bytes, and a scale of 4 for each.
        self.assertEqual(fp8["uses"]["kv_cache"] * 128, plain["uses"]["kv_cache"] * 68)
        self.assertEqual(fp8["kv_blocks"], plain["kv_blocks"])
        budget = ("--memory", fp8["smallest"]["memory"])
        args = ("run", DEMO, "-p", "It was", "-n", "40", "--ignore-eos", "--kv-cache-dtype", "fp8_e4m3")
        alone = run_json(*args)
        self.assertNotEqual(alone["logits_hash"], run_json(*args[:-2])["logits_hash"])
        if not SANITIZED:
            small = run_json(*args, *budget)
            self.assertEqual((small["logits_hash"], small["token_ids"]), (alone["logits_hash"], alone["token_ids"]))
            self.assertLessEqual(small["memory"]["measured_peak"], budget[1])

    def test_plan_agrees_with_the_run(self):
        plan = run_json("plan", DEMO, "--quantization", "fp8")
        self.assertTrue(plan["fits"])
        pages = sum(-(-u["bytes"] // 4096) for u in plan["units"])
        self.assertEqual(pages * 4096, plan["uses"]["weights"])
        result = sluice("plan", DEMO, "--memory", "12MiB", "--json", "--quiet")
        self.assertEqual(result.returncode, 4)
        self.assertFalse(json.loads(result.stdout)["fits"])

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_what_does_not_fit_is_streamed_as_planned(self):
        args = (DEMO, "--quantization", "fp8")
        smallest = run_json("plan", *args, "--prompt-tokens", "8", "-n", "8")["smallest"]["memory"]
        plan = run_json("plan", *args, "--prompt-tokens", "8", "-n", "8", "--memory", smallest)
        self.assertTrue(plan["fits"])
        self.assertGreater(plan["bytes_per_sweep"], 0)
        self.assertEqual(plan["bytes_per_sweep"], sum(u["streamed_bytes"] for u in plan["units"]))
        self.assertLess(plan["bytes_per_sweep"], plan["bytes_of_first_sweep"])
        self.assertIn("disk", {u["place"] for u in plan["units"]})
        more = [h["bytes_per_sweep"] for h in plan["would_help"]]
        self.assertEqual(more[-1], 0)
        self.assertEqual(more, sorted(more, reverse=True))
        report = self.path / "report.json"
        run = ("run", *args, "--token-ids", "1,2,3", "-n", "8", "--ignore-eos", "--report", report)
        streamed = run_json(*run, "--memory", smallest)
        stream = json.loads(report.read_text())["stream"]
        self.assertGreaterEqual(stream["bytes_read"], 8 * stream["bytes_per_sweep"])
        self.assertIn("streamed", sluice("report", report).stdout)
        resident = run_json(*run)
        self.assertIsNone(json.loads(report.read_text())["stream"])
        self.assertEqual(streamed["token_ids"], resident["token_ids"])
        self.assertEqual(streamed["logits_hash"], resident["logits_hash"])
        self.assertLessEqual(streamed["memory"]["measured_peak"], smallest)

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_spill_cache_is_filled_reused_listed_and_cleared(self):
        cache = self.path / "spill"
        args = (DEMO, "--quantization", "fp8", "--spill-dir", cache)
        smallest = run_json("plan", *args, "--prompt-tokens", "3", "-n", "4")["smallest"]["memory"]
        self.assertFalse(cache.exists(), "a plan writes nothing")
        report = self.path / "report.json"
        run = ("run", *args, "--token-ids", "1,2,3", "-n", "4", "--ignore-eos", "--memory", smallest,
               "--report", report)
        outcomes, hashes = [], set()
        for more in ((), (), ("--verify-spill",)):
            hashes.add(run_json(*run, *more)["logits_hash"])
            outcomes.append(json.loads(report.read_text())["spill"]["outcome"])
        self.assertEqual(outcomes, ["written", "reused", "verified"])
        self.assertIn("spill ", sluice("report", report).stdout)
        listed = json.loads(sluice("spill", "--spill-dir", cache, "--json").stdout)
        self.assertEqual([f["scheme"] for f in listed["files"]], ["fp8_per_channel"])
        self.assertEqual(listed["files"][0]["model"], str(DEMO.resolve()))
        self.assertIn("removed", sluice("spill", "--spill-dir", cache, "--clear").stdout)
        self.assertEqual(list(cache.iterdir()), [])
        both = ("--spill-dir", cache, "--spill-dir", self.path / "other")
        hashes.add(run_json(*run, *both[2:])["logits_hash"])
        listed = json.loads(sluice("spill", *both, "--json").stdout)
        self.assertEqual([pathlib.Path(f["file"]).parent for f in listed["files"]], [cache, self.path / "other"])
        self.assertEqual(len({pathlib.Path(f["file"]).read_bytes() for f in listed["files"]}), 1)
        plain = ["none" if a == cache else a for a in run]
        hashes.add(run_json(*plain)["logits_hash"])
        self.assertEqual(len(hashes), 1)
        self.assert_fails(2, "--spill-limit", *run, "--spill-limit", "much")
        self.assert_fails(2, "--verify-spill", *plain, "--verify-spill")

    def test_what_a_spill_file_says_cannot_speak_to_the_terminal(self):
        header = {"format": "sluice.spill/2", "model": "m\x1b[31m\n", "scheme": "s\x07", "fingerprint": "",
                  "tensors": 0, "index_offset": 0, "index_bytes": 0, "index_checksum": ""}
        (self.path / "a.spill").write_bytes(json.dumps(header).encode().ljust(16384, b"\0"))
        listed = sluice("spill", "--spill-dir", self.path).stdout
        self.assertRegex(listed, r"s\? +m\?\[31m\?\n")

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_a_kill_at_any_moment_leaves_a_cache_that_works(self):
        cache = self.path / "spill"
        args = (DEMO, "--quantization", "fp8", "--spill-dir", cache)
        smallest = run_json("plan", *args, "--prompt-tokens", "3", "-n", "4")["smallest"]["memory"]
        run = ("run", *args, "--token-ids", "1,2,3", "-n", "4", "--ignore-eos", "--memory", smallest)
        want = run_json(*["none" if a == cache else a for a in run])["logits_hash"]
        for delay in (0.005, 0.01, 0.02, 0.03, 0.05, 0.08):
            with subprocess.Popen([SLUICE, *map(str, run)], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as process:
                time.sleep(delay)
                process.kill()
        self.assertEqual(run_json(*run)["logits_hash"], want)
        self.assertEqual(run_json(*run)["logits_hash"], want)
        self.assertEqual([f.suffix for f in cache.iterdir()], [".spill"])

    def test_guessing_ahead_changes_only_the_number_of_passes(self):
        run = ("run", DEMO, "-p", "And the LORD said unto", "-n", "60", "--ignore-eos")
        plain = run_json(*run, "--speculation", "none")
        ahead = run_json(*run, "--speculation", "prompt_lookup")
        for key in ("text", "token_ids", "logits_hash"):
            self.assertEqual(plain[key], ahead[key])
        self.assertEqual(plain["timings"]["decode_steps"], 59)
        self.assertLess(ahead["timings"]["decode_steps"], 59)
        self.assertEqual(run_json(*run)["timings"]["guessed_tokens"], 0)  # resident: no need
        drafted = run_json(*run, "--draft-model", DEMO, "--memory", "200MiB")
        self.assertEqual(plain["logits_hash"], drafted["logits_hash"])
        self.assertGreater(drafted["timings"]["accepted_tokens"], 0)
        memory = drafted["memory"]
        self.assertLessEqual(memory["ledger_peak"], memory["predicted_peak"])
        self.assert_fails(2, "--draft-model", *run, "--draft-model", DEMO, "--speculation", "none")

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_a_model_and_its_draft_have_one_plan(self):
        small = write_checkpoint(self.path / "small", sliding_window=16, model_type="mistral", num_hidden_layers=2)
        for model, draft in ((DEMO, small), (small, DEMO)):
            options = ("--draft-model", draft)
            run = ("run", model, "--token-ids", "1,2,3", "-n", "30", "--ignore-eos")
            plan = run_json("plan", model, "--prompt-tokens", "3", "-n", "30", *options)
            smallest = plan["smallest"]["memory"]
            self.assertGreaterEqual(plan["needed_bytes"], smallest)
            self.assertGreater(plan["uses"]["draft_model"], 0)
            for refused in ("1MiB", smallest - (2 << 20)):
                result = sluice(*run, *options, "--memory", refused)
                self.assertEqual(result.returncode, 4)
                named = int(result.stderr.split("the smallest budget that works is --memory ")[1].split("MiB")[0])
                self.assertAlmostEqual(named, -(-smallest >> 20), delta=1)  # two processes
            expected = run_json(*run)["logits_hash"]
            for budget in (smallest, (smallest + plan["needed_bytes"]) // 2, plan["needed_bytes"]):
                out = run_json(*run, *options, "--memory", budget)
                self.assertEqual(out["logits_hash"], expected)
                memory = out["memory"]
                self.assertLessEqual(memory["ledger_peak"], memory["predicted_peak"])
                self.assertLessEqual(memory["measured_peak"], budget)
                self.assertLess(abs(memory["predicted_peak"] - memory["measured_peak"]), max(memory["measured_peak"] // 100, 1 << 20))

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_a_signal_lowers_the_budget_of_a_run(self):
        run = ("run", DEMO, "-p", "And the LORD said unto", "-n", "1000", "--ignore-eos")
        text = self.path / "text"

        def wait_for(size):
            while text.stat().st_size < size:
                self.assertIsNone(process.poll())
                time.sleep(0.01)

        with text.open("w") as out, subprocess.Popen(
                [SLUICE, *map(str, run), "--memory", "60MiB"], text=True, stdout=out,
                stderr=subprocess.PIPE) as process:
            wait_for(1)
            for budget in ("45.0 MiB", "33.8 MiB"):
                process.send_signal(signal.SIGUSR1)
                self.assertIn(f"the budget is {budget} now", process.stderr.readline())
            wait_for(text.stat().st_size + 200)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=HANGS)
        self.assertTrue(sluice(*run).stdout.startswith(text.read_text()))

    def test_shards_may_lie_in_several_directories(self):
        shutil.copytree(DEMO, self.path / "a")
        (self.path / "b").mkdir()
        shard = sorted((self.path / "a").glob("model-*.safetensors"))[1]
        shutil.move(shard, self.path / "b" / shard.name)
        run = ("run", self.path / "a", "-p", "And the LORD said unto", "-n", "8", "--ignore-eos")
        self.assert_fails(3, shard.name, *run)
        mirrored = run_json(*run, "--mirror", self.path / "b", "--mirror", DEMO)
        self.assertEqual(mirrored["logits_hash"], run_json("run", DEMO, *run[2:])["logits_hash"])

    def test_place_decides_what_is_streamed(self):
        run = ("run", DEMO, "-p", "And the LORD said unto", "-n", "8", "--ignore-eos")
        place = ("--place", "layers.2.mlp=host,layers.1-2=disk")
        units = {u["name"]: u for u in run_json("plan", DEMO, *place)["units"]}
        self.assertEqual(units["model.layers.0"]["place"], "host")
        self.assertEqual(units["model.layers.3"]["place"], "host")
        self.assertGreater(units["model.layers.1"]["streamed_bytes"],
                           units["model.layers.2"]["streamed_bytes"])
        self.assertGreater(units["model.layers.2"]["streamed_bytes"], 0)
        self.assertEqual(run_json(*run, *place)["logits_hash"], run_json(*run)["logits_hash"])
        self.assert_fails(2, "matches no parameter", *run, "--place", "layers.99=disk")
        self.assert_fails(2, "--place layers.0=tape: unknown place tape; choose device, host, cpu, cached or disk", *run,
                          "--place", "layers.0=tape")

    def test_places_of_experts(self):
        model = SOURCE / "tests/data/models/mixtral"
        run = ("run", model, "--token-ids", "5,6,7", "-n", "8", "--ignore-eos")
        whole = run_json(*run)
        for place in ("experts.*=host", "experts.*=disk", "experts.*=cached", "layers.0.*.experts.*=cached,layers.1=disk"):
            self.assertEqual(run_json(*run, "--place", place)["token_ids"], whole["token_ids"], place)
        for place in ("device", "cpu"):
            self.assert_fails(2, f"--place experts.*={place}: this run has no device; choose host or disk", *run,
                              "--place", f"experts.*={place}")

    def test_options_of_a_gpu_are_refused_without_one(self):
        run = ("run", SOURCE / "tests/data/models/mixtral", "--token-ids", "5,6,7", "-n", "1")
        for option in (("--cpu-moe",), ("--n-cpu-moe", "1"), ("--cpu-rows", "0")):
            self.assert_fails(2, f"{' '.join(option)}: needs --device cuda", *run, *option)
        for wrong in ("0", "-1", "many"):
            self.assert_fails(2, "--n-cpu-moe", *run, "--n-cpu-moe", wrong)
        self.assert_fails(2, "does not go with --", *run, "--cpu-moe", "--n-cpu-moe", "1")

    def test_a_plan_for_a_longer_prompt_than_a_sequence_says_so(self):
        plan = sluice("plan", DEMO, "--prompt-tokens", "5000")
        self.assertEqual(plan.returncode, 0)
        self.assertIn("warning: a sequence may have 1024 tokens", plan.stderr)
        self.assertEqual(sluice("plan", DEMO, "--prompt-tokens", "1000", "-n", "100").stderr, "")

    def test_the_longest_sequence_that_fits(self):
        def plan(*more):
            return run_json("plan", DEMO, "--prompt-tokens", "8", "-n", "8", *more)
        longest = plan("--max-model-len", "auto")["max_model_len"]
        self.assertEqual(longest, plan()["max_model_len"])
        smallest = plan()["smallest"]["memory"]
        tight = plan("--max-model-len", "auto", "--memory", smallest)
        self.assertLess(tight["max_model_len"], longest)
        self.assertTrue(tight["fits"])
        many = plan("--max-num-seqs", "4")
        self.assertEqual(many["kv_blocks"], 4 * plan()["kv_blocks"])
        self.assertEqual(many["uses"]["kv_cache"], 4 * plan()["uses"]["kv_cache"])
        self.assert_fails(2, "--max-model-len", "plan", DEMO, "--max-model-len", "long")

    def test_quantization_error_bound(self):
        self.assert_fails(3, "--max-quant-error", "run", DEMO, "-p", "x", "--quantization", "fp8",
                          "--max-quant-error", "0.001", "--quiet")
        run_json("run", DEMO, "-p", "x", "-n", "1", "--quantization", "fp8", "--max-quant-error", "0.05")
