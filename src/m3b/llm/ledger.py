"""What was sent to whom: one line for each request that leaves, one for each answer, and no content.

A line of `ledger.jsonl` is a JSON object. `sent` is written before the first byte leaves, for every attempt, with the
host, the bytes of the body and their SHA-256; a model that is a function of this process has no host. `answered` and
`failed` follow once for each time that an agent asked, with tokens and cost as the provider reports them.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from m3b.errors import RunFailed
from m3b.jsonlines import iter_objects
from m3b.messages import Reply, Usage

from .base import LLM, LLMRequest, LLMWrapper
from .keys import is_loopback

LEDGER_FILE = "ledger.jsonl"

_sink: contextvars.ContextVar[Callable[[dict[str, Any]], None] | None] = contextvars.ContextVar("m3b_sent")


def make_request_hook(model: str) -> Callable[[Any], None]:
    """Return a request hook for an HTTP client: tells the ledger of whoever asks what is about to leave.

    Args:
        model: the name of the model that the client serves.
    """

    def record_request(request: Any) -> None:
        if (sink := _sink.get(None)) is not None:
            body = request.read()
            destination = {
                "host": request.url.netloc.decode("ascii", "replace").rsplit("@")[-1],
                "path": request.url.path,
            }
            sink({"model": model, **destination, **_digest_body(body)})

    return record_request


class Ledger:
    """The ledger of one run; lines are appended by any thread."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self.failure: OSError | None = None

    def meter(self, llm: LLM, role: str) -> MeteredLLM:
        """Return the model, with everything that it is asked written down under the role's name."""
        return MeteredLLM(llm, self, role)

    def write(self, kind: str, role: str, line: dict[str, Any]) -> None:
        """Append a line. A failure is kept and not raised: this is called from within HTTP clients, which would take
        it for trouble of the network."""
        text = json.dumps({"what": kind, "at": round(time.time(), 3), "role": role, **line}, ensure_ascii=False)
        try:
            with self._lock:
                stream = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(stream, text.encode("utf-8", "replace") + b"\n")
                finally:
                    os.close(stream)
        except OSError as error:
            self.failure = error

    def raise_on_failure(self) -> None:
        """Raise what kept a line from being written; to be called after each answer.

        Raises:
            RunFailed: a line could not be written, so that what leaves the machine would go unrecorded.
        """
        if self.failure is not None:
            raise RunFailed(
                f"The ledger {self.file} cannot be written ({self.failure.strerror}). Make room on the disk."
            )


class MeteredLLM(LLMWrapper):
    """An LLM whose requests are written to a ledger."""

    def __init__(self, llm: LLM, ledger: Ledger, role: str) -> None:
        super().__init__(llm)
        self.ledger, self.role = ledger, role

    def ask(self, request: LLMRequest) -> Reply:
        """See `LLM.ask`.

        Raises:
            RunFailed: the ledger cannot be written.
        """
        request_count = 0
        start = time.monotonic()

        def record_request(line: dict[str, Any]) -> None:
            nonlocal request_count
            request_count += 1
            self.ledger.write("sent", self.role, line)

        try:
            with _use_sink(record_request):
                reply = self.llm.ask(request)
        except BaseException as error:  # written down whatever it was, and raised again
            failure = {"model": self.name, "error": type(error).__name__, "requests": request_count}
            self.ledger.write("failed", self.role, {**failure, "seconds": round(time.monotonic() - start, 3)})
            raise
        if not request_count:
            parts = [*map(asdict, request.messages), *map(asdict, request.tools)]
            body = json.dumps(parts, default=repr).encode("utf-8", "replace")
            self.ledger.write("sent", self.role, {"model": self.name, "host": "", "path": "", **_digest_body(body)})
        self.ledger.write(
            "answered", self.role, {**_format_answer(self.name, reply, start), "requests": max(request_count, 1)}
        )
        self.ledger.raise_on_failure()
        return reply


def _format_answer(name: str, reply: Reply, start: float) -> dict[str, Any]:
    usage = asdict(reply.usage)
    usage.pop("requests")
    usage["cost_usd"] = round(usage["cost_usd"], 8)
    seconds = round(time.monotonic() - start, 3)
    return {"model": name, "answered_by": reply.model, "stop": reply.stop, **usage, "seconds": seconds}


def _digest_body(body: bytes) -> dict[str, Any]:
    return {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


@contextlib.contextmanager
def _use_sink(sink: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    token = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(token)


def read_ledger(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a ledger; a torn one is left out, a missing file is empty."""
    return list(iter_objects(file))


def summarize_by_model(file: Path) -> dict[str, dict[str, Any]]:
    """Return for each model: hosts, requests, bytes, tokens, cost, and the share of the input that a cache served."""
    models: dict[str, dict[str, Any]] = {}
    for line in read_ledger(file):
        entry = models.setdefault(line["model"], {"hosts": [], "requests": 0, "bytes": 0, "usage": Usage()})
        if line["what"] == "sent":
            entry["requests"] += 1
            entry["bytes"] += line["bytes"]
            entry["hosts"] = sorted({*entry["hosts"], line["host"]})
        elif line["what"] == "answered":
            usage_fields = {key: line[key] for key in Usage.__dataclass_fields__ if key in line and key != "requests"}
            entry["usage"] = entry["usage"] + Usage(**usage_fields)
    for entry in models.values():
        usage = entry.pop("usage")
        tokens = {key: value for key, value in asdict(usage).items() if key != "requests"}
        entry |= tokens | {"cached_share": round(usage.cached_share, 4)}
    return models


def summarize_by_host(file: Path) -> list[dict[str, Any]]:
    """Return for each host and model: requests and bytes that were sent there, tokens and cost of its answers.

    An answer is counted for where the role's last request went, which of a fallback chain is the model that answered;
    `local` says whether that is this machine.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    last_request: dict[str, tuple[str, str]] = {}
    for line in read_ledger(file):
        role = str(line.get("role", ""))
        if line["what"] == "sent":
            host, model = last_request[role] = (line["host"], line["model"])
            is_local = not host or is_loopback(f"//{host}")
            row = rows.setdefault(last_request[role], {"host": host, "model": model, "local": is_local, **_ZERO_COUNTS})
            row["requests"] += 1
            row["bytes"] += line["bytes"]
        elif role in last_request:
            for name in ("input_tokens", "output_tokens", "cost_usd"):
                rows[last_request[role]][name] += line.get(name, 0)
    return list(rows.values())


_ZERO_COUNTS = {"requests": 0, "bytes": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}
