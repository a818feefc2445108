"""The deliberately weak model of `benchmarks/weak_model.py` through whole runs, and what a run streams and records."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, actor, check_end, choice, journal, place, play

from m3b import Pipeline
from m3b.errors import UsageError
from m3b.llm.recording import RecordingLLM
from m3b.messages import Message
from m3b.run.result import Result
from m3b.testing.conformance.dialects import DIALECTS
from m3b.testing.conformance.server import ReceivedRequest, Server, ServerAnswer

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "weak_model.py"


@pytest.fixture(scope="module")
def weak() -> Any:
    spec = importlib.util.spec_from_file_location("weak_model", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["weak_model"] = module
    spec.loader.exec_module(module)
    return module


def test_a_weak_model_completes_with_the_repairs(weak: Any, spots: Path, tmp_path: Path) -> None:
    outcome = weak.run(actor(play()), spots, tmp_path / "run", request=REQUEST)
    check_end(outcome.result, "completed")
    slips = outcome.slips
    assert all(slips[kind] for kind in ("cut", "types", "fence", "python", "announced", "in text")), slips
    good = sum(slips.values()) - slips["cut"] - slips["announced"]
    assert slips["cut"] * 6 >= good, "too few calls were malformed"
    assert outcome.corrected_calls >= slips["cut"] > 0
    malformed_results = [
        e["data"] for e in journal(tmp_path / "run") if e["kind"] == "result" and e["data"]["data"].get("malformed")
    ]
    assert len(malformed_results) == outcome.corrected_calls
    for result in malformed_results:  # the place of the fault, and the schema of what is expected
        assert "line 1, column" in result["text"]
        assert '"type":"object"' in result["text"]
        assert result["is_error"]


def test_the_same_model_fails_without_the_repairs(weak: Any, spots: Path, tmp_path: Path) -> None:
    with weak.without_repairs():
        outcome = weak.run(actor(play()), spots, tmp_path / "run", request=REQUEST, tools="native")
    check_end(outcome.result, "failed")
    assert outcome.corrected_calls >= 3


# --- streaming and recording -------------------------------------------------------------------------------------


def served(request: ReceivedRequest) -> ServerAnswer:
    """The first stage's closing words, by the chat protocol, as a stream or whole."""
    messages = [Message(turn["role"], turn.get("content") or "") for turn in request.body["messages"]]
    assert place(messages)[0] == "selection"
    body = DIALECTS["openai"].text(json.dumps({"data_card": None, "reason": "Nothing serves this request here."}))
    return ServerAnswer(body, events=DIALECTS["openai"].events(body))


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_words_are_shown_as_they_come_and_not_kept(spots: Path, tmp_path: Path, stream: bool) -> None:
    events: list[Any] = []
    with Server(served) as server:
        llm = f"openai:m@{server.url}/v1"
        result = Pipeline(llm, data=[spots], out=tmp_path / "run", on_event=events.append, stream=stream).run(REQUEST)
        assert [bool(request.body.get("stream")) for request in server.requests] == [stream] * len(server.requests)
    assert result.status == "no_dataset"
    streamed_text = "".join(event.data["text"] for event in events if event.kind == "delta")
    replies = [event.data["text"] for event in events if event.kind == "reply"]
    assert streamed_text == ("".join(replies) if stream else "")
    assert not [event for event in journal(tmp_path / "run") if event["kind"] == "delta"]


@pytest.mark.slow
def test_a_recorded_run_replays_elsewhere(spots: Path, tmp_path: Path, build: Callable[..., Result]) -> None:
    tape = tmp_path / "tape.jsonl"
    first = build(llm=RecordingLLM(actor(play()), tape), out="first")
    check_end(first, "completed")
    again = build(llm=f"replay:{tape}", out="second")
    check_end(again, "completed")
    assert again.usage["input_tokens"] == first.usage["input_tokens"]
    assert again.metrics["auroc"]["value"] == pytest.approx(first.metrics["auroc"]["value"], abs=0.2)


def test_a_replay_that_departs_fails_with_a_diff(spots: Path, tmp_path: Path, build: Callable[..., Result]) -> None:
    tape = tmp_path / "tape.jsonl"
    build(llm=RecordingLLM(actor(play(selection=[choice(None)])), tape), out="first")  # type: ignore[arg-type]
    result = build(llm=f"replay:{tape}", request=f"{REQUEST}, please", out="second")
    check_end(result, "failed", "departs from the recording", f"-{REQUEST}", f"+{REQUEST}, please")


def test_options_are_checked(spots: Path) -> None:
    with pytest.raises(UsageError, match="tools must be one of auto, native"):
        Pipeline("rules", data=[spots], tools="words")


def test_a_log_file_is_spared_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    from m3b.cli.live import LiveView
    from m3b.events import ReplyDelta

    with LiveView() as live:
        for text in ("I look at", " the folder\nand th", "en I"):
            live(ReplyDelta(text))
        assert live.progress.activity == "and then I"
        live(ReplyDelta(""))
        assert live.progress.activity == ""
    assert capsys.readouterr().err == ""
