"""Checkpoints with scales of the KV cache, through the sluice binary."""

import json
import shutil
import struct
import unittest

from program import BRIEF, DEMO, IN_PROCESS, Case, run_json, sluice

FP8 = ("--kv-cache-dtype", "fp8_e4m3")


@unittest.skipIf(BRIEF, IN_PROCESS)
class KvScalesTest(Case):
    def setUp(self):
        super().setUp()
        self.model = self.path / "model"
        shutil.copytree(DEMO, self.model)
        self.layers = json.loads((DEMO / "config.json").read_text())["num_hidden_layers"]

    def add(self, scales):
        """A shard of float32 scalars."""
        entries = {name: {"dtype": "F32", "shape": [], "data_offsets": [4 * i, 4 * i + 4]}
                   for i, name in enumerate(scales)}
        header = json.dumps(entries).encode()
        data = struct.pack(f"<{len(scales)}f", *scales.values())
        (self.model / "scales.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
        path = self.model / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        index["weight_map"] |= {name: "scales.safetensors" for name in scales}
        index.pop("metadata", None)
        path.write_text(json.dumps(index))

    def scales(self, value=0.05):
        return {f"model.layers.{layer}.self_attn.{side}_scale": value
                for layer in range(self.layers) for side in "kv"}

    def test_fp8_uses_them_and_other_types_list_them(self):
        self.add(self.scales())
        run = ("-p", "It was", "-n", "20", "--ignore-eos")
        plain, fp8 = (run_json("run", model, *run, *FP8) for model in (DEMO, self.model))
        self.assertNotEqual(plain["logits_hash"], fp8["logits_hash"])
        self.assertEqual(run_json("run", self.model, *run)["logits_hash"], run_json("run", DEMO, *run)["logits_hash"])

        used, ignored = (run_json("inspect", self.model, *options) for options in (FP8, ()))
        self.assertEqual([t["name"] for t in used["kv_scales"]], sorted(self.scales()))
        self.assertEqual((used["ignored_tensors"], ignored["kv_scales"]), ([], []))
        self.assertEqual(sorted(ignored["ignored_tensors"]), sorted(self.scales()))
        self.assertEqual(used["parameters"], ignored["parameters"])
        self.assertIn("known, not read", sluice("inspect", self.model).stdout)
        self.assertIn("(KV cache)", sluice("inspect", self.model, *FP8).stdout)

    def test_plan_and_report_say_where_they_are_from(self):
        self.add(self.scales())
        long = ("--prompt-tokens", "500", "-n", "524", *FP8)  # 64 blocks: whole pages
        own, layer = (run_json("plan", model, *long) for model in (DEMO, self.model))
        self.assertEqual(own["kv_cache"], {"dtype": "F8_E4M3", "scales": "token_and_head"})
        self.assertEqual(layer["kv_cache"], {"dtype": "F8_E4M3", "scales": "checkpoint"})
        self.assertEqual(layer["uses"]["kv_cache"] * 68, own["uses"]["kv_cache"] * 64)
        self.assertIsNone(run_json("plan", self.model)["kv_cache"]["scales"])
        self.assertIn("the checkpoint's", sluice("plan", self.model, *FP8).stdout)

        report = self.path / "report.json"
        run_json("run", self.model, "-p", "x", "-n", "2", *FP8, "--report", report)
        self.assertEqual(json.loads(report.read_text())["kv_cache"], layer["kv_cache"])
        self.assertIn("scales from the checkpoint", sluice("report", report).stdout)

    def test_bad_ones_are_refused(self):
        scales = self.scales()
        first = next(iter(scales))
        for bad, mention in ((0.0, "is 0"), (-1.0, "is -1"), (float("nan"), "is nan")):
            self.add(scales | {first: bad})
            self.assert_fails(3, f"scales.safetensors: {first} {mention}", "plan", self.model, *FP8)
        self.assertEqual(sluice("plan", self.model).returncode, 0)
        shutil.copy(DEMO / "model.safetensors.index.json", self.model)
        del scales[first]
        self.add(scales)
        self.assert_fails(3, f"without {first}", "run", self.model, "-p", "x", *FP8)
