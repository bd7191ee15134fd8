"""Chromium without a window, driven over its debugging pipe: the standard library is enough.

In: the path of a page, or an address of this machine. Out: results of expressions in it, requests that it made, screenshots."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time


def chromium():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()

        def channels():
            # The browser reads commands from 3 and answers on 4.
            a, b = os.dup(to_read), os.dup(from_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                 "--no-first-run", "--force-color-profile=srgb", f"--user-data-dir={self.folder.name}"]
        self.process = subprocess.Popen([chromium(), *flags, "about:blank"], close_fds=False, preexec_fn=channels,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.buffer, self.last, self.requests, self.errors, self.session = b"", 0, [], [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Network", "Runtime"]:
            self.call(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()

    def message(self):
        while b"\0" not in self.buffer:
            part = os.read(self.back, 1 << 20)
            if not part:
                raise EOFError("chromium ended")
            self.buffer += part
        one, self.buffer = self.buffer.split(b"\0", 1)
        one = json.loads(one)
        if one.get("method") == "Network.requestWillBeSent":
            self.requests.append(one["params"]["request"]["url"])
        if one.get("method") == "Runtime.exceptionThrown":
            self.errors.append(one["params"]["exceptionDetails"])
        return one

    def call(self, method, **params):
        self.last += 1
        own = self.last
        command = {"id": own, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.to, json.dumps(command).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == own:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path, width=1280, height=800, dark=False):
        self.requests.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 500)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                  {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        url = path if str(path).startswith("http://") else f"file://{os.path.abspath(path)}"
        # Another fragment alone would not load the page again.
        self.call("Page.navigate", url="about:blank")
        self.requests.clear()
        self.call("Page.navigate", url=url)
        end = time.time() + 60
        while not self.value("document.readyState === 'complete' && !!window.report && !(window.report instanceof Element)"):
            if time.time() > end:
                raise TimeoutError(f"{path}: the page does not start: {self.errors}")
            time.sleep(0.02)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def click(self, x, y, shift=False):
        for kind in ["mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1,
                      modifiers=8 if shift else 0)

    def key(self, name, shift=False):
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowRight": 39}.get(name, 0)
        for kind in ["keyDown", "keyUp"]:
            more = {"text": text} if kind == "keyDown" and text else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code,
                      modifiers=8 if shift else 0, **more)

    def screenshot(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
