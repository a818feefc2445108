"""Fixtures for the language models' tests."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from llm_server import Clock, Provider

from warm import commands


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "M3B_API_KEY", "M3B_MODELS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    fake_provider = Provider()
    thread = threading.Thread(target=fake_provider.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield fake_provider
    fake_provider.server.shutdown()
    fake_provider.server.server_close()
    thread.join()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine that is taken, and at which nobody listens."""
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        yield bound_socket.getsockname()[1]


@pytest.fixture
def run_m3b(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The `m3b` command in an empty folder."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return commands.run_m3b(*words, cwd=tmp_path)

    return run
