"""A loopback HTTP server that gives prepared answers and misbehaves on purpose."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class ServerAnswer:
    """The answer of the server to one request.

    Args:
        body: JSON content, or bytes that are sent unchanged. If the request asks for a stream and there are `events`,
            those are sent instead.
        status, headers: status and headers of the response.
        events: events of a stream.
        drop: close the connection without an answer.
        silence_s: delay before the first byte, in seconds.
        cut: number of bytes of the body after which the connection breaks, although more were announced.
        pieces, pause_s: send the body in this many pieces, with a pause after each, in seconds.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    events: tuple[bytes, ...] = ()
    drop: bool = False
    silence_s: float = 0.0
    cut: int | None = None
    pieces: int = 1
    pause_s: float = 0.0


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the server received it."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.raw)
        return content


Respond = Callable[[ReceivedRequest], ServerAnswer]


class Server:
    """A server that answers with the result of `respond`, or with the next of `answers`; `requests` has all requests.

    Use it as a context manager; `url` is its address, without a path.
    """

    def __init__(self, respond: Respond | None = None) -> None:
        self.answers: list[ServerAnswer] = []
        self.requests: list[ReceivedRequest] = []
        self._respond = respond or self._next_answer
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._http = _HttpServer(("127.0.0.1", 0), _make_handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def queue_answers(self, *answers: ServerAnswer) -> None:
        """Append answers for the next requests."""
        self.answers.extend(answers)

    def answer(self, request: ReceivedRequest) -> ServerAnswer:
        """Record a request and return its answer; called by the threads of the handler."""
        with self._lock:
            self.requests.append(request)
            return self._respond(request)

    def pause(self, seconds: float) -> None:
        """Sleep, at most until the server stops."""
        self._stopping.wait(seconds)

    def _next_answer(self, request: ReceivedRequest) -> ServerAnswer:
        if not self.answers:
            return ServerAnswer({"error": {"message": "The test queued no answer for this request."}}, status=418)
        return self.answers.pop(0)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: clients that disconnect are part of the tests."""


def _make_handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class ProviderHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = server.answer(ReceivedRequest(self.path, headers, raw))
            server.pause(answer.silence_s)
            with contextlib.suppress(OSError):
                if answer.drop:
                    self._hang_up()
                else:
                    self._send(answer, raw)

        def _send(self, answer: ServerAnswer, raw: bytes) -> None:
            streams = bool(answer.events) and b'"stream":true' in raw.replace(b" ", b"")
            body = b"".join(answer.events) if streams else _encode_body(answer.body)
            kind = "text/event-stream" if streams else "application/json"
            self.send_response(answer.status)
            for name, value in {"Content-Type": kind, **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for piece in _split_body(body if answer.cut is None else body[: answer.cut], answer.pieces):
                self.wfile.write(piece)
                self.wfile.flush()
                server.pause(answer.pause_s)
            if answer.cut is not None:
                self._hang_up()

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ProviderHandler


def _encode_body(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _split_body(body: bytes, count: int) -> Iterator[bytes]:
    size = max(1, -(-len(body) // max(1, count)))
    for start in range(0, len(body), size):
        yield body[start : start + size]


@dataclass
class Clock:
    """A clock that advances only by `sleep`, so that no test waits."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        time.sleep(0)

    def __call__(self) -> float:
        return self.now


def join_pieces(pieces: Iterable[str]) -> str:
    """Return the text of the pieces of a stream; an empty piece means that the answer starts again."""
    text = ""
    for piece in pieces:
        text = text + piece if piece else ""
    return text
