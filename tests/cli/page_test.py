"""The web page of sluice serve: its Markdown, in Node.js or a headless Chromium."""

import json
import re
import shutil
import subprocess
import unittest

from browser import CHROMIUM, Browser
from program import SOURCE, Case

NODE = shutil.which("node")


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
            result = subprocess.run([NODE, self.path / "check.js"], capture_output=True, text=True, timeout=120)
            self.assertEqual(result.stderr, "")
            faults = json.loads(result.stdout)
        else:
            browser = Browser(self.path)
            self.addCleanup(browser.close)
            faults = browser.run(f"{script}\ncheck({cases})")
        self.assertEqual(faults, [])
