"""`m3b run --hours`: candidate plans are compared on held-out patients, and the best one is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, TRAIN, actor, check_end, combine_calls, of_kind, play, say, script, write
from search_kit import BETTER, BROKEN_FILES, FILES, LOW, LOWER

from m3b import Pipeline, Result, TrainingOverrides, resume, verify
from m3b.agents.prompts import SECOND_TRAINING
from m3b.data.synthetic import make_chest
from m3b.errors import OptionError
from m3b.events import CandidateMeasured, CandidateStarted, Event, RunStarted
from m3b.facts import SearchSummary
from m3b.run.options import Options
from m3b.run.plan_search import list_rung_minutes
from m3b.run.training_checks import describe_short_search
from m3b.training.search_space import list_searched_keys

pytest.importorskip("optuna")
MODULE = [combine_calls(write(FILES), script("python plan.py")), say("The project is in place.")]
ONE_RUNG: dict[str, Any] = {"hours": 5.0, "train_minutes": 2.0}
MODEL_ROLES = ("module_architect", "model_trainer")
TWO_RUNGS: dict[str, Any] = {"hours": 5.0, "train_minutes": 9.0}
"""Candidates get a third of the last training, or a ninth and a third. This project trains in no time, so that none is cut off."""


def read_summary(run: Path) -> SearchSummary:
    artifacts = [event for event in of_kind(run, "artifact") if event["artifact"] == "search_summary"]
    return SearchSummary.model_validate(artifacts[-1]["value"])


def read_trainings(run: Path) -> list[list[Any]]:
    """Learning rate, minutes and --resume of each training of the project."""
    return [json.loads(line) for line in (run / "work/trainings.txt").read_text().splitlines()]


def interrupt_at(*events: tuple[type[Event], int]) -> Callable[[Event], None]:
    """Return a callback that ends the run at the first event of a class with a number."""

    def interrupt(event: Event) -> None:
        if isinstance(event, CandidateStarted | CandidateMeasured) and (type(event), event.number) in events:
            raise KeyboardInterrupt

    return interrupt


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, spots: Path) -> Result:
    """A search of two rungs that was interrupted after a start of a training, and after an end of one."""
    acts, out = play(module=MODULE), tmp_path_factory.mktemp("searched") / "run"
    interrupted = interrupt_at((CandidateStarted, 2))
    check_end(Pipeline(actor(acts), data=[spots], out=out, on_event=interrupted, **TWO_RUNGS).run(REQUEST), "cancelled")
    check_end(resume(out, actor(acts), on_event=interrupt_at((CandidateMeasured, 3))), "cancelled")
    return resume(out, actor(acts))


def test_the_best_plan_is_trained_and_its_optimism_said(searched: Result) -> None:
    run = Path(searched.run_dir)
    check_end(searched, searched.status, "Candidate 2 of 3", "corrected for the selection")
    summary = read_summary(run)
    settings = [candidate.settings for candidate in summary.candidates]
    assert settings == [{}, {"lr": BETTER}, {"lr": LOWER}]
    assert [candidate.source for candidate in summary.candidates] == ["default", "table", "sampler"]
    assert (summary.selected, summary.folds, summary.stopped) == (2, 2, "done")
    figures = [candidate.value for candidate in summary.candidates]
    assert summary.value == max(figures)
    assert summary.corrected is not None
    assert summary.optimism == pytest.approx(summary.value - summary.corrected)
    assert summary.low <= summary.corrected <= summary.high
    assert summary.gain[0] == pytest.approx(figures[1] - figures[0])
    assert summary.cases == summary.patients == 40
    assert [candidate.steps for candidate in summary.candidates] == [(100, 100), (100, 100), (100,)]
    assert summary.min_steps == 250
    default, second, third = summary.candidates
    assert default.gain == ()
    assert second.gain == pytest.approx(summary.gain), "both are after the longest training"
    assert third.gain[0] == pytest.approx(third.figures[0] - default.figures[0])
    assert all(item.interval[0] <= item.value <= item.interval[1] for item in summary.candidates)


def test_no_training_is_repeated(searched: Result) -> None:
    run = Path(searched.run_dir)
    trainings = read_trainings(run)
    rates = [rate for rate, _, _ in trainings]
    assert rates == [LOW, BETTER, LOWER, BETTER, LOW, BETTER], "the best third and the plan unchanged go on"
    assert [minutes for _, minutes, _ in trainings] == [1.0, 1.0, 1.0, 3.0, 3.0, 5.0]
    assert [is_resumed for _, _, is_resumed in trainings] == [False, True, False, False, False, False]
    plan = json.loads((run / "work/plan.json").read_text())
    assert plan == {"lr": BETTER, "folds": 2, "seed": 0}, "the last training is that of the selected plan"


def test_the_test_cases_are_looked_at_once(searched: Result) -> None:
    assert searched.test_looks == 1
    run = Path(searched.run_dir)
    provenance = json.loads((run / "model/provenance.json").read_text())
    assert provenance["search"] == read_summary(run).to_json()
    assert verify(run).ok
    rows = json.loads((run / "locked/search/cases-1-0.json").read_text())
    test_cases = {row["image_path"] for row in json.loads((run / "locked/Datapath/test.json").read_text())}
    assert not {row["image"] for row in rows} & test_cases
    assert "search: Candidate 2 of 3" in (run / "model/README.md").read_text()


def test_the_trainer_reads_the_table(searched: Result) -> None:
    prompt = of_kind(Path(searched.run_dir), "prompt", "model_trainer")[-1]
    assert prompt["facts"][0]["search"] == read_summary(Path(searched.run_dir)).to_json()
    assert "2 | search table of the task | 3 min | 100 (too few) | auroc" in prompt["text"]


def test_the_agents_are_told_of_the_search(searched: Result) -> None:
    architect, trainer = (of_kind(Path(searched.run_dir), "prompt", name)[-1] for name in MODEL_ROLES)
    assert architect["facts"][0]["searched"] == list_searched_keys("diagnosis")
    assert SECOND_TRAINING not in trainer["system"]


def test_the_trainer_proposes_candidates(tmp_path: Path, spots: Path) -> None:
    proposals = json.dumps([{"settings": {"lr": 0.3}}, {"settings": {"lr": LOWER}}])
    acts = [write({"candidates.json": proposals}), say("Compare these."), script(TRAIN), say("Trained.")]
    out, player = tmp_path / "run", actor(play(module=MODULE, model=acts))
    interrupted = interrupt_at((CandidateStarted, 4))
    check_end(Pipeline(player, data=[spots], out=out, on_event=interrupted, **ONE_RUNG).run(REQUEST), "cancelled")
    resume(out, player)
    summary = read_summary(out)
    assert [(item.source, item.settings) for item in summary.candidates][3:] == [("agent", {"lr": 0.3})]
    assert summary.selected == 4
    assert [(rate, is_resumed) for rate, _, is_resumed in read_trainings(out)[3:]] == [(0.3, True), (0.3, False)]
    answer = next(message for message in of_kind(out, "message", "model_trainer") if message["reason"] == "answer")
    assert answer["facts"][0]["selected"] == 4


@pytest.mark.slow
def test_a_small_gain_ends_the_search_and_a_failed_candidate_is_left_out(tmp_path: Path, spots: Path) -> None:
    module = [combine_calls(write(BROKEN_FILES), script("python plan.py")), say("The project is in place.")]
    out = tmp_path / "run"
    Pipeline(actor(play(module=module)), data=[spots], out=out, min_gain=10.0, **TWO_RUNGS).run(REQUEST)
    summary = read_summary(out)
    assert summary.stopped == "min_gain"
    assert [candidate.value is None for candidate in summary.candidates] == [False, False, True]
    assert "the loss is no number" in summary.candidates[2].problem
    assert [minutes for _, minutes, _ in read_trainings(out)] == [1.0, 1.0, 5.0]


@pytest.mark.slow
def test_without_any_candidate_the_plan_unchanged_is_trained(tmp_path: Path, spots: Path) -> None:
    train = FILES["train.py"].replace('if plan["lr"] == -1:', "if options.minutes < 5:")
    module = [combine_calls(write({**FILES, "train.py": train}), script("python plan.py")), say("In place.")]
    out = tmp_path / "run"
    result = Pipeline(actor(play(module=module)), data=[spots], out=out, **ONE_RUNG).run(REQUEST)
    assert result.model_dir is not None
    assert not [event for event in of_kind(out, "artifact") if event["artifact"] == "search_summary"]
    assert read_trainings(out) == [[LOW, 5.0, False]]
    assert any("goes on without Plan Search" in note["text"] for note in of_kind(out, "note"))


@pytest.mark.parametrize(
    "options",
    [
        {"hours": 0},
        {"hours": 1.0, "train_minutes": 60.0},
        {"hours": 2.0, "max_wall": 7200.0},
        {"min_gain": 0.01},
        {"hours": 1.0, "min_gain": 0},
    ],
    ids=str,
)
def test_hours_that_no_search_can_take(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Options(**options)


def test_the_last_third_is_for_the_selected_plan() -> None:
    assert Options(hours=0.5).training_minutes == 10
    assert list_rung_minutes(20.0, 10.0, 3) == [pytest.approx(10 / 3)]
    assert list_rung_minutes(320.0, 160.0, 3) == [
        pytest.approx(160 / 27),
        pytest.approx(160 / 9),
        pytest.approx(160 / 3),
    ]


@pytest.mark.parametrize(
    ("plan", "minutes", "networks", "hours"),
    [
        ({"minutes": 10, "expected": {"steps": 400, "epochs": 20.0}}, 10.0, 2, 0.0),
        ({"minutes": 10, "expected": {"steps": 400, "epochs": 20.0}}, 5.0, 4, 8.0),
        ({"minutes": 10, "folds": 4, "expected": {"steps": 400, "epochs": 20.0}}, 5.0, 4, 0.0),
        ({"minutes": 10, "folds": 3, "refit": True, "expected": {"steps": 400, "epochs": 20.0}}, 1.0, 4, 10.0),
        ({"minutes": 10, "max_steps": 5, "expected": {"steps": 5, "epochs": 0.2}}, 5.0, 4, 0.0),
        ({"minutes": 10}, 5.0, 4, 0.0),
    ],
)
def test_a_search_that_is_too_short_names_the_hours_that_are_not(
    plan: dict[str, Any], minutes: float, networks: int, hours: float
) -> None:
    text = describe_short_search(plan, minutes, networks, 2.0)
    assert bool(text) == bool(hours)
    assert not hours or f"--hours {hours:g} gives 10 epochs" in text


def test_steps_of_a_search_are_explained_before_it(tmp_path: Path, spots: Path) -> None:
    notes: list[str] = []

    def interrupt(event: Event) -> None:
        if isinstance(event, RunStarted):
            notes.extend(event.notes)
            raise KeyboardInterrupt

    options = {"training": TrainingOverrides(steps=90), "on_event": interrupt, **ONE_RUNG}
    Pipeline(actor(play()), data=[spots], out=tmp_path / "run", **options).run(REQUEST)
    assert [note.split(":")[0] for note in notes] == ["Set", "Steps and hours"]
    assert "90 steps" in notes[1]


@pytest.mark.slow
def test_rules_search_with_the_template(tmp_path: Path) -> None:
    """The project of m3b, whose plan.py makes each candidate, with steps in place of minutes; everything but the rate is fixed."""
    fixed = {"size": [32, 32], "network.width": 8, "network.dropout": 0.1, "weight_decay": 0.02, "label_smoothing": 0.0}
    training = TrainingOverrides(
        steps=60, folds=2, device="cpu", network="small_cnn", pretrained="none", settings={**fixed, "augment.rotate": 5}
    )
    data, out = make_chest(tmp_path / "chest", patients=90), tmp_path / "run"
    result = Pipeline("rules", data=data, out=out, training=training, **ONE_RUNG).run(
        "Detect lung opacities on chest X-rays"
    )
    assert result.model_dir is not None, result.reason
    assert result.test_looks == 1
    summary = read_summary(out)
    assert [candidate.settings for candidate in summary.candidates] == [{}, {"lr": 0.003}, {"lr": 0.00033}]
    assert all(candidate.value is not None for candidate in summary.candidates)
    assert summary.corrected is not None
    assert verify(out).ok
