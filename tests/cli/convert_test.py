"""sluice convert and sluice quantize: checkpoints that other programs load, of the bits that a run has."""

import array
import json
import re
import shutil
import struct
import subprocess
import time
import unittest

import containers
from checkpoints import write_checkpoint
from program import DEMO, HANGS, ORACLE, SANITIZED, SLUICE, SOURCE, Case, run_json, sluice, sluice_and_peak

MODELS = SOURCE / "tests/data/models"
MIB = 1 << 20
# What a scheme becomes where its inputs are not rounded.
WEIGHTS_ALONE = {"fp8_dynamic": "fp8_per_channel", "fp8_dynamic_per_block": "fp8_per_block", "int8": "int8_weight_only"}
FORMATS = {"fp8_per_tensor": "float-quantized", "fp8_per_channel": "float-quantized", "fp8_per_block": "float-quantized",
           "fp8_dynamic": "float-quantized", "fp8_dynamic_per_block": "float-quantized", "int8": "int-quantized",
           "int8_weight_only": "pack-quantized", "int4_g128": "pack-quantized", "int4_g32": "pack-quantized",
           "mxfp8": "mxfp8-quantized", "mxfp4": "mxfp4-pack-quantized", "nvfp4": "nvfp4-pack-quantized"}

# Of each kind of difference between a converter's tensors and the hub's: rows of rotary pairs, fused heads, values of latent
# attention, rates of recurrences, experts, parts of a rope, dimensions.
GGUF_MODELS = ["olmo", "baichuan", "falcon_grouped", "mpt", "youtu", "deepseek_v32", "jamba_dense", "granitemoeshared", "llama4_text", "dbrx"]


def read_folder(folder):
    """Every file by its name."""
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def tensors_of(folder):
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= containers.read_safetensors(file)
    return tensors


def floats(dtype, data):
    """The values of a tensor's bytes."""
    if dtype == "BF16":
        return array.array("f", b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)))
    return struct.unpack(f"<{len(data) // 2}e", data) if dtype == "F16" else array.array("f", data)


def logits(model, folder):
    (folder / "ids.json").write_text("[[5, 6, 7, 8, 9]]")
    sluice("logits", model, "--token-ids", folder / "ids.json", "--out", folder / "logits", "--dtype", "float32", "--spill-dir", "none")
    _, _, data = containers.read_safetensors(folder / "logits")["logits.0"]
    (folder / "logits").unlink()
    return array.array("f", data)


