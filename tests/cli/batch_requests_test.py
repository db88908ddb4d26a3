"""Requests of a batch as clients send them: each gets its answer, and its faults are its own."""

import json
import shutil
import unittest

from program import BRIEF, DEMO, IN_PROCESS, Case, run_json

LINE = {"method": "POST", "url": "/v1/completions"}


@unittest.skipIf(BRIEF, IN_PROCESS)
class BatchRequestsTest(Case):
    def answers(self, *bodies, model=DEMO):
        """What comes of each body, in their order: the response's body."""
        lines = [json.dumps({"custom_id": str(i), **LINE, "body": body}) for i, body in enumerate(bodies)]
        responses = self.lines(lines, model)
        return [responses[str(i)]["response"]["body"] for i in range(len(bodies))]

    def lines(self, lines, model=DEMO):
        """The responses to the lines of a file, by custom_id, or else by id."""
        requests, responses = self.path / "requests.jsonl", self.path / "responses.jsonl"
        requests.write_text("\n".join(lines))
        responses.unlink(missing_ok=True)
        self.counts = run_json("batch", model, "-i", requests, "-o", responses)["timings"]
        found = [json.loads(line) for line in responses.read_text().splitlines()]
        again = run_json("batch", model, "-i", requests, "-o", responses)["timings"]
        self.assertEqual((again["done_before"], again["requests"]), (len(lines), len(lines)))
        self.assertEqual(len(found), len(lines))
        return {r["custom_id"] if r["id"].startswith("batch_req_") else r["id"]: r for r in found}

    def changed_model(self, change):
        """The demo model with another tokenizer.json."""
        model = self.path / "model"
        shutil.copytree(DEMO, model)
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        change(tokenizer)
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        return model

    def test_several_prompts_of_one_request(self):
        texts = ["Anne had", "It was", "Elizabeth"]
        ids = [run_json("tokenize", DEMO, "--text", text)["ids"] for text in texts]
        body = {"max_tokens": 5, "temperature": 0.8, "seed": 3, "n": 2}
        all_texts, all_ids, mixed, one, *alone = self.answers(
            {**body, "prompt": texts}, {**body, "prompt": ids}, {**body, "prompt": [texts[0], *ids[1:]]},
            {**body, "prompt": ids[:1]}, *({**body, "prompt": text} for text in texts))
        want = [choice["token_ids"] for answer in alone for choice in answer["choices"]]
        for answer in (all_texts, all_ids, mixed):
            self.assertEqual([c["token_ids"] for c in answer["choices"]], want)
            self.assertEqual([c["index"] for c in answer["choices"]], list(range(6)))
            for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
                self.assertEqual(answer["usage"][key], sum(a["usage"][key] for a in alone))
        self.assertEqual(one["choices"], alone[0]["choices"])

    def test_what_clients_send_beside_what_counts(self):
        body = {"prompt": "Anne had", "max_tokens": 6, "temperature": 0}
        benign = [{"suffix": ""}, {"response_format": {"type": "text"}}, {"seed": -1}, {"seed": -2**63}, {"seed": 2**64 - 1},
                  {"stream": False}, {"stream_options": None}, {"stop": ""}, {"stop": []}, {"stop": None}, {"logit_bias": {}},
                  {"user": "u", "metadata": {"a": 1}, "store": True, "service_tier": "auto"}, {"tools": None, "best_of": None},
                  {"skip_special_tokens": True, "spaces_between_special_tokens": True}, {"detokenize": True},
                  {"max_tokens": 99, "max_completion_tokens": 6}, {"logprobs": None}, {"logprobs": False}, {"guided_json": None},
                  {"truncate_prompt_tokens": None, "include_stop_str_in_output": False, "return_token_ids": False}]
        plain, *others = self.answers(body, *({**body, **more} for more in benign))
        for more, answer in zip(benign, others):
            self.assertEqual(answer.get("choices"), plain["choices"], more)

    def test_what_asks_for_something_else_is_refused(self):
        wrong = [({"suffix": "end"}, "suffix is not supported"), ({"stream": True}, "stream is not supported"),
                 ({"response_format": {"type": "yaml"}}, "response_format: unknown type \"yaml\""),
                 ({"guided_json": {"items": {"type": "array", "uniqueItems": True}}}, "guided_json: the schema at /items: uniqueItems is"),
                 ({"structured_outputs": {"regex": "a(?<=b)"}}, "structured_outputs: regex: the regular expression, byte"),
                 ({"guided_regex": "a+", "use_beam_search": True, "n": 2}, "beam search is without sampling"),
                 ({"bad_words": ["Elizabeth Bennet"]}, "is not one token of this model"),
                 ({"seed": 2**64}, "64 bits"), ({"seed": 1.5}, "64 bits"), ({"max_token": 5}, "unknown parameter: max_token"),
                 ({"do_sample": False}, "unknown parameter: do_sample"), ({"prompt": ["a", 5]}, "prompt must be a text"),
                 ({"prompt": None}, "prompt is missing"), ({"prompt": []}, "the prompt is empty"),
                 ({"prompt": ["a", []]}, "the prompt is empty"), ({"prompt": ["a"] * 2049}, "2048 is the most"),
                 ({"repetition_penalty": 1e308}, "below 3.4e38"), ({"max_tokens": -1}, "max_tokens is -1"),
                 ({"max_tokens": 0, "use_beam_search": True, "n": 2}, "must be above 0")]
        for (more, mention), answer in zip(wrong, self.answers(*({"prompt": "x", **more} for more, _ in wrong))):
            self.assertIn(mention, answer["error"]["message"])

    def test_structured_output(self):
        schema = {"type": "object", "properties": {"who": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "maximum": 99},
                                                   "at": {"enum": ["home", "sea"]}},
                  "required": ["who", "age", "at"], "additionalProperties": False}
        body = {"prompt": "Anne had", "max_tokens": 80, "temperature": 1, "seed": 3}
        forms = [{"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}, "n": 3},
                 {"guided_json": schema}, {"structured_outputs": {"json": schema}}]
        *answers, choice, regex, text = self.answers(*({**body, **form} for form in forms), {**body, "guided_choice": ["by sea", "by land"]},
                                                     {**body, "structured_outputs": {"regex": "[a-f]{4}[0-9]"}}, body)
        for answer in answers:
            for made in (json.loads(c["text"]) for c in answer["choices"] if c["finish_reason"] == "stop"):
                self.assertEqual(list(made), ["who", "age", "at"])
                self.assertTrue(len(made["who"]) <= 9 and made["age"] <= 99 and made["at"] in ("home", "sea"), made)
        self.assertEqual(answers[0]["choices"][0]["text"], answers[1]["choices"][0]["text"])
        self.assertEqual(answers[1]["choices"], answers[2]["choices"])
        self.assertIn(choice["choices"][0]["text"], ("by sea", "by land"))
        self.assertRegex(regex["choices"][0]["text"], "^[a-f]{4}[0-9]$")
        self.assertEqual(text["choices"], self.answers(body)[0]["choices"])

    def test_no_tokens_are_asked_for(self):
        ids = run_json("tokenize", DEMO, "--text", "Anne had")["ids"]
        plain, scored, longer, listed = self.answers(
            {"prompt": "Anne had", "max_tokens": 0, "n": 2}, {"prompt": "Anne had", "max_tokens": 0, "echo": True, "logprobs": 2},
            {"prompt": "Anne had", "max_tokens": 1, "echo": True, "logprobs": 2},
            {"prompt": "Anne had", "max_tokens": 0, "prompt_logprobs": 0})
        self.assertEqual([(c["text"], c["token_ids"], c["finish_reason"]) for c in plain["choices"]], [("", [], "length")] * 2)
        self.assertEqual(plain["usage"], {"prompt_tokens": len(ids), "completion_tokens": 0, "total_tokens": len(ids)})
        self.assertEqual(scored["choices"][0]["text"], "Anne had")
        for key, values in scored["choices"][0]["logprobs"].items():
            self.assertEqual(values, longer["choices"][0]["logprobs"][key][:len(ids)])
        self.assertEqual(len(listed["choices"][0]["prompt_logprobs"]), len(ids))

    def test_special_tokens_in_the_text(self):
        body = {"prompt": [0, 5], "max_tokens": 3, "allowed_token_ids": [0], "ignore_eos": True, "echo": True, "logprobs": 0}
        kept, skipped, bare = self.answers({**body, "skip_special_tokens": False}, body,
                                           {"prompt": "Anne", "add_special_tokens": False})
        name = "<|begin_of_text|>"
        self.assertTrue(kept["choices"][0]["text"].startswith(name) and kept["choices"][0]["text"].endswith(name * 3))
        self.assertNotIn(name, skipped["choices"][0]["text"])
        size = len(kept["choices"][0]["text"]) - 3 * len(name)
        self.assertEqual(kept["choices"][0]["logprobs"]["text_offset"],
                         [0, len(name), size, size + len(name), size + 2 * len(name)])
        self.assertEqual(len(run_json("tokenize", DEMO, "--text", "Anne")["ids"]), bare["usage"]["prompt_tokens"] + 1)

    def test_where_tokens_are_in_the_text(self):
        answer, = self.answers({"prompt": "\u2014\u2014\u2014\u00e9\u00e9x", "max_tokens": 12, "temperature": 1.5,
                                "echo": True, "logprobs": 3, "stop": "q", "ignore_eos": True})
        choice = answer["choices"][0]
        text, logprobs = choice["text"], choice["logprobs"]
        self.assertTrue(text.startswith("\u2014\u2014\u2014\u00e9\u00e9x"))
        self.assertEqual(len(logprobs["text_offset"]), len(logprobs["tokens"]))
        self.assertEqual(logprobs["text_offset"], sorted(logprobs["text_offset"]))
        for token, at in zip(logprobs["tokens"][1:], logprobs["text_offset"][1:]):
            if not token.startswith("bytes:") and "q" not in token and at < len(text):
                self.assertEqual(text[at:at + len(token)], token)

    def test_parts_of_characters(self):
        def change(tokenizer):
            model = tokenizer["model"]
            model["vocab"] = {token: id for token, id in model["vocab"].items() if id != 3000} | {"\u00e2\u0122": 3000}
            model["merges"] = [m for m in model["merges"] if all(p in model["vocab"] for p in (*m, "".join(m)))]

        body = {"prompt": [0, 5], "max_tokens": 1, "temperature": 0, "allowed_token_ids": [3000], "logprobs": 0}
        half = self.answers(body, model=self.changed_model(change))[0]["choices"][0]
        self.assertEqual((half["text"], half["logprobs"]["tokens"]), ("\ufffd", ["bytes:\\xe2\\x80"]))

    def test_ids_without_a_token(self):
        def change(tokenizer):
            model = tokenizer["model"]
            model["vocab"] = {token: id for token, id in model["vocab"].items() if id < 300}
            model["merges"] = [m for m in model["merges"] if "".join(m) in model["vocab"]]

        model = self.changed_model(change)
        body = {"prompt": [0, 4000], "max_tokens": 3, "temperature": 0, "logit_bias": {"4001": 100}, "ignore_eos": True}
        answers = self.answers(body, {**body, "logprobs": 5}, {**body, "logprobs": 0, "echo": True},
                               {**body, "prompt_logprobs": 2}, {"prompt": "a", "max_tokens": 1}, model=model)
        self.assertEqual(self.counts["failed"], 0)
        self.assertEqual(answers[0]["choices"][0]["text"], "")
        self.assertEqual(answers[2]["choices"][0]["logprobs"]["tokens"][1:], ["token_id:4000"] + ["token_id:4001"] * 3)
        self.assertEqual(answers[3]["choices"][0]["prompt_logprobs"][1]["4000"]["decoded_token"], "token_id:4000")
        self.assertEqual(run_json("run", model, "--token-ids", "0,4000", "-n", "2", "--logprobs", "5",
                                  "--allowed-token-ids", "4001")["token_ids"], [4001, 4001])
        self.assert_fails(2, "4000 is not in the vocabulary", "detokenize", model, "--ids", "4000")

    def test_an_empty_text_is_what_the_tokenizer_makes_of_it(self):
        empty, bos = self.answers(*({"prompt": p, "max_tokens": 4, "temperature": 0} for p in ("", [0])))
        self.assertEqual(empty["choices"], bos["choices"])
        (self.path / "empty").touch()
        for option in (("-p", ""), ("--prompt-file", self.path / "empty")):
            self.assertEqual(run_json("run", DEMO, *option, "-n", "4")["token_ids"], bos["choices"][0]["token_ids"])
        model = self.changed_model(lambda tokenizer: tokenizer.update(post_processor=None))
        self.assertIn("the prompt is empty", self.answers({"prompt": ""}, model=model)[0]["error"]["message"])
        self.assert_fails(2, "the prompt is empty", "run", model, "-p", "")

    def test_lines_that_are_no_requests_are_answered(self):
        good = {"custom_id": "good", **LINE, "body": {"prompt": "It was", "max_tokens": 2}}
        other = {**good, "custom_id": "other"}
        lines = [json.dumps(good), "{", '"text"', "[" * 100 + "]" * 100, json.dumps({**good, "custom_id": 5}),
                 json.dumps({**LINE, "body": {}}), '{"custom_id": "\\ud800", "url": "/v1/completions", "body": {}}',
                 json.dumps(good), json.dumps({**good, "custom_id": "get", "method": "GET"}),
                 json.dumps({"custom_id": "no url", "body": {}}), json.dumps({"custom_id": "no body", **LINE}),
                 json.dumps({"custom_id": "list", **LINE, "body": []}),
                 json.dumps({"custom_id": "chat", "url": "/v1/chat/completions", "body": {}}), json.dumps(other),
                 '{"custom_id": "twice", "url": "/v1/completions", "body": {"prompt": "a", "n": 1, "n": 2}}']
        responses = self.lines(lines)
        self.assertEqual((self.counts["completed"], self.counts["failed"]), (2, 13))
        mentions = {"batch_line_2": "not valid JSON", "batch_line_3": "must be a JSON object", "batch_line_4": "nested too deeply",
                    "batch_line_5": "custom_id must be a string", "batch_line_6": "custom_id is missing",
                    "batch_line_7": "surrogate", "batch_line_8": "was there before", "get": "method must be POST",
                    "no url": "url is missing", "no body": "body is missing", "list": "must be a JSON object",
                    "chat": "is not supported; use /v1/completions", "twice": 'key "n" is there twice'}
        for id, mention in mentions.items():
            self.assertEqual(responses[id]["response"]["status_code"], 400)
            self.assertIn(mention, responses[id]["response"]["body"]["error"]["message"])
        self.assertEqual([responses[f"batch_line_{n}"]["custom_id"] for n in (2, 5, 8)], [None, 5, "good"])
