"""Whole runs over HTTP: keys that must be nowhere, budgets before a call, the ledger, trouble, and a second model."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, actor, call, choice, play, say, script

from m3b import Pipeline, resume
from m3b.llm import ModelFacts, ledger
from m3b.llm.presets import PROVIDERS
from m3b.testing import ScriptedModel
from m3b.testing.conformance import DIALECTS, Server, ServerAnswer
from warm.commands import run_m3b

ROOT = Path(__file__).parents[2]


def _faults() -> Any:
    spec = importlib.util.spec_from_file_location("faults_benchmark", ROOT / "benchmarks" / "faults.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


faults = _faults()
CHAT = DIALECTS["openai"]


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A key in each variable that a provider looks at, unlike any other text."""
    names = {*(variable for provider in PROVIDERS.values() for variable in provider.variables), "M3B_API_KEY"}
    planted = {name: f"sk-canary-{n:03d}-Vw93kfPq7" for n, name in enumerate(sorted(names))}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    return planted


@pytest.fixture
def server(canaries: dict[str, str]) -> Iterator[Server]:
    """A model that plays the whole task, after a server that repeats the key in every error and header."""
    acts = play(
        selection=[call("list_files", path="data"), choice("spots")],
        model=[
            script("env; cat /proc/self/environ; tr '\\0' '\\n' < /proc/$PPID/environ; echo"),
            script("python train.py && python export.py"),
            say("Trained."),
        ],
    )
    play_on = faults.Actor(acts, CHAT)
    key = canaries["M3B_API_KEY"]

    def respond(request: Any) -> ServerAnswer:
        if len(server.requests) % 3 == 1:
            body = CHAT.error(f"Bad key {key} in Bearer {key}")
            return ServerAnswer(body, status=500, headers={"X-Echo": key, "Retry-After": "0"})
        answer: ServerAnswer = play_on(request)
        return answer

    with Server(respond) as server:
        yield server


def test_no_byte_of_a_run_holds_a_key(server: Server, canaries: dict[str, str], spots: Path, tmp_path: Path) -> None:
    event_texts: list[str] = []
    pipeline = Pipeline(
        f"openai:m@{server.url}/v1",
        data=[spots],
        out=tmp_path / "run",
        on_event=lambda event: event_texts.append(repr(event)),
    )
    result = pipeline.run(REQUEST)
    assert result.status == "completed", result.reason
    sent = [request.headers["authorization"] for request in server.requests]
    assert set(sent) == {f"Bearer {canaries['M3B_API_KEY']}"}
    assert any("Bad key [key]" in event for event in event_texts), "the trouble was not told"
    searched = 0
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and not path.is_symlink():
            searched += 1
            leaked_names = [name for name, value in canaries.items() if value.encode() in path.read_bytes()]
            assert not leaked_names, f"{path} holds the value of {leaked_names}"
    assert searched > 30
    visible_text = "".join(event_texts) + json.dumps(result.to_json()) + repr(pipeline.__dict__)
    assert not any(value in visible_text for value in canaries.values())
    assert any("PATH=" in event for event in event_texts), "the script did not show its environment"


