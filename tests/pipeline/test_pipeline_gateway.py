"""Whole runs through a gateway that nobody here wrote: LiteLLM's, in front of a scripted model. Skipped without it.

LiteLLM pins many packages, so that it needs an environment of its own: `python -m venv DIR`, then
`DIR/bin/pip install 'litellm[proxy]'`. M3B_TEST_LITELLM names its `litellm` program; otherwise it is looked up in PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, check_end, place, play

from m3b import Pipeline
from m3b.llm import ledger
from m3b.messages import Message
from m3b.testing.conformance import DIALECTS, ReceivedRequest, Server, ServerAnswer

pytestmark = pytest.mark.slow

START_S = 240.0
"""The gateway imports for half a minute on an idle machine."""
MODEL, GATEWAY_KEY, UPSTREAM_KEY = "m", "sk-gateway-Qx71", "sk-upstream-Kd02"
"""The keys of the gateway for its clients, and of the server behind it for the gateway."""
CHAT = DIALECTS["openai"]


def _join_text(content: Any) -> str:
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else content or ""


@dataclass
class Upstream:
    """The model behind the gateway: plays the acts of a run by the chat protocol, whole or as a stream."""

    acts: Mapping[str, Sequence[Any]] = field(default_factory=play)

    def __call__(self, request: ReceivedRequest) -> ServerAnswer:
        turns = request.body["messages"]
        stage, replies = place([Message(turn["role"], _join_text(turn.get("content"))) for turn in turns])
        step = self.acts[stage][min(replies, len(self.acts[stage]) - 1)]
        calls = [
            (f"call_{len(turns)}_{number}", tool_call.name, json.dumps(tool_call.arguments))
            for number, tool_call in enumerate(step.calls)
        ]
        body = CHAT.calls(*calls) if calls else CHAT.text(step.text)
        return ServerAnswer(body, events=CHAT.events(body))


@dataclass(frozen=True)
class Gateway:
    """A running gateway: its address, and the server behind it."""

    url: str
    server: Server


def _find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    program = os.environ.get("M3B_TEST_LITELLM") or shutil.which("litellm")
    if not program or not Path(program).is_file():
        pytest.skip("no LiteLLM: pip install 'litellm[proxy]' into an environment of its own, and set M3B_TEST_LITELLM")
    folder, port = tmp_path_factory.mktemp("gateway"), _find_free_port()
    with Server(Upstream()) as server:
        route = {"model": f"openai/{MODEL}", "api_base": f"{server.url}/v1", "api_key": UPSTREAM_KEY}
        settings = {
            "model_list": [{"model_name": MODEL, "litellm_params": route}],
            "general_settings": {"master_key": GATEWAY_KEY},
            # otherwise the gateway asks the server behind it by the responses protocol
            "litellm_settings": {"use_chat_completions_url_for_anthropic_messages": True},
        }
        (folder / "config.yaml").write_text(json.dumps(settings))  # JSON is YAML
        with (folder / "log.txt").open("wb") as log:
            process = subprocess.Popen(
                [program, "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)],
                cwd=folder,
                env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
                stdout=log,
                stderr=log,
            )
        try:
            _wait(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "log.txt")
            yield Gateway(f"http://127.0.0.1:{port}", server)
        finally:
            process.terminate()
            process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        with suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"the gateway did not answer within {START_S:g} s: {log.read_text(errors='replace')[-2000:]}")


@pytest.mark.parametrize(
    ("spec", "is_streamed"),
    [("openai:m@{url}/v1", False), ("openai:m@{url}/v1", True), ("anthropic:m@{url}", False)],
    ids=["chat", "streamed-chat", "messages"],
)
def test_a_run_through_the_gateway(
    gateway: Gateway, spec: str, is_streamed: bool, spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("M3B_API_KEY", GATEWAY_KEY)
    earlier_requests = len(gateway.server.requests)
    events: list[Any] = []
    result = Pipeline(
        spec.format(url=gateway.url), data=[spots], out=tmp_path / "run", on_event=events.append, stream=is_streamed
    ).run(REQUEST)
    check_end(result, "completed")
    requests = gateway.server.requests[earlier_requests:]
    assert {request.headers["authorization"] for request in requests} == {f"Bearer {UPSTREAM_KEY}"}
    assert {bool(request.body.get("stream")) for request in requests} == {is_streamed}
    assert any(event.kind == "delta" for event in events) == is_streamed
    assert result.usage["input_tokens"] == 100 * len(requests)
    assert result.usage["output_tokens"] == 7 * len(requests)
    (model,) = ledger.summarize_by_model(tmp_path / "run" / ledger.LEDGER_FILE).values()
    assert model["requests"] == len(requests)
    texts = [file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file() and not file.is_symlink()]
    assert not any(GATEWAY_KEY.encode() in text for text in texts)
