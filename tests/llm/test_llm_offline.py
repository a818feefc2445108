"""Offline: whatever another machine serves is refused before anything is read, made or sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from m3b import Pipeline, resume
from m3b.bench.datasets import download
from m3b.errors import OfflineError
from m3b.interactive import segment
from m3b.llm import FallbackLLM, connect
from m3b.llm.callable import CallableLLM
from m3b.llm.offline import OFFLINE_VARIABLE
from m3b.llm.presets import PROVIDERS
from m3b.llm.rules import RulesLLM
from m3b.testing.conformance import DIALECTS, Server, ServerAnswer

HOME = "http://127.0.0.1:9/v1"
REMOTE = [
    "anthropic",
    "openai:gpt-5.4",
    "gemini",
    "openai:m@https://models.example.org/v1",
    "ollama:m@http://192.168.1.7:11434/v1",
    "openai:m@http://localhost.example.org/v1",
    "openai:m@http://127.0.0.1@models.example.org/v1",
    f"openai:m@{HOME}|anthropic:claude-sonnet-5-5",
    "rules|groq",
    "somebody-elses:model",
]
LOCAL = ["rules", f"openai:m@{HOME}", "ollama:m", "vllm:m", f"openai:m@{HOME}|rules", "openai:m@http://[::1]:9/v1"]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key there is, so that only the address can be the reason; and an address that the SDK would take."""
    for name in {*(variable for provider in PROVIDERS.values() for variable in provider.variables), "M3B_API_KEY"}:
        monkeypatch.setenv(name, "sk-test-000000000000")
    monkeypatch.setenv("OPENAI_BASE_URL", HOME)
    monkeypatch.delenv(OFFLINE_VARIABLE, raising=False)


@pytest.mark.parametrize("spec", REMOTE)
def test_models_of_other_machines_are_refused(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ask in (lambda: connect(spec, local_only=True), lambda: connect("rules", fallback=spec, local_only=True)):
        with pytest.raises(OfflineError):
            ask()
    recorded = f"record:{tmp_path / 'talk.jsonl'}:{spec.partition('|')[0]}"
    if "|" not in spec:
        with pytest.raises(OfflineError):
            connect(recorded, local_only=True)
    monkeypatch.setenv(OFFLINE_VARIABLE, "1")
    with pytest.raises(OfflineError):
        connect(spec)


@pytest.mark.parametrize("spec", LOCAL)
def test_this_machine_is_allowed(spec: str) -> None:
    assert connect(spec, local_only=True).name


def test_functions_and_nothing_are_allowed_and_objects_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connect(lambda messages, tools: "ok", local_only=True)
    assert (
        connect(CallableLLM(lambda messages, tools: "ok", name="mine: the best"), local_only=True).name
        == "mine: the best"
    )
    assert connect(None, local_only=True).name == "rules", "keys are set, and none of them is used"
    far = connect("openai:gpt-5.4")
    with pytest.raises(OfflineError) as refused:
        connect(far, local_only=True)
    assert refused.value.host == "openai's own address"
    with pytest.raises(OfflineError) as refused:
        connect(FallbackLLM([RulesLLM(), far]), local_only=True)
    assert refused.value.host == "openai's own address"
    monkeypatch.setenv(OFFLINE_VARIABLE, "0")
    assert connect("openai:gpt-5.4")


def test_a_pipeline_refuses_before_it_looks_at_the_data(tmp_path: Path) -> None:
    """The data does not even exist: had it been looked at, that would be the error."""
    missing = [tmp_path / "nowhere"]
    for llm_spec in ("anthropic", {"default": "rules", "model_trainer": "anthropic"}):
        with pytest.raises(OfflineError) as refused:
            Pipeline(llm_spec, data=missing, out=tmp_path / "run", offline=True)
        assert refused.value.host == "anthropic's own address"
    with pytest.raises(OfflineError) as refused:
        Pipeline("rules", fallback="anthropic", data=missing, out=tmp_path / "run", offline=True)
    assert refused.value.host == "anthropic's own address"
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_stays_offline(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("no images here")
    chat = DIALECTS["openai"]
    with Server(lambda request: ServerAnswer(chat.error("no such model"), status=404)) as server:
        pipeline = Pipeline(f"openai:m@{server.url}/v1", data=[tmp_path / "data"], out=tmp_path / "run", offline=True)
        assert pipeline.run("Classify chest X-rays by pneumonia").status == "failed"
    with pytest.raises(OfflineError):
        resume(tmp_path / "run", "openai:gpt-5.4")


def test_nothing_else_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OfflineError):
        segment(tmp_path / "x.png", "the kidney", llm="openai:gpt-5.4", segmenter=tmp_path, offline=True)
    monkeypatch.setenv(OFFLINE_VARIABLE, "1")
    with pytest.raises(OfflineError):
        download._open("https://models.example.org/set.zip", {})


@pytest.mark.parametrize(
    "command",
    [
        ("run", "Classify", "--llm", "anthropic", "--data", "nowhere"),
        ("resume", "nowhere", "--llm", "anthropic"),
        ("bench", "run", "--llm", "rules", "--llm", "anthropic"),
        ("bench", "run", "--engine", "ray", "--address", "10.0.0.1:6379"),
        ("bench", "run", "--engine", "slurm"),
        ("segment", __file__, "the kidney", "--segmenter", "nowhere", "-o", "out", "--llm", "anthropic"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_the_commands(command: tuple[str, ...], run_m3b: Callable[..., Any], tmp_path: Path) -> None:
    ended = run_m3b(*command, "--offline")
    assert ended.returncode == 2, ended.stdout
    assert "Traceback" not in ended.stderr
    if command[0] != "resume":
        assert "--offline" in ended.stderr
    assert list(tmp_path.iterdir()) == []
