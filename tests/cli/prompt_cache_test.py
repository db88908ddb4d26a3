"""Keys and values of a prompt that outlive the program."""

import unittest

from program import BRIEF, DEMO, IN_PROCESS, SANITIZED, SOURCE, Case, budget_for, run_json, sluice

PROMPT = ("In the beginning God created the heaven and the earth. And the earth was without form, and void; "
          "and darkness was upon the face of the deep.")


@unittest.skipIf(BRIEF, IN_PROCESS)
class PromptCacheTest(Case):
    def setUp(self):
        super().setUp()
        self.cache = self.path / "prompt.cache"

    def run_prompt(self, prompt=PROMPT, *options, cached=True):
        cache = ("--prompt-cache", self.cache) if cached else ()
        out = run_json("run", DEMO, "-p", prompt, "-n", 12, "--ignore-eos", *options, *cache)
        return out["timings"]["prefix_tokens"], (out["token_ids"], out["logits_hash"])

    def test_a_second_run_computes_the_rest_of_the_prompt_only(self):
        _, plain = self.run_prompt(cached=False)
        self.assertEqual(self.run_prompt(), (0, plain))
        tokens, again = self.run_prompt()
        self.assertEqual(again, plain)
        count = len(run_json("tokenize", DEMO, "--text", PROMPT)["ids"])
        self.assertEqual(tokens, (count - 1) // 16 * 16)

    def test_a_prompt_that_goes_on_uses_it_and_takes_its_place(self):
        longer = PROMPT + " And the Spirit of God moved upon the face of the waters. And God said, Let there be light"
        _, plain = self.run_prompt(longer, cached=False)
        self.run_prompt()
        size = self.cache.stat().st_size
        tokens, out = self.run_prompt(longer)
        self.assertGreater(tokens, 0)
        self.assertEqual(out, plain)
        self.assertGreater(self.cache.stat().st_size, size)
        # What begins the same, and is shorter, leaves it as it is.
        written = self.cache.read_bytes()
        self.assertEqual(self.run_prompt()[0], tokens)
        self.assertEqual(self.cache.read_bytes(), written)

    def test_another_prompt_begins_anew(self):
        other = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age"
        _, plain = self.run_prompt(other, cached=False)
        self.run_prompt()
        self.assertEqual(self.run_prompt(other), (0, plain))
        self.assertGreater(self.run_prompt(other)[0], 0)

    def test_other_settings_begin_anew(self):
        self.run_prompt()
        for options in (["--quantization", "fp8"], ["--kv-cache-dtype", "fp8"], ["--dtype", "float32"],
                        ["--kernels", "portable"], ["--block-size", 8]):
            _, plain = self.run_prompt(PROMPT, *options, cached=False)
            self.assertEqual(self.run_prompt(PROMPT, *options), (0, plain), options)
            self.assertGreater(self.run_prompt(PROMPT, *options)[0], 0)
        result = sluice("run", DEMO, "-p", PROMPT, "-n", 1, "--prompt-cache", self.cache)
        self.assertIn("of another model, or of other settings", result.stderr)

    def test_damage_is_noticed_and_mended(self):
        _, plain = self.run_prompt()
        whole = self.cache.read_bytes()
        for damaged in (whole[:-4096], whole[:5000], whole[:-1] + bytes([whole[-1] ^ 1]),
                        whole[:4100] + b"\7" + whole[4101:]):
            self.cache.write_bytes(damaged)
            result = sluice("run", DEMO, "-p", PROMPT, "-n", 1, "--prompt-cache", self.cache)
            self.assertEqual(result.returncode, 0)
            self.assertIn("damaged", result.stderr)
            self.assertEqual(self.cache.read_bytes(), whole)
            self.cache.write_bytes(damaged)
            self.assertEqual(self.run_prompt(), (0, plain))

    def test_layers_with_a_window(self):
        model = SOURCE / "tests/data/models/mistral_sliding"
        ids = ",".join(str(3 + i * 7 % 300) for i in range(60))
        run = ("run", model, "--token-ids", ids, "-n", 20, "--ignore-eos", "--block-size", 4)
        plain = run_json(*run)["logits_hash"]
        for tokens in (0, 56):
            out = run_json(*run, "--prompt-cache", self.cache)
            self.assertEqual((out["timings"]["prefix_tokens"], out["logits_hash"]), (tokens, plain))

    def test_a_file_that_is_something_else_stays(self):
        self.cache.write_text("my notes\n" * 1000)
        self.assert_fails(3, "not a prompt cache", "run", DEMO, "-p", "x", "--prompt-cache", self.cache)
        self.assertIn("my notes", self.cache.read_text())
        self.assert_fails(1, "cannot be written", "run", DEMO, "-p", "x", "--prompt-cache", self.path / "no/where")

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_its_memory_is_planned(self):
        budget = budget_for(19 << 20)
        for _ in range(2):
            out = run_json("run", DEMO, "-p", PROMPT, "-n", 12, "--memory", budget, "--prompt-cache", self.cache)
            self.assertLessEqual(out["memory"]["measured_peak"], budget)
        self.assertGreater(out["timings"]["prefix_tokens"], 0)


if __name__ == "__main__":
    unittest.main()
