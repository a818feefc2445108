"""A linear probe of frozen features as a member of a classifier's ensemble: its fit, its weight, its delivery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starts_kit import assemble, vit, write_weights
from template_kit import call

import m3b
from m3b.training.diagnosis.linear_probe_fit import FEATURES_FILE, apply_heads, choose_mixture, fit_heads
from m3b.training.diagnosis.loss import build_loss
from m3b.training.diagnosis.targets import get_target

CLASSES = 3
TRAINING_CASES = 300


def choose_weight(signal: float, seed: int, cases: int = 90, count: int = 50) -> dict[str, float]:
    """Return the choice for a network that is right more often than not, and `count` features of which three carry `signal`."""
    rng = np.random.default_rng(seed)
    plan: dict[str, Any] = {
        "task": "diagnosis",
        "classes": ["a", "b", "c"],
        "multi_label": False,
        "class_weights": [1.0] * CLASSES,
        "label_smoothing": 0.05,
    }
    labels = np.eye(CLASSES, dtype=np.float32)[rng.integers(0, CLASSES, TRAINING_CASES + cases)]
    features = rng.normal(0, 1, (TRAINING_CASES + cases, count)).astype(np.float32)
    features[:, :CLASSES] += signal * labels
    network_logits = (1.5 * (labels + rng.normal(0, 0.8, labels.shape))).astype(np.float32)[:cases]
    heads = fit_heads(features[cases:], labels[cases:], build_loss(plan), CLASSES)
    probe_logits, patients = apply_heads(heads, features[:cases]), [str(case) for case in range(cases)]
    return choose_mixture(get_target(plan), network_logits, probe_logits, labels[:cases], patients)[1]


def test_features_that_carry_the_class_lower_the_loss_beside_the_network() -> None:
    choice = choose_weight(2.0, 0)
    assert 0 < choice["weight"] < 1
    assert choice["loss_mixture"] < min(choice["loss_network"], choice["loss_probe"])


def test_no_probe_is_chosen_on_few_patients() -> None:
    assert choose_weight(9.0, 0, cases=9)["weight"] == 0
    assert choose_weight(9.0, 0, cases=30)["weight"] > 0


@pytest.mark.slow
def test_noise_is_hardly_ever_delivered_and_signal_mostly() -> None:
    noise = [choose_weight(0.0, seed, cases, 400)["weight"] for cases in (20, 90) for seed in range(20)]
    assert np.count_nonzero(noise) <= 1
    signal = [choose_weight(2.0, seed)["weight"] for seed in range(20)]
    assert np.count_nonzero(signal) >= 15


@pytest.mark.slow
def test_a_delivered_probe_answers_as_on_validation(tmp_path: Path) -> None:
    project = assemble("diagnosis", tmp_path / "work")
    code = "import sys; sys.path.insert(0, 'example'); from pathlib import Path; import make_example as m; "
    call(project, "-c", code + "m.make_example(Path(), 300)")
    tensors, arch = vit()
    folder = write_weights(tmp_path / "weights", tensors, "timm/vit_small_patch16_224.augreg_in21k", arch)
    settings = ("device=cpu", "max_steps=2", "batch=8", "size=[32,32]", "folds=2", "cross_validation=false")
    call(project, "plan.py", "--set", f"linear_probe.weights={folder}", "precision=fp32", "tta.use=true", *settings)
    assert json.loads((project / "plan.json").read_text())["linear_probe"]["seconds"] > 0
    call(project, "train.py")
    call(project, "export.py", "--out", "../out")
    model = tmp_path / "out"
    config = json.loads((model / "config.json").read_text())
    choice = json.loads((project / "Logout/metrics.json").read_text())["linear_probe"]
    assert 0 < config["plan"]["linear_probe"]["weight"] == choice["weight"]
    assert choice["loss_mixture"] < choice["loss_network"]
    assert str(tmp_path) not in (model / "config.json").read_text()
    assert "linear probe" in (model / "README.md").read_text()
    stored = np.load(project / "Logout/valid_logits.npz")["logits"] / config["temperature"] + config["bias"]
    cases = [case["image"] for case in json.loads((project / "Logout/valid_predictions.json").read_text())]
    answers = m3b.load_model(model).predict([project / case for case in cases], out=tmp_path / "predicted")
    expected = torch.softmax(torch.from_numpy(stored).double(), 1).numpy()
    assert np.array([list(answer.probabilities.values()) for answer in answers]) == pytest.approx(expected, abs=1e-3)
    for kind in ("onnx", "monai-bundle"):
        assert m3b.export_model(model, kind, tmp_path / kind).largest_difference <= 1e-3

    features_file = project / FEATURES_FILE
    table = dict(np.load(features_file))
    noise = np.random.default_rng(0).normal(size=table["features"].shape).astype(np.float32)
    np.savez(features_file, **{**table, "features": noise})
    call(project, "train.py", "--resume")
    call(project, "export.py", "--out", "../out")
    assert json.loads((model / "config.json").read_text())["plan"]["linear_probe"] is None
    assert not (model / "linear_probe.safetensors").exists()
    assert all("error" not in answer for answer in json.loads(call(project, "../out/predict.py", cases[0]).stdout))


HALF = """

class Recipe(Recipe):
    def build_datasets(self, plan, fold=0):
        train, valid = super().build_datasets(plan, fold)
        train.rows, train.records = train.rows[::2], train.records[::2]
        return train, valid
"""


@pytest.mark.slow
def test_changed_datasets_hold_for_refit_and_linear_probe(tmp_path: Path) -> None:
    project = assemble("diagnosis", tmp_path / "work")
    code = "import sys; sys.path.insert(0, 'example'); from pathlib import Path; import make_example as m; "
    call(project, "-c", code + "m.make_example(Path(), 60)")
    with (project / "recipe.py").open("a") as stream:
        stream.write(HALF)
    tensors, arch = vit()
    folder = write_weights(tmp_path / "weights", tensors, "timm/vit_small_patch16_224.augreg_in21k", arch)
    settings = ("device=cpu", "max_steps=2", "batch=8", "size=[32,32]", "folds=3", "refit=true", "tta.use=false")
    call(project, "plan.py", "--set", f"linear_probe.weights={folder}", "precision=fp32", *settings)
    printed = call(project, "train.py").stdout
    cases = len(json.loads((project / "Datapath/train.json").read_text()))
    assert f"refit: all {-(-cases // 2)} training cases" in printed
    assert (project / "Logout/metrics.json").exists()
    assert len(np.load(project / FEATURES_FILE)["rows"]) == cases
