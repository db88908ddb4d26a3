"""The server and software that others have written for its APIs."""

import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import unittest

from checkpoints import VOCABULARY, read_floats
from program import ALL, BRIEF, CLIENTS, DEMO, HANGS, sluice
from server import TEMPLATE, ServedCase, Server

sys.path.insert(0, str(CLIENTS))  # before what the interpreter has of the same names
MISSING = [name for name in ("openai", "anthropic", "lm_eval", "schemathesis") if importlib.util.find_spec(name) is None]

ROOM = 8192
# Answers of few tokens, where a request is for more or does not say.
BRIEFLY = f"""
import schemathesis

UNSAID = {{"/v1/chat/completions": "max_tokens", "/v1/responses": "max_output_tokens"}}

@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    for key in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        if isinstance(body.get(key), int) and 4 < body[key] <= {ROOM} or body.get(key) == -1:
            body[key] = 4
    said = UNSAID.get(context.operation.path)
    if said and body.get(said) is None:
        body[said] = 4
    return body
"""


@unittest.skipIf(MISSING, f"without {', '.join(MISSING)}; tools/setup --dev installs them")
class ServeClientsTest(ServedCase):
    """One server for all clients."""

    template = TEMPLATE + "{# <tool_call> #}"

    @classmethod
    def options(cls):
        return "--max-model-len", "256", "--max-num-seqs", "16"

    def test_openai(self):
        import openai

        api = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none")
        messages = [{"role": "user", "content": "Anne"}]
        whole = api.chat.completions.create(model="demo", messages=messages, max_tokens=8, temperature=0)
        stream = api.chat.completions.create(model="demo", messages=messages, max_tokens=8, temperature=0, stream=True)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in stream), whole.choices[0].message.content)
        text = api.completions.create(model="demo", prompt="Anne had", max_tokens=4, temperature=0).choices[0].text
        self.assertTrue(text)
        self.assertEqual([m.id for m in api.models.list()][0], "demo")
        with self.assertRaises(openai.NotFoundError):
            api.completions.create(model="other", prompt="x")
        with self.assertRaises(openai.BadRequestError):
            api.completions.create(model="demo", prompt="x", temperature=-1)
        vectors = api.embeddings.create(model="demo", input=["Anne", "had"])  # asks for base64
        self.assertEqual([len(d.embedding) for d in vectors.data], [256, 256])
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"], "additionalProperties": False}}}
        called = api.chat.completions.create(model="demo", messages=messages, max_tokens=120, temperature=0, tools=[tool],
                                             tool_choice="required", parallel_tool_calls=False)
        call = called.choices[0].message.tool_calls[0].function
        self.assertEqual((call.name, type(json.loads(call.arguments)["x"])), ("f", bool))
        answer = api.responses.create(model="demo", input="Anne", max_output_tokens=8, temperature=0)
        self.assertTrue(answer.output_text)

    def test_anthropic(self):
        import anthropic

        api = anthropic.Anthropic(base_url=self.server.url, api_key="none")
        ask = {"model": "demo", "max_tokens": 8, "messages": [{"role": "user", "content": "Anne"}],
               "extra_body": {"temperature": 0}}
        whole = api.messages.create(**ask)
        with api.messages.stream(**ask) as stream:
            self.assertEqual("".join(stream.text_stream), whole.content[0].text)
        counted = api.messages.count_tokens(model="demo", messages=ask["messages"]).input_tokens
        self.assertEqual(counted, whole.usage.input_tokens + whole.usage.cache_read_input_tokens)
        with self.assertRaises(anthropic.BadRequestError):
            api.messages.create(**{**ask, "max_tokens": -2})  # -1: as many as fit

    def test_lm_evaluation_harness(self):
        from lm_eval.api.instance import Instance
        from lm_eval.models.openai_completions import LocalCompletionsAPI

        api = LocalCompletionsAPI(base_url=self.server.url + "/v1/completions", model="demo", batch_size=4, num_concurrent=1)
        pairs = [("Anne had", " a"), ("In the beginning", " God created"), ("It was", " the best of times"), ("Eliza", "beth")]
        found = api.loglikelihood([Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)], disable_tqdm=True)
        for (context, continuation), (logprob, greedy) in zip(pairs, found, strict=True):
            prompt, more = api._encode_pair(context, continuation)
            want, best = self.logits_say(prompt, more)
            self.assertAlmostEqual(logprob, want, places=3)
            self.assertEqual(greedy, best)

    def logits_say(self, prompt, more):
        """Log-likelihood of `more` behind `prompt`, and whether each of its tokens is the likeliest, by `sluice logits`."""
        (self.path / "ids.json").write_text(json.dumps(prompt + more))
        out = self.path / "logits.safetensors"
        result = sluice("logits", DEMO, "--token-ids", self.path / "ids.json", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        logits = read_floats(out)["logits.0"]
        out.unlink()
        self.assertEqual(len(logits), len(prompt + more) * VOCABULARY)
        total, best = 0, True
        for i, token in enumerate(more, len(prompt) - 1):
            row = logits[i * VOCABULARY:(i + 1) * VOCABULARY]
            most = max(row)
            total += row[token] - most - math.log(sum(math.exp(x - most) for x in row))
            best = best and row[token] == most
        return total, best

    @unittest.skipIf(BRIEF, "prompts of thousands of tokens take minutes under a sanitizer")
    def test_schemathesis(self):
        model = self.path / "roomy"  # for prompts of any request that is generated
        shutil.copytree(self.model, model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": ROOM}))
        server = Server(model, "--admin-api")
        self.addCleanup(server.end, signal.SIGKILL)
        status, document = server.get("/openapi.json")
        self.assertEqual((status, document["openapi"]), (200, "3.1.0"))
        (self.path / "brief.py").write_text(BRIEFLY)
        amount = "100" if ALL else "8"
        command = [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json", "--max-examples", amount,
                   "--phases", "fuzzing", "--seed", "1", "--mode", "all", "--request-timeout", str(HANGS), "--exclude-path", "/sleep",
                   "--exclude-path", "/update_weights_from_disk", "--no-color"]
        paths = os.pathsep.join([*sys.path, str(self.path)])
        result = subprocess.run(command, capture_output=True, text=True, timeout=3 * HANGS, cwd=self.path,
                                env={**os.environ, "PYTHONPATH": paths, "SCHEMATHESIS_HOOKS": "brief"})
        self.assertEqual(result.returncode, 0, result.stdout[-6000:] + result.stderr[-2000:])
        self.assertEqual(server.get("/health"), (200, {"status": "ready"}))
