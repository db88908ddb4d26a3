"""The web page of sluice serve, in a headless Chromium; its Markdown in Node.js, too."""

import json
import re
import shutil
import signal
import subprocess
import unittest

from browser import CHROMIUM, Browser, Tab
from program import CLIENTS, DEMO, HANGS, SOURCE, Case, copy_without_template, run_json
from server import ServedCase, Server

NODE = shutil.which("node")
AXE = CLIENTS / "axe_core_python/axe.min.js"
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
            "{% if enable_thinking is defined %}{{ ' yes' if enable_thinking else ' no' }}{% endif %}")
PROMPT = "In the beginning"
TABLE = "|" + " value |" * 14 + "\n|" + "-|" * 14 + "\n|" + " `certainly` |" * 14


def words(texts):
    return [" ".join(text.split()) for text in texts]


def continued(prompt, count):
    return run_json("run", DEMO, "-p", prompt, "-n", count)["text"]


class PageFilesTest(Case):
    def test_page_and_its_parts_are_there_without_the_key(self):
        server = Server(DEMO, "--api-key", "secret")
        self.addCleanup(server.end, signal.SIGKILL)
        for file in (f for f in (SOURCE / "src/serve/page").iterdir() if f.suffix in (".css", ".html", ".js", ".svg")):
            path = "/" if file.name == "page.html" else f"/page/{file.name}"
            status, headers, body = server.request("GET", path)
            self.assertEqual((status, body), (200, file.read_text()), path)
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            status, _, body = server.request("GET", path, headers={"If-None-Match": headers["ETag"]})
            self.assertEqual((status, body), (304, ""), path)
        self.assertEqual(server.get("/page/none.js")[0], 404)


