"""The same weights in other containers than safetensors, through the sluice binary: the same bits, resident and streamed,
and no pickle that runs."""

import json
import shutil
import struct
import unittest
import unittest.mock
import zipfile

import containers
from program import BRIEF, IN_PROCESS, SOURCE, Case, in_turn, run_json, sluice

MODELS = SOURCE / "tests/data/models"
RUN = ("--token-ids", "5,6,7,8,9", "-n", "4", "--ignore-eos", "--dtype", "float32")
STREAMED = ("--place", "*=disk")


@unittest.skipIf(BRIEF, IN_PROCESS)
class ContainersTest(Case):
    def take(self, name):
        """The tensors of a bundled model, and an empty folder with its config."""
        self.source = MODELS / name
        self.model = self.path / name
        self.model.mkdir()
        for file in self.source.glob("*config.json"):
            shutil.copy(file, self.model)
        self.tensors = {}
        for file in sorted(self.source.glob("model*.safetensors")):
            self.tensors |= containers.read_safetensors(file)
        # Tables that are looked up are streamed only as they are.
        self.turned = [name for name, (_, shape, _) in self.tensors.items()
                       if len(shape) == 2 and "embed" not in name and "wte" not in name][::2]

    def clear(self):
        for file in self.model.iterdir():
            if file.name != "config.json" and file.name != "generation_config.json":
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    def hash_of(self, model, *options):
        return run_json("run", model, *RUN, *options)["logits_hash"]

    def check_all(self, name, writers, streams=True):
        self.take(name)
        expected = [self.hash_of(self.source, *how) for how in [(), STREAMED][:1 + streams]]
        for write in writers:
            with self.subTest(model=name, container=write.__name__):
                self.clear()
                write(self)
                found = [self.hash_of(self.model, "--spill-dir", self.path / "spill", *how)
                         for how in [(), STREAMED][:1 + streams]]
                self.assertEqual(found, expected)

    def torch_zip(self):
        containers.write_torch(self.model / "pytorch_model.bin", self.tensors, self.turned)

    def torch_zip_of_a_trainer(self):
        """Another name and protocol; the dict lies under a key, beside what is no tensor."""
        def wrap(state):
            return {"epoch": 3, "lr": 0.1, "name": "x", "state_dict": state, "steps": [1, None, 2.5, True]}
        containers.write_torch(self.model / "last.pt", self.tensors, protocol=4, wrap=wrap)
        (self.model / "training_args.bin").write_bytes(b"\x80\2.")

    def torch_shards(self):
        names = list(self.tensors)
        shards = {"a.bin": names[::2], "b.bin": names[1::2]}
        for file, held in shards.items():
            containers.write_torch(self.model / file, {n: self.tensors[n] for n in held}, self.turned, protocol=5)
        weight_map = {name: file for file, held in shards.items() for name in held}
        (self.model / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))

    def torch_zip64(self):
        """Sizes and places of 64 bits, as an archive of more than 4 GiB has them."""
        with unittest.mock.patch("zipfile.ZIP64_LIMIT", 1000):
            containers.write_torch(self.model / "pytorch_model.bin", self.tensors)

    def torch_legacy(self):
        containers.write_legacy_torch(self.model / "pytorch_model.bin", self.tensors, self.turned)

    def npz(self):
        containers.write_npz(self.model / "model.npz", self.tensors, self.turned)

    def npcache(self):
        containers.write_npcache(self.model / "np", self.tensors, self.turned)

    def npcache_of_vllm(self):
        containers.write_npcache(self.model / "np", self.tensors, ending="")

    def sharded_state(self):
        """vLLM's, of one rank: parts that read one input are one tensor."""
        together = {"self_attn.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                    "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"]}
        state = dict(self.tensors)
        for first in [name for name in self.tensors if name.endswith(("self_attn.q_proj.weight", "mlp.gate_proj.weight"))]:
            for into, parts in together.items():
                if parts[0] in first:
                    held = [state.pop(first.replace(parts[0], part)) for part in parts]
                    rows = sum(shape[0] for _, shape, _ in held)
                    state[first.replace(parts[0], into)] = (held[0][0], [rows, held[0][1][1]], b"".join(h[2] for h in held))
        names = list(state)
        for i in (0, 1):
            containers.write_safetensors(self.model / f"model-rank-0-part-{i}.safetensors", {n: state[n] for n in names[i::2]})

    def test_the_same_bits(self):
        every = [ContainersTest.torch_zip, ContainersTest.torch_zip_of_a_trainer, ContainersTest.torch_shards, ContainersTest.torch_zip64,
                 ContainersTest.torch_legacy, ContainersTest.npz, ContainersTest.npcache, ContainersTest.npcache_of_vllm,
                 ContainersTest.sharded_state]
        self.check_all("smollm3", every)
        self.check_all("gpt2_noprefix", [ContainersTest.torch_zip])  # which is stored [inputs, outputs] already
        self.check_all("glm4", [ContainersTest.npz])  # several parts in one tensor
        self.check_all("llama_tied", [ContainersTest.torch_legacy])  # a table that is the head, too

    def write_meta(self):
        """Meta's names, and the two of a rotary pair side by side."""
        config = json.loads((self.source / "config.json").read_text())
        heads = {"wq": config["num_attention_heads"], "wk": config["num_key_value_heads"]}
        names = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output", "model.layers": "layers",
                 "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
                 "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
                 "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
                 "post_attention_layernorm": "ffn_norm"}
        renamed = {}
        for name, (dtype, shape, data) in self.tensors.items():
            for hub, own in names.items():
                name = name.replace(hub, own)
            kind = name.split(".")[-2]
            if kind in heads:
                rows, row = shape[0], len(data) // shape[0]
                half = rows // heads[kind] // 2
                order = [h * 2 * half + j * half + i for h in range(heads[kind]) for i in range(half) for j in range(2)]
                data = b"".join(data[r * row:(r + 1) * row] for r in order)
            renamed[name] = (dtype, shape, data)
        renamed["rope.freqs"] = ("F32", [2], struct.pack("<2f", 1, 2))
        self.renamed = renamed
        containers.write_torch(self.model / "consolidated.00.pth", renamed)
        (self.model / "config.json").unlink()
        (self.model / "params.json").write_text(json.dumps({
            "dim": config["hidden_size"], "hidden_dim": config["intermediate_size"],
            "n_layers": config["num_hidden_layers"], "n_heads": heads["wq"], "n_kv_heads": heads["wk"],
            "head_dim": config["head_dim"], "vocab_size": -1, "norm_eps": config["rms_norm_eps"], "rope_theta": config["rope_theta"]}))

    def test_the_names_of_meta(self):
        self.take("llama_tied")
        self.write_meta()
        of_hub, own = (run_json("run", model, *RUN) for model in (self.source, self.model))
        self.assertEqual(own["token_ids"], of_hub["token_ids"])
        self.assertEqual(self.hash_of(self.model, *STREAMED), own["logits_hash"])
        # Mistral's files.
        for file in self.model.glob("*.pth"):
            file.unlink()
        containers.write_safetensors(self.model / "consolidated.safetensors", self.renamed)
        self.assertEqual(self.hash_of(self.model), own["logits_hash"])
        (self.model / "consolidated.safetensors").unlink()
        names = list(self.renamed)
        shards = [f"consolidated-0000{i}-of-00002.safetensors" for i in (1, 2)]
        for file, held in zip(shards, (names[::2], names[1::2])):
            containers.write_safetensors(self.model / file, {n: self.renamed[n] for n in held})
        weight_map = {name: shards[i % 2] for i, name in enumerate(names)}
        (self.model / "consolidated.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        self.assertEqual(self.hash_of(self.model), own["logits_hash"])

    def write_parts(self, parts, embedding_by_columns, write, file_name):
        """The files of as many ranks of Meta's: matrices are cut by rows, or by columns where a rank has some of the inputs."""
        for part in range(parts):
            held = {}
            for name, (dtype, shape, data) in self.renamed.items():
                if len(shape) == 2:
                    size = len(data) // shape[0] // shape[1]
                    by_columns = name.split(".")[-2] in ("wo", "w2") or (embedding_by_columns and "tok_embeddings" in name)
                    bounds = [i * shape[1 if by_columns else 0] // parts for i in (part, part + 1)]
                    row = shape[1] * size
                    rows = range(shape[0]) if by_columns else range(*bounds)
                    first, last = (bounds[0] * size, bounds[1] * size) if by_columns else (0, row)
                    data = b"".join(data[r * row + first:r * row + last] for r in rows)
                    shape = [len(rows), (last - first) // size]
                held[name] = (dtype, shape, data)
            write(self.model / file_name.format(part, part + 1, parts), held)

    def test_the_parts_of_meta(self):
        self.take("llama_tied")
        self.write_meta()
        expected = self.hash_of(self.model), self.hash_of(self.model, *STREAMED)
        int8 = self.hash_of(self.model, "--quantization", "int8")
        torch, safe = (containers.write_torch, "consolidated.{:02}.pth"), (containers.write_safetensors, "consolidated.{:02}.safetensors")
        numbered = (containers.write_safetensors, "consolidated-{1:05}-of-{2:05}.safetensors")
        for parts, by_columns, (write, name) in in_turn([(2, True, torch), (4, False, torch), (4, True, safe), (2, False, numbered)], 0):
            with self.subTest(parts=parts, name=name):
                for file in self.model.glob("consolidated*"):
                    file.unlink()
                self.write_parts(parts, by_columns, write, name)
                self.assertEqual((self.hash_of(self.model), self.hash_of(self.model, *STREAMED)), expected)
        self.assertEqual(self.hash_of(self.model, "--quantization", "int8"), int8)

    def test_several_containers_have_an_order(self):
        self.take("smollm3")
        small = dict(list(self.tensors.items())[:1])
        self.npz()
        containers.write_npcache(self.model / "np", small)
        self.assertEqual(self.hash_of(self.model), self.hash_of(self.source))  # the archive
        containers.write_torch(self.model / "pytorch_model.bin", small)
        self.assert_fails(3, "is missing", "run", self.model, *RUN)

    def test_what_is_refused(self):
        self.take("smollm3")
        file = self.model / "pytorch_model.bin"
        run = ("run", self.model, *RUN)
        cases = {
            "save it again: torch.save": lambda: containers.write_torch(file, self.tensors, compression=zipfile.ZIP_DEFLATED),
            "only little-endian": lambda: containers.write_torch(file, self.tensors, byteorder="big"),
            "one tensor without a name": lambda: containers.write_torch(
                file, self.tensors, wrap=lambda state: next(iter(state.values()))),
            "not a dict of tensors": lambda: containers.write_torch(file, self.tensors, wrap=lambda state: [state]),
            "asks for os.system": lambda: file.write_bytes(b"cos\nsystem\n(S'true'\ntR."),
            "is there twice": lambda: self.add_member(file, "archive/version"),
            "strides 4, 2": lambda: self.write_strided(file),
            "pytorch_model.bin: archive/data/0 has not its CRC": lambda: self.damage(file),
            "is no file of tensors; it is a Git LFS pointer": lambda: file.write_bytes(b"version https://git-lfs\noid 1"),
        }
        for words, write in in_turn(list(cases.items()), 0):
            with self.subTest(words):
                self.clear()
                write()
                self.assert_fails(3, words, *run)
        self.clear()
        containers.write_npz(self.model / "model.npz", self.tensors, compression=zipfile.ZIP_DEFLATED)
        self.assert_fails(3, "numpy.savez", *run)
        (self.model / "other.pt").write_bytes(b"")
        (self.model / "model.npz").rename(self.model / "another.npz")
        self.assert_fails(3, "holds 2 files of weights", *run)

    def damage(self, file):
        containers.write_torch(file, self.tensors)
        with zipfile.ZipFile(file) as archive:
            crc = struct.pack("<L", archive.getinfo("archive/data/0").CRC)
        data = file.read_bytes()
        at = data.rindex(crc)  # in the directory
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])

    def add_member(self, file, name):
        containers.write_torch(file, self.tensors)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(name, "3\n")

    def write_strided(self, file):
        storage = containers.Storage("0", "BF16", bytes(4096))
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a/data.pkl", containers.pickled({"x": containers.Tensor(storage, [8, 2], [4, 2])}))
            archive.writestr("a/data/0", storage.data)
