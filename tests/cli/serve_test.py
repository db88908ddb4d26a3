"""The server as its clients meet it."""

import concurrent.futures
import email.utils
import json
import signal
import socket
import unittest

from program import BRIEF, DEMO, HANGS, SANITIZED, SLOW, Case, budget_for, copy_without_template, run_json, sluice
from server import LONG, PROMPTS, ServedCase, Server


class ServeTest(ServedCase):
    def test_completions_are_those_of_run(self):
        for i, prompt in enumerate(PROMPTS):
            body = {"prompt": prompt, "max_tokens": 20, "temperature": 0.7 * (i % 2), "seed": i}
            want = run_json("run", DEMO, "-p", prompt, "-n", "20", "--temperature", body["temperature"], "--seed", i)
            status, answer = self.server.post("/v1/completions", body)
            self.assertEqual(status, 200, answer)
            choice = answer["choices"][0]
            self.assertEqual((choice["text"], choice["token_ids"], choice["finish_reason"]),
                             (want["text"], want["token_ids"], want["finish_reason"]))
            self.assertEqual((answer["object"], answer["model"]), ("text_completion", "demo"))
            self.assertEqual(self.server.streamed_text(body), want["text"])

    def test_a_hundred_streams_at_once_are_each_what_they_are_alone(self):
        bodies = [{"prompt": p, "max_tokens": 20 + i, "temperature": 0.8 * (i % 2), "seed": i, "ignore_eos": True}
                  for i, p in enumerate(PROMPTS * 2)]
        want = [run_json("run", DEMO, "-p", b["prompt"], "-n", b["max_tokens"], "--temperature", b["temperature"],
                         "--seed", b["seed"], "--ignore-eos")["text"] for b in bodies]
        times = 2 if BRIEF else 10
        with concurrent.futures.ThreadPoolExecutor(10 * times) as pool:
            texts = list(pool.map(self.server.streamed_text, bodies * times))
        self.assertEqual(texts, want * times)

    def test_choices_logprobs_and_usage(self):
        body = {"prompt": ["Anne had", "It was"], "max_tokens": 6, "n": 2, "seed": 3, "logprobs": 2, "ignore_eos": True}
        _, whole = self.server.post("/v1/completions", body)
        self.assertEqual([c["index"] for c in whole["choices"]], [0, 1, 2, 3])
        events = self.server.events("/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1]["choices"], [])
        self.assertTrue(all(e["usage"] is None for e in events[:-1]))
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(events[-1]["usage"][key], whole["usage"][key])
        self.assertGreaterEqual(events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        for choice in whole["choices"]:
            parts = [e["choices"][0] for e in events[:-1] if e["choices"][0]["index"] == choice["index"]]
            self.assertEqual("".join(p["text"] for p in parts), choice["text"])
            self.assertEqual([p["finish_reason"] for p in parts], [None] * (len(parts) - 1) + ["length"])
            for key in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
                self.assertEqual(sum((p["logprobs"][key] for p in parts), []), choice["logprobs"][key])

    def test_echo_and_stop(self):
        body = {"prompt": "In the beginning", "max_tokens": 30, "temperature": 0}
        text = self.server.post("/v1/completions", body)[1]["choices"][0]["text"]
        self.assertEqual(self.server.streamed_text({**body, "echo": True}), body["prompt"] + text)
        stop = text[10:13]
        before = text[:text.index(stop)]
        self.assertEqual(self.server.streamed_text({**body, "stop": [stop]}), before)

    def test_a_prompt_that_was_there_is_reused(self):
        body = {"prompt": "It was a truth universally acknowledged, that a man " * 6, "max_tokens": 1}
        self.server.post("/v1/completions", body)
        usage = self.server.post("/v1/completions", body)[1]["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.assertTrue(usage["prompt_tokens"] - 32 < cached < usage["prompt_tokens"], usage)

    def test_chats(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Anne"}]}]
        text = "system: Be brief.\nuser: Anne\nmodel: "
        want = run_json("run", DEMO, "-p", text, "-n", "16", "--ignore-eos")
        body = {"model": "demo", "messages": messages, "max_completion_tokens": 16, "temperature": 0, "ignore_eos": True}
        status, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["choices"][0]["message"], {"role": "assistant", "content": want["text"]})
        self.assertEqual(answer["usage"]["prompt_tokens"], want["timings"]["prompt_tokens"])
        events = self.server.events("/v1/chat/completions", {**body, "stream": True, "logprobs": True, "top_logprobs": 2})
        deltas = [e["choices"][0]["delta"] for e in events]
        self.assertEqual(deltas[0]["role"], "assistant")
        self.assertEqual("".join(d.get("content", "") for d in deltas), want["text"])
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")
        logprobs = sum((e["choices"][0]["logprobs"]["content"] for e in events if e["choices"][0]["logprobs"]), [])
        self.assertEqual(len(logprobs), 16)
        self.assertEqual(len(logprobs[0]["top_logprobs"]), 2)
        tools = [{"type": "function", "function": {"name": "f"}}]
        _, ids = self.server.post("/tokenize", {"messages": messages, "tools": tools})
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids["tokens"][1:]})[1]["prompt"],
                         json.dumps(tools) + text)

    def named_events(self, path, body):
        """Events of an API that names them: [(name, JSON)]."""
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        events = [e.split("\n") for e in response.read().decode().split("\n\n")[:-1] if not e.startswith(":")]
        events = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]
        self.assertTrue(all(name == data["type"] for name, data in events))
        return events

    def test_messages(self):
        body = {"model": "demo", "system": "Be brief.", "messages": [{"role": "user", "content": "Anne"}], "max_tokens": 12,
                "temperature": 0}
        chat = {"messages": [{"role": "system", "content": "Be brief."}, *body["messages"]], "max_tokens": 12, "temperature": 0}
        want = self.server.post("/v1/chat/completions", chat)[1]
        text = want["choices"][0]["message"]["content"]
        answer = self.server.post("/v1/messages", body)[1]
        self.assertEqual(answer["content"], [{"type": "text", "text": text}])
        self.assertEqual((answer["type"], answer["stop_reason"]), ("message", "max_tokens"))
        usage = answer["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], want["usage"]["prompt_tokens"])
        count = self.server.post("/v1/messages/count_tokens", {k: body[k] for k in ("model", "system", "messages")})[1]
        self.assertEqual(count, {"input_tokens": want["usage"]["prompt_tokens"]})
        count = self.server.post("/v1/responses/input_tokens", {"instructions": body["system"], "input": body["messages"]})[1]
        self.assertEqual(count, {"object": "response.input_tokens", "input_tokens": want["usage"]["prompt_tokens"]})
        events = self.named_events("/v1/messages", body)
        self.assertEqual(events[0][1]["message"]["usage"]["input_tokens"], want["usage"]["prompt_tokens"])
        self.assertEqual("".join(e["delta"]["text"] for name, e in events if name == "content_block_delta"), text)
        self.assertEqual([name for name, _ in events if name != "content_block_delta"],
                         ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"])
        told = events[-2][1]["usage"]  # once it is known what was found
        self.assertEqual(told["input_tokens"] + told["cache_read_input_tokens"], want["usage"]["prompt_tokens"])
        self.assertEqual(told["output_tokens"], 12)
        stopped = {**body, "stop_sequences": ["none of it", text[3:6]]}
        answer = self.server.post("/v1/messages", stopped)[1]
        want = {"stop_reason": "stop_sequence", "stop_sequence": text[3:6]}
        self.assertLessEqual(want.items(), answer.items())
        self.assertEqual(answer["content"][0]["text"], text[:text.index(text[3:6])])
        self.assertEqual(self.named_events("/v1/messages", stopped)[-2][1]["delta"], want)
        status, answer = self.server.post("/v1/messages", {**body, "max_tokens": -2})
        self.assertEqual((status, answer["type"], answer["error"]["type"]), (400, "error", "invalid_request_error"))

    def test_responses(self):
        body = {"model": "demo", "instructions": "Be brief.", "input": "Anne", "max_output_tokens": 12, "temperature": 0}
        chat = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Anne"}], "max_tokens": 12,
                "temperature": 0}
        text = self.server.post("/v1/chat/completions", chat)[1]["choices"][0]["message"]["content"]
        answer = self.server.post("/v1/responses", body)[1]
        self.assertEqual((answer["object"], answer["status"]), ("response", "incomplete"))
        self.assertEqual(answer["output"][0]["content"], [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}])
        self.assertEqual((answer["output"][0]["status"], answer["instructions"]), ("incomplete", "Be brief."))
        self.assertEqual(answer["usage"]["output_tokens"], 12)
        events = self.named_events("/v1/responses", body)
        self.assertEqual([e["sequence_number"] for _, e in events], list(range(len(events))))
        self.assertEqual("".join(e["delta"] for name, e in events if name == "response.output_text.delta"), text)
        last = events[-1][1]["response"]["output"][0]
        self.assertEqual((last["content"], last["status"]), (answer["output"][0]["content"], "incomplete"))
        self.assertEqual([name for name, _ in events][:4], ["response.created", "response.in_progress",
                                                            "response.output_item.added", "response.content_part.added"])

    def test_responses_have_the_logprobs_of_their_text(self):
        body = {"input": "Anne", "max_output_tokens": 12, "temperature": 0, "top_logprobs": 2}
        chat = {"messages": [{"role": "user", "content": "Anne"}], "max_tokens": 12, "temperature": 0, "logprobs": True,
                "top_logprobs": 2}
        want = self.server.post("/v1/chat/completions", chat)[1]["choices"][0]["logprobs"]["content"]
        part = self.server.post("/v1/responses", body)[1]["output"][0]["content"][0]
        self.assertEqual((part["logprobs"], "".join(t["token"] for t in want)), (want, part["text"]))
        events = self.named_events("/v1/responses", body)
        told = [t for name, e in events if name == "response.output_text.delta" for t in e["logprobs"]]
        self.assertEqual(told, want)
        self.assertEqual([e["logprobs"] for name, e in events if name == "response.output_text.done"], [want])
        self.assertEqual(events[-1][1]["response"]["output"][0]["content"][0]["logprobs"], want)
        del body["top_logprobs"]
        alone = self.server.post("/v1/responses", {**body, "include": ["message.output_text.logprobs"]})[1]
        self.assertEqual(alone["output"][0]["content"][0]["logprobs"], [{**t, "top_logprobs": []} for t in want])
        self.assertEqual(self.server.post("/v1/responses", {**body, "top_logprobs": 21})[0], 400)

    def test_tokens(self):
        want = run_json("tokenize", DEMO, "--text", "Anne had")["ids"]
        _, answer = self.server.post("/tokenize", {"prompt": "Anne had", "return_token_strs": True})
        self.assertEqual((answer["tokens"], answer["count"]), (want, len(want)))
        self.assertEqual(len(answer["token_strs"]), len(want))
        _, answer = self.server.post("/tokenize", {"prompt": "Anne had", "add_special_tokens": False})
        self.assertEqual(answer["tokens"], want[1:])
        self.assertEqual(self.server.post("/detokenize", {"tokens": want[1:]}), (200, {"prompt": "Anne had"}))

    def test_what_can_be_looked_at(self):
        self.assertEqual(self.server.get("/health"), (200, {"status": "ready"}))
        models = self.server.get("/v1/models")[1]["data"]
        self.assertEqual([m["id"] for m in models], ["demo"])  # and not where it lies
        self.assertEqual([(m["object"], m["type"], m["display_name"]) for m in models],  # for both APIs' clients
                         [("model", "model", name) for name in ("demo",)])
        self.assertEqual(self.server.get("/v1/models/demo")[1]["id"], "demo")
        self.assertEqual(self.server.get("/v1/models/other")[0], 404)
        memory = self.server.get("/v1/memory")[1]
        self.assertLessEqual(memory["used"]["host"], memory["budget"])
        self.assertGreater(memory["kv_blocks"]["all"], 0)
        self.assertIn('vllm:generation_tokens_total{model_name="demo",engine="0"}', self.server.get("/metrics")[1])
        named = {"model": str(self.model), "prompt": "x", "max_tokens": 1}
        self.assertEqual(self.server.post("/v1/completions", named)[1]["model"], "demo")

    def test_parameters_of_other_servers(self):
        chat = {"messages": [{"role": "user", "content": "Anne"}], "temperature": 0, "max_tokens": 4}
        plain = self.server.post("/v1/chat/completions", chat)[1]["choices"][0]["message"]["content"]
        for more in ({"cache_prompt": True}, {"keep_alive": "5m", "temprature": 1}, {"samplers": ["top_k"]}):
            answer = self.server.post("/v1/chat/completions", {**chat, **more})[1]
            self.assertEqual(answer["choices"][0]["message"]["content"], plain, more)
        for more in ({"grammar": 'root ::= "yes"'}, {"regex": "yes"}, {"json_schema": {"const": "yes"}},
                     {"response_format": {"type": "json_object", "schema": {"const": "yes"}}}):
            answer = self.server.post("/v1/chat/completions", {**chat, "max_tokens": 20, **more})[1]
            self.assertEqual(answer["choices"][0]["message"]["content"].strip('"'), "yes", more)
            prompt = {"prompt": "Anne", "max_tokens": 20, **more}
            self.assertEqual(self.server.post("/v1/completions", prompt)[1]["choices"][0]["text"].strip('"'), "yes")
        for path, body, where in (("/v1/messages", {"grammar": 'root ::= "yes"', "max_tokens": 20}, "content"),
                                  ("/v1/responses", {"regex": "yes", "input": "Anne"}, "output")):
            answer = self.server.post(path, {"messages": chat["messages"], **body})[1]
            self.assertIn('"yes"', json.dumps(answer[where]))
        for more in ({"n_predict": 2}, {"options": {"num_predict": 2}}, {"max_new_tokens": 2}):
            prompt = {"prompt": "Anne", "temperature": 0, "ignore_eos": True, **more}
            self.assertEqual(self.server.post("/v1/completions", prompt)[1]["usage"]["completion_tokens"], 2, more)
        answer = self.server.post("/v1/chat/completions", {**chat, "return_token_ids": True})[1]
        self.assertEqual(len(answer["choices"][0]["token_ids"]), answer["usage"]["completion_tokens"])
        self.assertEqual(len(answer["prompt_token_ids"]), answer["usage"]["prompt_tokens"])
        stop = {"prompt": "Anne had", "max_tokens": 12, "temperature": 0, "stop": ["e"]}
        text = self.server.post("/v1/completions", {**stop, "include_stop_str_in_output": True})[1]["choices"][0]["text"]
        self.assertEqual(text, self.server.post("/v1/completions", stop)[1]["choices"][0]["text"] + "e")

    def test_wrong_requests(self):
        good = {"prompt": "x", "max_tokens": 1}
        for mention, status, path, body in (
                ("not valid JSON", 400, "/v1/completions", "{"), ("object", 400, "/v1/completions", "[1]"),
                ("prompt is missing", 400, "/v1/completions", {}),
                ("temperature must", 400, "/v1/completions", {**good, "temperature": -1}),
                ("suffix", 400, "/v1/completions", {**good, "suffix": "x"}),
                ("best_of", 400, "/v1/completions", {**good, "best_of": 2, "stream": True}),
                ("stream_options", 400, "/v1/completions", {**good, "stream_options": 1}),
                ("exceed context limit: 2 + 100000 > 1024", 400, "/v1/completions", {**good, "max_tokens": 100_000}),
                ("other", 404, "/v1/completions", {**good, "model": "other"}),
                ("messages are missing", 400, "/v1/chat/completions", {}),
                ("messages are missing", 400, "/v1/chat/completions", good),
                ("top_logprobs", 400, "/v1/chat/completions", {"messages": [{"role": "user"}], "top_logprobs": 2}),
                ("does not exist", 404, "/v1/nothing", good), ("needs the method GET", 405, "/health", good),
                ("may have 65536", 413, "/v1/completions", {"prompt": "x" * 70_000})):
            with self.subTest(mention):
                text = body if isinstance(body, str) else json.dumps(body)
                got, _, answer = self.server.request("POST", path, text)
                self.assertEqual(got, status, answer)
                self.assertIn(mention, answer["error"]["message"])
        answer = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x " * 2000}]})[1]
        self.assertEqual(answer["error"]["code"], "context_length_exceeded")
        body = {"prompt": "x " * 505, "max_tokens": 1024, "temperature": 0, "ignore_eos": True}  # ends where the sequence does
        usage = self.server.post("/v1/completions", body)[1]["usage"]
        self.assertEqual(usage["total_tokens"], 1024)
        self.assertEqual(self.server.request("GET", "/v1/completions")[0], 405)
        self.assertEqual(self.server.request("POST", "/v1/completions", "{}", {"Origin": "https://evil.org"})[0], 403)
        status, headers, _ = self.server.request("OPTIONS", "/v1/completions", None, {"Origin": "https://example.org"})
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (204, "https://example.org"))

    def test_heads_of_answers(self):
        body = json.dumps({"prompt": "x", "max_tokens": 1})
        for status, name, want, method, path, fields in (
                (405, "Allow", "GET, HEAD, OPTIONS", "POST", "/health", {}),
                (405, "Allow", "POST, OPTIONS", "PUT", "/v1/completions", {}),
                (204, "Allow", "POST, OPTIONS", "OPTIONS", "/v1/completions", {}),
                (415, "Accept-Encoding", "identity", "POST", "/v1/completions", {"Content-Encoding": "gzip"}),
                (200, "Content-Type", "application/json", "POST", "/v1/completions/?x", {"Content-Encoding": "identity"}),
                (200, "X-Request-Id", "mine", "GET", "/v1/models/", {"X-Request-Id": "mine"}),
                (404, "Request-Id", "mine", "GET", "/v1/other", {"X-Request-Id": "mine", "anthropic-version": "2023-06-01"}),
                (400, "Request-Id", "mine", "POST", "/v1/messages", {"X-Request-Id": "mine"})):
            got, headers, answer = self.server.request(method, path, None if method == "GET" else body, fields)
            self.assertEqual((got, headers[name]), (status, want), answer)
            email.utils.parsedate_to_datetime(headers["Date"])
            if name == "Request-Id":  # as in Anthropic's errors
                self.assertEqual((answer["type"], answer["request_id"]), ("error", "mine"))


