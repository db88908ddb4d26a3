"""A property: whatever model, verb, options and input, no process takes more than its --memory, and its result is the same.

SLUICE_TEST_SEED draws other cases, SLUICE_CASES="FROM:TO" says which; a case is the same whatever else runs.
"""

import collections
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import threading
import time
import unittest

from checkpoints import write_checkpoint
from launcher import Launcher
from program import ALL, DEMO, HANGS, SANITIZED, SLUICE, Case
from server import Client

MiB = 1 << 20
SEED = os.environ.get("SLUICE_TEST_SEED", "1")
FROM, TO = map(int, os.environ.get("SLUICE_CASES", "0:500" if ALL else "0:200").split(":"))
MODELS = 12
SCHEMES = ("fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "fp8_dynamic", "fp8_dynamic_per_block", "int8",
           "int8_weight_only", "int4", "int4_g32", "nf4", "mxfp8", "mxfp4", "nvfp4")
# Of run and batch: token ids and how many to generate.
PROMPTS = tuple((tuple(random.Random(i).choices(range(3, 4096), k=k)), n)
                for i, (k, n) in enumerate(((1, 4), (3, 12), (20, 6), (200, 3), (600, 2)))) + ((tuple(range(9, 19)) * 6, 20),)
# In a body of batch; those of the first two are options of run, too.
GRAMMARS = ({"guided_regex": "[a-z]{3,8}( [0-9]+){2}"}, {"guided_regex": "[^x]{1,2000}"}, {"guided_choice": ["yes", "no"]},
            {"response_format": {"type": "json_object"}})
LISTS = ([[5]], [list(PROMPTS[3][0])], [[i, i + 1, 7] for i in range(3, 63)], [list(p) for p, _ in PROMPTS] * 2)


def draw_model(rng, path):
    """The path, the number of weights, and the path of another model of the same shape."""
    while True:
        heads, head = rng.choice((1, 2, 4, 8)), rng.choice((16, 32, 64))
        config = {"hidden_size": rng.choice((32, 64, 128, 256, 384)), "num_hidden_layers": rng.randint(1, 6),
                  "num_attention_heads": heads, "num_key_value_heads": rng.choice([k for k in (1, 2, 4, 8) if heads % k == 0]),
                  "head_dim": head, "intermediate_size": rng.choice((32, 96, 256, 704, 1024)),
                  "tie_word_embeddings": rng.random() < 0.5}
        hidden = config["hidden_size"]
        model_type = rng.choice(("llama", "mistral", "mixtral"))
        if model_type != "llama":
            config["sliding_window"] = rng.choice((None, 32, 500))
        if model_type == "mixtral":
            config |= {"num_local_experts": rng.choice((2, 4, 16)), "num_experts_per_tok": rng.choice((1, 2))}
        elif rng.random() < 0.3 and heads * head % 32 == 0:
            config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False}
        experts = config.get("num_local_experts", 1)
        layer = hidden * (head * 2 * (heads + config["num_key_value_heads"]) + 3 * experts * config["intermediate_size"])
        weights = 4096 * hidden * (2 - config["tie_word_embeddings"]) + config["num_hidden_layers"] * layer
        if weights < 6e6:
            break
    dtype, shards = rng.choice(("BF16", "F16", "F32")), rng.randint(1, 3)
    made = [write_checkpoint(each, model_type=model_type, dtype=dtype, shards=shards, seed=rng.random(), **config)
            for each in (path, path.with_name(path.name + "-other"))]
    return made[0], weights, made[1]


