"""Program inside the sandbox: serves the model on a loopback address and runs the agent's command.

Uses only the standard library.

python loopback.py FOLDER MODEL -- COMMAND...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

POLL_S = 0.02
WAIT_S = 1800.0
_numbers = iter(range(10**9))
_lock = threading.Lock()


def ask_relay(folder: Path, body: bytes) -> tuple[int, dict[str, Any]]:
    """Write a request for the relay and wait for its answer; return status and body."""
    with _lock:
        number = next(_numbers)
    name = f"{os.getpid()}-{number:06d}.json"
    temporary_file = folder / f".ask-{name}"
    temporary_file.write_bytes(body)
    temporary_file.replace(folder / f"ask-{name}")
    answer_file = folder / f"told-{name}"
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if answer_file.is_file():
            answer = json.loads(answer_file.read_text(encoding="utf-8"))
            answer_file.unlink()
            return answer["status"], answer["body"]
        time.sleep(POLL_S)
    return 504, {"error": {"message": "the relay did not answer in time"}}


def make_handler(folder: Path, model: str) -> type[BaseHTTPRequestHandler]:
    """Return the request handler for a relay folder."""

    class RelayHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "relay"}]})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not self.path.rstrip("/").endswith("/chat/completions"):
                self._send(404, {"error": {"message": f"no such path {self.path}; there is /v1/chat/completions"}})
                return
            status, answer = ask_relay(folder, body)
            try:
                is_stream = status == 200 and bool(json.loads(body).get("stream"))
            except ValueError:
                is_stream = False
            self._stream(answer) if is_stream else self._send(status, answer)

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if status != 200:  # the client of m3b has retried already
                self.send_header("x-should-retry", "false")
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, answer: dict[str, Any]) -> None:
            choice = dict(answer["choices"][0])
            message = dict(choice.pop("message"))
            for index, call in enumerate(message.get("tool_calls") or ()):
                call["index"] = index
            chunk = {**answer, "object": "chat.completion.chunk", "choices": [{**choice, "delta": message}]}
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")

        def log_message(self, *args: object) -> None:
            """Log nothing: only the output of the agent is kept."""

    return RelayHandler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore agents that closed the connection: only the output of the agent is kept."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def main(arguments: list[str]) -> int:
    """Start the server, run the command and return its exit status."""
    folder, model = Path(arguments[0]), arguments[1]
    command = arguments[arguments.index("--") + 1 :]
    server = _Server(("127.0.0.1", 0), make_handler(folder, model))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}/v1"
    env = {
        **os.environ,
        "OPENAI_BASE_URL": base,
        "OPENAI_API_BASE": base,
        "OPENAI_API_KEY": "relay",
        "M3B_BASE_URL": base,
        "M3B_MODEL": model,
        "M3B_ROUTED_MODEL": f"openai/{model}",  # the name of the model in LiteLLM
    }
    try:
        return subprocess.run([word.replace("{base_url}", base) for word in command], env=env, check=False).returncode
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 127
    finally:
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