class ConvertTest(Case):
    def hash_of(self, model, *options):
        return run_json("run", model, "--token-ids", "5,6,7,8,9", "-n", "2", "--ignore-eos", "--spill-dir", "none", *options)["logits_hash"]

    def write(self, verb, model, name, *options):
        done = run_json(verb, model, self.path / name, *options)
        self.assertFalse((self.path / f"{name}.part").exists())
        return self.path / name, done

    def model(self, **changes):
        return write_checkpoint(self.path / "MODEL", **{"hidden_size": 256, "intermediate_size": 384, "head_dim": 128,
                                                        "num_attention_heads": 2, **changes})

    def test_containers_become_safetensors(self):
        source = MODELS / "smollm3"
        tensors = tensors_of(source)
        turned = [name for name, (_, shape, _) in tensors.items() if len(shape) == 2][::2]
        writers = {"bin": lambda to: containers.write_torch(to / "pytorch_model.bin", tensors, turned),
                   "npz": lambda to: containers.write_npz(to / "model.npz", tensors, turned)}
        for name, write in writers.items():
            model = self.path / name
            model.mkdir()
            shutil.copy(source / "config.json", model)
            (model / "chat_template.jinja").write_text("{{ messages }}")
            write(model)
            out, done = self.write("convert", model, f"{name}-out", "--max-shard-size", "40k", "--verify")
            self.assertGreater(done["files"], 2)
            self.assertEqual(tensors_of(out), tensors)
            index = json.loads((out / "model.safetensors.index.json").read_text())
            self.assertEqual(set(index["weight_map"]), set(tensors))
            self.assertEqual(index["metadata"]["total_size"], sum(len(data) for _, _, data in tensors.values()))
            for file in ("config.json", "chat_template.jinja"):
                self.assertEqual((out / file).read_bytes(), (model / file).read_bytes())
            self.assertEqual(self.hash_of(out), self.hash_of(source))

    def test_numbers_become_bf16(self):
        model = self.model(dtype="F32", torch_dtype="float32")
        out, _ = self.write("convert", model, "OUT", "--dtype", "bfloat16")
        self.assertEqual(json.loads((out / "config.json").read_text())["torch_dtype"], "bfloat16")
        stored = tensors_of(out)
        self.assertEqual(stored["lm_head.weight" if "lm_head.weight" in stored else "model.embed_tokens.weight"][0], "BF16")
        self.assertEqual(self.hash_of(out), self.hash_of(model, "--dtype", "bfloat16"))

    def test_the_bits_of_each_scheme(self):
        model = self.model(num_hidden_layers=2)
        head = [] if json.loads((model / "config.json").read_text())["tie_word_embeddings"] else ["lm_head"]
        hashes = {self.hash_of(model)}
        for scheme in ["fp8_per_block", "int8", "int4_g32", "nvfp4"] if SANITIZED else FORMATS:
            form = FORMATS[scheme]
            with self.subTest(scheme=scheme):
                out, done = self.write("quantize", model, scheme, "--quantization", scheme)
                made = self.hash_of(out)
                self.assertEqual(made, self.hash_of(model, "--quantization", WEIGHTS_ALONE.get(scheme, scheme)))
                hashes.add(made)
                config = json.loads((out / "config.json").read_text())["quantization_config"]
                [group] = config["config_groups"].values()
                self.assertEqual((config["format"], group["format"], group["targets"]), (form, form, ["Linear"]))
                self.assertEqual(group["input_activations"] is not None, scheme in WEIGHTS_ALONE)
                self.assertEqual(sorted(config["ignore"]), sorted(["model.embed_tokens", *(head or ["lm_head"])]))
                self.assertLess(done["largest_error"]["relative_rms_error"], 0.2)
                self.assertEqual((out / "tokenizer.json").read_bytes(), (model / "tokenizer.json").read_bytes())
        self.assertGreater(len(hashes), 4 if SANITIZED else 8)  # the scale of a block of 128 x 128 may be that of the tensor

    def test_the_bits_of_other_methods(self):
        model = self.model()
        for method, scheme in {"fp8": "fp8_per_block", "bitsandbytes": "nf4"}.items():
            out, _ = self.write("quantize", model, method, "--quantization", scheme, "--format", method)
            config = json.loads((out / "config.json").read_text())["quantization_config"]
            self.assertEqual(config["quant_method"], method)
            self.assertEqual(self.hash_of(out), self.hash_of(model, "--quantization", scheme))

    def test_rules_become_groups_and_an_ignore_list(self):
        model, name = self.model(), "model.layers.0.mlp.down_proj"
        for rule, groups in {"none": 1, "int8_weight_only": 2}.items():
            quantization = f"*.down_proj={rule},int4"
            out, _ = self.write("quantize", model, rule, "--quantization", quantization)
            config = json.loads((out / "config.json").read_text())["quantization_config"]
            self.assertEqual(len(config["config_groups"]), groups)
            self.assertEqual(name in config["ignore"], rule == "none")
            if groups == 2:
                self.assertEqual(config["config_groups"]["group_1"]["targets"], [name])
            self.assertEqual(self.hash_of(out), self.hash_of(model, "--quantization", quantization))

    def test_experts_are_layers_of_their_own(self):
        out, _ = self.write("quantize", MODELS / "mixtral", "OUT", "--quantization", "fp8")
        self.assertEqual(self.hash_of(out), self.hash_of(MODELS / "mixtral", "--quantization", "fp8"))
        ignored = json.loads((out / "config.json").read_text())["quantization_config"]["ignore"]
        self.assertTrue(any(name.endswith(".gate") for name in ignored), ignored)

    def test_goes_on_where_it_was_interrupted(self):
        model = self.model(intermediate_size=12288)  # matrices of the MLP are larger than the table of embeddings, which comes first
        request = ("--quantization", "fp8", "--max-shard-size", "700k")
        whole, done = self.write("quantize", model, "WHOLE", *request)
        out, part = self.path / "OUT", self.path / "OUT.part"
        limited = f"ulimit -f 2500; exec {SLUICE} quantize {model} {out} {' '.join(request)}"
        failed = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=HANGS)
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertIn("cannot", failed.stderr)
        kept = sorted(part.glob("*.safetensors"))
        self.assertGreater(len(kept), 1)
        self.assertFalse(out.exists())
        self.assert_fails(3, "another request has left it", "quantize", model, out, "--quantization", "int8")
        data = kept[0].read_bytes()
        kept[0].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        kept[1].write_bytes(kept[1].read_bytes()[:-1])
        again = run_json("quantize", model, out, *request)
        self.assertEqual((again["kept_files"], again["files"]), (len(kept) - 2, done["files"]))
        self.assertEqual(read_folder(out), read_folder(whole))
        self.assertFalse(part.exists())

    def test_gguf_is_the_same_model(self):
        for name in ("llama_tied",) if SANITIZED else ("llama_tied", "nemotron", "phi3_longrope", "olmoe", "gpt_oss", "granitemoe", "falcon_grouped", "qwen3_5",
                                                               "mlx_floats", "mistral4_text", "lfm2", "mamba2", "jamba_dense", "kimi_linear", "gemma3n"):
            with self.subTest(model=name):
                out, _ = self.write("convert", MODELS / name, name, "--format", "gguf", "--verify")
                self.assertEqual([file.name for file in out.iterdir()], ["model.gguf"])
                self.assertEqual(self.hash_of(out / "model.gguf"), self.hash_of(MODELS / name))

    def test_gguf_is_as_llama_cpp_makes_it(self):
        for name in ("kimi_k2",) if SANITIZED else ("kimi_k2", "glm_moe_dsa", "gemma4_e", "gemma4_text_moe", "olmo", "mamba"):
            with self.subTest(model=name):
                out, _ = self.write("convert", MODELS / name, name, "--format", "gguf")
                self.assertEqual(self.hash_of(out / "model.gguf"), self.hash_of(MODELS / name))
                made, expected = containers.read_gguf(out / "model.gguf"), containers.read_gguf(SOURCE / f"tests/data/gguf/{name}.gguf")
                self.assertEqual(sorted(made), sorted(expected))
                for tensor, (shape, kind, data) in made.items():
                    self.assertEqual((shape, kind), expected[tensor][:2], tensor)
                    if tensor.endswith("ssm_a"):  # a power of e, whose last bit may differ
                        self.assert_close(floats("F32", data), floats("F32", expected[tensor][2]), 1e-6)
                    else:
                        self.assertEqual(data, expected[tensor][2], tensor)

    def test_gguf_of_codes(self):
        for name in ("mlx_deepseek",) if SANITIZED else ("mlx_deepseek", "mlx_qwen3_next"):
            with self.subTest(model=name):
                source = SOURCE / "tests/data/formats" / name
                out, _ = self.write("convert", source, name, "--format", "gguf")
                self.assert_close(logits(source, self.path), logits(out / "model.gguf", self.path), 0.1)

    def test_gguf_has_the_tokenizer(self):
        out, _ = self.write("convert", self.model(), "OUT", "--format", "gguf")
        text = "Hello, world! 1234 \u00e9 \u4f60\u597d"
        tokens = [run_json("tokenize", model, "--text", text) for model in (self.path / "MODEL", out / "model.gguf")]
        self.assertEqual(*tokens)

    def test_gguf_types(self):
        model = self.model()
        before = logits(model, self.path)
        for scheme, tolerance in {"q8_0": 0.02, "q6_k": 0.06, "q5_k_m": 0.08, "q4_k_m": 0.15, "q4_0": 0.2, "mxfp4": 0.02}.items():
            with self.subTest(scheme=scheme):
                out, done = self.write("quantize", model, scheme, "--format", "gguf", "--quantization", scheme)
                self.assertEqual(done["files"], 1)
                self.assert_close(before, logits(out / "model.gguf", self.path), tolerance)

    def test_gguf_keeps_the_ends_of_texts(self):
        model = self.model(eos_token_id=[1, 7, 9])
        out, _ = self.write("convert", model, "OUT", "--format", "gguf")
        for end in (7, 9):
            done = run_json("run", out / "model.gguf", "-p", "a", "-n", "5", "--logit-bias", f"{end}=100", "--spill-dir", "none")
            self.assertEqual(done["finish_reason"], "stop")

    def test_gguf_warns_of_what_it_cannot_say(self):
        model = self.model()
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        tokenizer["added_tokens"][0] |= {"rstrip": True}
        tokenizer["model"]["ignore_merges"] = None
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        more = {name: ("F32", [1], bytes(4)) for name in ("mtp.norm.weight", "vision_tower.norm.weight")}
        containers.write_safetensors(model / "model.safetensors", tensors_of(model) | more)
        done = sluice("convert", model, self.path / "OUT", "--format", "gguf")
        self.assertIn(f"rstrip and single_word of {tokenizer['added_tokens'][0]['content']}", done.stderr)
        self.assertIn("2 tensors that are no part of the language model are left out", done.stderr)

    def test_gguf_refuses_values_beyond_a_type(self):
        model = self.model()
        name = "model.layers.0.mlp.down_proj.weight"
        tensors = tensors_of(model)
        dtype, shape, data = tensors[name]
        large = struct.pack("<f", 1e38)[2:] if dtype == "BF16" else struct.pack("<f", 1e38)
        containers.write_safetensors(model / "model.safetensors", tensors | {name: (dtype, shape, large + data[len(large):])})
        self.assert_fails(3, "has values that", "quantize", model, self.path / "OUT", "--format", "gguf", "--quantization", "q8_0")

    def test_gguf_of_another_chat_template_is_another_request(self):
        model, request = self.model(), ("--format", "gguf", "--quantization", "q8_0", "--max-shard-size", "100k")
        out = self.interrupted(model, request)
        (model / "chat_template.jinja").write_text("{{ messages }}")
        self.assert_fails(3, "another request has left it", "quantize", model, out, *request)

    def interrupted(self, model, request):
        """The name of an output of several files that a killed process has begun."""
        out, part = self.path / "OUT", self.path / "OUT.part"
        while not part.exists():  # it may be too fast to be killed
            shutil.rmtree(out, ignore_errors=True)
            process = subprocess.Popen([SLUICE, "quantize", model, out, *request, "--quiet"])
            while process.poll() is None and len(list(part.glob("model-*.gguf"))) < 3:
                time.sleep(0.001)
            process.kill()
            process.wait()
        return out

    def test_gguf_in_several_files_goes_on(self):
        model, request = self.model(), ("--format", "gguf", "--quantization", "q8_0", "--max-shard-size", "100k")
        whole, done = self.write("quantize", model, "WHOLE", *request)
        out = self.interrupted(model, request)
        again = run_json("quantize", model, out, *request)
        self.assertEqual(again["files"], done["files"])
        self.assertGreater(again["kept_files"], 0)
        self.assertEqual(read_folder(out), read_folder(whole))
        self.assertEqual(self.hash_of(next(out.glob("*-00001-of-*"))), self.hash_of(next(whole.glob("*-00001-of-*"))))

    def test_what_is_refused(self):
        model, out = self.model(), self.path / "OUT"
        cut = shutil.copytree(model, self.path / "CUT")
        (cut / "model.safetensors").rename(cut / "model-rank-0-part-0.safetensors")
        made, _ = self.write("quantize", model, "MADE", "--quantization", "fp8")
        for status, mention, words in [
                (2, "MADE", ("quantize", model, made, "--quantization", "fp8")),
                (2, "compressed-tensors: has no form for nf4", ("quantize", model, out, "--quantization", "nf4")),
                (2, "--format fp8", ("quantize", model, out, "--quantization", "int8", "--format", "fp8")),
                (2, "--format x", ("quantize", model, out, "--quantization", "int8", "--format", "x")),
                (2, "quantizes no matrix", ("quantize", model, out, "--quantization", "none")),
                (3, "it is stored as [inputs, outputs]", ("quantize", MODELS / "gpt2_noprefix", out, "--quantization", "fp8")),
                (3, "*.down_proj=none,int4_g128", ("quantize", DEMO, out, "--quantization", "int4")),
                (3, "one of several ranks has them", ("convert", cut, out)),
                (2, "--format gguf has q8_0", ("quantize", model, out, "--quantization", "int4", "--format", "gguf")),
                (2, "--format x", ("convert", model, out, "--format", "x")),
                (2, "leave .gguf out", ("convert", model, self.path / "OUT.gguf", "--format", "gguf")),
                (3, "some of its weights are keys", ("convert", MODELS / "apertus", out, "--format", "gguf")),
                (3, "say it all: num_key_value_heads", ("convert", MODELS / "dots3_note", out, "--format", "gguf")),
                (3, "sliding_window is 16", ("convert", MODELS / "mixtral", out, "--format", "gguf")),
                (3, "config.json", ("convert", self.path, out)),
                (3, "DeepSeek-OCR", ("convert", SOURCE / "tests/data/gguf/deepseek.ocr.gguf", out)),
                (2, "--dtype", ("convert", model, out, "--dtype", "float64")),
                (4, "the smallest budget that works is --memory", ("quantize", model, out, "--quantization", "fp8", "--memory", "10M"))]:
            self.assert_fails(status, mention, *words)
            self.assertFalse(out.exists() or (self.path / "OUT.part").exists(), words)

    def test_links(self):
        model, out, place = self.model(), self.path / "OUT", self.path / "elsewhere"
        weights = model / "model.safetensors"
        weights.rename(self.path / "weights")
        weights.symlink_to(self.path / "weights")
        place.mkdir()
        out.symlink_to(place)
        self.assert_fails(3, "--allow-outside-links", "convert", model, out)
        run_json("convert", model, out, "--allow-outside-links")
        self.assertTrue(out.is_symlink())
        self.assertEqual(tensors_of(place), tensors_of(model))
        self.assertFalse((place / "unfinished.json").exists())
        (self.path / "DANGLING").symlink_to(self.path / "nothing")
        self.assert_fails(2, "a link to nothing", "convert", place, self.path / "DANGLING")
        place.rename(self.path / "NEW.part")
        self.assert_fails(2, "where the model is", "convert", self.path / "NEW.part", self.path / "NEW")
        place.mkdir()
        self.assert_fails(2, "the working directory", "convert", self.path / "NEW.part", ".", cwd=place)

    def test_files_beside_the_weights(self):
        model = self.model()
        copied = ("modules.json", "1_Pooling/config.json", "additional_chat_templates/rag.jinja")
        for name in (*copied, "unfinished.json", ".cache/a.json", "other/model.safetensors", "other/config.json"):
            (model / name).parent.mkdir(exist_ok=True)
            (model / name).write_text(f'["{name}"]')
        out, _ = self.write("convert", model, "OUT")
        files = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}
        self.assertEqual(files, {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", *copied})
        for name in copied:
            self.assertEqual((out / name).read_bytes(), (model / name).read_bytes())
        (model / "outside.txt").symlink_to("/etc/hostname")
        self.assert_fails(3, "--allow-outside-links", "convert", model, self.path / "NEW")
        self.assertFalse((self.path / "NEW.part").exists())

    def test_odd_tensors(self):
        model = self.model(dtype="F32", torch_dtype="float32", quantization_config=None)
        tensors = tensors_of(model)
        empty = {"a.weight": ("F32", [0, 4], b""), "b.weight": ("F32", [4, 0], b"")}
        containers.write_safetensors(model / "model.safetensors", tensors | empty)
        for words in (("convert", "--dtype", "bfloat16"), ("quantize", "--quantization", "fp8")):
            out, _ = self.write(words[0], model, words[0], *words[1:])
            stored = tensors_of(out)
            self.assertEqual([stored[name][1:] for name in empty], [value[1:] for value in empty.values()])
            self.assertEqual((out / "config.json").read_text().count('"quantization_config"'), 1)
        scale = "model.layers.0.mlp.down_proj.weight_scale"
        containers.write_safetensors(model / "model.safetensors", tensors | {scale: ("F32", [1], bytes(4))})
        self.assert_fails(3, scale, "quantize", model, self.path / "OUT", "--quantization", "fp8")

    def test_quantized_models_stay_or_become_numbers(self):
        model = self.model()
        made, _ = self.write("quantize", model, "MADE", "--quantization", "fp8")
        self.write("convert", made, "SAME")
        self.assertEqual(tensors_of(self.path / "SAME"), tensors_of(made))
        (made / "quantize_config.json").write_text("{}")
        numbers = {name: (dtype, shape) for name, (dtype, shape, _) in tensors_of(model).items()}
        for dtype in ("bfloat16", "float32"):
            out, _ = self.write("convert", made, dtype, "--dtype", dtype)
            kinds = {name: (kind, shape) for name, (kind, shape, _) in tensors_of(out).items()}
            if dtype == "bfloat16":
                self.assertEqual(kinds, numbers)
            self.assertEqual(set(kinds), set(numbers))
            self.assertNotIn("quantization_config", json.loads((out / "config.json").read_text()))
            self.assert_close(logits(made, self.path), logits(out, self.path), 1e-2 if dtype == "bfloat16" else 1e-5)
            self.assertFalse((out / "quantize_config.json").exists())
        again, _ = self.write("quantize", made, "AGAIN", "--quantization", "int8_weight_only")
        self.assert_close(logits(made, self.path), logits(again, self.path), 5e-2)

    def test_partial_models_are_refused(self):
        partial = write_checkpoint(self.path / "PARTIAL", shards=2)
        index = json.loads((partial / "model.safetensors.index.json").read_text())
        index["weight_map"]["unused.weight"] = "model-00003-of-00003.safetensors"
        (partial / "model.safetensors.index.json").write_text(json.dumps(index))
        for verb, *options in (("convert",), ("quantize", "--quantization", "fp8")):
            self.assert_fails(3, "model-00003-of-00003", verb, partial, self.path / "OUT", *options)
            self.assert_fails(3, "does not exist; give", verb, self.path / "NONE", self.path / "OUT", *options)

    def assert_close(self, one, other, tolerance):
        most = max(abs(value) for value in one)
        self.assertEqual(len(one), len(other))
        self.assertLess(max(abs(a - b) for a, b in zip(one, other)), tolerance * most)

    def test_gguf_becomes_what_it_was_made_of(self):
        for name in GGUF_MODELS:
            with self.subTest(name=name):
                out, _ = self.write("convert", SOURCE / f"tests/data/gguf/{name}.gguf", name)
                made, expected = tensors_of(out), tensors_of(MODELS / name)
                self.assertEqual({key: shape for key, (_, shape, _) in made.items()}, {key: shape for key, (_, shape, _) in expected.items()})
                for key, (dtype, _, data) in made.items():
                    self.assert_close(floats(expected[key][0], expected[key][2]), floats(dtype, data), 1e-2)
                shutil.rmtree(out)
        out, _ = self.write("convert", SOURCE / "tests/data/gguf/kimi_linear.gguf", "OUT")  # has some layers by another name
        self.assertEqual(tensors_of(out)["model.layers.0.self_attn.A_log"][1], [1, 1, 3, 1])

    def test_codes_and_tokenizers_of_other_formats(self):
        text = "Hello  world, 12345 Grüße\n\n"
        files = [SOURCE / "tests/data/formats" / name for name in ("mlx_deepseek", "mlx_qwen3_next")]
        if ORACLE.is_dir():
            files += [ORACLE / "formats" / name for name in ("gguf_tok_spm/model.gguf", "gguf_tok_llama_bpe/model.gguf",
                                                             "gguf_split/model-00001-of-00003.gguf", "meta_pth")]
        for file in files:
            name = str(file)
            for verb, *options in (("convert",), ("quantize", "--quantization", "int8_weight_only")):
                with self.subTest(name=name, verb=verb):
                    out, _ = self.write(verb, file, "OUT", *options)
                    self.assert_close(logits(file, self.path), logits(out, self.path), 5e-2 if verb == "convert" else 1e-1)
                    ids = [run_json("tokenize", model, "--text", text)["ids"] for model in (file, out)] if "_tok_" in name else [0, 0]
                    self.assertEqual(*ids)
                    shutil.rmtree(out)

    def test_numbers_of_codes_are_those_of_a_run(self):
        for name in ("mlx_qwen3_next", "gguf_q2_k"):
            model = SOURCE / "tests/data/formats" / name
            model = next(model.glob("*.gguf"), model)
            out, _ = self.write("convert", model, name, "--dtype", "float32")
            self.assert_close(logits(model, self.path), logits(out, self.path), 1e-4)

    @unittest.skipIf(SANITIZED, "sanitizers have memory of their own")
    def test_every_budget_from_the_named_one_on_works(self):
        model, out = self.model(), self.path / "OUT"
        for words in (("quantize", model, out, "--quantization", "fp8"), ("convert", model, out, "--dtype", "float32"),
                      ("convert", model, out, "--format", "gguf")):
            refused = sluice(*words, "--memory", "10M")
            named = int(re.search(r"--memory (\d+)MiB", refused.stderr)[1]) * MIB
            written = []
            for budget in (named, named + 1_234_567, 2 * named, 1 << 30):
                with self.subTest(words=words, budget=budget):
                    result, peak = sluice_and_peak(*words, "--memory", budget, "--quiet")
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertLessEqual(peak, budget)
                    written.append(read_folder(out))
                    self.assertEqual(written[-1], written[0])
                    shutil.rmtree(out)

    def test_a_run_that_was_killed_is_no_obstacle(self):
        model, out, part = self.model(num_hidden_layers=4), self.path / "OUT", self.path / "OUT.part"
        for words in (("quantize", model, out, "--quantization", "fp8"), ("convert", model, out, "--format", "gguf"),
                      ("shard", model, "--out", out, "--tensor-parallel-size", 2)):
            self.assertEqual(sluice(*words).returncode, 0)
            expected = read_folder(out)
            shutil.rmtree(out)
            for early in (True, False):
                with self.subTest(words=words, early=early):
                    if early:  # while it wrote down what it was to do
                        part.mkdir()
                        (part / "unfinished.json.part").write_text('{"fin')
                    else:
                        process = subprocess.Popen([SLUICE, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        while process.poll() is None and not (part / "unfinished.json").exists():
                            pass
                        process.kill()
                        process.wait()
                        shutil.rmtree(out, ignore_errors=True)  # it may have been faster
                    result = sluice(*words)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertEqual(read_folder(out), expected)
                    self.assertFalse(part.exists())
                    shutil.rmtree(out)

    @unittest.skipIf(SANITIZED, "sanitizers have memory of their own")
    def test_memory_does_not_grow_with_the_model(self):
        peaks = []
        for layers in (1, 8):
            model = write_checkpoint(self.path / str(layers), hidden_size=1024, intermediate_size=4096, head_dim=64, num_attention_heads=16,
                                     num_key_value_heads=16, num_hidden_layers=layers)
            result, peak = sluice_and_peak("quantize", model, self.path / f"{layers}-out", "--quantization", "fp8", "--memory", "100M", "--quiet")
            self.assertEqual(result.returncode, 0, result.stderr)
            peaks.append(peak)
        self.assertLess(peaks[1], min(100 * MIB, peaks[0] + 4 * MIB))
