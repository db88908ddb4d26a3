"""Checkpoints of tools/make-checkpoint, and rates of them."""

import json
import statistics
import subprocess
import sys
import unittest

from checkpoints import read_floats
from program import DEMO, SANITIZED, SOURCE, Case, run_json, sluice

SIZES = {"hidden-size": 256, "intermediate-size": 512, "num-hidden-layers": 2, "num-attention-heads": 4, "num-key-value-heads": 2,
         "head-dim": 64, "vocab-size": 2048}


class MakeCheckpointTest(Case):
    def make(self, shape, **sizes):
        options = [word for name, value in (SIZES | sizes).items() for word in (f"--{name}", str(value))]
        return subprocess.run([sys.executable, "-I", SOURCE / "tools/make-checkpoint", "--shape", shape, *options, "--out",
                               self.path / shape], capture_output=True, text=True, check=False)

    def logits(self, shape):
        (self.path / "ids").write_text(json.dumps([[5, 17, 300, 2, 44]]))
        out = sluice("logits", self.path / shape, "--token-ids", self.path / "ids", "--out", self.path / "logits", "--quiet")
        self.assertEqual(out.returncode, 0, out.stderr)
        return read_floats(self.path / "logits")["logits.0"]

    def test_matrices_of_four_bits_are_like_the_others(self):
        deviations = []
        for shape in ("8b", "8b_gptq"):
            self.assertEqual(self.make(shape).returncode, 0)
            deviations.append(statistics.pstdev(self.logits(shape)))
        self.assertAlmostEqual(deviations[1] / deviations[0], 1, delta=0.2)
        tables = 2 * 2 * 2048 * 256  # embeddings and head [bytes]
        layers = [run_json("plan", self.path / shape)["uses"]["weights"] - tables for shape in ("8b", "8b_gptq")]
        self.assertAlmostEqual(layers[0] / layers[1], 16 / (4 + (16 + 4) / 128), delta=0.3)

    def test_experts_of_four_bits(self):
        self.assertEqual(self.make("gpt_oss").returncode, 0)
        self.assertGreater(statistics.pstdev(self.logits("gpt_oss")), 0.1)
        tables = 2 * 2 * 2048 * 256
        experts = 2 * 32 * 3 * 512 * 256 * 4.25 / 8  # layers, experts, matrices
        weights = run_json("plan", self.path / "gpt_oss")["uses"]["weights"]
        self.assertAlmostEqual(weights / (tables + experts), 1.05, delta=0.1)

    def test_inputs_that_are_no_whole_groups_are_refused(self):
        made = self.make("8b_gptq", **{"intermediate-size": 320})
        self.assertEqual(made.returncode, 2)
        self.assertIn("multiples of 128", made.stderr)

    @unittest.skipIf(SANITIZED, "it measures the memory's bandwidth, which takes half a minute under a sanitizer")
    def test_decode_after_a_long_prompt(self):
        out = run_json("bench", "decode", DEMO, "--tokens", "2", "--prompt-tokens", "100")
        self.assertEqual((out["prompt_tokens"], out["steps"]), (100, 2))
        self.assertGreater(out["tokens_per_second"], 0)
        refused = sluice("bench", "decode", DEMO, "--prompt-tokens", "1000000")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("more than the model's", refused.stderr)
