"""Several labels of which some are not known: they have no loss, count in no figure, and the case counts for the others."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from detection_kit import forget, load_project_module
from template_kit import Run, assemble

Part = Callable[[str], ModuleType]


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Part]:
    forget()
    project = assemble(tmp_path / "parts")
    yield lambda name: load_project_module(project, name)
    sys.path.remove(str(project))
    forget()


def test_an_unknown_label_has_no_loss(part: Part) -> None:
    loss = part("m3b.training.diagnosis.loss").ClassLoss([1.0, 3.0], multi_label=True, smoothing=0.1)
    logits = torch.randn(4, 2, requires_grad=True)
    labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    soft = labels * 0.9 + 0.05
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, soft, pos_weight=torch.tensor([1.0, 3.0]))
    assert torch.allclose(loss(logits, labels), expected)
    labels[1, 0] = torch.nan
    grad = torch.autograd.grad(loss(logits, labels), logits)[0]
    assert float(grad[1, 0]) == 0
    assert bool((grad != 0).sum() == 7)
    assert bool(torch.isfinite(loss(logits, torch.full((4, 2), torch.nan))))


def draw_cases(cases: int = 240) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (cases, 2)).astype(np.float32)
    return 2 * labels - 1 + rng.normal(0, 1, (cases, 2)), labels


def test_figures_of_a_class_are_those_of_its_known_cases(part: Part) -> None:
    kinds = part("m3b.training.diagnosis.targets")
    kind = kinds.get_target({"task": "diagnosis", "classes": ["a", "b"], "multi_label": True})
    logits, labels = draw_cases()
    unknown = labels.copy()
    unknown[160:, 1] = np.nan
    full_figures, first = kind.figures(logits, labels), kind.figures(logits[:160], labels[:160])
    partial_figures = kind.figures(logits, unknown)
    ranks = part("m3b.training.ranking_metrics")
    areas = ranks.auroc(labels[:, 0], logits[:, 0]), ranks.auroc(labels[:160, 1], logits[:160, 1])
    assert partial_figures["auroc"] == pytest.approx(np.mean(areas))
    assert partial_figures != full_figures
    assert partial_figures != first
    assert kind.recall(logits, unknown)["b"].endswith(f"of {int(labels[:160, 1].sum())}")
    assert np.isfinite(kind.strata(unknown)).all()
    assert np.isfinite(kind.view_loss(logits, unknown))


def test_calibration_of_a_class_is_that_of_its_known_cases(part: Part) -> None:
    """The same cuts and bias as without the cases that do not know it."""
    kind = part("m3b.training.diagnosis.targets").get_target(
        {"task": "diagnosis", "classes": ["a", "b"], "multi_label": True}
    )
    logits, labels = draw_cases()
    unknown = labels.copy()
    unknown[160:, 1] = np.nan
    patients = [f"p{case}" for case in range(240)]
    fitted = kind.calibrate(logits, unknown, patients)
    calibration = part("m3b.training.diagnosis.calibration")
    alone = calibration._fit_class(logits[:160, 1], labels[:160, 1] > 0.5, fitted["temperature"][0])
    assert fitted["bias"][1] == pytest.approx(alone[1], abs=0.05)
    assert all(np.isfinite(value) for value in fitted["figures"].values())
    cut = part("m3b.training.diagnosis.prediction_sets").fit_prediction_sets(
        1 / (1 + np.exp(-logits[:160])), labels[:160], patients[:160], True
    )["cuts"][1]
    assert fitted["sets"]["cuts"][1] == pytest.approx(cut, abs=0.1)
    networks = np.arange(240) % 2
    shared = np.stack([logits[:20], logits[:20] + 0.1])
    folds = kind.calibrate(logits, unknown, patients, shared, networks)
    assert all(np.isfinite(value).all() for value in folds["figures"].values())


def test_a_training_with_unknown_labels(project: Path, run: Run) -> None:
    run("example/make_example.py", "--cases", "40", "--multi-label")
    index = project / "Datapath/train.json"
    records = json.loads(index.read_text())
    for record in records[::3]:
        if "disc" not in record["labels"]:
            record["unknown_labels"] = ["disc"]
    index.write_text(json.dumps(records))
    run("plan.py", "--minutes", "1", "--set", "device=cpu", "max_steps=30", "network.width=8", "folds=2")
    plan = json.loads((project / "plan.json").read_text())
    assert plan["multi_label"]
    run("train.py")
    run("export.py")
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert any(row.get("unknown_labels") == ["disc"] for row in rows)
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert np.isfinite(metrics["validation"]["auroc"])
    answer = json.loads(run("Deliver/predict.py", records[0]["image_path"]).stdout)[0]
    assert set(answer["probabilities"]) == {"disc", "square"}
