"""What plan says of memory, beside what a run then takes."""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import unittest

from checkpoints import write_checkpoint
from program import DEMO, SANITIZED, SLUICE, Case, run_json, run_json_and_peak, sluice
from server import Server

MIB = 1 << 20


def write_experts(path):
    """A small model of four thousand tensors."""
    return write_checkpoint(path, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], shards=3,
                            num_hidden_layers=16, num_experts=80, num_experts_per_tok=4, moe_intermediate_size=16,
                            norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], attention_bias=False)


@unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
class PeakTest(Case):
    def test_the_measured_peak_is_the_predicted_one(self):
        # The pages of a file that was just linked lie in the kernel's cache in another way than those of a copy, or of
        # one that was read, and come in larger pieces.
        program = shutil.copy(SLUICE, self.path / "sluice")

        def run(*options):
            command = [program, "run", DEMO, "--token-ids", "1,2,3,4", "-n", "12", "--json", "--quiet", *options]
            return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["memory"]

        streamed = ("--memory", "64MiB", "--place", "layers.*=disk", "--spill-dir", "none")
        for options in ((), ("--memory", "40MiB"), ("--memory", "40MiB", "--reader", "mmap"), streamed,
                        (*streamed, "--reader", "mmap"), (*streamed, "--quantization", "fp8"),
                        ("--temperature", "1", "--logprobs", "5"), ("--kv-cache-dtype", "fp8")):
            memory = run(*options)
            with self.subTest(options=options):
                bound = max(memory["measured_peak"] // 100, MIB)
                self.assertLess(abs(memory["predicted_peak"] - memory["measured_peak"]), bound)
                self.assertLessEqual(memory["ledger_peak"], memory["predicted_peak"])

    def test_the_smallest_budget_is_that_of_the_same_options(self):
        run = ("--token-ids", "1,2,3,4,1,2,3,4", "-n", "12", "--ignore-eos")
        expected = run_json("run", DEMO, *run)["logits_hash"]
        plan = ("plan", DEMO, "--prompt-tokens", "8", "-n", "12")
        activations = {}
        for options in ((), ("--speculation", "none"), ("--speculation", "prompt_lookup"), ("--logprobs", "5"),
                        ("--logit-bias", "5=1.5"), ("--draft-model", DEMO), ("--prompt-cache", self.path / "cache"),
                        ("--spill-limit", "1MiB", "--quantization", "fp8")):
            with self.subTest(options=options):
                planned = run_json(*plan, "--memory", "200MiB", *options)
                budget = planned["smallest"]["memory"]
                out = run_json("run", DEMO, *run, "--memory", budget, *options)
                self.assertLessEqual(out["memory"]["measured_peak"], budget)
                activations[options] = planned["uses"]["activations"]
                if "--logit-bias" not in options and "--quantization" not in options:
                    self.assertEqual(out["logits_hash"], expected)
        self.assertGreater(activations["--speculation", "prompt_lookup"], activations[()])  # more logits
        self.assertGreater(activations["--logprobs", "5"], activations[()])

    def test_many_tensors_are_counted(self):
        model = write_experts(self.path / "experts")
        report, text = self.path / "report.json", self.path / "text"
        text.write_text("It was the best of times, it was the worst of times")
        tokens = ("--prompt-tokens", 3, "-n", 3)
        run = ("run", model, "--token-ids", "1,2,3", "-n", 3, "--ignore-eos")
        for options, verb in (((), run), ((), (*run, "--report", report)), (("--quantization", "fp8"), run),
                              ((), ("eval", model, "--text", text, "--max-model-len", 6))):
            with self.subTest(verb=verb[0], options=options):
                budget = run_json("plan", model, *tokens, *options)["smallest"]["memory"]
                out, peak = run_json_and_peak(*verb, *options, "--memory", budget)
                memory = out["memory"]
                self.assertLessEqual(peak, budget)
                self.assertLess(abs(peak - memory["predicted_peak"]), max(peak // 100, MIB))
                self.assertLess(abs(peak - memory["measured_peak"]), MIB // 2)  # counted by processors, and added up in two ways
                self.assertLessEqual(memory["ledger_peak"], memory["predicted_peak"])
        inspected, peak = run_json_and_peak("inspect", model)
        self.assertLess(peak, run_json("plan", model, *tokens)["smallest"]["memory"])
        names = [sorted(t["name"] for t in o["tensors"]) for o in (inspected, json.loads(report.read_text())["load"])]
        self.assertEqual(names[0], names[1])
        self.assertGreater(len(names[0]), 3980)

    def test_orders_of_inputs_are_counted(self):
        gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": True}
        model = write_checkpoint(self.path / "model", intermediate_size=1 << 18, quantization_config=gptq)
        memory = run_json("run", model, "--token-ids", "1,2,3", "-n", 2, "--memory", "256MiB")["memory"]
        self.assertLess(abs(memory["predicted_peak"] - memory["measured_peak"]), MIB)

    def test_an_exchange_of_weights_stays_within_the_budget(self):
        model = write_experts(self.path / "experts")
        refused = sluice("serve", model, "--port", 0, "--memory", "12MiB", "--max-num-seqs", 1)
        smallest = int(re.search(r"--memory (\d+)MiB", refused.stderr)[1])
        for budget in (smallest, 256):
            with self.subTest(budget=budget):
                server = Server(model, "--memory", f"{budget}MiB", "--max-num-seqs", 1, "--admin-api")
                self.addCleanup(server.end)
                exchanged = server.post("/update_weights_from_disk", {"model_path": str(model)})[0] == 200
                self.assertTrue(exchanged or budget == smallest)  # where it is refused, nothing has changed
                self.assertEqual(server.post("/v1/completions", {"prompt": "Anne", "max_tokens": 2})[0], 200)
                memory = server.get("/v1/memory")[1]
                peak = int(re.search(r"VmHWM:\s*(\d+) kB", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1])
                self.assertLessEqual(peak << 10, budget << 20)
                self.assertLess(peak << 10, memory["predicted_peak"] + MIB)
                self.assertLessEqual(memory["ledger_peak"], memory["predicted_peak"])

    def test_metadata_of_a_header_takes_no_memory(self):
        def peak(metadata):
            model = self.path / "model"
            shutil.copytree(DEMO, model)
            first = min(model.glob("*.safetensors"))
            data = first.read_bytes()
            (length,) = struct.unpack("<Q", data[:8])
            header = json.loads(data[8:8 + length])
            header["__metadata__"] = metadata
            text = json.dumps(header, ensure_ascii=False).encode()
            first.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])
            memory = run_json("run", model, "--token-ids", "1", "-n", "2", "--memory", "40MiB")["memory"]
            shutil.rmtree(model)
            return memory["measured_peak"]

        plain = peak({"format": "pt"})
        many = {f"key {i}": "value " * 20 for i in range(200_000)}
        for large in ({"note": "\u00e9" * (12 << 20)}, many):
            self.assertLess(peak(large), plain + MIB)
