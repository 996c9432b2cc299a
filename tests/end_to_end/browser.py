"""A real browser for tests: Chromium without a window, spoken to through two pipes in its own protocol.

`--remote-debugging-pipe` makes Chromium read commands from descriptor 3 and write answers and events to 4, as JSON
ended by a zero byte: nothing needs to be installed but the browser.
"""

import base64
import json
import os
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 120.0


def find() -> str | None:
    """The browser's program, where there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@cache
def obstacle() -> str:
    """Why tests cannot use a browser on this machine; empty where they can."""
    if not find():
        return "no Chromium: install one, for example `apt-get install chromium`"
    fonts = shutil.which("fc-list")
    if fonts and not subprocess.run([fonts], capture_output=True, timeout=60, check=False).stdout.strip():
        return "no font is installed, and Chromium crashes without one: `apt-get install fonts-dejavu-core`"
    return ""


class Browser:
    """`with Browser(folder) as browser: browser.open(path)`; `problems` has all that the console complained of."""

    def __init__(self, profile: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        program = find()
        assert program
        self.problems: list[str] = []
        self.site = "file:"
        """Where requests may go."""
        self._answers: dict[int, dict[str, Any]] = {}
        self._loaded = False
        self._asked = 0
        self._buffer = b""
        commands, self._write = os.pipe()
        self._read, events = os.pipe()
        os.set_blocking(self._read, False)
        words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        words += ["--hide-scrollbars", f"--window-size={width},{height}", f"--user-data-dir={profile}"]
        words += [
            "--remote-debugging-pipe",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            "about:blank",
        ]
        # The shell puts the pipes where the browser looks for them.
        shell = f'exec "$@" 3<&{commands} 4>&{events}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            pass_fds=(commands, events),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(events)
        self._session = ""
        targets = self.ask("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._read)
        os.close(self._write)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its answer."""
        self._asked += 1
        message: dict[str, Any] = {"id": self._asked, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while self._asked not in self._answers:
            self._listen(end)
        answer = self._answers.pop(self._asked)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _listen(self, end: float) -> None:
        assert time.monotonic() < end, "the browser does not answer"
        try:
            data = os.read(self._read, 1 << 20)
        except BlockingIOError:
            time.sleep(0.005)
            return
        assert data, "the browser has ended"
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._hear(message["method"], message["params"])

    def _hear(self, event: str, about: dict[str, Any]) -> None:
        match event:
            case "Runtime.exceptionThrown":
                details = about["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                self.problems.append(str([each.get("value", each.get("description")) for each in about["args"]]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.problems.append(about["entry"]["text"])
            case "Network.requestWillBeSent" if not about["request"]["url"].startswith((self.site, "data:")):
                self.problems.append(f"a request to {about['request']['url']}")

    def open(self, page: Path | str) -> None:
        """Go to a page of ours, in a file or at the URL of a server, and wait until its components are there."""
        self.site = page if isinstance(page, str) else "file:"
        self.ask("Page.navigate", url=page if isinstance(page, str) else page.absolute().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'true'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.run(condition):
            assert time.monotonic() < end, f"never came true: {condition}\n{self.problems}"
            time.sleep(0.02)

    def place(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """Scroll an element into view; a point in it, by shares of its sides."""
        found = f"document.querySelector({json.dumps(selector)})"
        script = f"""(() => {{ {found}.scrollIntoView({{block: "center", inline: "nearest", behavior: "instant"}});
            const box = {found}.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; }})()"""
        before, box = None, self.run(script)
        while box != before:  # what comes into view may draw itself, and move what is below
            self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))")
            before, box = box, self.run(script)
        return box[0] + x * box[2], box[1] + y * box[3]

    def hover(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        left, top = self.place(selector, x, y)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=left, y=top)

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        left, top = self.place(selector, x, y)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=left, y=top, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Put text where the focus is, in one go, as an input method does."""
        self.ask("Input.insertText", text=text)

    def press(self, key: str) -> None:
        code = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Tab": 9}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def screenshot(self, path: Path, whole: bool = False) -> Path:
        options: dict[str, Any] = {}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", **options)["data"]))
        return path