def test_the_ledger_of_a_run(server: Server, spots: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = Pipeline(f"openai:m@{server.url}/v1", data=[spots], out=out).run(REQUEST)
    lines = ledger.read_ledger(out / ledger.LEDGER_FILE)
    sent = [line for line in lines if line["what"] == "sent"]
    assert [line["bytes"] for line in sent] == [len(request.raw) for request in server.requests]
    assert {line["host"] for line in sent} == {server.url.removeprefix("http://")}
    assert {line["role"] for line in lines} == {
        "task_manager",
        "data_engineer",
        "module_architect",
        "model_trainer",
    } or (len({line["role"] for line in lines}) == 4)
    (total,) = ledger.summarize_by_model(out / ledger.LEDGER_FILE).values()
    for name in ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cached_share"):
        assert total[name] == pytest.approx(result.usage[name])
    assert result.usage["cached_share"] == pytest.approx(0.6)
    assert json.loads((out / "run.json").read_text())["llm"] == {"default": f"openai:m@{server.url}/v1"}
    process = run_m3b("show", out, "--ledger")
    assert f"{sum(line['bytes'] for line in sent):,}" in process.stdout
    assert process.stdout.endswith("Nothing left this machine.\n")


def test_a_resumed_run_asks_the_same_server(canaries: dict[str, str], spots: Path, tmp_path: Path) -> None:
    play_on = faults.Actor(play(selection=[call("list_files", path="data"), choice(None)]), CHAT)
    ill = [True]

    def respond(request: Any) -> ServerAnswer:
        return ServerAnswer(CHAT.error("no such model"), status=404) if ill[0] else play_on(request)

    with Server(respond) as server:
        result = Pipeline(f"openai:m@{server.url}/v1", data=[spots], out=tmp_path / "run").run(REQUEST)
        assert result.status == "failed"
        ill[0] = False
        assert resume(tmp_path / "run").status == "no_dataset"
        assert len(server.requests) == 3


def test_a_second_model_takes_over(spots: Path, tmp_path: Path) -> None:
    waits: list[str] = []
    dead = f"openai:m@{_closed()}/v1"
    acts = play(selection=[choice(None)])
    with Server(faults.Actor(acts, CHAT)) as server, Server(lambda request: ServerAnswer({}, status=401)) as locked:
        spec = f"openai:m@{locked.url}/v1|openai:m@{server.url}/v1"
        result = Pipeline(
            spec,
            data=[spots],
            out=tmp_path / "run",
            on_event=lambda event: waits.append(event.data["reason"]) if event.kind == "waiting" else None,
        ).run(REQUEST)
        assert result.status == "no_dataset", result.reason
        assert len(locked.requests) == 1
    assert any("takes over" in reason for reason in waits)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["llm"]["default"] == spec
    assert Pipeline(dead, fallback=actor(acts), data=[spots]).llms["default"].name.endswith("|scripted")


def _closed() -> str:
    with Server() as server:
        return server.url


# --- budgets before a call -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected_text"), [({"max_tokens": 500}, "needs about"), ({"max_cost": 0.001}, "the next request costs")]
)
def test_a_request_that_would_pass_the_limit_is_not_sent(
    limit: Any, expected_text: str, spots: Path, tmp_path: Path
) -> None:
    llm = ScriptedModel([choice(None)], facts=ModelFacts(price_in=10.0, price_out=10.0))
    result = Pipeline(llm, data=[spots], out=tmp_path / "run", **limit).run(REQUEST)
    assert result.status == "out_of_budget"
    assert expected_text in result.reason
    assert llm.requests == []
    assert result.usage["input_tokens"] == 0


def test_time_ends_a_wait(spots: Path, tmp_path: Path) -> None:
    with Server(lambda request: ServerAnswer(CHAT.error("slow"), status=429, headers={"Retry-After": "300"})) as server:
        pipeline = Pipeline(
            f"openai:m@{server.url}/v1", data=[spots], out=tmp_path / "run", max_wall=20, train_minutes=0.01
        )
        result = pipeline.run(REQUEST)
    assert result.status == "out_of_budget", result.reason
    assert "Raise max_wall" in result.reason
    assert len(server.requests) == 1, "nobody waits out the five minutes to ask again"


# --- a few of the simulated runs ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_faults_change_no_result() -> None:
    total = faults.measure(runs=24, complete_runs=0, seed=3)
    assert not [name for name in total if name.startswith("BROKEN")], total
    assert total["same Result"] + total["resumed to the same Result"] == 24
    assert sum(count for name, count in total.items() if name.startswith("fault: ")) > 5


@pytest.mark.slow
def test_the_benchmark_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry that gives up at once, and a conversation that forgets a turn, are both found out."""
    monkeypatch.setattr(faults.Retry, "run", lambda self, request, *args: request())
    assert any(name.startswith("BROKEN") for name in faults.measure(runs=12, complete_runs=0, seed=3))
