"""How `run` chooses tokens: what is allowed, penalties, what ends a sequence, probabilities."""

import json
import math
import unittest

from program import BRIEF, DEMO, IN_PROCESS, Case, run_json


@unittest.skipIf(BRIEF, IN_PROCESS)
class SamplingTest(Case):
    def test_tokens_that_are_allowed_banned_biased(self):
        def ids(*options):
            return run_json("run", DEMO, "-p", "Anne had", "-n", "24", "--ignore-eos", *options)["token_ids"]
        plain = ids()
        most = max(set(plain), key=plain.count)
        self.assertNotIn(most, ids("--banned-token-ids", most))
        self.assertNotIn(most, ids("--logit-bias", f"{most}=-100,5=-1"))
        self.assertEqual(set(ids("--logit-bias", "77=100")), {77})
        self.assertLessEqual(set(ids("--allowed-token-ids", "5, 9,11", "--temperature", "2")), {5, 9, 11})
        self.assertEqual(plain, ids("--repetition-penalty", "1", "--typical-p", "1", "--min-tokens", "3"))

    def test_penalties_and_ngrams(self):
        prompt = run_json("tokenize", DEMO, "--text", "Anne had")["ids"]
        for size in (1, 2, 3):
            ids = prompt + run_json("run", DEMO, "-p", "Anne had", "-n", "60", "--ignore-eos",
                                    "--no-repeat-ngram-size", size)["token_ids"]
            ngrams = [tuple(ids[i:i + size]) for i in range(len(ids) - size + 1)]
            self.assertEqual(len(ngrams), len(set(ngrams)), size)

        def different(*options):
            return len(set(run_json("run", DEMO, "-p", "Anne had", "-n", "60", "--ignore-eos", *options)["token_ids"]))
        plain = different()
        for option, value in (("--repetition-penalty", "1.5"), ("--presence-penalty", "2"), ("--frequency-penalty", "1.5")):
            self.assertGreater(different(option, value), plain, option)
        self.assertLess(different("--presence-penalty", "-2"), plain)

    def test_stop_tokens_and_min_tokens(self):
        plain = run_json("run", DEMO, "-p", "Anne had", "-n", "24", "--ignore-eos")
        stop = plain["token_ids"][6]
        first = plain["token_ids"].index(stop)
        args = ["run", DEMO, "-p", "Anne had", "-n", "24", "--ignore-eos", "--stop-token-ids", f"4095,{stop}"]
        out = run_json(*args)
        self.assertEqual(out["token_ids"], plain["token_ids"][:first + 1])
        self.assertEqual(out["finish_reason"], "stop")
        later = run_json(*args, "--min-tokens", "12")
        self.assertNotIn(stop, later["token_ids"][:12])
        # 1 is the model's end of a sequence, which nothing but --min-tokens holds back here.
        args = ["run", DEMO, "-p", "Anne had", "-n", "8", "--allowed-token-ids", "1,5", "--logit-bias", "1=100"]
        out = run_json(*args)
        self.assertEqual((out["token_ids"], out["finish_reason"]), ([1], "stop"))
        self.assertEqual(run_json(*args, "--min-tokens", "3")["token_ids"], [5, 5, 5, 1])
        self.assertEqual(run_json(*args, "--min-tokens", "3", "--ignore-eos")["token_ids"], [1] * 8)

    def test_texts_that_match(self):
        (self.path / "schema").write_text('{"type": "array", "items": {"enum": ["Anne", 7, null]}, "minItems": 2, "maxItems": 2}')
        (self.path / "gbnf").write_text('root ::= ("ab" | "cd"){3} "!"')

        def text(*options):
            return run_json("run", DEMO, "-p", "Anne had", "-n", "40", *options)["text"]
        made = json.loads(text("--json-schema", self.path / "schema"))
        self.assertTrue(len(made) == 2 and all(m in ("Anne", 7, None) for m in made), made)
        self.assertIn(text("--json-schema", '{"type": "boolean"}').strip(), ("true", "false"))
        self.assertRegex(text("--grammar", self.path / "gbnf", "--temperature", "2"), "^(ab|cd){3}!$")
        self.assertRegex(text("--regex", "[x-z]{5}", "--speculation", "prompt_lookup"), "^[x-z]{5}$")
        run = ("run", DEMO, "-p", "Anne had")
        self.assert_fails(3, "--regex: the regular expression, byte 0", *run, "--regex", "*")
        self.assert_fails(3, "gbnf: not valid JSON", *run, "--json-schema", self.path / "gbnf")
        self.assert_fails(2, "only", *run, "--regex", "a", "--grammar", self.path / "gbnf")
        self.assert_fails(2, "--regex: does not go with --chat", "run", DEMO, "--chat", "--regex", "a")

    def test_logprobs_are_those_of_the_model(self):
        args = ["run", DEMO, "-p", "Anne had", "-n", "5", "--logprobs", "3"]
        out = run_json(*args)
        self.assertNotIn("logprobs", run_json(*args[:-2]))
        self.assertEqual([e["token_id"] for e in out["logprobs"]], out["token_ids"])
        for entry in out["logprobs"]:
            self.assertEqual(len(entry["top"]), 3)
            self.assertEqual(entry["top"][0], {k: entry[k] for k in ("token_id", "logprob")})  # greedy
            values = [top["logprob"] for top in entry["top"]]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertTrue(all(v < 0 for v in values))
        # What a processor did to the row does not show; the whole vocabulary's probabilities are one.
        biased = run_json("run", DEMO, "-p", "Anne had", "-n", "1", "--logprobs", "4096", "--logit-bias", "5=100")
        entry = biased["logprobs"][0]
        self.assertEqual(entry["token_id"], 5)
        self.assertEqual(entry["top"][:3], out["logprobs"][0]["top"])
        self.assertIn({k: entry[k] for k in ("token_id", "logprob")}, entry["top"])
        self.assertAlmostEqual(sum(math.exp(top["logprob"]) for top in entry["top"]), 1, places=6)
        self.assertEqual(biased["logits_hash"], run_json("run", DEMO, "-p", "Anne had", "-n", "1")["logits_hash"])

    def test_no_token_is_left(self):
        self.assert_fails(1, "no token is allowed", "run", DEMO, "-p", "Anne had", "-n", "3", "--quiet",
                          "--allowed-token-ids", "5", "--no-repeat-ngram-size", "1")

    def test_wrong_values(self):
        good = ["run", DEMO, "-p", "x", "-n", "1", "--quiet"]
        for mention, args in {
            "typical_p": [*good, "--typical-p", "0"],
            "repetition_penalty": [*good, "--repetition-penalty", "0"],
            "presence_penalty": [*good, "--presence-penalty", "2.5"],
            "frequency_penalty": [*good, "--frequency-penalty", "nan"],
            "no_repeat_ngram_size": [*good, "--no-repeat-ngram-size", "-1"],
            "--logit-bias 5": [*good, "--logit-bias", "5"],
            "--logit-bias 5=x": [*good, "--logit-bias", "5=x"],
            "--logit-bias 5=1,": [*good, "--logit-bias", "5=1,"],
            "is there twice": [*good, "--logit-bias", "5=1,5=2"],
            "logit_bias 5=101": [*good, "--logit-bias", "5=101"],
            "logit_bias: token id 4096": [*good, "--logit-bias", "4096=1"],
            "allowed_token_ids: token id 4096": [*good, "--allowed-token-ids", "1,4096"],
            "at least one token": [*good, "--allowed-token-ids", ""],
            "allowed_token_ids: each": [*good, "--allowed-token-ids", "7", "--banned-token-ids", "6,7"],
            "banned_token_ids: token id -1": [*good, "--banned-token-ids=-1"],
            "--banned-token-ids x": [*good, "--banned-token-ids", "x"],
            "stop_token_ids: token id 9999": [*good, "--stop-token-ids", "9999"],
            "min_tokens": [*good, "--min-tokens", "-1"],
            "min_tokens 2": [*good, "--min-tokens", "2"],
            "logprobs must": [*good, "--json", "--logprobs", "-1"],
            "logprobs 4097": [*good, "--json", "--logprobs", "4097"],
            "give --json": [*good, "--logprobs", "1"],
        }.items():
            with self.subTest(mention):
                self.assert_fails(2, mention, *args)
