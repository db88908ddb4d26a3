"""A sequence is never cut silently: one that is too long is refused, with its tokens and the room there is."""

import json

from program import SOURCE, Case, run_json, sluice

TABLE = SOURCE / "tests/data/models/gpt2_noprefix"  # has a row for each of 96 positions
ROPE = SOURCE / "tests/data/models/llama_tied"


def ids(count):
    return ",".join(str(3 + i % 50) for i in range(count))


class ContextTest(Case):
    def assert_refused(self, numbers, *args):
        result = sluice(*args)
        self.assertEqual(result.returncode, 2, result.stderr)
        for number in numbers:
            self.assertRegex(result.stderr.splitlines()[-1], rf"\b{number}\b")

    def write(self, name, value):
        (self.path / name).write_text(json.dumps(value))
        return self.path / name

    def test_prompts_that_do_not_fit_are_refused(self):
        self.assert_refused([100, 96], "run", TABLE, "--token-ids", ids(100))
        self.assert_refused([60, 50], "run", TABLE, "--token-ids", ids(60), "--max-model-len", 50)
        lists = self.write("ids.json", [[5, 6], [5] * 97])
        self.assert_refused([96], "logits", TABLE, "--token-ids", lists, "--out", self.path / "out")
        self.assertFalse((self.path / "out").exists())

    def test_a_request_of_a_batch_that_does_not_fit_is_refused_alone(self):
        def request(name, count, new):
            body = {"model": "m", "prompt": [7] * count, "max_tokens": new, "ignore_eos": True}
            return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body}

        lines = [request("long", 95, 2), request("fits", 94, 2)]
        requests = self.path / "requests.jsonl"
        requests.write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = sluice("batch", TABLE, "-i", requests, "-o", self.path / "out.jsonl")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = (self.path / "out.jsonl").read_text().splitlines()
        answers = {answer["custom_id"]: answer["response"] for answer in map(json.loads, lines)}
        self.assertEqual(answers["fits"]["status_code"], 200)
        self.assertEqual(answers["fits"]["body"]["usage"]["completion_tokens"], 2)
        self.assertEqual(answers["long"]["status_code"], 400)
        for number in ("95", "2", "96"):
            self.assertIn(number, json.dumps(answers["long"]["body"]))

    def test_no_length_is_beyond_a_table_of_positions(self):
        self.assert_fails(2, "table of 96 positions", "run", TABLE, "--token-ids", ids(3), "--max-model-len", 97)
        out = run_json("run", TABLE, "--token-ids", ids(94), "-n", 2, "--max-model-len", 96, "--ignore-eos")
        self.assertEqual(len(out["token_ids"]), 2)

    def test_a_length_beyond_the_training_is_taken_and_said(self):
        usable = json.loads((ROPE / "config.json").read_text())["max_position_embeddings"]
        result = sluice("run", ROPE, "--token-ids", ids(usable + 1), "-n", 1, "--max-model-len", usable + 2)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"{usable} positions that the model was made for", result.stderr)
