"""Runs as objects: several at once, watched, cancelled one by one; errors of the user's own functions end in a Result."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, actor, check_end, check_left, left_running, play, say, script, wait_until

from m3b import Pipeline, UsageError, resume
from m3b.agents.artifacts import Selection
from m3b.errors import LLMError, RunFailed
from m3b.events import Event, FilesRecorded, RunEnded, RunStarted, ToolCalled
from m3b.resources import get_resources_folder
from m3b.testing import llm_error
from m3b.workspace import Workspace

STOP = say('{"given_up": "Enough."}')
SLEEPS = play(index=[script("sleep 600")])


def test_two_runs_of_one_pipeline_end_by_themselves(tmp_path: Path, spots: Path) -> None:
    """Closing the events of one used to cancel the other too."""
    pipeline = Pipeline(actor(SLEEPS), data=[spots])
    events = pipeline.iter(REQUEST, out=tmp_path / "closed")
    handle = pipeline.start(REQUEST, out=tmp_path / "goes_on")
    for place, run_events in (("closed", events), ("goes_on", handle.events())):
        assert any(isinstance(event, ToolCalled) for event in run_events), place
    wait_until(lambda: left_running(tmp_path / "goes_on"), description="the script runs")
    events.close()
    check_left(tmp_path / "closed", "cancelled")
    assert not handle.is_done
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    handle.cancel()
    result = handle.result()
    check_end(result, "cancelled")
    assert result.run_dir == str(handle.folder) == str(tmp_path / "goes_on")
    assert handle.id == "goes_on"


def test_a_cancel_before_a_run_is_not_lost(tmp_path: Path, spots: Path) -> None:
    """It used to be cleared when the run began."""
    model = actor(play())
    pipeline = Pipeline(model, data=[spots], out=tmp_path / "run")
    pipeline.cancel()
    check_end(pipeline.run(REQUEST), "cancelled")
    assert not model.requests


def test_events_can_be_read_by_anybody_and_afterwards(tmp_path: Path, spots: Path) -> None:
    event_kinds: list[str] = []
    pipeline = Pipeline(actor(play(index=[STOP])), data=[spots], on_event=lambda event: event_kinds.append(event.kind))
    handle = pipeline.start(REQUEST, out=tmp_path / "run")
    live = list(handle.events())
    assert isinstance(live[0], RunStarted)
    assert isinstance(live[-1], RunEnded)
    result = handle.result()
    check_end(result, "failed", "Enough.")
    assert live[-1].result == result.to_json()
    assert list(handle.events()) == [event for event in live if event.is_journaled]
    assert event_kinds == [event.kind for event in live]
    with pytest.raises(UsageError, match="not an empty folder"):
        pipeline.start(REQUEST, out=tmp_path / "run")


def test_a_run_in_asyncio(tmp_path: Path, spots: Path) -> None:
    async def both() -> None:
        pipeline = Pipeline(actor(play(index=[STOP])), data=[spots])
        slow = Pipeline(
            actor(SLEEPS), data=[spots], on_event=lambda event: event.kind == "call" and script_started.set()
        )
        waiting = asyncio.create_task(slow.arun(REQUEST, out=tmp_path / "slow"))
        quick = await pipeline.arun(REQUEST, out=tmp_path / "quick")
        assert quick.status == "failed"
        await asyncio.to_thread(script_started.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    script_started = threading.Event()
    asyncio.run(both())
    check_left(tmp_path / "quick", "failed")
    check_left(tmp_path / "slow", "cancelled")


# --- errors of the user's own functions ----------------------------------------------------------------------------


def broken(*_: Any, **__: Any) -> Any:
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("options", "acts", "expected_text"),
    [
        ({"on_event": broken}, {}, "`on_event`, which was given to m3b, raised KeyError"),
        ({"approve": broken}, {"index": [script("echo 1")]}, "`approve`"),
        ({"checks": {"task_manager": broken}}, {}, "checks['task_manager']"),
    ],
)
def test_an_error_of_the_users_ends_in_a_result(build: Any, options: Any, acts: Any, expected_text: str) -> None:
    result = build(**options, **acts)
    assert result.status == "failed"
    assert expected_text in result.reason
    assert "KeyError: 'mine'" in (Path(result.run_dir) / "error.txt").read_text()
    assert not left_running(Path(result.run_dir))


def test_an_error_that_nobody_expected_ends_in_a_result(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_error(*_: Any) -> None:
        raise ValueError("an odd card")

    monkeypatch.setattr("m3b.run.orchestrator.check_data_folders", raise_error)
    result = build()
    check_end(result, "failed", "m3b itself failed with ValueError: an odd card", "error.txt")


def test_the_end_is_announced_although_no_report_can_be_written(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise RunFailed("no report")

    events: list[Event] = []
    monkeypatch.setattr("m3b.run.reporting.write_run_report", refuse)
    result = build(index=[STOP], on_event=events.append)
    assert isinstance(events[-1], RunEnded)
    assert (events[-1].result["status"], result.report) == (result.status, None)


def test_the_end_is_announced_although_run_json_cannot_be_written(build: Any, tmp_path: Path) -> None:
    events: list[Event] = []

    def block(event: Event) -> None:
        events.append(event)
        if isinstance(event, FilesRecorded):
            record = next(tmp_path.rglob("run.json"))
            record.unlink()
            (record / "in the way").mkdir(parents=True)

    result = build(index=[STOP], on_event=block)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].result["status"] == result.status


# --- what is found again on resume -----------------------------------------------------------------------------------


def keep(selection: Selection, work: Path) -> list[str]:
    return []


def test_what_no_file_can_hold_is_named_before_anything(build: Any) -> None:
    first = build(index=[llm_error(LLMError, "Gone.")], checks={"task_manager": keep})
    before = (Path(first.run_dir) / "journal.jsonl").read_bytes()
    with pytest.raises(UsageError, match=r"started with checks task_manager.*checks=\.\.\."):
        resume(first.run_dir, actor(play()))
    assert (Path(first.run_dir) / "journal.jsonl").read_bytes() == before
    again = Pipeline.resume(first.run_dir, actor(play(index=[STOP])), checks={"task_manager": keep})
    check_end(again, "failed", "Enough.")


def test_the_workspace_of_a_run_is_found_again(tmp_path: Path, spots: Path) -> None:
    """A resume went back to the shipped prompts and cards in silence, and could end as `no_dataset`."""
    root, prompts = tmp_path / "root", tmp_path / "prompts"
    shutil.copytree(get_resources_folder(), root, ignore=shutil.ignore_patterns("datacards"))
    (root / "datacards").mkdir()
    card = {"name": "spots", "description": "Drawn scans, plain or with a bright spot.", "path": str(spots)}
    (root / "datacards" / "spots.json").write_text(json.dumps(card))
    prompts.mkdir()
    (prompts / "data_engineer.md").write_text("Be brief.")
    workspace = Workspace(root, prompts=prompts)
    first = Pipeline(
        actor(play(selection=[llm_error(LLMError, "Gone.")])), workspace=workspace, out=tmp_path / "run"
    ).run(REQUEST)
    check_end(first, "failed", "Gone.")
    model = actor(play(index=[STOP]))
    second = resume(first.run_dir, model)
    check_end(second, "failed", "Enough.")
    assert second.data_card == "spots"
    assert model.requests[-1][0][0].text.endswith("Be brief.")
    shutil.rmtree(root)
    with pytest.raises(UsageError, match="workspace that is not there any more"):
        resume(first.run_dir, actor(play()))
