"""What the server records of requests: an audit log without identity, and metrics for Prometheus."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from m3b.errors import UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from m3b.serve.model_pool import ServedModel

BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RECENT_LINES = 300
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Methods that the log names; of others, it could hold any text of a client."""
SCOPE_KEY = "m3b.served"
"""Where a handler notes in the scope which model it used, and for how many cases."""


def note_model(scope: Scope, served: ServedModel, n_cases: int = 0) -> None:
    """Note the model of a request for the audit log and the metrics."""
    scope[SCOPE_KEY] = {"model": served.name, "version": served.version, "cases": n_cases}


class AuditLog:
    """One JSON line a request: time, hashed client, route, model, version, cases, seconds, status, bytes.

    Neither names of files, nor paths, nor what was predicted is recorded. Addresses are hashed with a key that ends with
    the process, so that one client's requests can be told from another's, and nobody can compute whose they are.

    Args:
        file: is appended to; None keeps the latest lines in memory only.

    Raises:
        UsageError: the file cannot be opened.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._key = secrets.token_bytes(32)
        self.recent: deque[str] = deque(maxlen=RECENT_LINES)
        try:
            self._stream: IO[str] | None = None if file is None else _open_private(file)
        except OSError as error:
            raise UsageError(f"The audit log {file} cannot be written: {error.strerror}.") from error

    def add(self, entry: dict[str, Any], address: str) -> None:
        """Write one line."""
        client = hmac.new(self._key, address.encode(), hashlib.sha256).hexdigest()[:12]
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "client": client, **entry})
        self.recent.append(line)
        if self._stream is not None:
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()


def _open_private(file: Path) -> IO[str]:
    """Open a file for further lines; a new one is for this user alone."""
    return open(file, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))


@dataclass
class RequestMetrics:
    """Counts of requests by model, version and status, and a histogram of their seconds by model."""

    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    buckets: Counter[tuple[str, float]] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    cases: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, model: str, version: str, status: int, duration_s: float, n_cases: int) -> None:
        """Count one request."""
        with self._lock:
            self.counts[model, version, status] += 1
            self.seconds[model] = self.seconds.get(model, 0.0) + duration_s
            self.cases[model] += n_cases
            for limit in BUCKETS_S:
                self.buckets[model, limit] += duration_s <= limit

    def format_text(self, models: Sequence[ServedModel]) -> str:
        """Return the text format of Prometheus."""
        with self._lock:
            lines = ["# TYPE m3b_requests_total counter"]
            for (model, version, status), count in sorted(self.counts.items()):
                lines.append(f'm3b_requests_total{{model="{model}",version="{version}",status="{status}"}} {count}')
            lines.append("# TYPE m3b_cases_total counter")
            lines += [f'm3b_cases_total{{model="{model}"}} {count}' for model, count in sorted(self.cases.items())]
            lines.append("# TYPE m3b_request_seconds histogram")
            for model, total in sorted(self.seconds.items()):
                count = sum(n for (name, _, _), n in self.counts.items() if name == model)
                lines += [
                    f'm3b_request_seconds_bucket{{model="{model}",le="{limit:g}"}} {self.buckets[model, limit]}'
                    for limit in BUCKETS_S
                ]
                lines.append(f'm3b_request_seconds_bucket{{model="{model}",le="+Inf"}} {count}')
                lines.append(f'm3b_request_seconds_sum{{model="{model}"}} {total:.6f}')
                lines.append(f'm3b_request_seconds_count{{model="{model}"}} {count}')
        gauges = {
            "m3b_queue_length gauge": [(model, model.n_waiting) for model in models],
            "m3b_model_ready gauge": [(model, int(model.is_ready)) for model in models],
            "m3b_process_starts_total counter": [(model, model.model.worker.starts) for model in models],
        }
        for name_and_type, values in gauges.items():
            name = name_and_type.split()[0]
            lines.append(f"# TYPE {name_and_type}")
            lines += [f'{name}{{model="{model.name}",version="{model.version}"}} {value}' for model, value in values]
        return "\n".join(lines) + "\n"


class RequestRecorder:
    """Middleware that records each request when its answer was sent, or its client is gone."""

    def __init__(self, app: ASGIApp, log: AuditLog, metrics: RequestMetrics) -> None:
        self._app, self._log, self._metrics = app, log, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, n_in, n_out = time.monotonic(), 499, 0, 0  # 499: the client went away before an answer

        async def count_received() -> Message:
            nonlocal n_in
            message = await receive()
            n_in += len(message.get("body", b""))
            return message

        async def count_sent(message: Message) -> None:
            nonlocal status, n_out
            if message["type"] == "http.response.start":
                status = message["status"]
            n_out += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, count_received, count_sent)
        finally:
            duration_s = time.monotonic() - began
            served = scope.get(SCOPE_KEY, {"model": "", "version": "", "cases": 0})
            route = getattr(scope.get("route"), "path", "")
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            self._log.add(
                {"method": method, "route": route, **served, "seconds": round(duration_s, 4), "status": status,
                 "bytes_in": n_in, "bytes_out": n_out},
                (scope.get("client") or ("",))[0],
            )  # fmt: skip
            self._metrics.add(served["model"], served["version"], status, duration_s, served["cases"])
