"""Budgets, hooks, ablations, and the ways to start, watch and stop a run."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from pipeline_kit import (
    MAKE_INDEX,
    REQUEST,
    actor,
    call,
    check_end,
    check_left,
    choice,
    combine_calls,
    copy_run,
    left_running,
    make_table,
    of_kind,
    play,
    say,
    script,
    texts,
    wait_until,
    write,
)  # fmt: skip

from m3b import Pipeline
from m3b.errors import LLMError, OptionError, UsageError
from m3b.llm.base import ModelFacts
from m3b.run.result import Result
from m3b.testing.scripted_model import llm_error

STOP = "Far enough for this test."
HALT = [llm_error(LLMError, STOP)]
LOOK = call("preview_dirs", path="data/spots")


# --- budgets -----------------------------------------------------------------------------------------------------


def test_actions(build) -> None:
    """Reserved before they run: a reply with more calls than are left runs only as many."""
    calls = combine_calls(*[script(f"echo {n} >> ran.txt") for n in range(5)])
    result = build(index=[calls, say("I wrote three lines; the index is missing.")], max_actions=3)
    check_end(result, "out_of_budget", "3 actions", "the index is missing")
    assert (Path(result.run_dir) / "work" / "ran.txt").read_text() == "0\n1\n2\n"
    assert result.usage["actions"] == 3


def test_the_budget_is_shared_by_the_roles(build) -> None:
    result = build(selection=[LOOK, choice("spots")], max_actions=2)
    check_end(result, "out_of_budget", "2 actions")
    assert result.roles["task_manager"]["actions"] == 1
    assert result.roles["data_engineer"]["actions"] == 1


def test_tokens(build) -> None:
    result = build(max_tokens=6_000)
    check_end(result, "out_of_budget", "tokens", "max_tokens")
    longest = max(event["usage"]["output_tokens"] for event in of_kind(Path(result.run_dir), "reply"))
    spent = result.usage["input_tokens"] + result.usage["output_tokens"]
    assert 0 < spent <= 6_000 + longest, "overshot by a whole request, not by an answer, whose length nobody knows"


def test_money(build) -> None:
    priced = actor(play(), facts=ModelFacts(price_in=5.0, price_out=20.0))
    result = build(llm=priced, max_cost=0.02)
    check_end(result, "out_of_budget", "$0.02", "max_cost")
    assert 0 < result.usage["cost_usd"] <= 0.02


def test_time(build) -> None:
    result = build(index=[script("sleep 1.2"), say("Done.")], max_wall=1.0, train_minutes=0.01)
    check_end(result, "out_of_budget", "seconds", "max_wall")


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_actions": 0},
        {"max_iterations": -1},
        {"max_iterations": 10**9},
        {"max_actions": -1},
        {"max_actions": 2.5},
        {"max_actions": True},
        {"max_tokens": 0},
        {"max_cost": -0.5},
        {"max_cost": 0},
        {"max_wall": -60.0},
        {"max_wall": float("inf")},
        {"train_minutes": -1},
        {"train_minutes": float("nan")},
        {"train_minutes": 100_000},
        {"train_minutes": "5"},
        {"seed": -1},
        {"seed": 2**32},
        {"seed": 0.5},
        {"train_minutes": 0},
        {"roles": "two"},
        {"sandbox": "paper"},
        {"phi": "x"},
    ],
)
def test_options_out_of_range(wrong: dict) -> None:
    (name,) = wrong
    with pytest.raises(OptionError, match=rf"^{name} must be ") as caught:
        Pipeline(actor(), **wrong)
    assert "--" not in str(caught.value), "Python's messages keep Python's names"
    flag = name if name in ("roles", "max_iterations") else f"--{name.replace('_', '-')}"
    assert caught.value.on_command_line.startswith(f"{flag} must be ")
    assert "_" not in caught.value.on_command_line.removeprefix("max_iterations")


def test_the_command_line_counts_minutes() -> None:
    with pytest.raises(OptionError, match=r"at most 5,184,000 seconds; it is -90 seconds") as caught:
        Pipeline(actor(), max_wall=-90.0)
    assert caught.value.on_command_line.endswith("at most 86,400 minutes; it is -1.5 minutes.")


def test_a_run_that_is_shorter_than_its_training() -> None:
    """Such a run cannot end with a model, which one would learn after minutes only."""
    with pytest.raises(UsageError, match=r"5 minutes \(train_minutes\).*only 3 \(max_wall, 180 seconds\)"):
        Pipeline(actor(), max_wall=180.0, train_minutes=5)
    assert Pipeline(actor(), max_wall=180.0, train_minutes=1).options.max_wall == 180.0


def test_a_short_run_lowers_the_default_minutes_by_itself() -> None:
    assert Pipeline(actor(), max_wall=36.0).options.training_minutes == pytest.approx(0.36)
    assert (
        Pipeline(actor(), max_wall=36_000.0).options.training_minutes == Pipeline(actor()).options.training_minutes == 5
    )


def test_no_limit_is_none_and_whole_numbers_are_minutes() -> None:
    options = Pipeline(actor(), max_tokens=None, max_cost=None, max_wall=None, train_minutes=20).options
    assert (options.max_tokens, options.train_minutes) == (None, 20)


def test_an_option_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match=r"max_action\b.*max_actions"):
        Pipeline(actor(), max_action=3)


def test_a_role_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match=r"task_master.*task_manager"):
        Pipeline({"task_master": actor()})


# --- ablations ---------------------------------------------------------------------------------------------------


def test_examples_off(build) -> None:
    with_them = build(index=HALT, out="with")
    without = build(index=HALT, out="without", examples=False)
    full_prompt, short_prompt = (of_kind(Path(r.run_dir), "prompt")[0]["system"] for r in (with_them, without))
    assert "Example" in full_prompt
    assert "Example" not in short_prompt
    assert len(short_prompt) < len(full_prompt)


MAKE_SMALL_TEST_INDEX = MAKE_INDEX.replace("% 3", "% 9")  # a ninth for testing: the audit notes that they are few


@pytest.mark.parametrize("reflect", [True, False])
def test_reflection(build, reflect: bool) -> None:
    acts = [
        combine_calls(write({"m.py": MAKE_SMALL_TEST_INDEX}), script("python m.py")),
        say("Indexed."),
        say("Nothing would fix that."),
    ]
    result = build(index=acts, module=HALT, reflect=reflect)
    check_end(result, "failed", STOP)
    messages = of_kind(Path(result.run_dir), "message", "data_engineer")
    assert len(messages) == (1 if reflect else 0), "once at most, whatever the answer"
    if reflect:
        assert "uncertain" in messages[0]["text"]


# --- hooks -------------------------------------------------------------------------------------------------------


def test_on_event_sees_what_the_journal_keeps(build) -> None:
    live_events = []
    result = build(on_event=live_events.append, module=HALT)
    events = check_end(result, "failed", STOP)
    journaled_events = [event for event in live_events if event.kind not in ("output", "waiting")]
    assert [event.kind for event in journaled_events] == [event["kind"] for event in events]
    assert json.loads(json.dumps(journaled_events[-1].data)) == result.to_json()


def test_approve_can_veto(build) -> None:
    commands = []

    def approve(command: str) -> bool:
        commands.append(command)
        return "forbidden" not in command

    acts = [combine_calls(script("touch forbidden"), script("touch allowed")), *HALT]
    result = build(index=acts, approve=approve)
    check_end(result, "failed", STOP)
    assert commands == ["touch forbidden", "touch allowed"]
    work = Path(result.run_dir) / "work"
    assert not (work / "forbidden").exists()
    assert (work / "allowed").exists()
    refused, _ = of_kind(Path(result.run_dir), "result", "data_engineer")
    assert refused["is_error"]
    assert "not approve" in refused["text"]


def test_ask_answers_a_question(build) -> None:
    questions = []

    def ask(question: str) -> str:
        questions.append(question)
        return "Bright spots, please."

    acts = [choice("spots", question="Bright or dark spots?"), choice("spots")]
    result = build(selection=acts, index=HALT, ask=ask)
    check_end(result, "failed", STOP)
    assert questions == ["Bright or dark spots?"]
    assert any("Bright spots, please." in text for text in texts(Path(result.run_dir)))


def test_ask_before_giving_up(build) -> None:
    questions = []

    def ask(question: str) -> str | None:
        questions.append(question)
        return "Take spots." if len(questions) == 1 else None

    acts = [choice("x", data_card=None, reason="Nothing fits."), choice("x", data_card=None, reason="Really nothing.")]
    result = build(selection=acts, ask=ask)
    check_end(result, "no_dataset", "Really nothing.")
    assert "Nothing fits." in questions[0]
    assert len(questions) == 2


def test_nobody_answers(build) -> None:
    acts = [choice("x", data_card=None, reason="Nothing fits.")]
    check_end(build(selection=acts, ask=lambda question: None), "no_dataset", "Nothing fits.")


def test_what_identifies_a_person_is_masked(tmp_path: Path, build) -> None:
    rows = [[f"c{n:03d}.png", f"Grimhilde Ödegaard{n}", ("plain", "spot")[n % 2]] for n in range(20)]
    data = make_table(tmp_path / "scans", rows, columns="image,patient_name,finding")
    acts = {"selection": [call("preview_files", paths=["data/scans/cases.csv"]), choice("scans")], "index": HALT}
    for out, phi, is_visible in (("masked", "mask", False), ("open", "allow", True)):
        result = build(data=data, out=out, phi=phi, **acts)
        check_end(result, "failed", STOP)
        run = Path(result.run_dir)
        assert any("Grimhilde" in text for text in texts(run)) is is_visible
        assert ("Grimhilde" in (run / "journal.jsonl").read_text(encoding="utf-8")) is is_visible
        assert all("patient_name" in text for text in [of_kind(run, "result", "task_manager")[0]["text"]])


# --- starting, watching, stopping --------------------------------------------------------------------------------


def test_iter(tmp_path: Path, spots: Path) -> None:
    pipeline = Pipeline(actor(play(module=HALT)), data=[spots], out=tmp_path / "run")
    events = list(pipeline.iter(REQUEST))
    assert events[0].kind == "run_started"
    assert events[-1].kind == "run_ended"
    check_end(Result.from_json(events[-1].data), "failed", STOP)


def test_iter_raises_wrong_use(tmp_path: Path, spots: Path) -> None:
    with pytest.raises(UsageError, match="empty"):
        list(Pipeline(actor(), data=[spots], out=tmp_path / "run").iter(" "))


def test_closing_iter_cancels(tmp_path: Path, spots: Path) -> None:
    pipeline = Pipeline(actor(play(index=[script("sleep 600")])), data=[spots], out=tmp_path / "run")
    events = pipeline.iter(REQUEST)
    for event in events:
        if event.kind == "call":
            break
    wait_until(lambda: left_running(tmp_path / "run"), description="the script runs")
    events.close()
    check_left(tmp_path / "run", "cancelled")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("m3b-run")]


def test_cancel_from_another_thread(tmp_path: Path, spots: Path) -> None:
    pipeline = Pipeline(actor(play(index=[script("sleep 600")])), data=[spots], out=tmp_path / "run")
    pipeline.on_event = lambda event: event.kind == "call" and threading.Timer(0.3, pipeline.cancel).start()
    result = pipeline.run(REQUEST)
    check_end(result, "cancelled", f"m3b resume {tmp_path / 'run'}")
    assert result.roles["data_engineer"]["status"] == "cancelled"


def test_as_a_tool(tmp_path: Path, spots: Path) -> None:
    schema, function = Pipeline(actor(play(index=HALT)), data=[spots], out=tmp_path / "run").as_tool()
    assert schema["parameters"]["required"] == ["request"]
    json.dumps(schema)
    answer = function(request=REQUEST)
    check_end(Result.from_json(answer), "failed", STOP)
    assert json.loads(json.dumps(answer)) == answer
    assert function(request=REQUEST)["run_dir"] == str(tmp_path / "run-2"), "an agent may call it again"


def test_the_run_folder_must_be_new(build, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep me")
    with pytest.raises(UsageError, match="not an empty folder"):
        build()
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_below_the_acceptable_range(tmp_path: Path, halfway_run: Path, finish) -> None:
    """The card asks for more than the model reaches: delivered, measured, and not called a success."""
    place = copy_run(halfway_run, tmp_path / "copy")
    record = json.loads((place / "run.json").read_text())
    record["data"][0].update(metric="auroc", acceptable=[0.9999])
    (place / "run.json").write_text(json.dumps(record))
    result = finish(copied=place)
    check_end(result, "below_range", "0.9999")
    assert not result.ok
    assert result.primary is not None
    assert result.primary.value < 0.9999
    assert result.acceptable == (0.9999, None)
    assert "NOT accepted" in (Path(str(result.model_dir)) / "README.md").read_text()
