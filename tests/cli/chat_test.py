"""Conversations: rendered by a model's chat template, and answered."""

import json

from program import DEMO, ORACLE, Case, run_json, sluice

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Anne \u00e9"}]
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


class RenderTest(Case):
    def setUp(self):
        super().setUp()
        self.model = self.path / "model"
        self.model.mkdir()
        self.chat = self.path / "chat.json"
        self.chat.write_text(json.dumps(CHAT))

    def config(self, **config):
        (self.model / "tokenizer_config.json").write_text(json.dumps(config))

    def render(self, *args, **options):
        result = sluice("render", self.model, "--messages", self.chat, *args, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_messages(self):
        (self.model / "chat_template.jinja").write_text(TEMPLATE)
        expected = "<system>Be brief.\n<user>Anne \u00e9\n"
        self.assertEqual(self.render(), expected + "<assistant>")
        self.assertEqual(self.render("--no-generation-prompt"), expected)
        self.assertEqual(json.loads(self.render("--json"))["rendered"], expected + "<assistant>")
        result = sluice("render", self.model, "--messages", "-", input=json.dumps({"messages": CHAT[1:]}))
        self.assertEqual(result.stdout, "<user>Anne \u00e9\n<assistant>")

    def test_where_templates_come_from(self):
        self.config(chat_template="config {{ bos_token }}{{ eos_token }}{{ pad_token is defined }}", bos_token="<s>",
                    eos_token={"content": "</s>", "lstrip": False}, pad_token=None)
        self.assertEqual(self.render(), "config <s></s>False")
        (self.model / "special_tokens_map.json").write_text('{"bos_token": "<other>", "pad_token": "<pad>"}')
        self.assertEqual(self.render(), "config <s></s>True")
        self.config(chat_template=[{"name": "default", "template": "default"},
                                   {"name": "tool_use", "template": "{{ tools | tojson }}"}])
        self.assertEqual(self.render(), "default")
        (self.path / "tools").write_text('[{"name": "f"}]')
        self.assertEqual(self.render("--tools", self.path / "tools"), '[{"name": "f"}]')
        (self.model / "chat_template.jinja").write_text("file{{ tools is none }}")
        self.assertEqual(self.render(), "fileTrue")
        (self.path / "mine").write_text("mine {{ x }}")
        self.assertEqual(self.render("--chat-template", self.path / "mine", "--template-variables", '{"x": [1, "a"]}'),
                         "mine [1, 'a']")

    def test_lines(self):
        self.config(chat_template="{{ messages[0].content }}{{ x }}{{ add_generation_prompt }}"
                                  "{{ raise_exception('no') if x == 'bad' }}")
        rows = [{"messages": CHAT, "add_generation_prompt": False, "variables": {"x": 1}}, {"messages": CHAT},
                {"messages": CHAT, "variables": {"x": "bad"}}, {"messages": 1}, {}]
        (self.path / "lines").write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = sluice("render", self.model, "--jsonl", self.path / "lines")
        self.assertEqual(result.returncode, 0, result.stderr)
        out = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(out[:3], [{"rendered": "Be brief.1False"}, {"rendered": "Be brief.True"}, {"error": "no"}])
        self.assertIn("messages must be a list", out[3]["error"])
        self.assertIn("messages are missing", out[4]["error"])

    def test_faults(self):
        self.assert_fails(3, "has no chat template", "render", self.model, "--messages", self.chat)
        self.assert_fails(2, "--messages or --jsonl", "render", self.model)
        self.config(chat_template="a\n{{ x.y }}")
        self.assert_fails(3, "tokenizer_config.json, line 2: 'x' is undefined", "render", self.model, "--messages", self.chat)
        self.assert_fails(2, "--template-variables", "render", self.model, "--messages", self.chat, "--template-variables", "[")
        self.config(chat_template="{% for x in y %}")
        self.assert_fails(3, "{% endfor %} is missing", "render", self.model, "--messages", self.chat)
        self.config(chat_template=1)
        self.assert_fails(3, "chat_template must be a string or a list", "render", self.model, "--messages", self.chat)
        self.config(chat_template="{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
        self.assert_fails(3, "it may never end", "render", self.model, "--messages", self.chat)
        self.chat.write_text('{"messages": [1]}')
        self.assert_fails(3, "message 0 must be an object", "render", self.model, "--messages", self.chat)
        self.chat.write_text('[{"role": ')
        self.assert_fails(3, "not valid JSON", "render", self.model, "--messages", self.chat)

    def test_a_run_continues_the_rendered_text(self):
        template = self.path / "template"
        template.write_text("{% for m in messages %}{{ bos_token }}{{ m.content }}{% endfor %}")
        self.chat.write_text(json.dumps([{"role": "user", "content": "In the beginning"}]))
        out = run_json("run", DEMO, "--messages", self.chat, "--chat-template", template, "-n", "8")
        plain = run_json("run", DEMO, "-p", "In the beginning", "-n", "8")  # the tokenizer adds this one's bos
        self.assertEqual(out["token_ids"], plain["token_ids"])
        self.assertEqual(out["timings"]["prompt_tokens"], plain["timings"]["prompt_tokens"])
        self.assert_fails(3, "has no chat template", "run", DEMO, "--messages", self.chat)
        self.assert_fails(2, "one of --prompt", "run", DEMO, "--messages", self.chat, "-p", "x")

    def test_chats_of_the_shared_fixtures(self):
        if not ORACLE.is_dir():
            self.skipTest(f"no shared fixtures at {ORACLE}")
        for folder in sorted((ORACLE / "chat_templates").iterdir()):
            if not (folder / "renders.jsonl").exists():
                continue
            with self.subTest(folder.name):
                rows = [json.loads(line) for line in (folder / "renders.jsonl").read_text().splitlines()]
                result = sluice("render", folder, "--jsonl", folder / "renders.jsonl")
                out = [json.loads(line) for line in result.stdout.splitlines()]
                self.assertEqual([row.get("rendered") for row in out], [row.get("rendered") for row in rows])
        for folder in sorted((ORACLE / "text").iterdir()):
            for prompt in json.loads((folder / "manifest.json").read_text())["prompts"]:
                if prompt["messages"] is None:
                    continue
                self.chat.write_text(json.dumps(prompt["messages"]))
                with self.subTest(folder.name):
                    self.assertEqual(sluice("render", folder, "--messages", self.chat).stdout, prompt["prompt_text"])
                    run = ["run", folder, "--messages", self.chat, "-n", "24", "--dtype", "float32", "--ignore-eos"]
                    out = run_json(*run)
                    self.assertEqual((out["token_ids"], out["text"]), (prompt["greedy_ids"], prompt["generated_text"]))
                    self.assertEqual(out["timings"]["prompt_tokens"], len(prompt["input_ids"]))
                    eos = prompt["eos_case"]
                    out = run_json(*run, "--stop-token-ids", eos["eos_token_id"])
                    self.assertEqual(out["token_ids"], eos["expected_new_ids"])
