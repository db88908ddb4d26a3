"""The server and software that others have written for its APIs. What is not installed is skipped, in print:
`tools/setup --dev` installs it."""

import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

from program import DEMO, Case, client, sluice
from server import TEMPLATE, Server


class ServeClientsTest(Case):
    """One server for all clients."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="sluice-test-")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.model = cls.directory.name + "/demo"
        shutil.copytree(DEMO, cls.model)
        with open(cls.model + "/chat_template.jinja", "w") as file:
            file.write(TEMPLATE + "{# <tool_call> #}")
        cls.server = Server(cls.model, "--max-model-len", "192", "--max-num-seqs", "16")
        cls.addClassCleanup(cls.server.end, signal.SIGKILL)

    def test_openai(self):
        openai = client("openai")
        if openai is None:
            return
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
        called = api.chat.completions.create(model="demo", messages=messages, max_tokens=60, tools=[tool], tool_choice="required",
                                             parallel_tool_calls=False)
        call = called.choices[0].message.tool_calls[0].function
        self.assertEqual((call.name, type(json.loads(call.arguments)["x"])), ("f", bool))
        answer = api.responses.create(model="demo", input="Anne", max_output_tokens=8, temperature=0)
        self.assertTrue(answer.output_text)

    def test_anthropic(self):
        anthropic = client("anthropic")
        if anthropic is None:
            return
        api = anthropic.Anthropic(base_url=self.server.url, api_key="none")
        ask = {"model": "demo", "max_tokens": 8, "messages": [{"role": "user", "content": "Anne"}],
               "extra_body": {"temperature": 0}}
        whole = api.messages.create(**ask)
        with api.messages.stream(**ask) as stream:
            self.assertEqual("".join(stream.text_stream), whole.content[0].text)
        counted = api.messages.count_tokens(model="demo", messages=ask["messages"]).input_tokens
        self.assertEqual(counted, whole.usage.input_tokens + whole.usage.cache_read_input_tokens)
        with self.assertRaises(anthropic.BadRequestError):
            api.messages.create(**{**ask, "max_tokens": -1})

    def test_lm_evaluation_harness(self):
        if client("lm_eval") is None:
            return
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
        data = out.read_bytes()
        out.unlink()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        info = json.loads(data[8:begin])["logits.0"]
        rows, cols = info["shape"]
        total, best = 0, True
        for i, token in enumerate(more):
            at = begin + info["data_offsets"][0] + (len(prompt) + i - 1) * cols * 4
            row = struct.unpack(f"<{cols}f", data[at:at + cols * 4])
            most = max(row)
            total += row[token] - most - math.log(sum(math.exp(x - most) for x in row))
            best = best and row[token] == most
        self.assertEqual(rows, len(prompt + more))
        return total, best

    def test_schemathesis(self):
        if client("schemathesis") is None:
            return
        server = Server(self.model, "--max-model-len", "48", "--admin-api")  # which answers soon
        self.addCleanup(server.end, signal.SIGKILL)
        status, document = server.get("/openapi.json")
        self.assertEqual((status, document["openapi"]), (200, "3.1.0"))
        checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
        command = [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json", "--checks", checks,
                   "--phases", "fuzzing", "--max-examples", "8", "--mode", "all", "--request-timeout", "30",
                   "--exclude-path", "/sleep", "--exclude-path", "/update_weights_from_disk", "--no-color"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=self.path,
                                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(result.returncode, 0, result.stdout[-6000:] + result.stderr[-2000:])
        self.assertEqual(server.get("/health"), (200, {"status": "ready"}))
