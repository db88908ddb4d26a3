"""--memory is the budget of the whole process, whatever comes in and goes out."""

import json
import re
import unittest

from program import DEMO, SANITIZED, Case, run_json_and_peak, sluice

LINE = {"method": "POST", "url": "/v1/completions"}
MiB = 1 << 20


@unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
class InputMemoryTest(Case):
    def setUp(self):
        super().setUp()
        self.requests, self.responses = self.path / "requests.jsonl", self.path / "responses.jsonl"

    def smallest(self, *args):
        """The budget that a refusal names: of one that has room to look at the input."""
        result = sluice(*args, "--memory", "20MiB")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.responses.unlink(missing_ok=True)  # what cannot run at all has got its response
        return int(re.search(r"--memory (\d+)MiB", result.stderr)[1])

    def batch(self):
        return ("batch", DEMO, "-i", self.requests, "-o", self.responses)

    def write(self, *bodies):
        with self.requests.open("w") as file:
            for i, body in enumerate(bodies):
                file.write(json.dumps({"custom_id": f"request {i}", **LINE, "body": body}) + "\n")

    def check_batch(self, memory, completed, failed):
        out, peak = run_json_and_peak(*self.batch(), "--memory", f"{memory}MiB")
        self.assertEqual((out["timings"]["completed"], out["timings"]["failed"]), (completed, failed))
        self.assertLessEqual(peak, memory * MiB)
        with self.responses.open() as file:
            lines = [json.loads(line) for line in file]
        return {line["id"]: line["response"]["body"] for line in lines}

    def test_of_many_requests_an_index_is_held(self):
        good = {"prompt": list(range(5, 65)), "max_tokens": 1, "temperature": 0}
        self.write(good, *({**good, "top_p": 2, "user": "x" * 200} for _ in range(30_000)), {**good, "priority": -1})
        answers = self.check_batch(self.smallest(*self.batch()), 2, 30_000)
        self.assertEqual(len(answers), 30_002)
        self.assertEqual(*(answers[f"batch_req_request {i}"]["choices"] for i in (0, 30_001)))

    def test_a_large_request_is_its_own_fault(self):
        small = {"prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0}
        large = [{**small, "prompt": "word " * 6_000_000}, {**small, "prompt": "word " * 200_000},
                 {**small, "stop": ["x"] * 200_000}]
        self.write(small)
        memory = self.smallest(*self.batch())
        self.write(small, *large, small)
        answers = self.check_batch(memory, 2, 3)
        for number, mention in enumerate(("--max-request-bytes", "raise --memory", "raise --memory"), 2):
            self.assertIn(mention, answers[f"batch_line_{number}"]["error"]["message"])

    def test_results_that_are_held_are_planned(self):
        body = {"prompt": list(range(5, 505)), "max_tokens": 1, "prompt_logprobs": 20, "ignore_eos": True}
        self.write(*(body for _ in range(12)))
        self.check_batch(self.smallest(*self.batch()), 12, 0)

    def test_log_probabilities_of_the_vocabulary(self):
        args = ("run", DEMO, "--token-ids", "1,2,3", "-n", "100", "--ignore-eos", "--logprobs", "4096", "--json")
        memory = self.smallest(*args)
        out, peak = run_json_and_peak(*args[:-1], "--memory", f"{memory}MiB")
        self.assertLessEqual(peak, memory * MiB)
        for place in out["logprobs"]:
            ids = [top["token_id"] for top in place["top"]]
            self.assertEqual(sorted(ids), list(range(4096)))
            self.assertIn({k: place[k] for k in ("token_id", "logprob")}, place["top"])
            values = [top["logprob"] for top in place["top"]]
            self.assertEqual(values, sorted(values, reverse=True))
