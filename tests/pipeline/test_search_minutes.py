"""The time that a search leaves of its hours is given to the training of the selected plan."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, actor, combine_calls, of_kind, play, say, script, write
from search_kit import FILES

from m3b import Pipeline
from m3b.facts import SearchSummary
from m3b.run.plan_search import lengthen_plan

EXPECTED = {"steps": 400, "epochs": 20.0, "seconds": 3.0}


@pytest.mark.parametrize(
    ("plan", "lengthened"),
    [
        (
            {"minutes": 10, "lr": 0.1, "expected": EXPECTED},
            {"minutes": 25.0, "lr": 0.1, "expected": {**EXPECTED, "steps": 1000, "epochs": 50.0}},
        ),
        ({"minutes": 10.0}, {"minutes": 25.0}),
        ({"minutes": 10.0, "expected": {"steps": "many"}}, {"minutes": 25.0, "expected": {"steps": "many"}}),
        ({"minutes": 10.0, "max_steps": 90}, None),
        ({"minutes": "long"}, None),
        ({"minutes": math.inf}, None),
        ({"minutes": -1}, None),
        ({"lr": 0.1}, None),
    ],
)
def test_only_the_minutes_of_a_plan_are_lengthened(plan: dict[str, Any], lengthened: dict[str, Any] | None) -> None:
    assert lengthen_plan(plan, 15.0) == (lengthened or plan)
    assert lengthen_plan(plan, 0.0) == plan


def test_the_time_of_the_run_limits_the_last_training() -> None:
    assert lengthen_plan({"minutes": 10}, 15.0, 12.345)["minutes"] == 12.34
    assert lengthen_plan({"minutes": 10}, 15.0, 8.0)["minutes"] == 10


@pytest.mark.slow
@pytest.mark.parametrize("train_minutes", [None, 2.0])
def test_the_rest_of_the_hours_is_for_the_last_training(
    tmp_path: Path, spots: Path, train_minutes: float | None
) -> None:
    """It was lost: of 9 minutes, the search took seconds, and the last training three minutes."""
    plan = {**json.loads(FILES["plan.json"]), "minutes": train_minutes or 3.0}
    files = {**FILES, "plan.json": json.dumps(plan)}
    module = [combine_calls(write(files), script("python plan.py")), say("The project is in place.")]
    out = tmp_path / "run"
    pipeline = Pipeline(actor(play(module=module)), data=[spots], out=out, hours=0.15, train_minutes=train_minutes)
    assert pipeline.run(REQUEST).model_dir is not None
    artifacts = [event for event in of_kind(out, "artifact") if event["artifact"] == "search_summary"]
    summary = SearchSummary.model_validate(artifacts[-1]["value"])
    last_plan = json.loads((out / "work/plan.json").read_text())
    expected_minutes = 9.0 - summary.minutes if train_minutes is None else train_minutes
    assert last_plan["minutes"] == summary.final_minutes == pytest.approx(expected_minutes, abs=0.02)
    prompt = of_kind(out, "prompt", "model_trainer")[-1]
    assert prompt["facts"][0]["minutes"] == summary.final_minutes
    if train_minutes is None:
        assert summary.final_minutes > 3.0
        assert summary.minutes + summary.final_minutes <= 9.01