@unittest.skipUnless(CHROMIUM, "no Chromium; tools/setup --dev installs it")
class PageTest(ServedCase):
    """One server and one browser for all; each test has storage of its own."""

    template = TEMPLATE

    @classmethod
    def options(cls):
        return "--max-num-seqs", "4"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser(cls.directory.name)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        super().setUp()
        self.context = self.browser.context()
        self.addCleanup(self.browser.forget, self.context)

    def open(self, address=None, **how):
        tab = Tab(self.browser, self.context, **how)
        tab.open(address or self.server.url)
        return tab

    def send(self, tab, text):
        tab.wait("!document.querySelector('#send').disabled && document.querySelector('#stop').hidden")
        tab.run("document.querySelector('#prompt').focus()")
        tab.type(text)
        tab.press("Enter", 13, "\r")

    def bodies(self, tab, what="article.assistant"):
        """Once no answer arrives any more."""
        tab.wait("document.querySelector('#stop').hidden")
        return words(tab.run(f"[...document.querySelectorAll('{what} .body')].map((b) => b.innerText)"))

    def push(self, tab, where, label):
        tab.run(f"[...document.querySelectorAll('{where} button')].find((b) => b.innerText === '{label}').click()")

    def choose(self, tab, **fields):
        """In the settings."""
        tab.click("#open-settings")
        for name, value in fields.items():
            tab.run(f"document.querySelector('#settings [name={name}]').value = {json.dumps(value)}")
        tab.run("""new Promise((done) => {
          document.querySelector('#settings').addEventListener('close', () => setTimeout(done), { once: true });
          document.querySelector('#settings [value=save]').click(); })""")

    def give(self, tab, selector, name, text):
        """A file, as if the reader had chosen it."""
        tab.run(f"""(() => {{ const files = new DataTransfer();
          files.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));
          const input = document.querySelector('{selector}');
          input.files = files.files;
          input.dispatchEvent(new Event('change')); }})()""")

    def test_conversation(self):
        tab = self.open()
        self.choose(tab, temperature="0", max_tokens="8")
        self.send(tab, PROMPT)
        text = continued(PROMPT, 8)
        self.assertEqual(self.bodies(tab), words([text]))
        tab.wait("document.querySelector('.assistant .tools').innerText.includes('8 tokens')")
        count = run_json("run", DEMO, "-p", PROMPT, "-n", 8)["timings"]["prompt_tokens"] + 8
        tab.wait(f"document.querySelector('#context').innerText === 'Context: {count} of 1024 tokens'")
        self.push(tab, ".assistant", "Regenerate")
        self.assertEqual(self.bodies(tab), words([text]))
        self.send(tab, " and then")  # the template joins the turns
        second = continued(PROMPT + text + " and then", 8)
        self.assertEqual(self.bodies(tab), words([text, second]))
        tab.open(self.server.url)  # it was kept
        tab.wait("document.querySelectorAll('article').length === 4")
        self.assertEqual(self.bodies(tab), words([text, second]))
        self.push(tab, ".user", "Edit")
        tab.run("document.querySelector('.edit textarea').value = 'And it came to pass'")
        tab.click(".edit button.main")
        tab.wait("document.querySelectorAll('article').length === 2")
        self.assertEqual(self.bodies(tab), words([continued("And it came to pass", 8)]))
        names = tab.names("button", "textbox", "combobox", "spinbutton", "link", "image", "log")
        self.assertGreater(len(names), 10)
        self.assertNotIn("", names)  # for screen readers
        tab.click("#new")
        self.assertEqual(self.bodies(tab), [])
        tab.wait("document.querySelectorAll('#conversations li').length === 1")
        self.assertEqual(tab.faults, [])

    def test_long_answers_can_be_stopped(self):
        tab = self.open(width=360, height=640, touch=True, dark=True)
        self.choose(tab, max_tokens="900", seed="1")
        tab.wait("!document.querySelector('#send').disabled")
        tab.run(f"document.querySelector('#prompt').value = {json.dumps(PROMPT)}")
        tab.click("#send")
        tab.wait("document.querySelector('.assistant .body')?.innerText.length > 20")
        tab.click("#stop")
        self.bodies(tab)
        tab.wait("document.querySelector('.assistant .tools').innerText.includes('stopped')")
        for view in ("list", "monitor", "chat"):  # nothing is wider than a phone
            tab.click(f"nav [data-show={view}]")
            self.assertLessEqual(tab.run("document.documentElement.scrollWidth"), 360, view)
        self.assertEqual(tab.faults, [])

    def test_a_full_context_drops_the_oldest_turns(self):
        tab = self.open()
        self.choose(tab, max_tokens="4", temperature="0")
        self.send(tab, PROMPT)
        self.bodies(tab)
        self.send(tab, "and " * 1015)
        self.assertEqual(len(self.bodies(tab)), 2)
        tab.wait("document.body.innerText.includes('2 oldest messages left out')")
        self.assertEqual(tab.faults, [])

    def test_thinking_and_files(self):
        tab = self.open()
        self.choose(tab, max_tokens="8", temperature="0")
        tab.wait("!document.querySelector('#thinking-choice').hidden")
        tab.run("""(() => { const choice = document.querySelector('#thinking');
          choice.value = 'off'; choice.dispatchEvent(new Event('change')); })()""")
        for template, name in (("{%- if enable_thinking is defined %}", "enable_thinking"),
                               ("{% if not thinking is defined %}", "thinking"), ("{{ reasoning_effort }}", "reasoning_effort"),
                               ("{% if message.thinking and 'thinking' in message %}{{ thinking }}{% endif %}", None)):
            found = tab.run(f"import('/page/server.js').then((s) => s.thinkingOf({json.dumps(template)})?.name ?? null)")
            self.assertEqual(found, name)
        self.give(tab, "#file", "big.txt", "x" * (1 << 20) + "x")
        tab.wait("document.querySelector('#attached').innerText.includes('too large')")
        self.give(tab, "#file", "image.png", "\0")
        tab.wait("document.querySelector('#attached').innerText.includes('not a text file')")
        self.give(tab, "#file", "notes.txt", "a ``` b\n")
        tab.wait("document.querySelector('#files').innerText.includes('notes.txt, 8 B')")
        self.assertTrue(tab.run("document.querySelector('#attached').hidden"))
        self.send(tab, PROMPT)
        text = continued(f"notes.txt:\n````\na ``` b\n````\n\n{PROMPT} no", 8)
        self.assertEqual(self.bodies(tab), words([text]))
        self.assertTrue(tab.run("document.querySelector('#files').hidden"))
        self.assertIn("notes.txt", tab.run("document.querySelector('.user .file summary').innerText"))
        self.assertEqual(tab.faults, [])

    def test_two_tabs_lose_nothing(self):
        first, second = self.open(), None
        self.choose(first, max_tokens="2")
        self.send(first, "one in A")
        self.bodies(first)
        second = self.open()
        second.wait("document.querySelectorAll('article').length === 2")
        self.send(first, "two in A")
        self.bodies(first)
        self.send(second, "one in B")
        self.bodies(second)
        said = ["one in A", "two in A", "one in B"]
        self.assertEqual(self.bodies(second, ".user"), said)
        first.wait("document.querySelectorAll('article').length === 6")
        self.assertEqual(self.bodies(first, ".user"), said)
        first.open(self.server.url)
        first.wait("document.querySelectorAll('article').length === 6")
        self.assertEqual(self.bodies(first, ".user"), said)
        second.run("confirm = () => true")
        second.click("#conversations [aria-label^=Delete]")
        first.wait("document.querySelectorAll('article, #conversations li').length === 0")
        self.assertEqual(first.faults + second.faults, [])

    def test_a_full_browser_is_seen(self):
        tab = self.open()
        origin = self.server.url.rstrip("/")
        tab.send("Storage.overrideQuotaForOrigin", origin=origin, quotaSize=200_000)
        self.choose(tab, max_tokens="2")
        self.send(tab, "stored")
        self.bodies(tab)
        self.send(tab, "lost " * 50_000)  # which the server refuses, too
        tab.wait("document.querySelector('#log [role=alert]')?.innerText.includes('1024')")
        tab.wait("document.querySelector('#room').innerText.includes('no room left')")
        tab.wait("document.querySelector('article:last-of-type').innerText.includes('not stored')")
        self.assertNotIn("not stored", tab.run("document.querySelector('article').innerText"))
        tab.click("#new")  # it can still be read
        tab.click("#conversations .title")
        tab.wait("document.querySelectorAll('article').length === 3")
        self.assertFalse(tab.run("document.querySelector('#room').hidden"))
        tab.send("Storage.overrideQuotaForOrigin", origin=origin)
        self.send(tab, "stored again")
        self.bodies(tab)
        tab.wait("document.querySelector('#room').hidden")
        self.assertFalse(tab.run("document.querySelector('#log').innerText.includes('not stored')"))
        tab.open(self.server.url)
        tab.wait("document.querySelectorAll('article').length === 5")

    def test_conversations_move_out_of_local_storage_and_to_files(self):
        tab = self.open()
        old = {"id": "a", "changed": 1, "system": "", "messages": [{"role": "user", "content": "old"},
                                                                  {"role": "assistant", "content": TABLE}]}
        tab.run(f"localStorage['sluice.conversation.a'] = {json.dumps(json.dumps(old))}")
        tab.run("localStorage['sluice.conversation.b'] = '{}'")
        tab.open(self.server.url)
        tab.wait("document.querySelectorAll('article').length === 2")
        self.assertEqual(tab.run("Object.keys(localStorage).filter((k) => k.includes('conversation'))"),
                         ["sluice.conversation.b"])
        tab.run("""(() => { const create = URL.createObjectURL;
          URL.createObjectURL = (blob) => { window.exported = blob.text(); return create(blob); }; })()""")
        tab.run("HTMLAnchorElement.prototype.click = function () { window.exportedAs = this.download; }")
        tab.click("#export")
        tab.wait("window.exportedAs")
        text = tab.run("window.exported")
        exported = json.loads(text)
        self.assertEqual(exported["conversations"][0]["messages"][0]["content"], "old")
        longer, other = json.loads(text), json.loads(text)
        longer["conversations"][0]["messages"].append({"role": "user", "content": "behind"})
        other["conversations"][0]["messages"][1]["content"] = "other"
        for file, said, count in ((exported, "0 imported, 1 already present.", 1), (longer, "1 imported.", 1), (other, "1 imported.", 2)):
            tab.run("document.querySelector('#transferred').textContent = ''")
            self.give(tab, "#import-file", "c.json", json.dumps(file))
            tab.wait(f"document.querySelector('#transferred').innerText === '{said}'")
            tab.wait(f"document.querySelectorAll('#conversations li').length === {count}")
        tab.wait("document.querySelectorAll('article').length === 3")
        tab.run("confirm = () => true")
        for count in (1, 0):
            tab.click("#conversations [aria-label^=Delete]")
            tab.wait(f"document.querySelectorAll('#conversations li').length === {count}")
        for bad in ("x", "[]", "null", json.dumps({**exported, "conversations": [{"id": 1}]})):
            self.give(tab, "#import-file", "bad.json", bad)
            tab.wait("document.querySelector('#transferred').innerText.startsWith('bad.json ')")
            tab.run("document.querySelector('#transferred').textContent = ''")
        self.give(tab, "#import-file", "c.json", text)
        tab.wait("document.querySelector('#transferred').innerText === '1 imported.'")
        tab.click("#conversations .title")
        tab.wait("document.querySelectorAll('article').length === 2")
        self.look_at_every_view(tab)
        self.assertEqual(tab.faults, [])

    def look_at_every_view(self, tab):
        """Words in a wide table stay whole, nothing else is wider than the screen, and axe has no complaint."""
        axe = AXE.read_text() if AXE.exists() else None
        if axe:
            tab.run(axe + "; 0")
        for width, dark in ((360, False), (360, True), (1280, False), (1280, True)):
            tab.look(width=width, height=800, dark=dark)
            for view in ("list", "monitor", "chat", "settings") if width < 1200 else ("chat", "settings"):
                tab.click("#open-settings" if view == "settings" else f"nav [data-show={view}]")
                self.assertLessEqual(tab.run("document.documentElement.scrollWidth"), width, view)
                if axe:
                    self.assertEqual(tab.run("""axe.run().then(({ violations }) => violations.map((v) =>
                        `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`))"""), [], (width, dark, view))
            tab.click("#settings [value='']")
            narrow = tab.run("""[...document.querySelectorAll('.scroll td code')].filter((c) =>
                c.getClientRects().length > 1).length""")
            self.assertEqual(narrow, 0)
            scrolls = tab.run("(() => { const s = document.querySelector('.scroll'); return s.scrollWidth > s.clientWidth; })()")
            self.assertTrue(scrolls)

    def test_monitor_shows_what_the_server_reports(self):
        tab = self.open()
        tab.wait("document.querySelector('#memory .bar')")
        units = run_json("plan", DEMO)["units"]
        memory = self.server.get("/v1/memory")[1]
        self.assertEqual(memory["units"], units)
        self.assertGreaterEqual(memory["disk"]["bytes_read"], sum(unit["read_bytes"] for unit in units))
        self.assertEqual(tab.run("document.querySelectorAll('#units .cell').length"), len(units))
        for word in ("weights", "KV cache", "predicted peak"):
            self.assertIn(word, tab.run("document.querySelector('#memory').innerText"))
        for section in ("speed", "blocks"):
            tab.wait(f"document.querySelector('#{section}').innerText.length > 30")
        self.assertEqual(tab.faults, [])

    def test_a_model_without_a_template_continues_texts_and_asks_for_the_key(self):
        server = Server(copy_without_template(self.path / "bare"), "--api-key", "secret")
        self.addCleanup(server.end, signal.SIGKILL)
        tab = self.open(server.url)
        tab.wait("document.querySelector('#settings').open")
        self.choose(tab, key="secret", max_tokens="8", temperature="0")
        tab.wait("document.querySelector('#state').innerText === 'Ready'")
        tab.wait("document.querySelector('#mode').innerText.includes('no chat template')")
        self.send(tab, PROMPT)
        self.assertEqual(self.bodies(tab), words([continued(PROMPT, 8)]))
        self.send(tab, "many words " * 1000)
        self.assertEqual(len(self.bodies(tab)), 2)
        tab.wait("document.body.innerText.includes('context full: the beginning of the text left out')")
        server.end(signal.SIGKILL)
        tab.wait("document.querySelector('#state').innerText.includes('cannot be reached')")
        self.assertEqual(tab.faults, [])


@unittest.skipUnless(NODE or CHROMIUM, "neither Node.js nor Chromium; tools/setup --dev installs the latter")
class PageMarkdownTest(Case):
    def test_cases_and_hostile_texts(self):
        page = SOURCE / "src/serve/page"
        parser = (page / "inline.js").read_text() + re.sub(r"(?m)^import .*$", "", (page / "markdown.js").read_text())
        check = (SOURCE / "tests/cli/markdown_check.js").read_text()
        cases = (SOURCE / "tests/data/page/markdown.json").read_text()
        script = re.sub(r"(?m)^export ", "", parser) + check
        if NODE:
            (self.path / "check.js").write_text(f"{script}\nconsole.log(JSON.stringify(check({cases})))")
            result = subprocess.run([NODE, self.path / "check.js"], capture_output=True, text=True, timeout=HANGS)
            self.assertEqual(result.stderr, "")
            faults = json.loads(result.stdout)
        else:
            browser = Browser(self.path)
            self.addCleanup(browser.close)
            faults = Tab(browser, browser.context()).run(f"{script}\ncheck({cases})")
        self.assertEqual(faults, [])
