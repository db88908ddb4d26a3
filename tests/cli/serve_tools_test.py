"""What operators and agents ask of a server beside its answers: forced calls, vectors, sleep, weights, a log."""

import base64
import contextlib
import json
import math
import pathlib
import select
import shutil
import signal
import struct
import unittest

from checkpoints import write_checkpoint
from program import BRIEF, DEMO, HANGS, Case, run_json
from server import TEMPLATE, ServedCase, Server

# A model of this template calls tools as Hermes does, and thinks where it is told to.
CALLS = "{# <tool_call> #}" + TEMPLATE + "{% if think %}<think>\n{% endif %}"
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
           "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "now"}}]
ASK = {"messages": [{"role": "user", "content": "Anne"}], "max_tokens": 150, "temperature": 0}


class ServeToolsTest(ServedCase):
    """One server for all tests."""

    template = CALLS

    @classmethod
    def options(cls):
        return "--max-num-seqs", "8", "--admin-api", "--access-log", cls.access_log(), "--pooling", "mean"

    @classmethod
    def access_log(cls):
        return pathlib.Path(cls.directory.name) / "access.log"

    def chat(self, **more):
        status, answer = self.server.post("/v1/chat/completions", {**ASK, "tools": TOOLS, **more})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]

    def check_call(self, name, arguments):
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        if name == "now":
            return self.assertEqual(arguments, {})
        self.assertEqual(name, "weather")
        self.assertEqual(set(arguments), {"city", "days"})
        self.assertIn(arguments["city"], ("Rome", "Oslo"))
        self.assertIn(arguments["days"], range(1, 10))

    def test_calls_are_forced(self):
        choice = self.chat(tool_choice="required", parallel_tool_calls=False)
        self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None))
        call, = choice["message"]["tool_calls"]
        self.check_call(call["function"]["name"], call["function"]["arguments"])
        for name in ("weather", "now"):
            named = {"type": "function", "function": {"name": name}}
            call, = self.chat(tool_choice=named)["message"]["tool_calls"]
            self.assertEqual(call["function"]["name"], name)
            self.check_call(name, call["function"]["arguments"])
            events = self.server.events("/v1/chat/completions", {**ASK, "tools": TOOLS, "tool_choice": named, "stream": True})
            calls = [c for e in events for c in e["choices"][0]["delta"].get("tool_calls", [])]
            self.assertEqual([c["function"]["name"] for c in calls if "name" in c["function"]], [name])
            self.assertEqual("".join(c["function"]["arguments"] for c in calls), call["function"]["arguments"])

    def test_calls_are_forced_in_the_other_apis(self):
        tools = [{"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {})} for t in TOOLS]
        for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}):
            answer = self.server.post("/v1/messages", {**ASK, "tools": tools, "tool_choice": choice})[1]
            self.assertEqual(answer["stop_reason"], "tool_use", answer)
            call, = answer["content"]
            self.check_call(call["name"], call["input"])
        tools = [{"type": "function", **t["function"]} for t in TOOLS]
        body = {"input": "Anne", "max_output_tokens": 150, "temperature": 0, "tools": tools,
                "tool_choice": {"type": "function", "name": "weather"}}
        answer = self.server.post("/v1/responses", body)[1]
        self.assertEqual((answer["tool_choice"], answer["tools"][0]), (body["tool_choice"], tools[0]))
        call, = answer["output"]
        self.assertEqual((call["type"], call["name"]), ("function_call", "weather"))
        self.check_call(call["name"], call["arguments"])

    @unittest.skipIf(BRIEF, "other requests go the same ways")
    def test_libraries_that_are_not_installed_here(self):
        """Requests as they were recorded."""
        place = {"properties": {"ok": {"title": "Ok", "type": "boolean"}, "kind": {"enum": ["a", "b"], "title": "Kind", "type": "string"}},
                 "required": ["ok", "kind"], "title": "P", "type": "object"}
        nested = {"$defs": {"P": place}, "properties": {
            "items": {"items": {"$ref": "#/$defs/P"}, "maxItems": 2, "minItems": 1, "title": "Items", "type": "array"},
            "nick": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None, "title": "Nick"}},
            "required": ["items"], "type": "object"}
        instructor = {"messages": ASK["messages"], "model": "demo", "max_tokens": 500, "parallel_tool_calls": False, "temperature": 0,
                      "tool_choice": {"type": "function", "function": {"name": "Q"}},
                      "tools": [{"type": "function", "function": {"name": "Q", "parameters": nested}}]}
        choice = self.server.post("/v1/chat/completions", instructor)[1]["choices"][0]
        items = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["items"]
        self.assertTrue(all({"ok", "kind"} == set(item) for item in items))
        strict = {**place, "additionalProperties": False}
        both = {"input": ASK["messages"], "max_output_tokens": 200, "model": "demo", "temperature": 0,
                "text": {"format": {"type": "json_schema", "name": "P", "strict": True, "schema": strict}},
                "tool_choice": {"type": "function", "name": "P"}, "tools": [{"type": "function", "name": "P", "parameters": strict}]}
        call, = self.server.post("/v1/responses", both)[1]["output"]
        self.assertEqual((call["type"], set(json.loads(call["arguments"]))), ("function_call", {"ok", "kind"}))
        litellm = {"model": "demo", "max_tokens": 20, "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Anne"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"toolu_{i}", "name": "P", "input": {"ok": True}} for i in (0, 1)]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": "12"} for i in (0, 1)]}],
            "tools": [{"name": "P", "input_schema": place, "type": "custom", "description": "w"}]}
        status, answer = self.server.post("/v1/messages", litellm)
        self.assertEqual((status, answer["content"][0]["type"]), (200, "text"), answer)
        llama_index = {"messages": [{"role": "system", "content": "Be"}, *ASK["messages"]], "model": "demo", "max_tokens": 200,
                       "parallel_tool_calls": False, "stream": False, "temperature": 0.1, "tool_choice": "required",
                       "tools": [{"type": "function", "function": {"name": "P", "parameters": strict}, "strict": False}]}
        choice = self.server.post("/v1/chat/completions", llama_index)[1]["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls")

    def test_agents_at_the_terminal(self):
        """Requests as Claude Code and Codex send them, in short."""
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
            "command": {"type": "string", "maxLength": 9}}, "required": ["command"], "additionalProperties": False}
        claude = {"model": "demo", "max_tokens": 1000, "metadata": {"user_id": "{}"}, "thinking": {"type": "adaptive", "display": "omitted"},
                  "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "output_config": {"effort": "high"},
                  "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                             {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                  "messages": [{"role": "user", "content": [{"type": "text", "text": "Anne"}]},
                               {"role": "system", "content": [{"type": "text", "text": "Now.", "cache_control": {"type": "ephemeral"}}]}],
                  "tools": [{"name": "Bash", "description": "Runs", "input_schema": schema},
                            {"name": "Later", "input_schema": {"type": "object", "properties": {}}, "defer_loading": True}]}
        count = self.server.post("/v1/messages/count_tokens", claude)[1]["input_tokens"]
        other = {**claude, "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=23456;"}, claude["system"][1]],
                 "tools": claude["tools"][:1]}
        self.assertEqual(self.server.post("/v1/messages/count_tokens", other)[1]["input_tokens"], count)
        status, answer = self.server.post("/v1/messages", {**claude, "temperature": 0, "tool_choice": {"type": "tool", "name": "Bash"}})
        self.assertEqual((status, answer.get("stop_reason")), (200, "tool_use"), answer)
        self.assertEqual(set(answer["content"][-1]["input"]), {"command"})
        said = [{"type": "message", "id": f"msg_{role}", "role": role, "content": [{"type": "input_text", "text": "Anne"}]}
                for role in ("developer", "developer", "user")]
        codex = {"model": "demo", "stream": False, "parallel_tool_calls": True, "reasoning": {"summary": "auto"}, "store": False,
                 "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": {"x": "y"}, "input": said,
                 "tool_choice": {"type": "function", "name": "run", "namespace": "mcp__x"}, "temperature": 0,
                 "tools": [{"type": "function", "name": "exec_command", "strict": False, "parameters": schema},
                           {"type": "namespace", "name": "mcp__x", "description": "", "tools": [
                               {"type": "function", "name": "run", "strict": False, "parameters": schema}]},
                           {"type": "web_search", "external_web_access": False}]}
        call, = self.server.post("/v1/responses", codex)[1]["output"]
        self.assertEqual((call["type"], call["namespace"], call["name"]), ("function_call", "mcp__x", "run"))
        events = self.server.request("POST", "/v1/responses", json.dumps({**codex, "stream": True}))[2]
        done = [json.loads(line[6:]) for line in events.split("\n") if line.startswith("data: ")]
        item, = [event["item"] for event in done if event["type"] == "response.output_item.done"]
        self.assertEqual((item["namespace"], item["name"], item["arguments"]), ("mcp__x", "run", call["arguments"]))
        self.assertEqual([(e["name"], e["arguments"]) for e in done if e["type"] == "response.function_call_arguments.done"],
                         [("run", call["arguments"])])
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": [{"type": "input_text", "text": "42"}]}
        status, answer = self.server.post("/v1/responses", {**codex, "tool_choice": "auto", "max_output_tokens": 16, "input": [*said, call, result]})
        self.assertEqual(status, 200, answer)

    def test_calls_with_faults_are_mended_or_are_text(self):
        mended = '<tool_call>\n{"name": "weather", "arguments": {"city": "a\nb"}\n</tool_call>'
        unclear = '<tool_call>\n{"name": "weather", "arguments": {"city": "a "b""}}\n</tool_call>'
        for text, calls in ((mended, [("weather", {"city": "a\nb"})]), (unclear, [])):
            body = {**ASK, "tools": TOOLS, "guided_choice": [text]}
            choice = self.chat(guided_choice=[text])
            events = self.server.events("/v1/chat/completions", {**body, "stream": True})
            deltas = [e["choices"][0]["delta"] for e in events if e["choices"]]
            streamed = [c["function"] for d in deltas for c in d.get("tool_calls", [])]
            read = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in choice["message"].get("tool_calls", [])]
            self.assertEqual(read, calls)
            self.assertEqual(choice["finish_reason"], "tool_calls" if calls else "stop")
            self.assertEqual(choice["message"]["content"], None if calls else text)
            self.assertEqual([c["name"] for c in streamed if "name" in c], [name for name, _ in calls])
            self.assertEqual("".join(d.get("content") or "" for d in deltas), "" if calls else text)
            if calls:
                self.assertEqual(json.loads("".join(c["arguments"] for c in streamed)), calls[0][1])

    def test_a_format_begins_behind_the_thoughts(self):
        body = {**ASK, "max_tokens": 30, "response_format": {"type": "json_object"}}
        message = self.server.post("/v1/chat/completions", {**body, "chat_template_kwargs": {"think": True}})[1]["choices"][0]["message"]
        self.assertEqual(message["content"], "")
        self.assertTrue(message["reasoning_content"])
        self.assertFalse(message["reasoning_content"].lstrip().startswith("{"), "the format was held from the start")
        message = self.server.post("/v1/chat/completions", {**ASK, "guided_regex": "ab"})[1]["choices"][0]["message"]
        self.assertEqual(message, {"role": "assistant", "content": "ab"})

    def test_tools_work_with_a_template_that_shows_none(self):
        template = self.path / "plain.jinja"
        template.write_text("{% for m in messages %}{% if m.role not in ('user', 'assistant') %}{{ raise_exception('no such role') }}"
                            "{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
        server = Server(self.model, "--chat-template", template)
        self.addCleanup(server.end, signal.SIGKILL)
        bare = server.post("/tokenize", {"messages": ASK["messages"]})[1]["count"]
        told = server.post("/tokenize", {"messages": ASK["messages"], "tools": TOOLS})[1]["count"]
        self.assertGreater(told, bare + 100)
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            body = {**ASK, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
            status, answer = server.post("/v1/chat/completions", body)
            self.assertEqual(status, 200, answer)
            message = answer["choices"][0]["message"]
            call, = message["tool_calls"]
            self.check_call(call["function"]["name"], call["function"]["arguments"])
            result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
            ids = server.post("/tokenize", {"messages": [{"role": "system", "content": "Be brief."}, *ASK["messages"], message, result],
                                            "tools": TOOLS})[1]["tokens"]
            prompt = server.post("/detokenize", {"tokens": ids})[1]["prompt"]
            self.assertIn("user: Be brief.\n\nYou can call tools", prompt)
            self.assertTrue(prompt.endswith("</tool_call>\nuser: <tool_response>\nsunny\n</tool_response>\n"), prompt)
        self.assertIn("generic form", server.end()[2])
        server = Server(self.model, "--chat-template", template, "--tool-format", "none")
        self.addCleanup(server.end, signal.SIGKILL)
        status, answer = server.post("/v1/chat/completions", {**ASK, "tools": TOOLS})
        self.assertEqual((status, "--tool-format" in answer["error"]["message"]), (400, True))
        self.assertEqual(server.post("/v1/chat/completions", {**ASK, "tools": TOOLS, "tool_choice": "none"})[0], 200)

    def test_what_cannot_be_held_is_refused(self):
        for mention, more in (("needs tools", {"tool_choice": "required"}),
                              ("unknown tool \"x\"", {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}})):
            status, answer = self.server.post("/v1/chat/completions", {**ASK, **more})
            self.assertEqual(status, 400)
            self.assertIn(mention, answer["error"]["message"])

    def test_embeddings(self):
        texts = ["Anne had", "In the beginning", "Anne had"]
        status, answer = self.server.post("/v1/embeddings", {"input": texts, "model": "demo"})
        self.assertEqual(status, 200, answer)
        vectors = [d["embedding"] for d in answer["data"]]
        self.assertEqual([d["index"] for d in answer["data"]], [0, 1, 2])
        self.assertEqual([len(v) for v in vectors], [256] * 3)
        self.assertEqual(vectors[0], vectors[2])
        for vector in vectors:
            self.assertAlmostEqual(math.hypot(*vector), 1, places=5)
        ids = [run_json("tokenize", DEMO, "--text", text)["ids"] for text in texts]
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(map(len, ids)))
        for given in (ids, ids[1]):
            data = self.server.post("/v1/embeddings", {"input": given, "encoding_format": "base64"})[1]["data"]
            want = vectors if given is ids else vectors[1:2]
            for one, vector in zip(data, want, strict=True):
                floats = struct.unpack("<256f", base64.b64decode(one["embedding"]))
                self.assertEqual([struct.unpack("<f", struct.pack("<f", x))[0] for x in vector], list(floats))
        for mention, body in (("dimensions", {"input": "x", "dimensions": 8}), ("input is missing", {}), ("input", {"input": 5}),
                              ("encoding_format", {"input": "x", "encoding_format": "int8"}), ("empty", {"input": [[]]}),
                              ("prompt is too long: 5000 tokens > 1024", {"input": [3] * 5000})):
            status, answer = self.server.post("/v1/embeddings", body)
            self.assertEqual(status, 400)
            self.assertIn(mention, answer["error"]["message"])

    def test_embeddings_need_no_head(self):
        """As embedding models are published: without a head, and without the name of its module around the others'."""
        whole, bare = write_checkpoint(self.path / "whole", tie_word_embeddings=False), self.path / "bare"
        shutil.copytree(whole, bare)
        data = (bare / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header, data = json.loads(data[8:8 + size]), data[8 + size:]
        begin, end = header.pop("lm_head.weight")["data_offsets"]
        for tensor in header.values():
            tensor["data_offsets"] = [at - (end - begin) * (at >= end) for at in tensor["data_offsets"]]
        text = json.dumps({name.removeprefix("model."): tensor for name, tensor in header.items()}).encode()
        (bare / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[:begin] + data[end:])
        answers = []
        for model in (whole, bare):
            server = Server(model)
            self.addCleanup(server.end, signal.SIGKILL)
            answers.append(server.post("/v1/embeddings", {"input": "Anne had"})[1]["data"])
        self.assertEqual(answers[0], answers[1])
        status, answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        self.assertEqual(status, 400)
        self.assertIn("no lm_head.weight", answer["error"]["message"])
        self.assert_fails(3, "lm_head.weight is missing", "run", bare, "--prompt", "x")
        run_json("plan", bare)
        run_json("inspect", bare)

    def test_embeddings_follow_the_files_of_the_model(self):
        model = self.path / "embedding"
        shutil.copytree(self.model, model)
        (model / "1_Pooling").mkdir()
        (model / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}')
        modules = [{"type": f"sentence_transformers.models.{name}", "path": path}
                   for name, path in (("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"))]
        for names, status in ((modules[:2], 200), (modules, 400)):
            (model / "modules.json").write_text(json.dumps(names))
            server = Server(model)
            self.addCleanup(server.end, signal.SIGKILL)
            answered, answer = server.post("/v1/embeddings", {"input": "Anne had"})
            self.assertEqual(answered, status, answer)
            _, _, said = server.end()
            if status == 400:
                self.assertIn("Dense", answer["error"]["message"])
                self.assertIn("/v1/embeddings is refused", said)
                continue
            vector = answer["data"][0]["embedding"]  # there is no Normalize
            length = math.hypot(*vector)
            self.assertNotAlmostEqual(length, 1, places=2)
            mean = self.server.post("/v1/embeddings", {"input": "Anne had"})[1]["data"][0]["embedding"]
            for x, y in zip(vector, mean, strict=True):
                self.assertAlmostEqual(x / length, y, places=5)

    def test_requests_have_ids_and_a_line_in_the_log(self):
        body = {"prompt": "secret words", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
        status, headers, answer = self.server.request("POST", "/v1/completions?key=hidden", json.dumps(body), {"X-Request-Id": "mine-1"})
        self.assertEqual((status, headers["X-Request-Id"]), (200, "mine-1"))
        self.server.events("/v1/completions", {**body, "stream": True})
        status, other, _ = self.server.request("POST", "/v1/none", "{}", {"X-Request-Id": "not one\t"})
        self.assertTrue(other["X-Request-Id"].startswith("req_"))
        log = self.access_log()
        self.server.wait_until(lambda: other["X-Request-Id"] in log.read_text())
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        mine, = [line for line in lines if line["request_id"] == "mine-1"]
        self.assertEqual((mine["method"], mine["path"], mine["status"]), ("POST", "/v1/completions", 200))
        self.assertEqual((mine["prompt_tokens"], mine["completion_tokens"]),
                         (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]))
        self.assertTrue(0 < mine["first_token_seconds"] <= mine["seconds"])
        self.assertGreater(mine["bytes"], len(json.dumps(answer)) / 2)
        refused, = [line for line in lines if line["request_id"] == other["X-Request-Id"]]
        self.assertEqual((refused["status"], refused["path"]), (404, "/v1/none"))
        self.assertNotIn("secret", log.read_text())
        self.assertNotIn("hidden", log.read_text())


class ServeAdminTest(Case):
    """One server whose model comes and goes."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(DEMO, "--max-num-seqs", "4", "--admin-api", "--threads", "1")
        cls.addClassCleanup(cls.server.end, signal.SIGKILL)

    def serve(self, *options):
        server = Server(DEMO, "--max-num-seqs", "4", *options)
        self.addCleanup(server.end, signal.SIGKILL)
        return server

    def test_sleep_and_wake(self):
        server = self.server
        body = {"prompt": "In the beginning", "max_tokens": 12, "temperature": 0}
        want = server.post("/v1/completions", body)[1]["choices"]
        used = server.get("/v1/memory")[1]["used"]["host"]
        for level in ("?level=1", ""):
            self.assertEqual(server.request("POST", "/sleep" + level)[0], 200)
        self.assertEqual(server.get("/is_sleeping"), (200, {"is_sleeping": True}))
        self.assertEqual(server.get("/health"), (200, {"status": "sleeping"}))
        status, headers, answer = server.request("POST", "/v1/completions", json.dumps(body))
        self.assertEqual((status, headers["Retry-After"]), (503, "5"))
        self.assertIn("sleeps", answer["error"]["message"])
        self.assertEqual(server.post("/tokenize", {"prompt": "Anne"})[0], 200)
        asleep = server.get("/v1/memory")[1]
        weights = run_json("plan", DEMO)["uses"]["weights"]
        self.assertLess(asleep["used"]["host"], used - weights)
        self.assertEqual(server.post("/update_weights_from_disk", {"model_path": str(DEMO)})[0], 409)
        for _ in range(2):
            self.assertEqual(server.request("POST", "/wake_up")[0], 200)
        self.assertEqual(server.get("/is_sleeping")[1], {"is_sleeping": False})
        self.assertEqual(server.post("/v1/completions", body)[1]["choices"], want)
        self.assertGreater(server.metric("vllm:generation_tokens_total"), len(want[0]["token_ids"]))
        for bad in ("?level=7", "?mode=perhaps"):
            self.assertEqual(server.request("POST", "/sleep" + bad)[0], 400)

    def test_weights_are_exchanged(self):
        server = self.server
        body = {"prompt": "In the beginning", "max_tokens": 12, "temperature": 0}
        want = server.post("/v1/completions", body)[1]["choices"]
        other = self.path / "other"
        shutil.copytree(DEMO, other)
        for file in sorted(other.glob("*.safetensors")):  # all zeros
            data = bytearray(file.read_bytes())
            begin = 8 + struct.unpack("<Q", data[:8])[0]
            data[begin:] = bytes(len(data) - begin)
            file.write_bytes(data)
        wrong = self.path / "wrong"
        shutil.copytree(DEMO, wrong)
        config = json.loads((wrong / "config.json").read_text())
        (wrong / "config.json").write_text(json.dumps({**config, "rope_theta": 5.0}))
        for mention, path in (("another model", wrong), ("nothing", self.path / "nothing")):
            status, answer = server.post("/update_weights_from_disk", {"model_path": str(path)})
            self.assertEqual(status, 400)
            self.assertIn(mention, answer["error"]["message"])
            self.assertEqual(server.post("/v1/completions", body)[1]["choices"], want)
        self.assertEqual(server.post("/update_weights_from_disk", {"model_path": str(other)})[0], 200)
        self.assertNotEqual(server.post("/v1/completions", body)[1]["choices"], want)
        self.assertEqual(server.post("/update_weights_from_disk", {"model_path": str(DEMO)})[0], 200)
        self.assertEqual(server.post("/v1/completions", body)[1]["choices"], want)

    def test_running_requests_wait_or_are_cut(self):
        server = self.server
        for mode in ("wait", "abort"):
            body = {"prompt": "Anne had", "max_tokens": 700, "ignore_eos": True, "stream": True,
                    "n": 64 if mode == "abort" else 1}  # all of which cannot end before they are cut
            connection = server.connect()
            self.addCleanup(connection.close)
            connection.request("POST", "/v1/completions", json.dumps(body))
            response = connection.getresponse()
            response.read(10)
            self.assertEqual(server.request("POST", "/sleep?mode=" + mode)[0], 200)
            last = response.read().decode().split("\n\n")[-2]
            if mode == "wait":
                self.assertEqual(last, "data: [DONE]")
            else:
                self.assertEqual(json.loads(last.removeprefix("data: "))["error"]["type"], "overloaded_error")
            self.assertEqual(server.request("POST", "/wake_up")[0], 200)

    def test_others_are_answered_while_one_waits_to_sleep(self):
        server = self.server
        with contextlib.closing(server.connect()) as stream, contextlib.closing(server.connect()) as sleep:
            stream.request("POST", "/v1/completions", json.dumps({"prompt": "Anne had", "max_tokens": 900, "ignore_eos": True,
                                                                  "stream": True, "n": 64}))
            stream.getresponse().read(10)
            sleep.request("POST", "/sleep?mode=wait")
            server.wait_until(lambda: server.get("/health")[1]["status"] == "sleeping")
            self.assertEqual(server.post("/tokenize", {"prompt": "Anne"})[0], 200)
            self.assertEqual(server.post("/v1/completions", {"prompt": "Anne"})[0], 503)
            self.assertEqual(select.select([sleep.sock], [], [], 0)[0], [], "nobody was waited for")
            stream.close()  # there is nothing to wait for any more
            self.assertEqual(sleep.getresponse().status, 200)
        self.assertEqual(server.request("POST", "/wake_up")[0], 200)

    def test_without_the_option_there_is_none_and_a_full_disk_harms_nobody(self):
        server = self.serve("--api-key", "k", "--access-log", "/dev/full")
        for path in ("/sleep", "/wake_up", "/update_weights_from_disk"):
            self.assertEqual(server.post(path, {})[0], 401)
            status, answer = server.post(path, {}, headers={"Authorization": "Bearer k"})
            self.assertEqual((status, "--admin-api" in answer["error"]["message"]), (404, True))
        self.assertEqual(server.end()[2].count("access log could not be written"), 1)
        self.assert_fails(1, "--access-log", "serve", DEMO, "--port", "0", "--access-log", self.path / "none/log")
        self.assert_fails(2, "--admin-api", "serve", DEMO, "--host", "0.0.0.0", "--no-api-key", "--admin-api")

    def test_answers_of_a_streamed_model_end_after_sigterm(self):
        server = self.serve("--place", "mlp=disk", "--access-log", "-")
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "Anne had", "max_tokens": 40, "ignore_eos": True,
                                                                  "stream": True}))
        response = connection.getresponse()
        response.read(10)
        server.process.stdout.close()  # nobody reads the log any more
        self.assertEqual(server.get("/v1/models")[0], 200)
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        self.assertEqual(server.process.wait(HANGS), -signal.SIGTERM)
