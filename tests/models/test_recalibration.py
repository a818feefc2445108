"""Recalibration of a delivered model on the cases of a new site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grey_model_kit import make_grey_model, write_site
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from m3b.errors import ModelError, UsageError
from m3b.models import load_model
from m3b.models.recalibration import recalibrate_config, recalibrate_model
from m3b.run.verification import verify
from warm.commands import run_m3b


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def make_config(classes: int, *, multi_label: bool = False, task: str = "diagnosis", **fields: Any) -> dict[str, Any]:
    names = [f"c{k}" for k in range(classes)]
    bias: Any = [0.1 * k for k in range(classes)]
    temperature: Any = [1.5] * classes if multi_label else 1.5
    plan = {"task": task, "classes": names, "multi_label": multi_label}
    config = {"task": task, "classes": names, "multi_label": multi_label, "plan": plan, "weights": ["a"]}
    return {**config, "temperature": temperature, "bias": bias, "thresholds": [0.5] * classes, **fields}


def draw_site(
    classes: int, multi_label: bool, cases: int = 600, seed: int = 0
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Logits (N, K) of a model that is too sure and misjudges the prevalence, and the index of the site."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 3, (cases, classes))
    truth = logits / 2.5 - np.linspace(0, 1.5, classes)
    if multi_label:
        labels = random.random(truth.shape) < 1 / (1 + np.exp(-truth))
    else:
        class_numbers = [random.choice(classes, p=row) for row in softmax(truth)]
        labels = np.eye(classes, dtype=bool)[class_numbers]
    rows = [
        {"image_path": "x", "labels": [f"c{k}" for k in np.flatnonzero(row)], "patient": str(i)}
        for i, row in enumerate(labels)
    ]
    return logits, rows


def apply(config: dict[str, Any], logits: np.ndarray) -> np.ndarray:
    adjusted = logits / np.asarray(config["temperature"]) + np.asarray(config["bias"])
    return 1 / (1 + np.exp(-adjusted)) if config["multi_label"] else softmax(adjusted)


@pytest.mark.parametrize("multi_label", [False, True])
def test_probabilities_are_those_of_the_site_afterwards(multi_label: bool) -> None:
    config = make_config(3, multi_label=multi_label)
    logits, rows = draw_site(3, multi_label)
    new_config, figures = recalibrate_config(config, apply(config, logits), rows, [row["patient"] for row in rows])
    assert figures["ece_after"] < figures["ece_before"] / 2
    fresh_logits, fresh_rows = draw_site(3, multi_label, seed=1)
    truth = np.array([[f"c{k}" in row["labels"] for k in range(3)] for row in fresh_rows])
    before, after = (
        np.abs(apply(variant, fresh_logits).mean(axis=0) - truth.mean(axis=0)).max() for variant in (config, new_config)
    )
    assert after < 0.05 < before, "mean probability and prevalence agree on cases that the fit did not see"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_second_calibration_is_one_of_the_first_logits(seed: int) -> None:
    config = make_config(4)
    logits, rows = draw_site(4, False, cases=60, seed=seed)
    given_now = apply(config, logits)
    new_config, _ = recalibrate_config(config, given_now, rows, [row["patient"] for row in rows])
    scale = new_config["temperature"] / config["temperature"]
    shift = np.array(new_config["bias"]) - np.array(config["bias"]) / scale
    assert np.allclose(softmax(np.log(given_now) / scale + shift), apply(new_config, logits), atol=1e-3)


def test_each_network_of_an_ensemble_follows() -> None:
    config = make_config(2, alone={"a": {"temperature": 2.0, "bias": [0.0, 0.2], "thresholds": [0.5, 0.5]}})
    logits, rows = draw_site(2, False)
    new_config, _ = recalibrate_config(config, apply(config, logits), rows, [row["patient"] for row in rows])
    factor = new_config["temperature"] / config["temperature"]
    assert new_config["alone"]["a"]["temperature"] == pytest.approx(2.0 * factor, rel=1e-4)
    assert new_config["alone"]["a"]["thresholds"] == new_config["thresholds"]


def test_numbers_are_shifted_and_their_interval_holds() -> None:
    random = np.random.default_rng(0)
    plan = {"task": "regression", "classes": ["age"], "multi_label": False, "number": {"centre": 50.0, "scale": 10.0}}
    config = {
        "task": "regression",
        "classes": ["age"],
        "multi_label": False,
        "plan": plan,
        "temperature": 0.1,
        "bias": 50.0,
    }
    config |= {"interval": {"reach": 1.0, "level": 0.9}}
    values = random.normal(50, 10, 300)
    rows = [{"image_path": "x", "value": float(value)} for value in values]
    outputs = (values - 6 + random.normal(0, 3, 300))[:, None]
    new_config, figures = recalibrate_config(config, outputs, rows, [str(k) for k in range(300)])
    assert new_config["bias"] - config["bias"] == pytest.approx(6, abs=0.6)
    assert new_config["interval"]["reach"] == pytest.approx(1.645 * 3, rel=0.2)
    assert figures["mae_after"] < figures["mae_before"] / 2
    exact, _ = recalibrate_config(
        config, values[:, None] + random.normal(0, 3, (300, 1)), rows, [str(k) for k in range(300)]
    )
    assert exact["bias"] == config["bias"], "an error within chance is no reason for a shift"


@pytest.fixture
def delivered(tmp_path: Path) -> Path:
    return make_grey_model(tmp_path / "model")


def test_a_model_is_written_with_its_new_calibration(delivered: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    index = write_site(site, 120)
    result = recalibrate_model(delivered, index, tmp_path / "new")
    assert (result.cases, result.patients) == (120, 120)
    assert result.figures["log_loss_after"] < result.figures["log_loss_before"]
    with load_model(tmp_path / "new") as model:
        (prediction,) = model.predict([str(site / "0.png")])
        Image.new("L", (4, 4), 115).save(site / "between.png")
        (between,) = model.predict([str(site / "between.png")])
    assert prediction.probabilities.keys() == {"c0", "c1"}
    assert between.prediction == ("c0",), "the old model said c1 from a grey value of 100 on"
    assert "Recalibrated" in (tmp_path / "new/README.md").read_text()
    assert json.loads((delivered / "config.json").read_text())["temperature"] == 0.2, (
        "the model itself is left as it is"
    )


def test_the_command_says_what_changed(delivered: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    index = write_site(site, 60)
    done = run_m3b("recalibrate", delivered, index, "-o", tmp_path / "new", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["patients"] == 60
    assert answer["figures"]["ece_after"] < answer["figures"]["ece_before"]
    again = run_m3b("recalibrate", delivered, index, "-o", tmp_path / "new", cwd=tmp_path)
    assert again.returncode == 2


@pytest.mark.parametrize("fault", ["few patients", "unknown label", "other task"])
def test_what_cannot_be_recalibrated_is_refused(delivered: Path, tmp_path: Path, fault: str) -> None:
    index = write_site(tmp_path, 5 if fault == "few patients" else 30)
    if fault == "unknown label":
        rows = json.loads(index.read_text())
        rows[3]["labels"] = ["c7"]
        index.write_text(json.dumps(rows))
    if fault == "other task":
        config = json.loads((delivered / "config.json").read_text())
        (delivered / "config.json").write_text(json.dumps({**config, "task": "report"}))
    with pytest.raises(UsageError):
        recalibrate_model(delivered, index, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("plan", [["diagnosis"], "diagnosis", None, {}])
def test_a_model_without_a_plan_is_refused(delivered: Path, tmp_path: Path, plan: Any) -> None:
    config = json.loads((delivered / "config.json").read_text())
    (delivered / "config.json").write_text(json.dumps({**config, "plan": plan}))
    with pytest.raises(ModelError):
        recalibrate_model(delivered, write_site(tmp_path, 30), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_copy_has_provenance_of_its_own(delivered: Path, tmp_path: Path) -> None:
    from m3b.models.model_card import write_provenance

    write_provenance(delivered, {"request": "x"})
    recalibrate_model(delivered, write_site(tmp_path, 40), tmp_path / "new")
    provenance = json.loads((tmp_path / "new/provenance.json").read_text())
    assert provenance["recalibrated"]["patients"] == 40
    assert verify(tmp_path / "new").ok
