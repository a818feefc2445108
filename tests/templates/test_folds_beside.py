"""Folds that are trained at the same time: how many there are, how the minutes are shared, and what is made of their ends."""

from __future__ import annotations

import importlib
import json
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from detection_kit import assemble_detection
from segmentation_kit import assemble_segmentation, small_plan
from template_kit import Run, load
from template_kit import call as call_in

members, fitting, machine = (load(name) for name in ("folds", "gpu_fitting", "machine"))
curves = load("curves")


@pytest.fixture
def launch(project: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(project)
    return importlib.import_module("m3b.training.launch")


@pytest.mark.parametrize(
    ("plan", "at_once", "rounds"),
    [
        ({"folds": 5}, 1, 5),
        ({"folds": 5, "processes": 4}, 4, 2),
        ({"folds": 5, "processes": 8, "refit": True}, 5, 2),
        ({"folds": 1, "processes": 8}, 1, 1),
        ({"folds": 1, "processes": 8, "refit": True}, 1, 2),
    ],
)
def test_folds_side_by_side_share_their_seconds(plan: dict[str, Any], at_once: int, rounds: int) -> None:
    assert (members.count_parallel_folds(plan), members.count_rounds(plan)) == (at_once, rounds)


def test_the_refit_gets_what_the_folds_together_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    now = [0.0]
    monkeypatch.setattr(members.time, "monotonic", lambda: now[0])
    plan = {"folds": 4, "processes": 4, "refit": True}
    turns = members.TimeShares(plan, 400.0, 4)
    assert turns.seconds_per_fold() == pytest.approx(200)
    now[0] = 210.0  # a little longer than they were given: they started as processes
    assert turns.seconds_for("all") == pytest.approx(190)
    for fold in range(4):
        folder = Path(f"Logout/fold{fold}")
        folder.mkdir(parents=True)
        (folder / "done.json").write_text(json.dumps({"seconds": 200.0, "steps": 9}))
    later = members.TimeShares(plan, 400.0, 4)  # a start anew: four folds of 200 s took 200 s
    assert later.seconds_for("all") == pytest.approx(200)


@pytest.mark.parametrize(
    ("steps", "gpus", "folds", "reason"),
    [
        (900, 8, 1, "too few steps on each of 8 GPUs for folds, which need 1000 steps"),
        (1_100, 8, 5, "enough steps on each of 8 GPUs in these minutes for 5 networks"),
        (1_100, 2, 1, "too few steps on each of 2 GPUs for folds, which need 2 times 1000 steps"),
        (2_100, 2, 4, "enough steps on each of 2 GPUs in these minutes for 4 networks"),
    ],
)
def test_gpus_multiply_the_networks_that_the_minutes_hold(steps: int, gpus: int, folds: int, reason: str) -> None:
    plan: dict[str, Any] = {"folds": 1, "refit": False}
    members.choose_fold_count(plan, steps, 1_000, (5, "80 cases"), set(), gpus)
    assert plan["folds"] == folds
    assert reason in plan["why_folds"]


def test_what_is_set_is_not_shared_out_anew() -> None:
    def plan(**overrides: Any) -> dict[str, Any]:
        gpu_plan = {
            "batch": 4,
            "least_batch": 1,
            "lr": 1e-3,
            "machine": machine.Machine(8, 80.0, False).to_plan(),
            **overrides,
        }
        fitting.share_gpus(gpu_plan, 64, {"batch", "lr"})
        return gpu_plan

    assert (plan()["batch"], plan()["lr"], plan()["processes"]) == (4, 1e-3, 4)
    assert plan(folds=3)["processes"] == 3
    alone = {"batch": 4, "lr": 1e-3}
    fitting.share_gpus(alone, 64)
    assert alone == {"batch": 4, "lr": 1e-3}, "a plan for a processor has no processes"


def test_a_new_log_gets_one_header_of_processes_that_write_at_once(tmp_path: Path) -> None:
    file, row = tmp_path / "log.csv", {"fold": "0", "train_loss": 0.5}
    with file.open("a+", newline="") as stream:
        curves.lock_file(stream)
        writer = threading.Thread(target=curves.append_row, args=(file, {**row, "fold": "1"}))
        writer.start()  # waits
        stream.write("fold,train_loss\r\n0,0.5\r\n")
    writer.join()
    assert file.read_text().splitlines() == ["fold,train_loss", "0,0.5", "1,0.5"]


@pytest.mark.parametrize(
    ("codes", "error"), [([0, 0], None), ([0, 3], "DivergenceError"), ([4, 0], "InsufficientMemoryError")]
)
def test_folds_that_are_done_are_left_and_their_ends_are_told(
    launch: ModuleType, monkeypatch: pytest.MonkeyPatch, codes: list[int], error: str | None
) -> None:
    plan = {"folds": 3, "processes": 3, "device": "cpu", "refit": False}
    done = Path("Logout/fold1")
    done.mkdir(parents=True)
    (done / "done.json").write_text(json.dumps({"seconds": 30.0, "steps": 9}))
    calls: list[Any] = []
    monkeypatch.setattr(launch, "run_in_parallel", lambda plan, jobs, several: calls.append((jobs, several)) or codes)
    turns = importlib.import_module("m3b.training.folds").TimeShares(plan, 60.0, 3)
    if error is None:
        launch.train_folds_in_parallel(plan, turns)
    else:
        with pytest.raises(
            getattr(importlib.import_module("m3b.training.entry"), error), match=r"fold [02]|least batch"
        ):
            launch.train_folds_in_parallel(plan, turns)
    assert calls == [([["--only", "0", "60.0"], ["--only", "2", "60.0"]], 2)]
    assert launch.launch_processes(plan, []) is None, "one process starts the folds"


def test_a_step_of_views_and_covariates_can_be_counted(launch: ModuleType) -> None:
    """What memory and time of a plan are counted on is what its network takes."""
    covariates = importlib.import_module("m3b.training.diagnosis.covariates")
    rules = covariates.make_covariate_rules(
        [{"covariates": {"age": 40.0 + at, "sex": "FM"[at % 2]}} for at in range(20)]
    )
    gpu_fit = importlib.import_module("m3b.training.diagnosis.gpu_fit")
    plan = {"task": "survival", "classes": ["event"], "edges": [1.0, 2.0, 3.0], "multi_label": False, "dims": 2, "channels": 1,
            "size": [16, 16], "network": {"name": "small_cnn", "width": 4}, "batch": 4, "device": "cpu",
            "covariates": rules, "views": 2, "precision": "fp32"}  # fmt: skip
    batch = gpu_fit.make_noise_batch(plan, 3)
    assert batch["pixel_values"].shape == (3, 2, 1, 16, 16)
    assert {"covariates", "views", "labels"} <= set(batch)
    two_views = gpu_fit.STEP_COSTS.estimate(plan)
    one_view = gpu_fit.STEP_COSTS.estimate({**plan, "views": 1})
    assert two_views.per_case > 1.5 * one_view.per_case > 0, "two views keep twice as much"


@pytest.mark.slow
@pytest.mark.parametrize("refit", [False, True])
def test_masks_of_folds_side_by_side(tmp_path: Path, refit: bool) -> None:
    project = assemble_segmentation(tmp_path / "work")
    call_in(project, "example/make_example.py")
    small_plan(project, folds=2, processes=2, refit=refit, max_steps=10)
    printed = call_in(project, "train.py").stdout
    assert "2 folds, 2 at a time" in printed
    assert ("refit: all" in printed) is refit
    _is_whole(project, call_in, refit)


@pytest.mark.slow
def test_boxes_of_folds_side_by_side(tmp_path: Path) -> None:
    project = assemble_detection(tmp_path / "work")
    call_in(project, "example/make_example.py", "--cases", "16", "--truth", "boxes", "--dims", "2", "--size", "32")
    settings = ("device=cpu", "precision=fp32", "network.width=4", "max_steps=6", "batch=2", "threads=1")
    call_in(project, "plan.py", "--minutes", "2", "--set", *settings, "folds=2", "processes=2", "refit=true")
    printed = call_in(project, "train.py").stdout
    assert "2 folds, 2 at a time" in printed
    assert "refit: all" in printed
    _is_whole(project, call_in, True)


@pytest.mark.slow
def test_covariates_and_views_of_folds_trained_anew_on_every_case(project: Path, run: Run) -> None:
    """Cases of several views with covariates keep them in the folds and in the refit."""
    run("example/make_example.py", "--cases", "45")
    file = project / "Datapath/train.json"
    records = json.loads(file.read_text())
    for at, record in enumerate(records):
        record["covariates"] = {"age": 40.0 + at % 30, "sex": "FM"[at % 2]}
        record |= (
            {"image_path": [record["image_path"], records[at - 1]["image_path"]], "several": "views"} if at % 3 else {}
        )
        if isinstance(record["image_path"], list):
            record["image_path"] = [path if isinstance(path, str) else path[0] for path in record["image_path"]]
    file.write_text(json.dumps(records))
    settings = ("device=cpu", "network.width=4", "size=[16,16]", "max_steps=6", "threads=1", "tta.use=false")
    run("plan.py", "--minutes", "2", "--set", *settings, "folds=2", "refit=true", "processes=2")
    plan = json.loads((project / "plan.json").read_text())
    assert plan["views"] == 2
    assert [rule["name"] for rule in plan["covariates"]] == ["age", "sex"]
    assert "refit: all" in run("train.py").stdout
    run("export.py", "--out", "Deliver")
    case = {"image": records[1]["image_path"], "age": 50, "sex": "F"}
    (project / "cases.json").write_text(json.dumps([case]))
    run("Deliver/predict.py", "--list", "cases.json", "-o", "out.json")
    [answer] = json.loads((project / "out.json").read_text())
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-3)


def _is_whole(project: Path, call: Any, refit: bool) -> None:
    """Both folds are there once in the log and in the answers, and what is delivered is what the plan says."""
    log = (project / "Logout/log.csv").read_text().splitlines()
    assert sum(line.startswith("fold,") for line in log) == 1
    assert {"0", "1"} <= {line.split(",")[0] for line in log[1:]}
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert {row["fold"] for row in rows} == {0, 1}
    call(project, "export.py", "--out", "Deliver")
    config = json.loads((project / "Deliver/config.json").read_text())
    assert (config["refit"], len(config["weights"])) == (refit, 1 if refit else 2)
