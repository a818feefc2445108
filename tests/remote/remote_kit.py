"""An S3 server on this machine, and buckets to read from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

KEY_ID, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI-not-a-real-secret"


class S3Server:
    """A moto server on loopback that counts and may hold or fail requests.

    Args:
        gets: keys of the objects that were read, in order.
        floods: keys, or '' for listings -> number of MiB that are sent instead.
        pages: answers to the next requests for a listing, repeated without end; none by default.
        n_flood_bytes, n_pages: what was sent of them.
    """

    def __init__(self) -> None:
        self.gets: list[str] = []
        self.floods: dict[str, int] = {}
        self.pages: list[bytes] = []
        self.n_flood_bytes = self.n_pages = 0
        self.max_gets: int | None = None
        self.is_held = threading.Event()
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ: Any, start_response: Any) -> Any:
        path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
        key = "" if "list-type" in query else path.split("/", 2)[-1]
        if key in self.floods and environ["REQUEST_METHOD"] == "GET":
            start_response("200 OK", [("Content-Type", "application/xml" if not key else "binary/octet-stream")])
            return self._flood(self.floods[key])
        if self.pages and not key:
            start_response("200 OK", [("Content-Type", "application/xml")])
            self.n_pages += 1
            return [self.pages[self.n_pages % len(self.pages)]]
        if environ["REQUEST_METHOD"] == "GET" and "list-type" not in query and path.count("/") > 1:
            if self.max_gets is not None and len(self.gets) >= self.max_gets:
                self.is_held.set()
                self._release.wait(60)
            self.gets.append(path.split("/", 2)[2])
        return self._application(environ, start_response)

    def _flood(self, n_blocks: int) -> Iterator[bytes]:
        for _ in range(n_blocks):
            self.n_flood_bytes += 2**20
            yield b" " * 2**20

    def behave(self) -> None:
        """Answer truly again."""
        self.floods, self.pages, self.n_flood_bytes, self.n_pages = {}, [], 0, 0

    def hold_after(self, n_gets: int) -> None:
        """Leave all reads of objects unanswered after a number of them, until `release`."""
        self.gets.clear()
        self.max_gets = n_gets
        self._release.clear()
        self.is_held.clear()

    def release(self) -> None:
        self.max_gets = None
        self._release.set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join(10)

    def put(self, bucket: str, objects: Mapping[str, bytes]) -> None:
        """Write objects; the bucket is made if it is missing."""
        client = self.get_client()
        if bucket not in [entry["Name"] for entry in client.list_buckets()["Buckets"]]:
            client.create_bucket(Bucket=bucket)
        for key, content in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=content)

    def delete(self, bucket: str, key: str) -> None:
        self.get_client().delete_object(Bucket=bucket, Key=key)

    def get_client(self) -> Any:
        return boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET, region_name="us-east-1"
        )


@contextmanager
def serve_s3() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def set_credentials(monkeypatch: pytest.MonkeyPatch, server: S3Server) -> None:
    """Set the environment that a user of the server has."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "M3B_MIRROR", "M3B_MAX_DOWNLOAD_GIB", "M3B_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent/config")
