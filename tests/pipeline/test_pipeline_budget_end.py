"""A budget that ends after the training: what was trained and exported is measured and delivered all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_kit import TRAIN, check_end, check_left, of_kind, say, script, write

from m3b.agents.budget import Budget

SPENT = "The budget ended before the Model Trainer did"


def test_the_time_is_over_when_the_training_ends(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the run stands until something is exported, then all of its time is over."""
    exported = tmp_path / "run" / "work" / "Deliver" / "config.json"
    monkeypatch.setattr(
        "m3b.run.services.Budget", lambda **parts: Budget(**parts, clock=lambda: 9e6 if exported.exists() else 0.0)
    )
    result = build(model=[script(TRAIN), say("Never heard.")], max_wall=3600.0)
    check_end(result, "completed", SPENT, "of 3600 seconds are spent")
    check_left(Path(result.run_dir), "completed")
    assert result.primary is not None
    assert of_kind(Path(result.run_dir), "role_ended", "model_trainer")[-1]["status"] == "out_of_budget"


def test_the_actions_are_spent(build) -> None:
    """Four actions lead to the training, the fifth trains, a sixth is one too many."""
    result = build(model=[script(TRAIN), script("echo more"), say("Trained; more was wanted.")], max_actions=5)
    check_end(result, "completed", SPENT, "5 actions")


def test_nothing_was_exported(build) -> None:
    result = build(model=[script("echo no model"), script("echo more")], max_actions=5)
    check_end(result, "out_of_budget", "5 actions")
    assert result.model_dir is None


def test_an_accepted_model_outlives_what_spoils_it(build) -> None:
    """The reflection goes on with a training that breaks the export: the accepted copy is what is delivered."""
    spoil = [write({"Deliver/predict.py": "raise SystemExit(3)"}), script("echo more"), script("echo more")]
    weak = [script(f"{TRAIN} && rm Logout/valid_predictions.json"), say("Trained."), *spoil]
    result = build(model=weak, max_actions=6)
    check_end(result, "completed", SPENT, "6 actions")
    assert "SystemExit(3)" in (Path(result.run_dir) / "work" / "Deliver" / "predict.py").read_text()
    assert "SystemExit(3)" not in (Path(str(result.model_dir)) / "predict.py").read_text()


def test_an_accepted_model_outlives_one_that_is_rejected_after_it(build) -> None:
    """The second hand-over is broken and rejected, then the budget ends: the first is delivered, with its own answers."""
    weak = [script(f"{TRAIN} && rm Logout/valid_predictions.json"), say("Trained."),
            write({"Deliver/predict.py": "raise SystemExit(3)"}), say("Better now."), script("echo more"),
            script("echo more")]  # fmt: skip
    result = build(model=weak, max_actions=7)
    checks = [check["accepted"] for check in of_kind(Path(result.run_dir), "check", "model_trainer")]
    assert checks[:2] == [True, False]
    check_end(result, "completed", SPENT, "7 actions")
    assert "SystemExit(3)" not in (Path(str(result.model_dir)) / "predict.py").read_text()
    assert not (Path(result.run_dir) / "locked" / "candidate").exists()


@pytest.mark.parametrize(
    ("wall_s", "minutes"), [(None, 10.0), pytest.param(6000.0, 10.0, marks=pytest.mark.slow), (700.0, 7.0)]
)
def test_time_is_kept_for_measuring(build, wall_s: float | None, minutes: float) -> None:
    result = build(model=[script("echo no")], max_wall=wall_s, train_minutes=10.0, max_actions=4)
    briefing = of_kind(Path(result.run_dir), "prompt", "module_architect")[0]["text"]
    announced_minutes = float(briefing.split("Training time: ")[1].split()[0])
    notes = [note["text"] for note in of_kind(Path(result.run_dir), "stage", "module_architect")]
    assert announced_minutes == minutes or 0 < announced_minutes < minutes == 7.0
    assert any("kept for measuring" in note for note in notes) is (minutes < 10)


def test_seconds_left() -> None:
    now = [50.0]
    budget = Budget(max_wall_s=20.0, clock=lambda: now[0])
    now[0] = 55.0
    assert budget.seconds_left() == 15.0
    assert Budget().seconds_left() is None
    assert (Budget().cap_training_minutes(5), budget.cap_training_minutes(5)) == (5, 0.15)