class ServeLimitsTest(Case):
    def serve(self, *options, model=DEMO, **how):
        server = Server(model, *options, **how)
        self.addCleanup(server.end, signal.SIGKILL)
        return server

    def stream(self, server, **changes):
        """A connection with a long stream that has begun."""
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({**LONG, **changes}))
        response = connection.getresponse()
        self.addCleanup(connection.close)
        self.assertEqual(response.status, 200)
        response.read(10)
        return response

    def test_overload_and_a_key(self):
        server = self.serve("--max-num-seqs", "1", "--max-queue", "0", "--max-connections", "3", "--api-key", "secret", *SLOW)
        key = {"Authorization": "Bearer secret"}
        body = json.dumps(LONG)
        self.assertEqual(server.post("/v1/completions", LONG)[0], 401)
        status, headers, _ = server.request("POST", "/v1/completions", body, {"x-api-key": "wrong"})
        self.assertEqual((status, headers["WWW-Authenticate"]), (401, "Bearer"))
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", body, key)
        self.assertEqual(connection.getresponse().status, 200)  # of a stream: its request has the only place
        status, headers, answer = server.request("POST", "/v1/completions", body, key)
        self.assertEqual((status, answer["error"]["code"]), (429, "rate_limit_exceeded"))
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        idle = []  # has no requests; the first may meet a place whose last holder is not gone yet

        def is_full():
            idle.append(socket.create_connection(("127.0.0.1", server.port)))
            return server.request("GET", "/health")[0] == 503

        server.wait_until(is_full)
        self.assertLess(len(idle), 10)
        status, headers, _ = server.request("GET", "/health")
        self.assertEqual((status, headers["Retry-After"]), (503, "1"))
        self.assertTrue(headers["X-Request-Id"])
        for one in idle:
            one.close()
        server.wait_until(lambda: server.get("/health")[0] == 200)

    def test_sigterm_ends_when_the_answers_have_ended(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            server = self.serve("--drain-timeout", str(HANGS))
            waiting = server.connect()  # has a connection, and no request
            waiting.connect()
            self.addCleanup(waiting.close)
            response = self.stream(server, max_tokens=200)
            server.process.send_signal(how)
            self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
            self.assertEqual(waiting.sock.recv(1), b"")
            with self.assertRaises(ConnectionError):
                server.get("/health")
            self.assertEqual(server.process.wait(HANGS), -how)

    def test_what_does_not_end_in_time_is_cut_with_an_error(self):
        server = self.serve("--drain-timeout", "0", *SLOW, "--report", self.path / "report")
        response = self.stream(server)
        server.process.send_signal(signal.SIGTERM)  # which ends it
        last = response.read().decode().split("\n\n")[-2]
        self.assertIn("stopped", json.loads(last.removeprefix("data: "))["error"]["message"])
        self.assertEqual(server.process.wait(HANGS), -signal.SIGTERM)
        self.assertEqual(json.loads((self.path / "report").read_text())["verb"], "serve")

    def test_the_port_is_open_before_the_model_is_loaded(self):
        server = self.serve(wait=False)
        status, headers, body = server.request("GET", "/health")
        if status == 503:
            self.assertEqual((body["status"], headers["Retry-After"]), ("loading", "1"))
        server.wait_until(lambda: server.get("/health")[0] == 200)

    def test_a_silent_stream_gets_comments(self):
        server = self.serve("--keep-alive", "0.02", "--threads", "1", *SLOW)
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps({**LONG, "prompt": [5] * 12, "max_tokens": 1}))
        text = connection.getresponse().read().decode()
        self.assertIn(": keep-alive\n\n", text)
        self.assertTrue(text.endswith("data: [DONE]\n\n"))

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_many_clients_stay_within_the_budget(self):
        server = self.serve("--memory", budget_for(40 << 20), "--max-num-seqs", "8", "--quantization", "fp8")
        body = {"prompt": "Anne had", "max_tokens": 30, "temperature": 0, "ignore_eos": True}
        want = server.streamed_text(body)

        def text(_):
            try:
                return server.streamed_text(body)
            except AssertionError as refused:
                return json.loads(refused.args[0])["error"]["type"]

        with concurrent.futures.ThreadPoolExecutor(120) as pool:
            texts = list(pool.map(text, range(120)))
        self.assertLessEqual(set(texts), {want, "overloaded_error"})
        self.assertGreater(texts.count(want), 20)
        memory = server.get("/v1/memory")[1]
        self.assertLessEqual(memory["measured_peak"], memory["budget"])


