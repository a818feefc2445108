"""Nothing changes between the check of a hand-over and what is made of it: scripts stop, and copies are what counts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import PROJECT, TRAIN, check_end, combine_calls, of_kind, say, script, write

from m3b import load_model
from m3b.events import Event
from m3b.run.result import Result

REWRITE = """
import os, time
from pathlib import Path
while True:
    Path("Deliver/note.txt").write_text(f"rewritten {time.time_ns()}")
    time.sleep(0.002)
"""


@pytest.mark.confined
def test_a_job_that_runs_on_is_stopped_before_the_check(finish) -> None:
    start = script(f"{TRAIN} && (setsid python rewrite.py & sleep 1); python rewrite.py", wait_s=4)
    result: Result = finish([write({"rewrite.py": REWRITE}), start, say("Done.")])
    events = check_end(result, "completed")
    run = Path(result.run_dir)
    notes = [e["data"]["text"] for e in events if e["kind"] == "note"]
    assert any("still ran at the hand-over and was stopped" in text for text in notes)
    message_texts = [e["data"]["text"] for e in events if e["kind"] == "message"]
    assert any("still ran at the hand-over" in text for text in message_texts), "the agent hears of it"
    delivered_note = (run / "work" / "Deliver" / "note.txt").read_text()
    assert (run / "model" / "note.txt").read_text() == delivered_note


def test_a_rejected_hand_over_says_which_script_was_stopped(build) -> None:
    acts = [
        script("sleep 1000", wait_s=0),
        say("The project is in place."),
        combine_calls(write(PROJECT), script("python plan.py")),
        say("Now."),
    ]
    result: Result = build(module=acts)
    check_end(result, "completed")
    message_texts = [m["text"] for m in of_kind(Path(result.run_dir), "message")]
    assert any("does not accept" in text and "`sleep 1000`" in text for text in message_texts), message_texts


def at_acceptance(change: Any) -> Any:
    """Change something in the run folder at the moment when the model is accepted, before it is delivered."""

    def listen(event: Event) -> None:
        if event.kind == "artifact" and event.data["artifact"] == "model":
            change()

    return listen


def test_what_is_measured_is_what_is_delivered(finish, tmp_path: Path) -> None:
    """After the check nobody looks at `work/Deliver` again."""
    run = tmp_path / "copy"

    def change() -> None:
        (run / "work/Deliver/predict.py").write_text("raise SystemExit('another model')")
        (run / "work/Deliver/patients.csv").write_text("name,born\nJane Doe,1950-01-01\n")
        (run / "work/Deliver/best.pt").write_bytes(b"\x80\x04N.")

    result: Result = finish(on_event=at_acceptance(change))
    check_end(result, "completed")
    assert result.integrity == "clean"
    names = {p.name for p in (run / "model").rglob("*")}
    assert not names & {"patients.csv", "best.pt"}
    assert "another model" not in (run / "model/predict.py").read_text()
    (accepted,) = [e for e in of_kind(run, "artifact") if e["artifact"] == "model"]
    hashes = accepted["hashes"]
    assert hashes == accepted["value"]["hashes"]
    assert {"predict.py", "config.json", "model.safetensors"} <= set(hashes)
    recorded_hashes = json.loads((run / "model/provenance.json").read_text())["files"]
    for name, value in hashes.items():
        if name != "README.md":  # m3b writes the card itself
            assert hashlib.sha256((run / "model" / name).read_bytes()).hexdigest() == value == recorded_hashes[name]
    assert load_model(run / "model").classes == ("plain", "spot")


@pytest.mark.parametrize(
    ("place", "words"),
    [("locked/model/predict.py", "predict.py was changed"), ("locked/predictions.json", "predictions.json")],
)
def test_a_measured_model_that_changes_is_not_delivered(finish, tmp_path: Path, place: str, words: str) -> None:
    run = tmp_path / "copy"

    def change() -> None:
        with (run / place).open("a") as file:
            file.write("\n")

    result: Result = finish(on_event=at_acceptance(change))
    check_end(result, "failed", "tampered", words)
    assert not (run / "model").exists()
    assert result.model_dir is None


def test_an_added_file_in_the_measured_copy_is_not_delivered(finish, tmp_path: Path) -> None:
    run = tmp_path / "copy"
    result: Result = finish(on_event=at_acceptance(lambda: (run / "locked/model/more.txt").write_text("x")))
    check_end(result, "failed", "tampered")
    assert not (run / "model").exists()


def test_links_in_the_deliverable_are_refused_and_the_agent_mends_it(finish, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the-secret-key")
    plant = script(f"{TRAIN} && ln -s {tmp_path}/secret.txt Deliver/notes.txt && mkfifo Deliver/pipe")
    result: Result = finish([plant, say("Done."), script("rm Deliver/notes.txt Deliver/pipe"), say("Now.")])
    check_end(result, "completed")
    run = Path(result.run_dir)
    message_texts = [m["text"] for m in of_kind(run, "message")]
    assert any("notes.txt is a link" in text and "pipe is neither" in text for text in message_texts), message_texts
    assert not (run / "model" / "notes.txt").exists()


def test_an_accepted_model_is_not_run_twice(finish) -> None:
    """The reflection turn changes nothing, so the same copy stands for the second hand-over."""
    result: Result = finish([script(TRAIN), say("Done."), say("It stands.")])
    events = check_end(result, "completed")
    run_again = [e for e in events if e["kind"] == "stage" and "not seen" in e["data"]["text"]]
    assert len(run_again) == 1
