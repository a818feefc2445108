"""A server of delivered models in this process, on a free port, with a client of Python's own library."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from m3b.serve.http import list_own_names, make_server, open_socket
from m3b.serve.predict_app import ServerState, make_predict_app

BOUNDARY = "boundary-of-the-test"


@dataclass
class Answer:
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json()["error"]["code"])


@dataclass
class Client:
    """Sends requests to a server."""

    address: str
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, body: bytes | Iterator[bytes] = b"", **headers: str) -> Answer:
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        try:
            header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
            # a server that refuses a body answers and closes before all of it is sent
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body or None, {**self.headers, **header_fields})
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post_files(
        self, path: str, files: Sequence[tuple[str, str, bytes]], method: str = "POST", **fields: str
    ) -> Answer:
        """Send a form; each file is its field, its name and its content."""
        return self.send(method, path, encode_form(files, fields), Content_Type=form_type())


def form_type() -> str:
    return f"multipart/form-data; boundary={BOUNDARY}"


def encode_form(files: Sequence[tuple[str, str, bytes]], fields: Mapping[str, str] | None = None) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in (fields or {}).items()
    ]
    for name, file_name, content in files:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{file_name}"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    return b"".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


@contextmanager
def run_server(state: ServerState, token: str = "", **options: Any) -> Iterator[Client]:
    """Serve on a free port of this machine until the block ends."""
    with open_socket("127.0.0.1", 0) as listener:
        port = int(listener.getsockname()[1])
        app = make_predict_app(state, token=token, host_names=list_own_names("127.0.0.1", port), **options)
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield Client(f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"} if token else {})
        finally:
            server.should_exit = True
            thread.join(30)


def png_of(grey: int) -> bytes:
    """Return a small grey picture."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("L", (4, 4), grey).save(stream, "PNG")
    return stream.getvalue()
