"""Nothing changes between the check of a hand-over and what is made of it: scripts stop, and copies are what counts."""

from __future__ import annotations

from pathlib import Path

from pipeline_kit import PROJECT, TRAIN, both, check_end, of_kind, say, script, write

from m3b.result import Result

REWRITE = """
import os, time
from pathlib import Path
while True:
    Path("Deliver/note.txt").write_text(f"rewritten {time.time_ns()}")
    time.sleep(0.002)
"""


def test_a_job_that_runs_on_is_stopped_before_the_check(finish) -> None:
    start = script(f"{TRAIN} && (setsid python rewrite.py & sleep 1); python rewrite.py", wait_s=4)
    result: Result = finish([write({"rewrite.py": REWRITE}), start, say("Done.")])
    events = check_end(result, "completed")
    run = Path(result.run_dir)
    notes = [e["data"]["text"] for e in events if e["kind"] == "note"]
    assert any("still ran at the hand-over and was stopped" in text for text in notes)
    told = [e["data"]["text"] for e in events if e["kind"] == "message"]
    assert any("still ran at the hand-over" in text for text in told), "the agent hears of it"
    written = (run / "work" / "Deliver" / "note.txt").read_text()
    assert (run / "model" / "note.txt").read_text() == written


def test_a_rejected_hand_over_says_which_script_was_stopped(build) -> None:
    acts = [
        script("sleep 1000", wait_s=0),
        say("The project is in place."),
        both(write(PROJECT), script("python plan.py")),
        say("Now."),
    ]
    result: Result = build(module=acts)
    check_end(result, "completed")
    told = [m["text"] for m in of_kind(Path(result.run_dir), "message")]
    assert any("does not accept" in text and "`sleep 1000`" in text for text in told), told
