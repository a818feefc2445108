"""What is suggested after a run: by its status, with commands that name this run and its data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from m3b.agents.roles import MODEL_TRAINER
from m3b.cli.app import app
from m3b.cli.output import format_result
from m3b.engines import EngineOptions
from m3b.engines.slurm import REFUSAL
from m3b.errors import Status
from m3b.measure import Measure
from m3b.run.folder import RunFolder
from m3b.run.next_steps import (
    MAX_STEPS,
    TrainingAmount,
    count_network_steps,
    format_run_command,
    list_next_steps,
    read_training_amount,
)
from m3b.run.options import Options
from m3b.run.outside_causes import explain_outside_cause, find_outside_cause
from m3b.run.result import STATUSES, Result
from m3b.run.training_overrides import TrainingOverrides

RECORD: dict[str, Any] = {
    "request": "Segment polyps",
    "data": [{"path": "/data/my polyps"}],
    "llm": {"default": "rules"},
}


def make_run(tmp_path: Path, *, epochs: float | None = None) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    if epochs is not None:
        folder = run.work / "Logout" / "fold0"
        folder.mkdir(parents=True)
        (folder / "done.json").write_text(json.dumps({"steps": 107, "epochs": epochs, "seconds": 120.0}))
    return run


def codes(run: RunFolder, status: Status, record: dict[str, Any] = RECORD) -> list[str]:
    has_model = status in ("completed", "below_range")
    measure = Measure("dice", 0.3, 0.2, 0.4, 24) if has_model else None
    result = Result(
        status,
        "why",
        "Segment polyps",
        primary=measure,
        run_dir=str(run.path),
        model_dir=str(run.model) if has_model else None,
        report=str(run.path / "report.html"),
    )
    return [step.code for step in list_next_steps(run, record, result)]


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_next_steps(tmp_path: Path, status: Status) -> None:
    assert 1 <= len(codes(make_run(tmp_path), status)) <= MAX_STEPS


@pytest.mark.parametrize(
    ("status", "epochs", "first"),
    [
        ("below_range", 1.4, "train_longer"),
        ("completed", 1.4, "train_longer"),
        ("below_range", 60, "open_report"),
        ("completed", 60, "open_report"),
        ("cancelled", None, "resume"),
        ("failed", None, "look"),
        ("out_of_budget", None, "raise_limit"),
        ("no_dataset", None, "look"),
    ],
)
def test_the_first_step(tmp_path: Path, status: Status, epochs: float | None, first: str) -> None:
    assert codes(make_run(tmp_path, epochs=epochs), status)[0] == first


def test_an_added_training_that_stopped_can_be_dropped(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    paths = {"run_dir": str(run.path), "model_dir": str(run.model)}
    result = Result("cancelled", "why", "Segment polyps", integrity="clean", **paths)
    steps = list_next_steps(run, RECORD, result)
    assert [step.code for step in steps] == ["resume", "read_log", "discard_training"]
    assert steps[-1].command.endswith("--discard")


def test_too_few_test_patients_are_no_failure_of_the_training(tmp_path: Path) -> None:
    measure = Measure("dice", 0.3, 0.2, 0.4, 3)
    result = Result("below_range", "only 3 test patients", "Segment polyps", primary=measure, run_dir=str(tmp_path),
                    has_verdict=False)  # fmt: skip
    assert Result.from_json(result.to_json()) == result
    assert list_next_steps(make_run(tmp_path, epochs=1.4), RECORD, result)[0].code == "more_cases"
    assert any(line.startswith("below_range (no verdict): ") for line in format_result(result))


@pytest.mark.parametrize("from_request", [[], ["epochs"]])
def test_more_epochs_are_asked_for_where_epochs_were_set(tmp_path: Path, from_request: list[str]) -> None:
    record = {**RECORD, "training": {"epochs": 3, "folds": 2, "from_request": from_request}}
    result = Result("completed", "why", "Segment polyps", run_dir=str(tmp_path), model_dir=str(tmp_path))
    step = list_next_steps(make_run(tmp_path, epochs=3.0), record, result)[0]
    assert step.code == "train_longer"
    assert step.command == "m3b run 'Segment polyps' --data '/data/my polyps' --epochs 20 --folds 2"


def test_rules_that_could_not_read_the_folder_are_not_resumed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert codes(run, "failed") == ["look", "edit_manifest", "language_model"]
    index = run.path / "locked/Datapath/test.json"
    index.parent.mkdir(parents=True)
    index.write_text("[]")
    assert codes(run, "failed")[0] == "resume", "the index is there: something later failed"


def test_a_short_training_names_its_amount_and_the_command_for_more(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1.4)
    result = Result("below_range", "why", "Segment polyps", run_dir=str(run.path))
    step = list_next_steps(run, RECORD, result)[0]
    assert "107 steps, 1.4 epochs" in step.text
    assert step.command == "m3b run 'Segment polyps' --data '/data/my polyps' --train-minutes 25"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"steps": "x"}', '{"steps": 1, "epochs": NaN, "seconds": 1}'])
def test_what_a_script_left_is_not_trusted(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path, epochs=1.0)
    (run.work / "Logout/fold0/done.json").write_text(content)
    assert read_training_amount(run) is None


def test_a_setting_that_the_task_cannot_serve_is_changed_and_not_resumed(tmp_path: Path) -> None:
    run, record = make_run(tmp_path), {**RECORD, "training": {"network": "unet", "epochs": 5}}
    reason = "--network unet: a diagnosis model has no such network."
    step = list_next_steps(run, record, Result("failed", reason, "Segment polyps", run_dir=str(run.path)))[0]
    assert step.code == "change_setting"
    assert "--epochs 5" in step.command
    assert "--network" not in step.command


def test_a_setting_that_plan_py_refuses_is_changed(tmp_path: Path) -> None:
    run, record = make_run(tmp_path), {**RECORD, "training": {"settings": {"tta.use": 7, "lr": 0.01}}}
    reason = 'The project was not made. The last script said: "--set tta.use=7: must be auto"'
    steps = list_next_steps(run, record, Result("failed", reason, "Segment polyps", run_dir=str(run.path)))
    assert [step.code for step in steps] == ["change_setting", "read_log"]
    assert steps[0].command == "m3b run 'Segment polyps' --data '/data/my polyps' --set lr=0.01"


def test_a_job_that_slurm_refuses_is_changed_and_not_resumed(tmp_path: Path) -> None:
    run, record = make_run(tmp_path), {**RECORD, "engine": EngineOptions("slurm", options={"qos": "x"}).to_json()}
    reason = f"{REFUSAL}: sbatch: Invalid qos specification. It asks for --qos=x."
    step = list_next_steps(run, record, Result("failed", reason, "Segment polyps", run_dir=str(run.path)))[0]
    assert step.code == "change_job"
    assert step.command.endswith("--engine slurm --slurm-option qos=x")


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"hours": 6.0}, " --hours 6"),
    ({"hours": 6.0, "min_gain": 0.01, "train_minutes": 50.0}, " --train-minutes 50 --hours 6 --min-gain 0.01"),
    ({"train_minutes": 20.0, "max_wall": 7200.0}, " --max-wall 120 --train-minutes 20"),
    ({"max_wall": 120.0}, " --max-wall 2"),
    ({"seed": 3, "max_cost": None}, " --seed 3"),
    ({"roles": "single", "reflect": False, "sandbox": "landlock"}, " --sandbox landlock --single-agent --no-reflect"),
    ({"log": "tensorboard", "offline": True}, " --log tensorboard --offline"),
]


@pytest.mark.parametrize(("options", "arguments"), OPTIONS)
def test_a_repeated_command_has_the_options_of_the_user(options: dict[str, Any], arguments: str) -> None:
    record = {**RECORD, "options": Options(**options).to_json()}
    assert format_run_command(record) == f"m3b run 'Segment polyps' --data '/data/my polyps'{arguments}"


def test_a_repeated_command_has_data_cluster_and_model_of_the_user() -> None:
    engine = EngineOptions("slurm", cpus=8, gpus=1, partition="gpu", options={"account": "x", "exclusive": ""})
    record: dict[str, Any] = {
        "request": "Segment polyps",
        "data": [{"path": "/store/1f/polyps", "origin": {"url": "s3://hospital/polyps"}}],
        "llm": {"default": "anthropic:x"},
        "given": {"masks": "masks", "classes": ["polyp", "stool"], "manifest": {"task": "segmentation"}},
        "external": {"other": ["/data/other", None]},
        "training": TrainingOverrides(gpus=1, settings={"lr": 0.01}, gpus_of_jobs=1).to_json(),
        "engine": engine.to_json(),
    }
    arguments = (
        "--data s3://hospital/polyps --masks masks --classes polyp,stool --manifest MANIFEST.json --external other=/data/other "
        "--gpus 1 --set lr=0.01 --engine slurm --cpus 8 --partition gpu --slurm-option account=x --slurm-option exclusive "
        "--llm anthropic:x"
    )
    assert format_run_command(record) == f"m3b run 'Segment polyps' {arguments}"
    words = shlex.split(format_run_command(record))
    parser = typer.main.get_command(app)
    with parser.commands["run"].make_context("run", words[2:]) as context:  # type: ignore[attr-defined]
        assert context.params["slurm_option"] == ["account=x", "exclusive"]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"hours": 0.5}, "--hours 1.3"),
        ({"hours": 8.0}, "--hours 8"),
        ({"hours": 1.0, "train_minutes": 2.0}, "--train-minutes 25 --hours 1.3"),
        ({"train_minutes": 2.0, "max_wall": 600.0}, "--max-wall 50 --train-minutes 25"),
    ],
)
def test_a_longer_training_fits_into_search_and_run(tmp_path: Path, options: dict[str, Any], arguments: str) -> None:
    run = make_run(tmp_path, epochs=1.4)
    record = {**RECORD, "options": Options(**options).to_json()}
    step = list_next_steps(run, record, Result("below_range", "why", "Segment polyps", run_dir=str(run.path)))[0]
    assert step.code == "train_longer"
    assert step.command == f"m3b run 'Segment polyps' --data '/data/my polyps' {arguments}"


def test_rules_that_could_not_read_a_folder_are_not_resumed(tmp_path: Path) -> None:
    run, roles = make_run(tmp_path), {"data_engineer": {"status": "failed"}}
    result = Result("failed", "why", "Segment polyps", run_dir=str(run.path), roles=roles)
    assert [step.code for step in list_next_steps(run, RECORD, result)] == ["look", "edit_manifest", "language_model"]
    by_model = {**RECORD, "llm": {"default": "anthropic:x"}}
    assert list_next_steps(run, by_model, result)[0].code == "resume"


def test_the_rules_advise_a_language_model_and_a_language_model_does_not(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert "language_model" in codes(run, "failed")
    assert "language_model" not in codes(run, "failed", {**RECORD, "llm": {"default": "anthropic:x"}})


@pytest.mark.parametrize(
    ("reason", "option"),
    [
        ("Raise max_actions.", " --max-actions 200 --max-wall 10"),
        ("Raise max_wall.", " --max-wall 20"),
        ("Spent.", " --max-wall 10"),
    ],
)
def test_a_spent_limit_is_doubled(tmp_path: Path, reason: str, option: str) -> None:
    run, record = make_run(tmp_path), {**RECORD, "options": {"max_actions": 100, "max_wall": 600.0}}
    step = list_next_steps(run, record, Result("out_of_budget", reason, "x", run_dir=str(run.path)))[0]
    assert step.command == f"m3b run 'Segment polyps' --data '/data/my polyps'{option}"


def test_minutes_grow_with_what_is_missing() -> None:
    assert TrainingAmount(107, 1.4, 2.0).suggest_minutes() == 25
    assert TrainingAmount(107, 0.01, 2.0).suggest_minutes() <= 1440


def test_data_that_were_moved_away_are_brought_back_and_no_language_model_is_advised(tmp_path: Path) -> None:
    run, record = make_run(tmp_path), {**RECORD, "data": [{"path": str(tmp_path / "polyps")}], "cause": "data_moved"}
    run.path.mkdir()
    assert codes(run, "failed", record) == ["resume", "read_log"]
    cause = find_outside_cause(run, record)
    assert cause is not None
    assert cause.code == "data_moved"
    reason = explain_outside_cause(cause, run, f"Nothing was trained. {MODEL_TRAINER.failure_message.advice}")
    assert reason.endswith("Nothing was trained.")
    (tmp_path / "polyps").mkdir()
    assert find_outside_cause(run, record) is None


@pytest.mark.parametrize(("cost_usd", "cost_text"), [(0.0, ""), (0.0004, "$0.01"), (1.234, "$1.23")])
def test_a_cost_is_shown_if_there_is_one(cost_usd: float, cost_text: str) -> None:
    lines = format_result(Result("failed", "why", "Segment polyps", usage={"cost_usd": cost_usd, "wall_s": 3.0}))
    assert [part for part in lines[1].split(", ") if part.startswith("$")] == ([cost_text] if cost_text else [])


@pytest.mark.parametrize(
    ("networks", "steps"),
    [
        ({}, 0),
        ({"fold0": 40, "fold1": 30, "fold1-student": 5, "all": 35}, 30),
        ({"model0": 70}, 70),
        ({"encoder": 10, "words": 20, "report": 30}, 60),
        ({"fold0": -1, "fold1": 10**400}, 0),
    ],
    ids=str,
)
def test_steps_are_those_of_the_fold_with_the_fewest_and_of_all_stages_of_a_network(
    tmp_path: Path, networks: dict[str, int], steps: int
) -> None:
    for name, count in networks.items():
        folder = tmp_path / "Logout" / name
        folder.mkdir(parents=True)
        (folder / "done.json").write_text(json.dumps({"steps": count, "epochs": 2.0, "seconds": 9}))
    assert count_network_steps(tmp_path) == steps
