"""The web page of sluice serve, in a headless Chromium; its Markdown in Node.js, too."""

import json
import re
import shutil
import signal
import subprocess
import unittest

from browser import CHROMIUM, Browser
from program import DEMO, HANGS, SOURCE, Case, copy_without_template, run_json
from server import Server

NODE = shutil.which("node")
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
PROMPT = "In the beginning"


class PageCase(Case):
    def model(self):
        """The demonstration model with a chat template that is its messages' text."""
        model = self.path / "model"
        shutil.copytree(DEMO, model)
        (model / "chat_template.jinja").write_text(TEMPLATE)
        return model

    def serve(self, model, *options):
        server = Server(model, *options)
        self.addCleanup(server.end, signal.SIGKILL)
        return server


class PageFilesTest(PageCase):
    def test_page_and_its_parts_are_there_without_the_key(self):
        server = self.serve(DEMO, "--api-key", "secret")
        for file in (f for f in (SOURCE / "src/serve/page").iterdir() if f.suffix in (".css", ".html", ".js", ".svg")):
            path = "/" if file.name == "page.html" else f"/page/{file.name}"
            status, headers, body = server.request("GET", path)
            self.assertEqual((status, body), (200, file.read_text()), path)
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            status, _, body = server.request("GET", path, headers={"If-None-Match": headers["ETag"]})
            self.assertEqual((status, body), (304, ""), path)
        self.assertEqual(server.get("/page/none.js")[0], 404)


@unittest.skipUnless(CHROMIUM, "no Chromium; tools/setup --dev installs it")
class PageTest(PageCase):
    def browse(self, address, **how):
        browser = Browser(self.path, **how)
        self.addCleanup(browser.close)
        browser.open(address)
        return browser

    def send(self, browser, text):
        browser.wait("!document.querySelector('#send').disabled")
        browser.run("document.querySelector('#prompt').focus()")
        browser.type(text)
        browser.press("Enter", 13, "\r")

    def answers(self, browser):
        """Once none arrives any more."""
        browser.wait("document.querySelector('#stop').hidden")
        return browser.run("[...document.querySelectorAll('article.assistant .body')].map((b) => b.innerText)")

    def choose(self, browser, **fields):
        """In the settings."""
        browser.click("#open-settings")
        for name, value in fields.items():
            browser.run(f"document.querySelector('[name={name}]').value = {json.dumps(value)}")
        browser.run("""new Promise((done) => {
          document.querySelector('#settings').addEventListener('close', () => setTimeout(done), { once: true });
          document.querySelector('#settings [value=save]').click(); })""")

    def test_conversation(self):
        model = self.model()
        server = self.serve(model)
        browser = self.browse(server.url)
        self.choose(browser, temperature="0", max_tokens="8")
        self.send(browser, PROMPT)
        text = run_json("run", DEMO, "-p", PROMPT, "-n", "8")["text"]

        def words(answers):
            return [" ".join(answer.split()) for answer in answers]

        self.assertEqual(words(self.answers(browser)), words([text]))
        browser.wait("document.querySelector('.assistant .tools').innerText.includes('8 tokens')")
        browser.run("[...document.querySelectorAll('.assistant button')].find((b) => b.innerText === 'Regenerate').click()")
        self.assertEqual(words(self.answers(browser)), words([text]))
        self.send(browser, " and then")  # the template joins the turns
        second = run_json("run", DEMO, "-p", PROMPT + text + " and then", "-n", "8")["text"]
        self.assertEqual(words(self.answers(browser)), words([text, second]))
        browser.open(server.url)  # it was kept
        self.assertEqual(words(self.answers(browser)), words([text, second]))
        browser.run("[...document.querySelectorAll('.user button')].find((b) => b.innerText === 'Edit').click()")
        browser.run("document.querySelector('.edit textarea').value = 'And it came to pass'")
        browser.click(".edit button.main")
        edited = run_json("run", DEMO, "-p", "And it came to pass", "-n", "8")["text"]
        self.assertEqual(words(self.answers(browser)), words([edited]))
        names = browser.names("button", "textbox", "combobox", "spinbutton", "link", "image", "log")
        self.assertGreater(len(names), 10)
        self.assertNotIn("", names)  # for screen readers
        browser.click("#new")
        self.assertEqual(self.answers(browser), [])
        browser.wait("document.querySelectorAll('#conversations li').length === 1")
        server.end(signal.SIGKILL)
        browser.wait("document.querySelector('#state').innerText.includes('cannot be reached')")
        self.assertEqual(browser.faults, [])

    def test_long_answers_can_be_stopped(self):
        server = self.serve(self.model())
        browser = self.browse(server.url, width=360, height=640, touch=True, dark=True)
        self.choose(browser, max_tokens="900", seed="1")
        browser.wait("!document.querySelector('#send').disabled")
        browser.run(f"document.querySelector('#prompt').value = {json.dumps(PROMPT)}")
        browser.click("#send")
        browser.wait("document.querySelector('.assistant .body').innerText.length > 20")
        browser.click("#stop")
        self.answers(browser)
        browser.wait("document.querySelector('.assistant .tools').innerText.includes('stopped')")
        for view in ("list", "monitor", "chat"):  # nothing is wider than a phone
            browser.click(f"nav [data-show={view}]")
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 360, view)
        self.assertEqual(browser.faults, [])

    def test_monitor_shows_what_the_server_reports(self):
        server = self.serve(self.model())
        browser = self.browse(server.url)
        browser.wait("document.querySelector('#memory .bar')")
        units = run_json("plan", DEMO)["units"]
        memory = server.get("/v1/memory")[1]
        self.assertEqual(memory["units"], units)
        self.assertGreaterEqual(memory["disk"]["bytes_read"], sum(unit["read_bytes"] for unit in units))
        self.assertEqual(browser.run("document.querySelectorAll('#units .cell').length"), len(units))
        for word in ("weights", "KV cache", "predicted peak"):
            self.assertIn(word, browser.run("document.querySelector('#memory').innerText"))
        for section in ("speed", "blocks"):
            browser.wait(f"document.querySelector('#{section}').innerText.length > 30")
        self.assertEqual(browser.faults, [])

    def test_key_is_asked_for(self):
        server = self.serve(self.model(), "--api-key", "secret")
        browser = self.browse(server.url)
        browser.wait("document.querySelector('#settings').open")
        self.choose(browser, key="secret", max_tokens="4")
        browser.wait("document.querySelector('#state').innerText === 'Ready'")
        self.send(browser, PROMPT)
        self.assertEqual(len(self.answers(browser)), 1)

    def test_faults_are_sentences(self):
        server = self.serve(copy_without_template(self.path / "bare"))
        browser = self.browse(server.url)
        self.send(browser, PROMPT)
        browser.wait("document.querySelector('[role=alert]')")
        self.assertIn("template", browser.run("document.querySelector('[role=alert]').innerText"))
        self.choose(browser, mode="text", temperature="0", max_tokens="8")
        browser.click("[role=alert] button")
        text = run_json("run", DEMO, "-p", PROMPT, "-n", "8")["text"]
        self.assertEqual(" ".join(self.answers(browser)[0].split()), " ".join(text.split()))


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
            faults = browser.run(f"{script}\ncheck({cases})")
        self.assertEqual(faults, [])
