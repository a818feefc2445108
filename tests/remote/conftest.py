"""The S3 server of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="the S3 server of these tests is moto[server]")

from remote.remote_kit import S3Server, serve_s3, set_credentials


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with serve_s3() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    """The server, with credentials in the environment and a store of the test's own."""
    set_credentials(monkeypatch, s3_server)
    monkeypatch.setenv("M3B_MIRROR", str(tmp_path / "store"))
    s3_server.gets.clear()
    s3_server.behave()
    return s3_server
