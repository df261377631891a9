"""Chromium without a window, driven over its debugging port: what a page did, drew and asked for."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
)  # fmt: skip
_HANGS = 600.0
"""Seconds after which what was waited for will not come."""
_STARTS = 60.0
"""Seconds that the browser may take to start, and to answer."""


def installed() -> str | None:
    """The browser's program, None where there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextlib.contextmanager
def browser() -> Iterator["Tab"]:
    """A tab of a browser of its own, which ends with the context."""
    program = installed()
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                tab = Tab(_port(Path(folder), process))
                yield tab
                tab.close()
            finally:
                process.terminate()


def _port(folder: Path, process: subprocess.Popen[bytes]) -> int:
    """The port that the browser has chosen, which it writes down when it listens."""
    until, written = time.monotonic() + _STARTS, folder / "DevToolsActivePort"
    while time.monotonic() < until and process.poll() is None:
        lines = written.read_text().splitlines() if written.exists() else []
        if len(lines) > 1:
            return int(lines[0])
        time.sleep(0.02)
    raise RuntimeError(f"{process.args} did not start")


_CODES = {"Tab": 9, "Enter": 13, "ArrowUp": 38, "ArrowDown": 40}
"""Of keys that a browser acts upon by itself."""


class Tab:
    """One page, and all that it told since it was opened."""

    def __init__(self, port: int) -> None:
        until = time.monotonic() + _STARTS
        while not (pages := _pages(port)):
            assert time.monotonic() < until, "the browser has no tab"
        address = pages[0]["webSocketDebuggerUrl"]
        self._socket, self._calls = Socket(port, urllib.parse.urlparse(address).path), 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the protocol; what is told meanwhile goes to `events`."""
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.receive())
            if told.get("id") == self._calls:
                assert "error" not in told, told
                return dict(told["result"])
            self.events.append(told)

    def value(self, expression: str) -> Any:
        """What an expression of the page's own language comes to, also one that is promised."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, page: Path, ready: str) -> None:
        """Load a file, and wait until an expression is true."""
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait(ready)

    def open_service(self, url: str) -> None:
        """Load the page of a placement service, and wait until it knows what there is to choose from."""
        self.call("Page.navigate", url="about:blank")  # the page before may still ask a server that has ended
        self.wait("location.href === 'about:blank'")
        self.events.clear()
        self.call("Page.navigate", url=f"{url}/")
        self.wait("document.querySelectorAll('#cluster option').length > 3")

    def wait(self, expression: str) -> None:
        """Until an expression is true; what is told meanwhile is heard."""
        until = time.monotonic() + _HANGS
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < until, f"never became true: {expression}"
            time.sleep(0.02)

    def size(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """The size of the window, and what its user likes."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        likes = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=likes)

    def press(self, key: str) -> None:
        """A key, as it is named in `KeyboardEvent.key`."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"windowsVirtualKeyCode": _CODES[key]} if key in _CODES else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **code, **(text if kind == "keyDown" else {}))

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """An event of the mouse, such as mousePressed, at a place in the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """Press and release."""
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def picture(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for, the page's own among them."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the page: exceptions, the console, refusals by its policy."""
        bad: list[str] = []
        for event in self.events:
            match event["method"]:
                case "Runtime.exceptionThrown":
                    bad.append(json.dumps(event["params"]["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning", "assert"):
                    bad.append(json.dumps(event["params"]["args"]))
                case "Log.entryAdded" if event["params"]["entry"]["level"] in ("error", "warning"):
                    bad.append(event["params"]["entry"]["text"])
        return bad

    def close(self) -> None:
        """Leave the tab."""
        self._socket.close()


def _pages(port: int) -> list[dict[str, str]]:
    """The tabs of the browser."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=_STARTS)
    link.request("GET", "/json/list")
    pages: list[dict[str, str]] = json.loads(link.getresponse().read())
    link.close()
    return [page for page in pages if page["type"] == "page"]


class Socket:
    """A client of a WebSocket (RFC 6455) on this machine: texts out, masked, and texts in, in one frame or several."""

    def __init__(self, port: int, path: str) -> None:
        self._link = socket.create_connection(("127.0.0.1", port), timeout=_STARTS)
        self._left = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self._link.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._left:
            self._left += self._link.recv(1 << 16)
        head, _, self._left = self._left.partition(b"\r\n\r\n")
        assert b" 101 " in head.splitlines()[0], head

    def send(self, text: str) -> None:
        """One text, in one frame."""
        data, mask = text.encode(), os.urandom(4)
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x81, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, size)
        self._link.sendall(head + mask + bytes(byte ^ mask[k % 4] for k, byte in enumerate(data)))

    def receive(self) -> str:
        """The next text; pings, of which a browser sends none, are passed over."""
        text = b""
        while True:
            first, second = self._exactly(2)
            size = second & 127
            if size > 125:
                size = int.from_bytes(self._exactly(2 if size == 126 else 8))
            data = self._exactly(size)
            if first & 15 in (0, 1):
                text += data
                if first & 128:
                    return text.decode()

    def _exactly(self, count: int) -> bytes:
        parts, have = [self._left], len(self._left)
        while have < count:
            part = self._link.recv(1 << 20)
            assert part, "the browser has gone away"
            parts.append(part)
            have += len(part)
        data = b"".join(parts)
        self._left = data[count:]
        return data[:count]

    def close(self) -> None:
        """Hang up."""
        self._link.close()
