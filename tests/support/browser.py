"""A headless Chromium, driven by its DevTools protocol through a pipe."""

import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

# Chromium reads commands from descriptor 3, and writes answers to 4.
_START = """
import os, sys
for given, wanted in zip(map(int, sys.argv[1:3]), (3, 4)):
    os.dup2(given, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
_OPTIONS = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]
# Names of keys by which `Browser.press` knows them: their code of Windows, and the text they write.
_KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}
_PATIENCE = 600


class Browser:
    """A browser with one page; `with` ends it. Chromium must be there.

    Attributes:
        requests: the addresses that the pages asked for, also those that were refused.
        cancelled: the numbers of requests that were given up.
        problems: what the console says: refusals by the policy, and errors of scripts.
    """

    def __init__(self, folder: Path) -> None:
        self.requests: list[str] = []
        self.cancelled: list[str] = []
        self.problems: list[str] = []
        self._numbers, self._read = itertools.count(1), b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Not 3 and 4, which the program above makes of them.
        given = [fcntl.fcntl(pipe, fcntl.F_DUPFD, 10) for pipe in (theirs_in, theirs_out)]
        command = [sys.executable, "-c", _START, *map(str, given), CHROMIUM, *_OPTIONS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}"],
            pass_fds=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in (*given, theirs_in, theirs_out):
            os.close(descriptor)
        self._session: dict[str, str] = {}
        self._target = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = {}
        self.send("Browser.close")
        self._process.wait(_PATIENCE)
        os.close(self._in)
        os.close(self._out)

    def open(self, address: str, *, width: int = 1100, downloads: Path | None = None) -> None:
        """Show an address in a new page, without cookies and settings of earlier ones."""
        self._session = {}
        if self._target:
            self.send("Target.closeTarget", targetId=self._target)
        for kept in (self.requests, self.cancelled, self.problems):
            kept.clear()
        context = self.send("Target.createBrowserContext")["browserContextId"]
        if downloads is not None:
            self.send(
                "Browser.setDownloadBehavior",
                behavior="allow",
                browserContextId=context,
                downloadPath=str(downloads),
            )
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)
        self._target = target["targetId"]
        attached = self.send("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log", "DOM"):
            self.send(f"{domain}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def prefer(self, **features: str) -> None:
        """Emulate preferences of a reader, such as `prefers_color_scheme="dark"`."""
        named = [{"name": name.replace("_", "-"), "value": features[name]} for name in features]
        self.send("Emulation.setEmulatedMedia", features=named)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript, or of its promise."""
        reply = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def until(self, expression: str) -> Any:
        """The value of an expression when it is true."""
        deadline = time.monotonic() + _PATIENCE
        while not (value := self.value(expression)):
            assert time.monotonic() < deadline, f"{expression}; {self.problems}"
            time.sleep(0.02)
        return value

    def write(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def press(self, *keys: str, shift: bool = False) -> None:
        for key in keys:
            code, text = _KEYS[key]
            about = {"key": key, "code": "Space" if key == " " else key, "modifiers": 8 * shift}
            for kind in ("keyDown", "keyUp"):
                more = {"text": text} if text and kind == "keyDown" else {}
                self.send(
                    "Input.dispatchKeyEvent", type=kind, windowsVirtualKeyCode=code, **about, **more
                )

    def point(self, x: float, y: float) -> None:
        """Move the mouse to a place of the page."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def tap(self, x: float, y: float) -> None:
        """Tap on a place of the page with a finger."""
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def choose_file(self, element: str, path: Path) -> None:
        """Choose a file in the field with this id."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=f"#{element}")["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def drop_files(self, x: float, y: float, *paths: Path) -> None:
        """Drop files on a place of the page."""
        data = {"items": [], "files": list(map(str, paths)), "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.send("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters, **self._session}
        content = json.dumps(command).encode() + b"\0"
        while content:
            content = content[os.write(self._out, content) :]
        while True:
            message = self._receive(method)
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self._note(message.get("method", ""), message.get("params", {}))

    def _receive(self, method: str) -> dict[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._in], [], [], _PATIENCE)
            assert ready, f"{method}: no answer"
            more = os.read(self._in, 2**20)
            assert more, f"{method}: the browser has ended"
            self._read += more
        first, _, self._read = self._read.partition(b"\0")
        return json.loads(first)

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event == "Network.loadingFailed" and about.get("canceled"):
            self.cancelled.append(about["requestId"])
        elif event == "Runtime.exceptionThrown":
            self.problems.append(about["exceptionDetails"].get("text", "an exception"))
        # The console also has each answer with a status of an error.
        elif event == "Log.entryAdded" and about["entry"]["source"] != "network":
            self.problems.append(about["entry"]["text"])
