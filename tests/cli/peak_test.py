"""What plan says of memory, beside what a run then takes."""

import json
import shutil
import struct
import subprocess
import unittest

from program import DEMO, SANITIZED, SLUICE, Case, run_json

MIB = 1 << 20


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
