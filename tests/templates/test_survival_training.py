"""The diagnosis template on survival: intervals, loss and curves, and a training of a few steps."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from template_kit import Run

from m3b.tasks.survival.metrics import comparable_pairs


@pytest.fixture
def followup() -> ModuleType:
    return importlib.import_module("m3b.training.diagnosis.followup")


LABELS = np.array([[5, 1], [10, 1], [12, 0], [16, 0], [25, 1], [50, 1], [50, 0]], np.float32)
EDGES = [10.0, 20.0, 30.0]


def test_who_came_through_an_interval_and_who_did_not(followup: ModuleType) -> None:
    survived, has_event = followup.encode_intervals(LABELS, EDGES)
    assert has_event.tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert survived.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]


def test_the_loss_is_the_likelihood(followup: ModuleType) -> None:
    import torch

    loss = importlib.import_module("m3b.training.diagnosis.loss").build_loss(
        {"task": "survival", "edges": EDGES, "classes": ["x"]}
    )
    logits = torch.randn(len(LABELS), 3, generator=torch.Generator().manual_seed(0))
    hazards = logits.sigmoid().double().numpy()
    survived, has_event = followup.encode_intervals(LABELS, EDGES)
    expected = -(survived * np.log(1 - hazards) + has_event * np.log(hazards)).sum(axis=1).mean()
    assert float(loss(logits, torch.from_numpy(LABELS))) == pytest.approx(expected, rel=1e-5)
    kind = importlib.import_module("m3b.training.diagnosis.survival").SurvivalTarget(
        {"classes": ["x"], "multi_label": False, "edges": EDGES}
    )
    assert kind.view_loss(logits.numpy(), LABELS) == pytest.approx(expected, rel=1e-5)


def test_risks_of_different_networks_are_not_compared(followup: ModuleType) -> None:
    c_index = importlib.import_module("m3b.training.diagnosis.survival").c_index
    labels = np.array([[1, 1], [2, 1], [3, 1], [1.5, 1], [2.5, 1], [3.5, 0]])
    risk, networks = np.array([3, 2, 1, 30, 20, 10.0]), np.array([0, 0, 0, 1, 1, 1])
    assert c_index(labels, risk, networks) == 1
    assert c_index(labels, risk) < 1


def test_intervals_hold_events_each(followup: ModuleType) -> None:
    random = np.random.default_rng(0)
    records = [{"time": float(t), "event": bool(at % 3)} for at, t in enumerate(random.exponential(30, 120))]
    facts = followup.choose_intervals(records)
    assert facts["events"] + facts["censored"] == 120
    assert len(facts["edges"]) == 10
    times = [record["time"] for record in records if record["event"]]
    counts, _ = np.histogram(times, [0, *facts["edges"]])
    assert min(counts) >= 7
    with pytest.raises(SystemExit, match="no training case"):
        followup.choose_intervals([{"time": 3.0, "event": False}])


def test_risk_and_median_are_those_of_the_curve(followup: ModuleType) -> None:
    curves = followup.survival_curves(np.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 0.0, 0.0]]))
    assert curves[1].tolist() == [0.5, 0.25, 0.125]
    risk = followup.survival_risk(curves, EDGES)
    assert risk[0] == 0
    assert risk[2] == pytest.approx(1 - 5 / 30)
    assert risk[1] == pytest.approx(1 - (0.75 + 0.375 + 0.1875) / 3)
    assert [followup.median_time(curve, EDGES) for curve in curves] == [None, 10.0, 5.0]


def test_its_c_index_is_that_of_the_measure(followup: ModuleType) -> None:
    random = np.random.default_rng(1)
    labels = np.stack([random.integers(1, 30, 80), random.integers(0, 2, 80)], axis=1).astype(np.float32)
    risk = random.normal(size=80).round(1)
    pairs = comparable_pairs(labels[:, 0].astype(float), labels[:, 1] > 0.5)
    ahead = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    c_index = importlib.import_module("m3b.training.diagnosis.survival").c_index(labels, risk)
    assert c_index == pytest.approx(float((pairs * ahead).sum() / pairs.sum()))


@pytest.mark.slow
def test_from_data_to_prediction(project: Path, run: Run) -> None:
    run("example/make_example.py", "--cases", "160", "--task", "survival")
    settings = ("device=cpu", "network.width=8", "max_steps=120", "folds=1", "threads=1", "augment.brightness=0")
    printed = run("plan.py", "--minutes", "1", "--set", *settings).stdout
    assert "a time a case" in printed
    plan = json.loads((project / "plan.json").read_text())
    assert plan["task"] == "survival"
    assert plan["edges"] == sorted(plan["edges"])
    assert "validation C-index" in run("train.py").stdout
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert metrics["validation"]["c_index"] > 0.6, "the brighter the sooner"
    run("export.py")
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert {"time", "event", "risk"} <= set(rows[0])
    run("Deliver/predict.py", "data/example/case_000.png", "-o", "out.json")
    [answer] = json.loads((project / "out.json").read_text())
    assert set(answer) == {"image", "risk", "survival", "median", "out_of_distribution"}
    assert [time for time, _ in answer["survival"]] == plan["edges"]
    shares = [share for _, share in answer["survival"]]
    assert shares == sorted(shares, reverse=True)
    code = (
        "import sys, json; sys.path.insert(0, 'Deliver'); import parts\n"
        "part = parts.parts()['model']; [(x,)] = parts.examples(['data/example/case_000.png'])['model']\n"
        "print(json.dumps([part['outputs'], parts.answer(part['module'](x)[0])]))"
    )
    outputs, graph = json.loads(run("-c", code).stdout.splitlines()[-1])
    assert outputs == ["survival"]
    assert graph["risk"] == pytest.approx(answer["risk"], abs=1e-3)
