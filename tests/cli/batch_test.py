"""Files of requests to files of responses."""

import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from program import BRIEF, DEMO, HANGS, SANITIZED, SLUICE, Case, budget_for, run_json, sluice

PROMPTS = ["Anne had", "And the LORD said unto", "It was", "Elizabeth", "In the beginning"]


class BatchTest(Case):
    def setUp(self):
        super().setUp()
        self.requests = self.path / "requests.jsonl"
        self.responses = self.path / "responses.jsonl"

    def write(self, *bodies, **fields):
        lines = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body, **fields}
                 for i, body in enumerate(bodies)]
        self.requests.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def batch(self, *options):
        return ("batch", DEMO, "-i", self.requests, "-o", self.responses, *options)

    def read(self):
        lines = [json.loads(line) for line in self.responses.read_text().splitlines()]
        by_id = {line["custom_id"]: line["response"] for line in lines}
        self.assertEqual(len(by_id), len(lines), "a request has two responses")
        return by_id

    def token_ids(self):
        return {name: [c["token_ids"] for c in r["body"]["choices"]] for name, r in self.read().items()}

    def some_requests(self, count=20, tokens=30):
        return [{"prompt": PROMPTS[i % 5] + (" and she was" if i % 3 else ""), "max_tokens": tokens + i, "seed": i,
                 "temperature": 0.7 * (i % 2), "ignore_eos": True} for i in range(count)]

    def test_each_gets_what_it_gets_alone(self):
        bodies = self.some_requests(8)
        self.write(*bodies)
        timings = run_json(*self.batch())["timings"]
        self.assertEqual((timings["completed"], timings["failed"]), (8, 0))
        self.assertGreater(timings["most_running"], 4)
        for i, response in enumerate(self.read()[f"r{i}"] for i in range(8)):
            body = bodies[i]
            alone = run_json("run", DEMO, "-p", body["prompt"], "-n", body["max_tokens"], "--ignore-eos",
                             "--seed", i, "--temperature", body["temperature"])
            choice = response["body"]["choices"][0]
            self.assertEqual(response["status_code"], 200)
            self.assertEqual(choice["token_ids"], alone["token_ids"])
            self.assertEqual(choice["text"], alone["text"])
            self.assertEqual(choice["finish_reason"], alone["finish_reason"])
            self.assertEqual(response["body"]["usage"]["completion_tokens"], len(alone["token_ids"]))

    def test_an_fp8_kv_cache_gives_each_what_it_gets_alone(self):
        bodies = self.some_requests(6)
        self.write(*bodies)
        for cache in ("fp8_e4m3", "fp8_e5m2"):
            run_json(*self.batch("--kv-cache-dtype", cache))
            together = self.token_ids()
            self.responses.unlink()
            for i, body in enumerate(bodies):
                alone = run_json("run", DEMO, "-p", body["prompt"], "-n", body["max_tokens"], "--ignore-eos",
                                 "--seed", i, "--temperature", body["temperature"], "--kv-cache-dtype", cache)
                self.assertEqual(together[f"r{i}"], [alone["token_ids"]])

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_the_same_within_a_small_budget(self):
        self.write(*self.some_requests())
        run_json(*self.batch())
        want = self.token_ids()
        self.responses.unlink()
        budget = budget_for(20 << 20)
        out = run_json(*self.batch("--memory", budget, "--quantization", "none"))
        self.assertEqual(self.token_ids(), want)
        self.assertLessEqual(out["memory"]["measured_peak"], budget)

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_guesses_beside_others_change_only_the_number_of_passes(self):
        self.write(*({"prompt": "And he said unto him, " * (4 + i), "max_tokens": 60, "ignore_eos": True,
                      "temperature": 0} for i in range(4)))
        resident = run_json(*self.batch())["timings"]
        tokens = self.token_ids()
        self.responses.unlink()
        plan = run_json("plan", DEMO, "--prompt-tokens", "64", "-n", "60")
        streamed = run_json(*self.batch("--memory", plan["smallest"]["memory"] + (2 << 20)))["timings"]
        self.assertEqual(self.token_ids(), tokens)
        self.assertEqual(resident["guessed_tokens"], 0)
        self.assertGreater(streamed["most_running"], 1)
        self.assertGreater(streamed["accepted_tokens"], 0)
        self.assertLess(streamed["steps"], resident["steps"])

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_the_budget_that_is_named_has_room_for_every_request(self):
        plain = {"prompt": [5, 6, 7], "max_tokens": 20}
        for other in ({"guided_regex": "[a-z]{3,8}( [0-9]+){2}"}, {"response_format": {"type": "json_object"}},
                      {"use_beam_search": True, "n": 20}, {"prompt": "word " * 500}):
            self.write(plain, plain | other)
            refused = sluice(*self.batch("--memory", "1MiB"))
            self.assertEqual(refused.returncode, 4)
            named = re.search(r"smallest budget that works is --memory (\d+)MiB", refused.stderr)[1]
            run_json(*self.batch("--memory", f"{named}MiB"))
            self.assertEqual([r["status_code"] for r in self.read().values()], [200, 200], other)
            self.responses.unlink()

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_what_the_budget_has_no_room_for_holds_up_nobody(self):
        plan = ("plan", DEMO, "--prompt-tokens", "3", "-n", "30")
        budget = run_json(*plan)["smallest"]["memory"]
        self.write({"prompt": [5, 6, 7], "max_tokens": 1000}, {"prompt": [5, 6, 7], "max_tokens": 20})
        out = run_json(*self.batch("--memory", budget))["timings"]
        self.assertEqual((out["completed"], out["failed"]), (1, 1))
        self.assertIn("raise --memory", self.read()["r0"]["body"]["error"]["message"])
        self.responses.unlink()
        self.assert_fails(4, "smallest budget", *self.batch("--memory", "12MiB"))
        beams = {"prompt": [5, 6, 7], "use_beam_search": True, "n": 100, "max_tokens": 28}
        self.write({"prompt": [5, 6, 7], "max_tokens": 20}, beams)
        out = run_json(*self.batch("--memory", budget))["timings"]
        self.assertEqual((out["completed"], out["failed"]), (1, 1))
        self.assertIn("no room for 100 beams", self.read()["r1"]["body"]["error"]["message"])
        self.responses.unlink()
        self.write(beams)
        self.assertEqual(run_json(*self.batch("--memory", budget))["timings"], {
            "requests": 1, "done_before": 0, "completed": 0, "failed": 1})

    def test_continuations_of_one_prompt(self):
        self.write({"prompt": "Anne had", "n": 3, "temperature": 0.9, "seed": 5, "max_tokens": 12, "logprobs": 2})
        run_json(*self.batch())
        choices = self.read()["r0"]["body"]["choices"]
        self.assertEqual([c["index"] for c in choices], [0, 1, 2])
        for i, choice in enumerate(choices):
            alone = run_json("run", DEMO, "-p", "Anne had", "-n", "12", "--temperature", "0.9", "--seed", 5 + i)
            self.assertEqual(choice["token_ids"], alone["token_ids"])
            self.assertEqual(len(choice["logprobs"]["token_logprobs"]), len(choice["token_ids"]))

    def test_the_likeliest_of_several(self):
        body = {"prompt": "Anne had", "n": 6, "temperature": 1, "max_tokens": 8, "logprobs": 0, "ignore_eos": True}
        self.write(body, {**body, "n": 2, "best_of": 6})
        run_json(*self.batch())
        all_six, best = (self.read()[f"r{i}"]["body"] for i in range(2))
        all_six["choices"].sort(key=lambda c: -sum(c["logprobs"]["token_logprobs"]))
        self.assertEqual([c["token_ids"] for c in best["choices"]], [c["token_ids"] for c in all_six["choices"][:2]])
        self.assertEqual(best["usage"], all_six["usage"])

    def test_beam_search(self):
        self.write({"prompt": "Anne had", "use_beam_search": True, "best_of": 4, "n": 2, "max_tokens": 8,
                    "ignore_eos": True}, {"prompt": "Anne had", "use_beam_search": True, "n": 2, "top_k": 5},
                   {"prompt": "Anne had", "length_penalty": 2})
        out = run_json(*self.batch())["timings"]
        self.assertEqual((out["completed"], out["failed"]), (1, 2))
        choices = self.read()["r0"]["body"]["choices"]
        self.assertEqual([len(c["token_ids"]) for c in choices], [8, 8])
        self.assertNotEqual(choices[0]["text"], choices[1]["text"])

    def test_the_prompt_in_the_answer(self):
        ids = run_json("tokenize", DEMO, "--text", PROMPTS[1])["ids"]
        body = {"prompt": PROMPTS[1], "max_tokens": 2, "logprobs": 1}
        self.write({**body, "echo": True}, {**body, "prompt_logprobs": 0}, {**body, "prompt": ids[:-1], "max_tokens": 1,
                                                                             "logprobs": 20, "temperature": 0})
        run_json(*self.batch())
        echo, plain, cut = (self.read()[f"r{i}"]["body"]["choices"][0] for i in range(3))
        self.assertEqual(echo["text"], PROMPTS[1] + plain["text"])
        of_prompt = [next(iter(p.values()))["logprob"] for p in plain["prompt_logprobs"][1:]]
        self.assertEqual([list(map(int, p)) for p in plain["prompt_logprobs"][1:]], [[i] for i in ids[1:]])
        self.assertEqual(echo["logprobs"]["token_logprobs"], [None, *of_prompt, *plain["logprobs"]["token_logprobs"]])
        self.assertEqual(len(echo["logprobs"]["tokens"]), len(ids) + 2)
        # The last token of the prompt, as if it were generated.
        last = echo["logprobs"]["tokens"][len(ids) - 1]
        self.assertEqual(cut["logprobs"]["top_logprobs"][0].get(last, of_prompt[-1]), of_prompt[-1])

    def count_responses(self):
        return self.responses.read_bytes().count(b"\n") if self.responses.exists() else 0

    def await_responses(self, process, count):
        """Returns when the process has written so many responses in all, or has ended."""
        while process.poll() is None and self.count_responses() < count:
            time.sleep(0.002)

    def test_a_kill_loses_and_repeats_nothing(self):
        count, tokens, kills_after = (12, 10, (1, 3, 2)) if BRIEF else (40, 60, (1, 9, 3, 6))
        self.write(*self.some_requests(count, tokens))
        run_json(*self.batch())
        want = self.token_ids()
        self.responses.unlink()
        kills = 0
        for more in kills_after:
            written = self.count_responses()
            with subprocess.Popen([SLUICE, *map(str, self.batch("--max-num-seqs", "4"))],
                                  stderr=subprocess.DEVNULL) as process:
                self.await_responses(process, written + more)
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
        self.assertGreater(kills, 0)
        with self.responses.open("a") as file:
            file.write('{"custom_id":"r3","err')  # what a kill may leave
        out = run_json(*self.batch())["timings"]
        self.assertEqual(out["done_before"] + out["completed"], count)
        self.assertEqual(self.token_ids(), want)
        out = run_json(*self.batch())["timings"]
        self.assertEqual((out["done_before"], out["completed"]), (count, 0))

    def test_a_request_that_cannot_be_served_gets_its_reason(self):
        wrong = {"unknown parameter": {"prompt": "x", "prompts": "y"}, "exceed context limit": {"prompt": "x", "max_tokens": 10**6},
                 "top_p must": {"prompt": "x", "top_p": 7}, "the prompt is empty": {"prompt": []},
                 "prompt is missing": {"max_tokens": 3}, "not supported": {"prompt": "x", "stream": True},
                 "token id": {"prompt": [10**6]}, "must be a JSON object": 5, "stop must be": {"prompt": "x", "stop": 3},
                 "logit_bias": {"prompt": "x", "logit_bias": {"a": 1}},
                 "model must be": {"prompt": "x", "model": 5},
                 "no token is left": {"prompt": "Anne had", "allowed_token_ids": [5], "banned_token_ids": [5], "n": 2},
                 "no token is allowed after": {"prompt": "Anne had", "n": 2, "allowed_token_ids": [5],
                                               "no_repeat_ngram_size": 1, "max_tokens": 4},
                 "repetition_penalty must": {"prompt": [0, 5], "allowed_token_ids": [5, 6], "repetition_penalty": 1e-50},
                 "logprobs": {"prompt": "x", "logprobs": 21}, "min_tokens 99": {"prompt": "x", "min_tokens": 99}}
        self.write({"prompt": "Anne had", "max_tokens": 4, "model": None, "user": "somebody"}, *wrong.values())
        out = run_json(*self.batch())["timings"]
        self.assertEqual((out["completed"], out["failed"]), (1, len(wrong)))
        responses = self.read()
        for i, mention in enumerate(wrong):
            response = responses[f"r{i + 1}"]
            self.assertEqual(response["status_code"], 400)
            self.assertIn(mention, response["body"]["error"]["message"])

    def test_files_that_are_something_else(self):
        self.write({"prompt": "Anne had"})
        good = self.requests.read_text()
        for text in ("Dear diary", '{"custom": 1}\n', good, '{"custom_id":"r0","response":1}\nDear diary'):
            self.responses.write_text(text)
            self.assert_fails(3, str(self.responses), *self.batch())
            self.assertEqual(self.responses.read_text(), text)
        self.assert_fails(2, "is the input", "batch", DEMO, "-i", self.requests, "-o", self.requests)
        self.assertEqual(self.requests.read_text(), good)
        self.assert_fails(3, "cannot be read", "batch", DEMO, "-i", self.path, "-o", self.responses)
        self.assert_fails(3, "cannot be read", "batch", DEMO, "-i", self.path / "none", "-o", self.responses)
        self.assert_fails(1, "cannot be written", "batch", DEMO, "-i", self.requests, "-o", "/proc/none")

    def test_an_output_belongs_to_one_process(self):
        self.write({"prompt": "Anne had", "max_tokens": 1})
        with self.responses.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assert_fails(3, "is being written by another process", *self.batch())
        self.assertEqual(run_json(*self.batch())["timings"]["completed"], 1)

    def test_the_largest_request(self):
        self.write(*({"prompt": "Anne had", "max_tokens": 1, "user": "u" * length} for length in (10, 1000)))
        out = run_json(*self.batch("--max-request-bytes", "512"))["timings"]
        self.assertEqual((out["completed"], out["failed"]), (1, 1))
        for size in ("0", "2GiB", "many"):
            self.assert_fails(2, f"--max-request-bytes {size}: ", *self.batch("--max-request-bytes", size))

    def test_pipes_and_devices(self):
        self.write(*self.some_requests(2, 5))
        want = run_json(*self.batch())["timings"]["completed"]
        texts = sorted(self.responses.read_text().splitlines())
        strip = lambda lines: sorted(re.sub('"created":[0-9]+', "", line) for line in lines)
        for output in ("-", "/dev/stdout"):
            piped = sluice("batch", DEMO, "-i", "-", "-o", output, "--quiet", input=self.requests.read_text())
            self.assertEqual(strip(piped.stdout.splitlines()), strip(texts), piped.stderr)
        log = self.path / "log"  # standard output is not read, wherever it goes
        log.write_text("Dear diary\n")
        for output in ("-", "/dev/stdout"):
            with log.open("a") as file:
                subprocess.run([SLUICE, *map(str, ("batch", DEMO, "-i", self.requests, "-o", output, "--quiet"))], stdout=file,
                               check=True)
        self.assertEqual(len(log.read_text().splitlines()), 1 + 2 * want)
        fifo = self.path / "fifo"
        os.mkfifo(fifo)
        with subprocess.Popen([SLUICE, *map(str, ("batch", DEMO, "-i", self.requests, "-o", fifo, "--quiet"))]) as writer:
            self.assertEqual(len(fifo.read_text().splitlines()), want)
        self.assertEqual(writer.returncode, 0)
        self.assertEqual(sluice("batch", DEMO, "-i", self.requests, "-o", "/dev/null", "--quiet").returncode, 0)
        self.assert_fails(3, "/dev/zero: is a device", "batch", DEMO, "-i", "/dev/zero", "-o", self.responses)
        self.assert_fails(1, "/dev/full: cannot be written: No space", "batch", DEMO, "-i", self.requests, "-o", "/dev/full")

    def await_sleep(self, process):
        """Returns when the process has slept for a while, as it does when it waits for a pipe."""
        asleep = 0
        while process.poll() is None and asleep < 50:
            state = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            asleep = asleep + 1 if state == "S" else 0
            time.sleep(0.005)

    def test_one_signal_ends_the_wait_for_a_pipe(self):
        self.write(*self.some_requests(1, 5))
        fifo = self.path / "fifo"
        os.mkfifo(fifo)
        for files in ((fifo, self.responses), (self.requests, fifo)):
            with subprocess.Popen([SLUICE, *map(str, ("batch", DEMO, "-i", files[0], "-o", files[1]))],
                                  stderr=subprocess.PIPE, text=True) as process:
                self.await_sleep(process)
                process.send_signal(signal.SIGTERM)
                err = process.communicate(timeout=HANGS)[1]
            self.assertEqual(process.returncode, -signal.SIGTERM)
            self.assertIn(f"interrupted while waiting for {fifo}", err)

    def test_an_interrupt_ends_in_good_order(self):
        self.write(*self.some_requests(40, 200))
        with subprocess.Popen([SLUICE, *map(str, self.batch("--max-num-seqs", "2"))], stderr=subprocess.PIPE,
                              text=True) as process:
            self.await_responses(process, 1)
            process.send_signal(signal.SIGINT)
            err = process.communicate(timeout=HANGS)[1]
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertIn("interrupted", err)
        self.assertTrue(all(line.endswith("}") for line in self.responses.read_text().splitlines()))
        self.assertIn("sluice batch", sluice("batch", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
