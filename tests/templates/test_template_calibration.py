"""Calibrated probabilities, views at prediction time, and trainings that repeat exactly."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from template_kit import Run

from m3b.training.diagnosis import calibration, tta
from m3b.training.diagnosis.export import describe_rule

rng = np.random.default_rng(0)
DECISIONS = ("accuracy", "constant_accuracy")


def _draw_labels(logits: np.ndarray, multi: bool) -> np.ndarray:
    """Labels that come true as often as the logits say."""
    p = calibration.probabilities(logits, multi)
    if multi:
        return (rng.random(p.shape) < p).astype(np.float32)
    sampled_classes = np.array([rng.choice(p.shape[1], p=row) for row in p])
    return np.eye(p.shape[1], dtype=np.float32)[sampled_classes]


def test_temperature_is_found_again() -> None:
    true = rng.normal(0, 1.5, (3000, 3))
    fitted = calibration.fit_calibration(true * 2.5, _draw_labels(true, False), False)
    assert fitted["temperature"] == pytest.approx(2.5, rel=0.1)
    assert np.abs(fitted["bias"]).max() < 0.2


def test_the_bias_of_weighted_classes_is_found_again_and_decisions_are_better() -> None:
    """A classifier with an AUROC of 0.94 never said the positive class: worse than a constant, and nobody was told."""
    true = rng.normal(0, 1.5, (1200, 2))
    labels = _draw_labels(true, False)
    moved = true * 2 + np.array([3.0, 0.0])  # leans to the first class, as weights in the loss make it
    fitted = calibration.fit_calibration(moved, labels, False)
    assert fitted["temperature"] == pytest.approx(2, rel=0.2)
    assert fitted["bias"][1] - fitted["bias"][0] == pytest.approx(1.5, abs=0.3)
    figures = calibration.calibrate(moved, labels, [str(k) for k in range(1200)], False)["figures"]
    leaning = (labels[np.arange(1200), moved.argmax(axis=1)]).mean()
    assert figures["accuracy"] > leaning + 0.05
    assert ", above" in calibration.describe_decisions(figures)
    rare = labels[:12], moved[:12]
    assert set(calibration.fit_calibration(rare[1], rare[0], False)["bias"]) == {0.0}, "too few cases tell nothing"


@pytest.mark.parametrize("multi", [False, True])
def test_decisions_without_sense_are_not_above_the_constant(multi: bool) -> None:
    chance, name = np.random.default_rng(5), "f1" if multi else "accuracy"
    gains = []
    for _ in range(8):
        logits = chance.normal(0, 1, (40, 3))
        multi_labels, single_labels = (chance.random((40, 3)) < 0.3), np.eye(3)[chance.choice(3, 40, p=[0.7, 0.2, 0.1])]
        labels = (multi_labels if multi else single_labels).astype(np.float32)
        figures = calibration.calibrate(logits, labels, [str(k) for k in range(40)], multi)["figures"]
        gains.append(figures[name] - figures[f"constant_{name}"])
        assert (", NOT above" in calibration.describe_decisions(figures)) == (gains[-1] <= 0)
    assert np.mean(gains) < 0.005, "scored on the cases that chose them, they would be 0.03 above"


@pytest.mark.parametrize("cases", [3, 6])
def test_a_few_cases_that_are_right_do_not_make_a_model_certain(cases: int) -> None:
    labels = np.eye(2)[np.arange(cases) % 2]
    assert 0.5 < calibration.fit_calibration(labels * 0.8, labels, multi_label=False)["temperature"] <= 1.0


def test_each_class_of_several_labels_has_its_own_temperature_and_bias() -> None:
    true = rng.normal(-1, 1.5, (4000, 2))
    distorted = np.stack([true[:, 0] * 3, true[:, 1] * 0.5 + 1], axis=1)  # the second was weighed upwards
    labels = _draw_labels(true, True)
    fitted = calibration.fit_calibration(distorted, labels, True)
    assert fitted["temperature"] == pytest.approx([3, 0.5], rel=0.15)
    assert fitted["bias"] == pytest.approx([0, -2], abs=0.3)
    rare = labels.copy()
    rare[:, 1] = 0
    rare[:3, 1] = 1
    assert calibration.fit_calibration(distorted, rare, True)["bias"][1] == 0.0  # three cases tell nothing


@pytest.mark.parametrize("multi", [False, True])
def test_calibration_lowers_its_error_on_cases_it_has_not_seen(multi: bool) -> None:
    true = rng.normal(-0.5, 1.5, (1500, 3))
    labels = _draw_labels(true, multi)
    patients = [f"p{k // 2}" for k in range(len(true))]
    figures = calibration.calibrate(true * 3, labels, patients, multi)["figures"]
    assert figures["ece_after"] < 0.6 * figures["ece_before"]
    assert figures["log_loss_after"] < figures["log_loss_before"]
    shuffled = rng.permutation(labels)
    adjusted = calibration.apply_calibration(true * 3, calibration.fit_calibration(true * 3, shuffled, multi))
    assert np.isfinite(adjusted).all()  # also where the logits say nothing of the labels


def test_a_handful_of_cases_is_not_fitted() -> None:
    logits, labels = rng.normal(0, 1, (4, 2)), np.eye(2, dtype=np.float32)[[0, 1, 1, 0]]
    logits[:, 0] = [4, -4, -4, -4]
    fitted = calibration.calibrate(logits, labels, list("abcd"), False)
    figures = fitted["figures"]
    assert figures["log_loss_after"] <= figures["log_loss_before"]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
def test_calibration_error_against_its_definition(cases: list[tuple[float, bool]]) -> None:
    score, right = np.array([c[0] for c in cases]), np.array([c[1] for c in cases])
    expected = 0.0
    for k in range(15):
        in_bin = (score * 15 >= k) & ((score * 15 < k + 1) | (k == 14))
        if in_bin.any():
            expected += in_bin.mean() * abs(score[in_bin].mean() - right[in_bin].mean())
    error = calibration.calibration_error(score[:, None], right[:, None].astype(np.float32), True)
    assert error == pytest.approx(expected, abs=1e-9)


def test_views_move_the_image_as_they_say() -> None:
    import torch

    image = torch.zeros(1, 1, 20, 40)
    image[..., 8:12, 18:22] = 1.0

    def centre(batch: torch.Tensor) -> tuple[float, float]:
        rows, columns = torch.meshgrid(torch.arange(20.0), torch.arange(40.0), indexing="ij")
        return float((batch[0, 0] * rows).sum() / batch.sum()), float((batch[0, 0] * columns).sum() / batch.sum())

    assert torch.equal(tta.apply_view(image, {}), image)
    assert centre(tta.apply_view(image, {"shift": [0.1, 0.0]})) == pytest.approx((7.5, 19.5), abs=0.05)
    assert centre(tta.apply_view(image, {"shift": [0.0, -0.1]})) == pytest.approx((9.5, 23.5), abs=0.05)
    assert float(tta.apply_view(image, {"zoom": 0.5}).sum()) == pytest.approx(16 * 2.25, rel=0.1)
    assert torch.equal(tta.apply_view(image[..., :19], {"flip": ["w"]}), image[..., :19].flip(3))
    volume = torch.randn(2, 1, 8, 9, 10)
    assert tta.apply_view(volume, {"zoom": 0.1, "shift": [0.1, 0.1]}).shape == volume.shape


def test_views_flip_only_what_training_flipped() -> None:
    rule = {"views": 9, "zoom": 0.1, "shift": 0.1}
    assert not any("flip" in view for view in tta.make_views(rule, [], 2))
    assert {"flip": ["w"]} in tta.make_views(rule, ["w"], 2)
    assert {"flip": ["d"]} not in tta.make_views(rule, ["d"], 2)
    assert tta.make_views({**rule, "views": 1}, ["w"], 2) == [{}]
    assert len(tta.make_views({**rule, "views": 3}, [], 2)) == 3


def test_the_same_seed_and_steps_give_the_same_bits(project: Path, run: Run) -> None:
    plan_settings = "max_steps=8 batch=8 network.width=8 device=cpu tta.use=true threads=1 folds=1"
    code = (
        "import shutil, sys, plan, train, export\n"
        "sys.path.insert(0, 'example'); import make_example; from pathlib import Path\n"
        f"make_example.make_example(Path(), 40)\nplan.main(['--minutes', '5', '--set', *'{plan_settings}'.split()])\n"
        "assert train.main([]) == 0\nshutil.copytree('Logout', 'First')\n"
        "assert train.main([]) == 0\nexport.main([])"
    )
    run("-c", code)
    for name in ("fold0/best.safetensors", "calibration.json", "valid_predictions.json"):
        assert (project / "First" / name).read_bytes() == (project / "Logout" / name).read_bytes(), name
    rows = list(csv.DictReader((project / "Logout/log.csv").open()))
    assert int(rows[-1]["step"]) == 8
    assert float(rows[-1]["lr"]) < 0.05 * 0.001  # annealed over the steps, though the minutes are not over
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert metrics["tta"]["used"] is True
    assert set(metrics["calibration"]) == {
        *("ece_before", "ece_after", "log_loss_before", "log_loss_after", "status"),
        *DECISIONS,
    }
    assert "calibration error" in (project / "Deliver/README.md").read_text()
    config = json.loads((project / "Deliver/config.json").read_text())
    assert len(config["views"]) == 4
    _delivered_views_are_those_of_the_validation(project, run)


def _delivered_views_are_those_of_the_validation(project: Path, run: Run) -> None:
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    config = json.loads((project / "Deliver/config.json").read_text())
    (project / "Deliver/config.json").write_text(json.dumps({**config, "temperature": 1.0, "bias": 0.0}))
    (project / "list.json").write_text(json.dumps([row["image"] for row in rows]))
    run("Deliver/predict.py", "--list", "list.json", "-o", "out.json")
    for row, answer in zip(rows, json.loads((project / "out.json").read_text()), strict=True):
        assert row["probabilities"] == pytest.approx(answer["probabilities"], abs=2e-5)
    shutil.rmtree(project / "Deliver")


@pytest.mark.parametrize("share", [0.05, 0.02])
def test_a_rare_class_is_decided_for_from_its_share_on(share: float) -> None:
    """With an area under the curve of 0.89, the likelier class alone found 0.30 and 0.08 of the rare one."""
    rng = np.random.default_rng(4)
    labels = np.eye(2)[(rng.random(6000) < share).astype(int)]
    score = rng.normal(0, 1, 6000) + 1.74 * labels[:, 1]
    logits = np.stack([-score, score], axis=1)
    cuts = calibration.exclusive_cuts(labels > 0.5)
    fitted = calibration.calibrate(logits, labels, [str(k) for k in range(6000)], False, cuts)
    decided_classes = (fitted["fair"] / np.array(fitted["thresholds"])).argmax(axis=1)
    sensitivity, specificity = ((decided_classes == k)[labels[:, k] > 0.5].mean() for k in (1, 0))
    assert sensitivity > 0.7
    assert specificity > 0.7
    assert fitted["figures"]["balanced_accuracy"] == pytest.approx((sensitivity + specificity) / 2, abs=1e-3)
    assert ((fitted["fair"].argmax(axis=1) == 1)[labels[:, 1] > 0.5]).mean() < 0.4


def test_classes_of_usual_shares_are_decided_for_by_probability() -> None:
    assert calibration.exclusive_cuts(np.eye(2, dtype=bool)[[0, 1, 1, 0, 1]]) == [0.5, 0.5]
    assert calibration.exclusive_cuts(np.eye(3, dtype=bool)[[0] * 50 + [1, 2]]) == [0.5, 0.5, 0.5]
    assert calibration.exclusive_cuts(np.eye(2, dtype=bool)[[0] * 20]) == [0.5, 0.5]


@pytest.mark.parametrize(("scale", "is_left_out"), [(1.0, True), (4.0, False)])
def test_a_calibration_that_gains_nothing_is_called_left_out(scale: float, is_left_out: bool) -> None:
    true = np.random.default_rng(0).normal(0, 1.5, (300, 3))
    labels = _draw_labels(true, False)
    fitted = calibration.calibrate(scale * true, labels, [str(k) for k in range(300)], False)
    assert (fitted["figures"].get("status") == calibration.LEFT_OUT) is is_left_out
    assert (fitted["temperature"] == 1.0) is is_left_out
    numbers = re.findall(r"0\.\d+", calibration.describe_error(fitted["figures"]))
    assert len(numbers) == (1 if is_left_out else 2), "one error, not the same twice"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"classes": list("01234"), "thresholds": [0.5] * 5, "decide": "median"}, []),
        ({"classes": list("abc"), "thresholds": [0.5] * 3}, []),
        ({"classes": ["usual", "rare"], "thresholds": [0.9, 0.1]}, ["usual: 0.9", "rare: 0.1"]),
        ({"classes": ["a", "b"], "thresholds": [0.5, 0.5], "multi_label": True}, ["a: 0.5", "b: 0.5"]),
        ({"classes": ["years"], "thresholds": []}, []),
    ],
)
def test_thresholds_are_named_where_they_decide(config: dict[str, Any], expected: list[str]) -> None:
    text = describe_rule({"multi_label": False, **config})
    assert re.findall(r"\w+: [0-9.]+", text) == expected
