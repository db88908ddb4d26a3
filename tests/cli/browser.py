"""Drives a headless Chromium through its debugging pipe (Chrome DevTools Protocol), where one is installed."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

from program import HANGS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)


class Browser:
    """The process. Pages with equal cookies and storage are of one context."""

    def __init__(self, folder):
        to_read, self.output = os.pipe()
        self.input, to_write = os.pipe()

        def pipes():  # the browser reads commands from 3 and writes to 4
            os.dup2(to_read, 103)
            os.dup2(to_write, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={folder}/browser",
             "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
            preexec_fn=pipes, env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": f"{folder}/config"})
        os.close(to_read)
        os.close(to_write)
        self.last_id = 0
        self.buffer = b""
        self.tabs = {}  # by session

    def close(self):
        try:
            self.send("Browser.close")
            self.process.wait(20)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.input)
        os.close(self.output)

    def context(self):
        """Storage that is empty."""
        return self.send("Target.createBrowserContext")["browserContextId"]

    def forget(self, context):
        """Closes its tabs, too."""
        self.send("Target.disposeBrowserContext", browserContextId=context)

    def receive(self):
        while b"\0" not in self.buffer:
            assert select.select([self.input], [], [], 60)[0], "the browser does not answer"
            more = os.read(self.input, 1 << 20)
            assert more, "the browser is gone"
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, session=None, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.receive()
            if reply.get("id") == self.last_id:
                assert "error" not in reply, reply["error"]
                return reply["result"]
            if reply.get("sessionId") in self.tabs:
                self.tabs[reply["sessionId"]].note(reply)


class Tab:
    """One page. What it said to its console, and faults of its scripts, are in `faults`."""

    def __init__(self, browser, context, **how):
        self.browser = browser
        self.faults = []
        target = browser.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.tabs[self.session] = self
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.look(**how)

    def look(self, width=1280, height=800, dark=False, touch=False):
        """Changes the screen, and what its reader prefers."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def note(self, event):
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.faults.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["source"] in ("security", "violation"):
            self.faults.append(parameters["entry"]["text"])

    def open(self, address):
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression, waited for."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition):
        end = time.monotonic() + HANGS
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"it did not come true: {condition}; page: {self.run('document.body.innerText')}"
            time.sleep(0.05)

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def names(self, *roles):
        """What assistive technology calls the elements of these roles."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [n.get("name", {}).get("value", "") for n in nodes if not n["ignored"] and n["role"]["value"] in roles]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))
