"""A headless Chromium for tests of pages: evaluates expressions, collects errors and refused requests."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
TIMEOUT_S = 90.0


class Browser:
    """One page in Chromium, driven through the pipe of its debugging protocol.

    Args:
        write_fd, read_fd: this side of the pipe.
    """

    def __init__(self, write_fd: int, read_fd: int) -> None:
        self._write_fd, self._read_fd, self._buffer, self._number = write_fd, read_fd, b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = ""
        self._session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters or {}}
        if getattr(self, "_session", ""):
            message["sessionId"] = self._session
        os.write(self._write_fd, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            answer = self._read_message()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])
            self.events.append(answer)
        raise TimeoutError(method)

    def _read_message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read_fd, 1 << 20)
            if not chunk:
                raise EOFError("Chromium ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def open(self, page: Path | str, *, width: int = 1100, scheme: str = "light", scripts: bool = True) -> None:
        """Load a page, a file or an address, and wait until its scripts have run."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", {"features": features})
        self.call("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self.events.clear()
        self.call("Page.navigate", {"url": page if isinstance(page, str) else page.resolve().as_uri()})
        end = time.monotonic() + TIMEOUT_S
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < end, "the page did not load"
            self.events.append(self._read_message())

    def evaluate(self, expression: str) -> Any:
        """Return the JSON value of an expression on the page; a promise is awaited."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        outcome = self.call("Runtime.evaluate", parameters)
        assert "exceptionDetails" not in outcome, outcome["exceptionDetails"]
        return outcome["result"].get("value")

    def find_violations(self) -> list[str]:
        """Return what axe-core finds on the page, one line a rule."""
        self.evaluate((Path(__file__).parent / "axe/axe.min.js").read_text(encoding="utf-8"))
        violations = self.evaluate(
            "axe.run(document).then(r => r.violations.map(v => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map("
            "n => n.html.slice(0, 160) + ' ' + (n.any[0] || n.all[0] || n.none[0] || {}).message).join(' | ')}`))"
        )
        return [str(line) for line in violations]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page loaded or tried to load, without its own and embedded data."""
        urls = [
            str(event["params"]["request"]["url"])
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls[1:] if not url.startswith(("data:", "blob:"))]

    @property
    def errors(self) -> list[str]:
        """Exceptions of scripts, and messages of the browser such as refusals by the content security policy."""
        texts = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown":
                texts.append(json.dumps(event["params"]["exceptionDetails"])[:400])
            if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                texts.append(str(event["params"]["entry"]["text"]))
        return texts


@contextlib.contextmanager
def open_browser(*, webgl: bool = False) -> Iterator[Browser]:
    """Start Chromium, and end it afterwards.

    Args:
        webgl: whether pages may draw with WebGL, which the processor then computes.
    """
    assert CHROMIUM is not None
    to_chromium, to_tests = os.pipe(), os.pipe()
    # processes of Chromium may write into the profile until they notice that they are to end
    with tempfile.TemporaryDirectory(prefix="chromium", ignore_cleanup_errors=True) as profile:
        graphics = (
            ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"] if webgl else ["--disable-gpu"]
        )
        argv = [CHROMIUM, "--headless", "--no-sandbox", *graphics, "--disable-dev-shm-usage", "--no-first-run",
                f"--user-data-dir={profile}", "--remote-debugging-pipe"]  # fmt: skip

        def connect() -> None:
            incoming, outgoing = os.dup(to_chromium[0]), os.dup(to_tests[1])
            os.dup2(incoming, 3)
            os.dup2(outgoing, 4)

        process = subprocess.Popen(
            argv, preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_chromium[0])
        os.close(to_tests[1])
        try:
            yield Browser(to_chromium[1], to_tests[0])
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(to_chromium[1])
            os.close(to_tests[0])
