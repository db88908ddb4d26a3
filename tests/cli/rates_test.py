"""What loads and runs teach `plan`."""

import json
import math
import os
import pathlib
import struct
import unittest

from program import DEMO, SANITIZED, SOURCE, Case, run_json, sluice

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
    "intermediate_size": 4096, "num_hidden_layers": 10, "num_attention_heads": 8,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 1024, "tie_word_embeddings": False,
    "max_position_embeddings": 256, "rope_theta": 1e4, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "torch_dtype": "bfloat16"}
RUN = ("--token-ids", "1,2,3", "-n", 4, "--ignore-eos", "--speculation", "none")
SHAPE = ("--prompt-tokens", 3, "-n", 4)


def shapes():
    hidden, inner, vocab = (CONFIG[k] for k in ("hidden_size", "intermediate_size", "vocab_size"))
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (hidden,)
        for name in "qkvo":
            yield f"{prefix}self_attn.{name}_proj.weight", (hidden, hidden)
        for name in ("gate", "up"):
            yield f"{prefix}mlp.{name}_proj.weight", (inner, hidden)
        yield f"{prefix}mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocab, hidden)


def zeros(directory):
    """A checkpoint of 330 MB that takes nothing of the disk."""
    directory.mkdir()
    header, end = {}, 0
    for name, shape in shapes():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    (directory / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return directory


class RatesTest(Case):
    def setUp(self):
        super().setUp()
        before = os.environ["XDG_CACHE_HOME"]
        self.addCleanup(os.environ.__setitem__, "XDG_CACHE_HOME", before)
        os.environ["XDG_CACHE_HOME"] = str(self.path / "cache")
        self.rates = pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "sluice/rates.json"

    def sources(self, *args):
        plan = run_json("plan", *args, *SHAPE)
        return [plan["rates"][f"{name}_source"] for name in ("disk", "sweep", "memory", "link")]

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_runs_teach_the_plan(self):
        model = zeros(self.path / "model")
        self.assertEqual(self.sources(model), ["assumed"] * 4)
        run_json("run", model, *RUN)
        self.assertEqual(self.sources(model)[2], "runs")
        self.assertTrue(json.loads(self.rates.read_text())["steps"])
        small = (model, "--memory", "100MiB")
        before = run_json("plan", *small, *SHAPE)
        run_json("run", *small, *RUN)
        self.assertEqual(self.sources(*small)[1:3], ["runs", "runs"])
        after = run_json("plan", *small, *SHAPE)
        for figure in ("tokens_per_second", "load_seconds"):
            self.assertGreater(after[figure], 0)
        self.assertNotEqual(after["rates"]["sweep_bytes_per_second"],
                            before["rates"]["sweep_bytes_per_second"])
        self.assertNotEqual(after["tokens_per_second"], before["tokens_per_second"])
        self.assertIn("seen in recent runs", sluice("plan", *small, *SHAPE).stdout)

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_a_run_that_streams_shows_memory_too(self):
        model = zeros(self.path / "model")
        run_json("run", model, "--memory", "215MiB", *RUN)
        self.assertEqual(self.sources(model)[1:3], ["runs", "runs"])
        self.assertEqual(self.sources(model, "--quantization", "int8")[2], "assumed")

    def test_small_models_teach_nothing(self):
        run_json("run", DEMO, *RUN)
        self.assertFalse(self.rates.exists())
        self.assertIn("assumed", sluice("plan", DEMO).stdout)

    def test_a_run_shows_how_soon_experts_are_used_again(self):
        options = (SOURCE / "tools/demo-moe-model", "--place", "experts=cached")
        before = run_json("plan", *options)["experts"]
        self.assertEqual(before["hit_rate_source"], "assumed")
        self.assertEqual(before["hit_rate"], before["slots"] / before["experts"])
        run_json("run", *options, "--token-ids", "1,2,3", "-n", 60, "--ignore-eos")
        after = run_json("plan", *options)["experts"]
        self.assertEqual(after["hit_rate_source"], "runs")
        self.assertTrue(0 < after["hit_rate"] < 1, "an expert's first use is a miss")
        self.assertIn("predicted from an earlier run", sluice("plan", *options).stdout)

    def test_without_a_place_nothing_is_said(self):
        model = zeros(self.path / "model")
        (self.path / "cache").write_text("a file")
        shown = sluice("run", model, *RUN, "--spill-dir", "none")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertNotIn("rates", shown.stderr)

    def test_the_plan_says_what_a_bench_measured(self):
        disk = str(os.stat(DEMO).st_dev)
        self.rates.parent.mkdir(parents=True)
        rates = {"disks": {disk: [{"rate": 2e9, "from": "bench disk"}]}}
        self.rates.write_text(json.dumps(rates))
        self.assertEqual(self.sources(DEMO), ["bench disk", "bench disk", "assumed", "assumed"])
        self.assertIn("measured by bench disk", sluice("plan", DEMO).stdout)