class ServeOptionsTest(Case):
    def test_wrong_options(self):
        self.assert_fails(2, "--api-key", "serve", DEMO, "--host", "0.0.0.0")
        self.assert_fails(2, "--host nonsense", "serve", DEMO, "--host", "nonsense")
        self.assert_fails(2, "--max-request-bytes", "serve", DEMO, "--max-request-bytes", "0")
        self.assert_fails(2, "--request-memory", "serve", DEMO, "--port", "0", "--request-memory", "1KiB")
        self.assert_fails(2, "--max-num-seqs", "serve", DEMO, "--max-num-seqs", "0")
        self.assert_fails(3, "nothing", "serve", self.path / "nothing", "--port", "0")
        self.assert_fails(4, "smallest budget", "serve", DEMO, "--port", "0", "--memory", "4MiB")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.assert_fails(1, "choose another --port", "serve", DEMO, "--port", taken.getsockname()[1])

    @unittest.skipIf(SANITIZED, "a sanitized process needs more memory than it plans")
    def test_the_budget_that_is_named_works(self):
        for options in ((), ("--max-num-seqs", "1", "--max-model-len", "1000"), ("--max-model-len", "auto")):
            refused = sluice("serve", DEMO, "--port", "0", *options, "--memory", "1MiB")
            self.assertEqual(refused.returncode, 4, refused.stderr)
            named = refused.stderr.split("the smallest budget that works is --memory ")[1].split("MiB")[0]
            server = Server(DEMO, *options, "--memory", f"{named}MiB")
            self.addCleanup(server.end, signal.SIGKILL)
            status, _ = server.post("/v1/completions", {"prompt": "x", "max_tokens": 3, "guided_regex": "[a-z]+"})
            self.assertEqual(status, 200)

    def test_a_model_without_a_template_completes_texts(self):
        model = copy_without_template(self.path / "bare")
        server = Server(model, "--served-model-name", "a", "--served-model-name", "b", "--json", "--strict", wait=False)
        self.addCleanup(server.end, signal.SIGKILL)
        self.assertEqual(server.url, "{")
        url = json.loads("{" + server.process.stdout.readline() + "}")["url"]
        server.port = int(url.rpartition(":")[2])
        server.wait_until(lambda: server.get("/health")[0] == 200)
        status, answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        self.assertEqual(status, 400)
        self.assertIn("has no chat template", answer["error"]["message"])
        status, answer = server.post("/v1/completions", {"model": "b", "prompt": "x", "max_tokens": 1})
        self.assertEqual((status, answer["model"]), (200, "b"))
        status, answer = server.post("/v1/completions", {"prompt": "x", "temprature": 1})
        self.assertEqual(status, 400)
        self.assertIn("temprature", answer["error"]["message"])
        self.assertEqual([m["id"] for m in server.get("/v1/models")[1]["data"]], ["a", "b"])
