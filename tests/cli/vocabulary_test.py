"""A checkpoint whose tokenizer is a tokenizer.model works as one with a tokenizer.json."""

import json
import shutil
import unittest

from program import BRIEF, IN_PROCESS, SOURCE, Case, run_json, sluice

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"


@unittest.skipIf(BRIEF, IN_PROCESS)
class VocabularyTest(Case):
    def setUp(self):
        super().setUp()
        self.model = self.path / "model"
        shutil.copytree(SOURCE / "tests/data/models/llama_tied", self.model)
        shutil.copy(SOURCE / "tests/data/text/sentencepiece_unigram/tokenizer.model", self.model)
        (self.model / "tokenizer_config.json").write_text(json.dumps({
            "tokenizer_class": "LlamaTokenizer", "chat_template": TEMPLATE, "add_bos_token": True,
            "bos_token": {"content": "<s>", "lstrip": False, "normalized": False}, "eos_token": "</s>"}))

    def test_all_verbs_take_it(self):
        text = self.path / "text"
        text.write_text("the quick and the dead " * 4)
        ids = run_json("tokenize", self.model, "--text", "the dead")["ids"]
        self.assertEqual(ids[0], 1)
        self.assertEqual(run_json("detokenize", self.model, "--ids", ",".join(map(str, ids)),
                                  "--skip-special-tokens")["text"], "the dead")
        said = run_json("run", self.model, "-p", "the dead", "-n", 3, "--ignore-eos")
        same = run_json("run", self.model, "--token-ids", ",".join(map(str, ids)), "-n", 3, "--ignore-eos")
        self.assertEqual(said["token_ids"], same["token_ids"])
        self.assertGreater(run_json("eval", self.model, "--text", text)["tokens"], 10)
        self.assertTrue(run_json("plan", self.model)["fits"])
        requests = self.path / "requests.jsonl"
        requests.write_text(json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": "the dead", "max_tokens": 3, "temperature": 0, "ignore_eos": True}}) + "\n")
        result = sluice("batch", self.model, "-i", requests, "-o", self.path / "out.jsonl")
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads((self.path / "out.jsonl").read_text())["response"]["body"]["choices"][0]
        self.assertEqual(answer["token_ids"], said["token_ids"])

    def test_a_template_writes_its_special_tokens(self):
        messages = self.path / "messages.json"
        messages.write_text(json.dumps([{"role": "user", "content": "the dead"}]))
        rendered = run_json("render", self.model, "--messages", messages)["rendered"]
        self.assertEqual(rendered, "<s>user: the dead</s>")
        ids = run_json("tokenize", self.model, "--text", rendered, "--no-special-tokens")["ids"]
        self.assertEqual((ids[0], ids[-1]), (1, 2))
        said = run_json("run", self.model, "--messages", messages, "-n", 2, "--ignore-eos")
        same = run_json("run", self.model, "--token-ids", ",".join(map(str, ids)), "-n", 2, "--ignore-eos")
        self.assertEqual(said["token_ids"], same["token_ids"])

    def test_what_is_no_vocabulary_is_refused(self):
        (self.model / "tokenizer.model").write_bytes(b"\n\xff\xff")
        self.assert_fails(3, "tokenizer.model: is damaged", "tokenize", self.model, "--text", "x")
        (self.model / "tokenizer.model").unlink()
        (self.model / "other.tiktoken").write_text("YQ== 0\n")
        self.assert_fails(3, "other.tiktoken", "tokenize", self.model, "--text", "x")
