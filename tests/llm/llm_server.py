"""A loopback HTTP server that answers, and misbehaves, as the test says; and time that passes only by sleeping."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback_kit import LoopbackServer
from m3b.llm.retry import Retry


@dataclass
class Answer:
    """What the server does with one request; `body` may be JSON or raw bytes, `drop` closes the connection."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    delay: float = 0.0


class Provider:
    """Answers each request with the next of `answers`; keeps the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                provider.requests.append(json.loads(raw))
                provider.headers.append({name.lower(): value for name, value in self.headers.items()})
                provider.paths.append(self.path)
                answer = provider.answers.pop(0)
                time.sleep(answer.delay)
                if answer.drop:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = LoopbackServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def will(self, *answers: Answer) -> None:
        self.answers.extend(answers)


@dataclass
class Clock:
    """Time that passes only by sleeping."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def retry(self, **changes: Any) -> Retry:
        return Retry(sleep=self.sleep, clock=lambda: self.now, random=lambda: 0.5, **changes)