def write_texts(folder):
    words = (DEMO / "validation.txt").read_text().split(" ")
    rng = random.Random(2)
    texts = []
    for size in (100, 1000, 6000, 30_000, 200_000):
        for end in (" ", "x"):  # words, and a long one
            text = end.join(rng.choices(words, k=size // 3))
            texts.append(folder / f"{size}{end.strip()}.txt")
            texts[-1].write_text(text[:size])
    return texts


def write_requests(rng, path):
    """The prompts, numbers of tokens and grammars of those that can be served, by custom_id, and how many there are."""
    count = int(2 ** rng.uniform(0, 11))
    served = {}
    with path.open("w") as file:
        for i in range(count):
            prompt, n = rng.choice(PROMPTS)
            body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True}
            if rng.random() < 0.1:
                body |= rng.choice(({"logprobs": 20}, {"prompt_logprobs": 5}, {"priority": -1}, {"user": "u" * 60_000},
                                    {"n": 3}, {"echo": True}))
            grammar = {}
            if rng.random() < 0.2:
                grammar = rng.choice(GRAMMARS)
                body.pop("echo", None)  # whose tokens would come before those of a text that ends early
                body |= grammar
            if rng.random() < 10 / count:
                served[str(i)] = (prompt, n, json.dumps(grammar))
            else:
                body |= rng.choice(({"top_p": 2}, {"n": 200}, {"prompt": [[4096]]}))
            if rng.random() < 2 / count:
                served.pop(str(i), None)
                body["prompt"] = "word " * rng.choice((2000, 40_000, 400_000))
            file.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
    return served, count


class Fault(Exception):
    """A property that does not hold."""


class Refused(Exception):
    """Options that contradict the case's number of tokens."""


class Worker:
    """Runs cases, one at a time, in a folder of its own."""

    def __init__(self, test, folder):
        self.test, self.folder = test, folder
        folder.mkdir()
        self.launcher = Launcher(folder / "launcher")

    def hold(self, truth, what, result):
        if not truth:
            raise Fault(f"{what}: status {result.status}, peak {result.peak}, {result.hits} hits; {result.err[-500:]}")

    def options(self, rng):
        """Of all verbs that load: those that change results, and those that must not."""
        results = []
        if rng.random() < 0.5:
            results += ["--quantization", rng.choice(SCHEMES)]
        if rng.random() < 0.15:
            results += ["--kv-cache-dtype", "fp8"]
        if rng.random() < 0.1:
            results += ["--dtype", "float32"]
        free = ["--threads", rng.randint(1, 3)]
        for chance, option, values in ((0.6, "--reader", ("uring", "pread", "mmap")), (0.2, "--block-size", (1, 7, 64)),
                                       (0.2, "--swap-space", ("1MiB", "300KiB")),
                                       (0.2, "--kv-cache-memory", ("10MiB", "3MiB")),
                                       (0.5, "--spill-dir", ("none", self.folder / "spill"))):
            if rng.random() < chance:
                free += [option, rng.choice(values)]
        return results, free

    def plan(self, model, options, budget=None):
        command = [SLUICE, "plan", model, "--json", "--quiet", *options]
        result = self.launcher.run(command + (["--memory", budget] if budget else []))
        if result.status == 4 and "--kv-cache-memory" in result.err:
            raise Refused
        self.hold(result.status == 0, "plan", result)
        return json.loads(result.out)

    def run(self, rng, command, plan):
        """Within a budget from the smallest to what holds all; its result, and whether that is `plan`'s."""
        smallest, all_of_it = plan["smallest"]["memory"], plan["needed_bytes"] + MiB
        share = rng.choice((-0.1, 0, 0, rng.random() ** 2, rng.random(), 1))
        budget = int(smallest + share * max(all_of_it - smallest, 4 * MiB))
        result = self.within(budget, command)
        return result, share >= 0

    def within(self, budget, command):
        self.command = [*command, "--memory", budget]
        result = self.launcher.run([SLUICE, *self.command], limit=budget)
        self.test.statuses[command[0], result.status] += 1
        self.hold(result.status in (0, 2, 3, 4), "status", result)
        self.hold(result.peak <= budget, "peak", result)
        self.hold(not result.hits, "limit", result)
        if result.status:
            self.hold(re.fullmatch(r"(?s)(sluice: warning: [^\n]*\n)*sluice: [^\n]*\n", result.err), "one sentence", result)
        return result

    def again(self, result, command):
        """With the budget that a refusal names."""
        named = re.search(r"--memory (\d+)MiB", result.err)
        self.hold(named, "no budget named", result)
        result = self.within(int(named[1]) * MiB, command)
        self.hold(result.status != 4, "the budget that was named", result)
        return result

    @staticmethod
    def difference(out):
        """How much the prediction of a run differs from its peak, how much it may, and both in words."""
        measured, predicted = out["memory"]["measured_peak"], out["memory"]["predicted_peak"]
        # Memory of swap space is taken when blocks go there, that of grammars as their states come.
        later = sum(a["bytes"] for a in out["memory"]["peak_holders"] if a["use"] == "swap" or a["owner"] == "grammars")
        over = max(predicted - measured - later, min(predicted - measured, 0))
        return over, max(measured // 100, MiB), f"predicted {predicted}, {later} of it for later, measured {measured}"

    def case_run(self, rng):
        model, *_ = rng.choice(self.test.models)
        results, free = self.options(rng)
        prompt, n = rng.choice(PROMPTS)
        draft, *_ = rng.choice(self.test.models)
        for chance, option, values in ((0.3, "--draft-model", (draft,)),
                                       (0.3, "--logprobs", (0, 1, 20, 4096)), (0.1, "--logit-bias", ("5=0",))):
            if rng.random() < chance:
                free += [option, rng.choice(values)]
        if rng.random() < 0.3:
            free += ["--speculation", rng.choice(("auto" if "--draft-model" in free else "none", "prompt_lookup"))]
        grammar = {}
        if rng.random() < 0.2:
            grammar = rng.choice(GRAMMARS[:2])
            free += ["--regex", grammar["guided_regex"]]
        same = (model, *results, prompt, n, json.dumps(grammar))
        plan = self.plan(model, [*results, *free, "--prompt-tokens", len(prompt), "-n", n])
        command = ["run", model, *results, *free, "--token-ids", ",".join(map(str, prompt)), "-n", n, "--ignore-eos",
                   "--json", "--quiet"]
        result, fits = self.run(rng, command, plan)
        self.hold(not fits or result.status == 0, "the budget that plan names", result)
        if result.status == 4:
            result = self.again(result, command)
        self.hold(result.status == 0, "run", result)
        over, bound, what = self.difference(json.loads(result.out))
        if abs(over) > bound:  # on a busy machine one run in hundreds takes a MiB more, and the next does not
            result = self.within(self.command[-1], command)
            self.hold(result.status == 0, "run", result)
            over, bound, what = self.difference(json.loads(result.out))
        out = json.loads(result.out)
        self.test.differences.append(over / bound)
        self.hold(abs(over) <= bound, what, result)
        self.same(("run", *same), out["logits_hash"], result)
        self.same(("tokens", *same), out["token_ids"], result)

    def case_batch(self, rng):
        model, *_ = rng.choice(self.test.models)
        results, free = self.options(rng)
        requests, responses = self.folder / "requests", self.folder / "responses"
        served, count = write_requests(rng, requests)
        plan = self.plan(model, [*results, *free, "--prompt-tokens", 600, "-n", 20, "--max-num-seqs", rng.choice((1, 16))])
        command = ["batch", model, *results, *free, "-i", requests, "-o", responses, "--max-num-seqs", rng.choice((1, 3, 64)),
                   "--json", "--quiet"]
        responses.unlink(missing_ok=True)
        result, _ = self.run(rng, command, plan)
        named = result.status == 4
        if named:
            responses.unlink(missing_ok=True)
            result = self.again(result, command)
        self.hold(result.status == 0, "batch", result)
        lines = [json.loads(line) for line in responses.read_text().splitlines()]
        self.hold(len(lines) == count, f"{len(lines)} responses", result)
        self.hold(not named or "raise --memory" not in responses.read_text(), "the budget that was named for all", result)
        for line in lines:
            if line["response"]["status_code"] == 200:
                prompt, n, grammar = served[line["custom_id"]]
                choices = line["response"]["body"]["choices"]
                for choice in choices:
                    self.same(("tokens", model, *results, prompt, n, grammar), choice["token_ids"][-n:], result)
        # A sequence that is too long for this budget alone may be refused.
        if result.status == 0 and not any("raise --memory" in json.dumps(line) for line in lines):
            ok = sum(line["response"]["status_code"] == 200 for line in lines)
            self.hold(ok == len(served), f"{ok} of {len(served)} served", result)

    def case_eval(self, rng):
        model, weights, _ = rng.choice(self.test.models)
        text = rng.choice([t for t in self.test.texts if t.stat().st_size * weights < 1e10])
        results, free = self.options(rng)
        longest = rng.choice((16, 200, 1024))
        plan = self.plan(model, [*results, *free, "--prompt-tokens", longest, "-n", 0])
        command = ["eval", model, *results, *free, "--text", text, "--max-model-len", longest, "--json", "--quiet"]
        result, _ = self.run(rng, command, plan)
        if result.status == 4:
            result = self.again(result, command)
        self.hold(result.status == 0, "eval", result)
        out = json.loads(result.out)
        self.same(("eval", model, *results, text, longest), (out["perplexity"], out["tokens"]), result)

    def case_logits(self, rng):
        model, *_ = rng.choice(self.test.models)
        results, free = self.options(rng)
        which = rng.randrange(len(LISTS))
        (self.folder / "lists").write_text(json.dumps(LISTS[which]))
        plan = self.plan(model, [*results, *free, "--prompt-tokens", max(map(len, LISTS[which])), "-n", 0])
        command = ["logits", model, *results, *free, "--token-ids", self.folder / "lists", "--out", self.folder / "logits",
                   "--json", "--quiet"]
        result, _ = self.run(rng, command, plan)
        if result.status == 4:
            result = self.again(result, command)
        self.hold(result.status == 0, "logits", result)
        self.same(("logits", model, *results, which), json.loads(result.out)["logits_hash"], result)

    def case_prompt_file(self, rng):
        model, *_ = rng.choice(self.test.models)
        results, free = self.options(rng)
        text = rng.choice(self.test.texts)
        plan = self.plan(model, [*results, *free, "--prompt-tokens", 1000, "-n", 2])
        command = ["run", model, *results, *free, "--prompt-file", text, "-n", 2, "--ignore-eos", "--json", "--quiet"]
        result, _ = self.run(rng, command, plan)
        if result.status == 4:
            result = self.again(result, command)
        if result.status == 0:
            self.same(("text", model, *results, text), json.loads(result.out)["logits_hash"], result)
        else:
            self.hold(result.status == 2 and "--max-model-len" in result.err, "prompt file", result)

    def case_messages(self, rng):
        """A conversation, by a template that may take memory of its own."""
        model, *_ = rng.choice(self.test.models)
        results, free = self.options(rng)
        text, turns = rng.choice(self.test.texts[:6]), rng.choice((1, 1, 2, 5))
        hungry = rng.choice((0, 0, 3_000_000, 30_000_000))
        (self.folder / "chat").write_text(json.dumps([{"role": "user", "content": text.read_text()}] * turns))
        (self.folder / "template").write_text(
            "{% set x = 'x' * " + str(hungry) + " %}{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
        plan = self.plan(model, [*results, *free, "--prompt-tokens", 1000, "-n", 2])
        command = ["run", model, *results, *free, "--messages", self.folder / "chat", "--chat-template",
                   self.folder / "template", "-n", 2, "--ignore-eos", "--json", "--quiet"]
        result, _ = self.run(rng, command, plan)
        if result.status == 4 and "the chat template needs" in result.err:
            return self.hold(hungry, "a template that needs little", result)
        if result.status == 4:
            result = self.again(result, command)
        if result.status == 0:
            self.same(("messages", model, *results, text, turns), json.loads(result.out)["logits_hash"], result)
        else:
            self.hold(result.status == 2 and "--max-model-len" in result.err, "messages", result)

    def client(self, out, pid):
        """Of a server that writes its URL to the file `out`, when it is ready."""
        end = time.monotonic() + HANGS
        while time.monotonic() < end and pathlib.Path(f"/proc/{pid}").exists():
            url = out.read_text()
            if url.endswith("\n"):
                client = Client(int(url.strip().rpartition(":")[2]))
                with contextlib.suppress(OSError):
                    if client.get("/health")[0] == 200:
                        return client
            time.sleep(0.01)
        raise Fault("the server is not ready: " + (out.parent / "err").read_text())

    def case_exchange(self, rng):
        """A server that exchanges its weights while nothing runs; afterwards it answers as a run of the new model does."""
        model, _, other = rng.choice(self.test.models)
        results, free = self.options(rng)
        prompt, n = rng.choice(PROMPTS[:4])
        command = ["serve", model, *results, *free, "--port", 0, "--max-num-seqs", 1, "--max-model-len", 1024, "--admin-api",
                   "--quiet"]
        refused = self.within(24 * MiB, command)
        self.hold(refused.status == 4, "a budget of 24 MiB", refused)
        budget = int(int(re.search(r"--memory (\d+)MiB", refused.err)[1]) * MiB * rng.choice((1, 1.5, 2, 4)))
        self.command = [*command, "--memory", budget]
        pid = self.launcher.start([SLUICE, *self.command], limit=budget)
        try:
            client = self.client(self.launcher.folder / "out", pid)
            exchanged = client.post("/update_weights_from_disk", {"model_path": str(other)})[0] == 200
            status, answer = client.post("/v1/completions", {"prompt": prompt, "max_tokens": n, "ignore_eos": True, "temperature": 0})
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            result = self.launcher.finish()
        self.test.statuses["exchange" if exchanged else "no exchange", result.status] += 1
        self.hold(result.status == -signal.SIGTERM, "serve", result)
        self.hold(result.peak <= budget and not result.hits, "peak", result)
        self.hold(status == 200, f"an answer after an exchange: {answer}", result)
        key = ("tokens", other if exchanged else model, *results, prompt, n, json.dumps({}))
        self.same(key, answer["choices"][0]["token_ids"][-n:], result)

    def case_tokenize(self, rng):
        """Has no budget; what it takes does not follow the input."""
        text = rng.choice(self.test.texts)
        self.command = ["tokenize", rng.choice(self.test.models)[0], "--file", text]
        result = self.launcher.run([SLUICE, *self.command], limit=32 * MiB)
        self.test.statuses["tokenize", result.status] += 1
        self.hold(result.status == 0 and result.peak <= 32 * MiB and not result.hits, "tokenize", result)
        self.same(("tokenize", text), result.out, result)

    def same(self, key, value, result):
        self.hold(self.test.answers.setdefault(key, value) == value, f"another result than before for {key}", result)

    def work(self):
        cases = {self.case_run: 12, self.case_batch: 4, self.case_eval: 2, self.case_logits: 2, self.case_prompt_file: 2,
                 self.case_tokenize: 1, self.case_exchange: 1}
        while (i := self.test.next()) < TO:
            rng = random.Random(f"{SEED} {i}")
            (case,) = rng.choices(list(cases), cases.values()) if i % 20 else (self.case_messages,)
            try:
                self.command = []
                case(rng)
            except Refused:
                self.test.statuses["refused", 4] += 1
            except Exception as e:  # noqa: BLE001: whatever it is, it is that case's
                self.test.faults.append(f"case {i}: {type(e).__name__} {e}\n    {' '.join(map(str, self.command))}")
        self.launcher.close()


@unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
class BudgetTest(Case):
    def next(self):
        with self.lock:
            self.count += 1
            return self.count

    def test_no_process_takes_more_than_its_budget(self):
        self.models = [draw_model(random.Random(f"{SEED} model {i}"), self.path / f"model{i}") for i in range(MODELS)]
        self.texts = write_texts(self.path)
        self.lock, self.count, self.faults, self.answers = threading.Lock(), FROM - 1, [], {}
        self.differences, self.statuses = [], collections.Counter()
        workers = [Worker(self, self.path / f"worker{i}") for i in range(2)]
        threads = [threading.Thread(target=worker.work) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        groups = "control groups" if workers[0].launcher.group else "no control groups"
        print(f"cases {FROM} to {TO} of seed {SEED}, {groups}; {dict(sorted(self.statuses.items()))}; prediction less peak "
              f"{min(self.differences, default=0):.2f} to {max(self.differences, default=0):.2f} of what may be; faults: {len(self.faults)}")
        self.assertFalse(self.faults, "\n".join(self.faults[:20]))
