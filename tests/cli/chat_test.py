"""Conversations: rendered by a model's chat template, and answered."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from program import DEMO, HANGS, ORACLE, SANITIZED, SLOW, SLUICE, Case, copy_without_template, run_json, sluice

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
        self.assert_fails(3, "has no chat template", "run", copy_without_template(self.path / "bare"), "--messages", self.chat)
        self.assert_fails(2, "give the prompt once", "run", DEMO, "--messages", self.chat, "-p", "x")


class ChatGoldensTest(Case):
    """Conversations of the shared fixtures."""

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
                chat = self.path / "chat.json"
                chat.write_text(json.dumps(prompt["messages"]))
                with self.subTest(folder.name):
                    self.assertEqual(sluice("render", folder, "--messages", chat).stdout, prompt["prompt_text"])
                    run = ["run", folder, "--messages", chat, "-n", "24", "--dtype", "float32", "--ignore-eos"]
                    out = run_json(*run)
                    self.assertEqual((out["token_ids"], out["text"]), (prompt["greedy_ids"], prompt["generated_text"]))
                    self.assertEqual(out["timings"]["prompt_tokens"], len(prompt["input_ids"]))
                    eos = prompt["eos_case"]
                    out = run_json(*run, "--stop-token-ids", eos["eos_token_id"])
                    self.assertEqual(out["token_ids"], eos["expected_new_ids"])


class ConversationTest(Case):
    """run --chat, through a pipe and at a terminal."""

    def setUp(self):
        super().setUp()
        self.model = self.path / "model"
        copy_without_template(self.model)
        (self.model / "chat_template.jinja").write_text(
            "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{{ eos_token }}"
            "{% else %}{{ m.role }}: {{ m.content }}\nmodel: {% endif %}{% endfor %}")

    def chat(self, text, *args, status=0):
        result = sluice("run", self.model, "--chat", *args, input=text)
        self.assertEqual(result.returncode, status, result.stderr)
        return result

    def test_turns_of_a_pipe(self):
        once = self.chat("It is a truth\n", "-n", "12", "--quiet").stdout
        out = self.chat("It is a truth\n/stats\nAnd then\n/stats\n", "-n", "40")
        self.assertTrue(out.stdout.startswith(once.rstrip("\n")), out.stdout)
        turns = re.findall(r"last turn: (\d+) tokens in the conversation, (\d+) of them from the KV cache", out.stderr)
        self.assertEqual(len(turns), 2)
        self.assertEqual(turns[0][1], "0")
        # All but the last token, which was not computed yet, in whole blocks of 16.
        self.assertEqual(int(turns[1][1]), (int(turns[0][0]) - 1) // 16 * 16)
        again = self.chat("It is a truth\nAnd then\n", "-n", "40", "--quiet").stdout
        self.assertEqual(again, out.stdout)

    def test_an_answer_is_that_of_the_rendered_conversation(self):
        out = self.chat("In the beginning\n", "-n", "20", "--quiet").stdout
        (self.path / "chat.json").write_text(json.dumps([{"role": "user", "content": "In the beginning"}]))
        self.assertEqual(out, sluice("run", self.model, "--messages", self.path / "chat.json", "-n", "20", "--quiet").stdout)

    def test_commands(self):
        saved = self.path / "saved"
        self.chat(f'/system Be kind\none\n"""two\nlines"""\nthree\\\nmore\n/save {saved}\n/reset\n'
                  f'/save {saved}2\n/help\n/exit\nnever read\n', "-n", "4")
        messages = json.loads(saved.read_text())
        self.assertEqual([m["content"] for m in messages if m["role"] == "user"], ["one", "two\nlines", "three\nmore"])
        self.assertEqual([m["role"] for m in messages[:3]], ["system", "user", "assistant"])
        self.assertEqual(json.loads((self.path / "saved2").read_text()), [{"role": "system", "content": "Be kind"}])
        out = self.chat(f"/load {saved}\n/stats\nfour\n/save {saved}3\n", "-n", "4")
        self.assertEqual(json.loads((self.path / "saved3").read_text())[:len(messages)], messages)
        self.assertIn("messages loaded", out.stderr)
        # Saved messages are those of render.
        self.assertIn("two\nlines", sluice("render", self.model, "--messages", saved).stdout)

    def users_messages(self, path):
        return [m["content"] for m in json.loads(path.read_text()) if m["role"] == "user"]

    def test_turns_are_taken_back_and_answered_again(self):
        saved = self.path / "saved"
        out = self.chat(f"one\ntwo\n/undo\nthree\n/set temperature 1\n/regenerate\n/save {saved}\n/drop\n/save {saved}2\n"
                        f"/set\n/clear\n/save {saved}3\n/?\n", "-n", "8")
        messages = json.loads(saved.read_text())
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"] * 2)
        self.assertEqual(self.users_messages(saved), ["one", "three"])
        answers = out.stdout.splitlines()
        self.assertEqual(messages[-1]["content"].splitlines()[-1], answers[-1])
        self.assertEqual(self.users_messages(self.path / "saved2"), ["three"])
        self.assertEqual(json.loads((self.path / "saved3").read_text()), [])
        self.assertIn("top_p                  1\n", out.stderr)
        self.assertIn("/regenerate", out.stderr)
        for wrong, why in (("/set temperature hot", "/set temperature hot: must be a number"),
                           ("/set colour 1", "NAME VALUE"), ("/set top_p 2", "top_p must"), ("/undo", "no message to remove"),
                           ("/regenerate", "no message to answer"), ("/rest", "mean /reset?")):
            self.assertIn(why, self.chat(wrong + "\n", status=2).stderr)

    def test_a_full_conversation_drops_its_oldest_turns(self):
        saved = self.path / "saved"
        text = "/system Be kind\n" + "".join(f"message {i} of a long conversation\n" for i in range(8))
        full = ["--max-model-len", "96", "-n", "8"]
        self.assertIn("type /drop", self.chat(text, *full, status=2).stderr)
        out = self.chat(text + f"/save {saved}\n", *full, "--context-shift")
        self.assertIn("oldest turns to make room", out.stderr)
        messages = json.loads(saved.read_text())
        self.assertEqual(messages[0], {"role": "system", "content": "Be kind"})
        self.assertEqual(messages[-2]["content"], "message 7 of a long conversation")
        self.assertLess(len(messages), 16)

    def test_faults(self):
        self.assertIn("unknown command /nope", self.chat("/nope\n", status=2).stderr)
        self.assertIn("needs the name of a file", self.chat("/save\n", status=2).stderr)
        self.assertIn("does not go with --chat", self.chat("", "--json", status=2).stderr)
        self.assertIn("does not go with --chat", self.chat("", "-p", "x", status=2).stderr)
        self.assertIn("must be show or hide", self.chat("", "--reasoning", "x", status=2).stderr)
        self.assertIn("the message is too long", self.chat("many words " * 60, "--max-model-len", "64", status=2).stderr)
        self.assertIn("--speculation", self.chat("", "--speculation", "x", status=2).stderr)
        tools = self.path / "tools.json"
        tools.write_text("{}")
        self.assertIn("must be a list", self.chat("", "--tools", tools, status=3).stderr)
        self.assertIn("standard input is the conversation", self.chat("", "--tools", "-", status=2).stderr)
        tools.write_text('[{"name": "f"}]')
        self.chat("Anne\n", "--tools", tools, "-n", "2")
        self.assertIn("--tool-format auto", self.chat("Anne\n", "--tools", tools, "--tool-format", "none", status=3).stderr)
        self.assertIn("needs --messages or --chat", sluice("run", self.model, "-p", "x", "--tools", tools).stderr)
        (self.model / "chat_template.jinja").write_text("{{ raise_exception('never') }}")
        self.assertIn("never", self.chat("x\n", status=3).stderr)
        (self.model / "chat_template.jinja").unlink()
        self.assertIn("has no chat template", self.chat("", status=3).stderr)

    def test_sampling_defaults_are_said_once(self):
        config = json.loads((self.model / "generation_config.json").read_text())
        config |= {"do_sample": True, "temperature": 0.5, "top_k": 20, "top_p": 0.9}
        (self.model / "generation_config.json").write_text(json.dumps(config))
        out = self.chat("one\ntwo\n", "-n", "4", "--top-p", "0.8")
        self.assertEqual(out.stderr.count("generation_config.json: --temperature 0.5 --top-k 20\n"), 1, out.stderr)
        sampled = self.chat("one\n", "-n", "30", "--quiet").stdout
        self.assertNotEqual(sampled, self.chat("one\n", "-n", "30", "--quiet", "--temperature", "0", "--top-k", "0").stdout)

    def test_reasoning(self):
        (self.model / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[-1].content }}<think>")
        hidden = self.chat("one\n", "-n", "8", "--quiet", "--reasoning", "hide").stdout
        self.assertEqual(hidden, "\n")
        self.assertNotEqual(self.chat("one\n", "-n", "8", "--quiet").stdout, "\n")

    # At a terminal.

    def start(self, *args, columns=80):
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            os.environ["XDG_STATE_HOME"] = str(self.path)
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execv(SLUICE, [SLUICE, "chat", str(self.model), *args])
        self.terminal = terminal
        self.seen = b""
        self.addCleanup(os.close, terminal)
        self.addCleanup(self.kill, pid)
        return pid

    def kill(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def expect(self, text):
        """Reads until the program has printed `text`; returns all up to there."""
        deadline = time.monotonic() + HANGS
        while text not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            self.assertTrue(ready, f"{text} did not come: {self.seen}")
            try:
                self.seen += os.read(self.terminal, 4096)
            except OSError:  # the program has ended
                self.fail(f"{text} did not come: {self.seen}")
        end = self.seen.index(text) + len(text)
        seen, self.seen = self.seen[:end], self.seen[end:]
        return seen

    def send(self, text):
        os.write(self.terminal, text)

    def ended(self, pid):
        deadline = time.monotonic() + HANGS
        while time.monotonic() < deadline:
            try:
                if select.select([self.terminal], [], [], 0.1)[0]:
                    os.read(self.terminal, 4096)
            except OSError:
                pass
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
        self.fail("the program did not end")

    def test_a_terminal(self):
        pid = self.start("-n", "3")
        self.expect(b"> ")
        self.send("h\u00e9llo\x7f\x7fo\n".encode())  # with two characters deleted
        self.expect(b"> ")
        self.send(b"half a line\x03")  # Ctrl-C drops it
        self.expect(b"> ")
        self.send(b"\x1b[A\n")  # the line before, from the history
        self.expect(b"> ")
        self.send(b"/nope\n")  # a fault does not end the conversation
        self.expect(b"unknown command")
        self.send(f"/save {self.path}/saved\n".encode())
        self.expect(b"4 messages saved")
        self.send(b"\x04")
        self.assertEqual(self.ended(pid), 0)
        said = [m["content"] for m in json.loads((self.path / "saved").read_text()) if m["role"] == "user"]
        self.assertEqual(said, ["h\u00e9lo", "h\u00e9lo"])

    def test_a_paste_is_one_message_and_history_is_kept(self):
        saved = self.path / "saved"
        pasted = "def f(x):\n\treturn x\nWhat does this do?"
        pid = self.start("-n", "3")
        self.expect(b"\x1b[?2004h")  # the terminal marks what is pasted
        self.send(b"\x1b[200~" + pasted.replace("\n", "\r").encode() + b"\r\x1b[201~\r")
        self.expect(b"\x1b[?2004l")
        self.send(f"/save {saved}\r".encode())
        self.expect(b"2 messages saved")
        self.send(b"\x04")
        self.assertEqual(self.ended(pid), 0)
        self.assertEqual(self.users_messages(saved), [pasted])
        history = self.path / "sluice/chat_history"
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)
        before = history.read_text()
        self.assertEqual(json.loads(before.splitlines()[0]), pasted)
        history.write_text(before + "not JSON\n" + '"x"\n' * 3000)
        pid = self.start("-n", "3", "--no-history")
        self.expect(b"> ")
        self.send(b"\x1b[Anot kept\r")
        self.expect(b"> ")
        self.send(b"\x04")
        self.assertEqual(self.ended(pid), 0)
        self.assertNotIn("not kept", history.read_text())
        pid = self.start("-n", "3")  # shortens the file
        self.expect(b"> ")
        self.send(b"\x1b[A kept\r")
        self.expect(b"\x1b[?2004l")
        self.expect(b"> ")
        self.send(b"\x04")
        self.assertEqual(self.ended(pid), 0)
        self.assertEqual(len(history.read_text().splitlines()), 1001)
        self.assertEqual(history.read_text().splitlines()[-1], '"x kept"')

    def test_words_stay_whole_at_the_edge(self):
        (self.model / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[-1].content }}")
        plain = self.chat("It is a truth\n", "-n", "60", "--quiet").stdout
        pid = self.start("-n", "60", "--quiet", columns=30)
        self.expect(b"> ")
        self.send(b"It is a truth\n")
        self.expect(b"truth\r\n")
        self.expect(b"\x1b[?2004l")
        shown = self.expect(b"\x1b[?2004h")[:-len(b"\x1b[?2004h")].decode()
        self.assertEqual(shown.split(), plain.split())
        self.assertLessEqual(max(map(len, shown.split("\r\n"))), 30)
        self.send(b"\x04")
        self.assertEqual(self.ended(pid), 0)

    def test_the_end_may_be_typed_while_an_answer_is_written(self):
        pid = self.start("-n", "300", "--ignore-eos", "--threads", "1")
        self.expect(b"> ")
        self.send(b"It is a truth\n")
        self.expect(b"truth\r\n")
        self.send(b"\x04")
        self.assertEqual(self.ended(pid), 0)

    def test_an_interrupt_ends_the_answer_alone(self):
        # An answer of so many tokens takes long: the interrupt comes before its end on any machine.
        pid = self.start("--ignore-eos", "--threads", "1", *SLOW)
        self.expect(b"> ")
        self.send(b"It is a truth\n")
        self.expect(b"truth\r\n")
        self.send(b"\x03")
        self.expect(b"> ")
        self.send(b"/stats\n")
        stats = self.expect(b"generated;").decode()
        self.assertLess(int(re.search(r"(\d+) generated;", stats)[1]), 1000)
        self.send(b"/exit\n")
        self.assertEqual(self.ended(pid), 0)

    def test_a_request_to_stop_ends_the_conversation(self):
        pid = self.start()
        self.expect(b"> ")
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(self.ended(pid), -signal.SIGTERM)
