"""Pixels that nobody labelled change no figure of the locked test part, whatever prediction and reference have there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.data.index import Index, Record
from m3b.metrics import build_atlas, measure_mask, measure_masks
from m3b.metrics.instances import count_instances
from m3b.models import Prediction
from m3b.tasks import get_family
from m3b.tasks.detection.anomaly_maps import count_pixels
from m3b.tasks.detection.lesions import measure_channels

SHAPE = (24, 30)


def _masks(seed: int) -> np.ndarray:
    mask = np.zeros(SHAPE, bool)
    rows, columns = np.random.default_rng(seed).integers(0, 20, (2, 6))
    for row, column in zip(rows, columns, strict=True):
        mask[row : row + 4, column : column + 5] = True
    return mask


def _ignored() -> np.ndarray:
    ignored = np.zeros(SHAPE, bool)
    ignored[:, 18:] = True
    ignored[10:12] = True
    return ignored


@pytest.mark.parametrize("seed", range(4))
def test_no_figure_depends_on_ignored_pixels(seed: int) -> None:
    ignored, random = _ignored(), np.random.default_rng(seed)
    prediction, reference = _masks(seed), _masks(seed + 10)
    noise = random.random(SHAPE) < 0.5
    figures = measure_mask(prediction, reference, (1.0, 1.0), ignored=ignored)
    assert figures == measure_mask(prediction & ~ignored, reference & ~ignored, (1.0, 1.0))
    assert figures == measure_mask(
        prediction | (ignored & noise), reference ^ (ignored & noise), (1.0, 1.0), ignored=ignored
    )
    assert figures != measure_mask(prediction, reference, (1.0, 1.0))
    labels = measure_masks(prediction.astype(int), reference.astype(int), {"a": 1}, (1.0, 1.0), ignored=ignored)
    assert labels["a"] == figures
    _, lesions = measure_channels(prediction[None], reference[None], ["a"], None, ignored=ignored)
    _, filled_lesions = measure_channels(prediction[None], (reference | ignored)[None], ["a"], None, ignored=ignored)
    assert lesions == filled_lesions
    levels = random.integers(0, 255, SHAPE)
    counts = count_pixels(levels, reference, ignored)
    changed = count_pixels(np.where(ignored, 0, levels), reference ^ (ignored & noise), ignored)
    assert counts.to_row() == changed.to_row()
    assert counts.normal.sum() + counts.abnormal.sum() == (~ignored).sum()


def test_an_instance_that_lies_mostly_in_ignored_pixels_is_not_invented() -> None:
    prediction, reference, ignored = (np.zeros(SHAPE, bool) for _ in range(3))
    reference[2:6, 2:6] = True
    prediction[2:6, 2:6] = True
    ignored[10:20, 10:20] = True
    prediction[12:16, 8:16] = True  # two of eight columns are labelled
    counts = count_instances(prediction, reference, ignored)
    assert (counts.matched, counts.invented, counts.missed) == (1, 0, 0)
    prediction[12:16, 1:16] = True  # most of it is labelled now
    assert count_instances(prediction, reference, ignored).invented == 1
    assert count_instances(prediction, reference).invented == 1
    _, lesions = measure_channels(prediction[None], reference[None], ["a"], None, ignored=ignored)
    assert lesions["a"].to_list() == [1, 0, 1, 1]


def test_the_mean_shape_is_a_share_of_the_labelled_masks() -> None:
    marked = np.zeros((64, 64), int)
    marked[20:40, 20:40] = 1
    unknown = np.ones((64, 64), bool)
    unknown[:5] = False
    full = build_atlas([marked, marked], {"a": 1})
    part = build_atlas([marked, np.zeros_like(marked)], {"a": 1}, ignored=[None, unknown])
    assert np.allclose(part.probabilities["a"], full.probabilities["a"])
    assert build_atlas([marked, np.zeros_like(marked)], {"a": 1}).probabilities["a"].max() == pytest.approx(0.5)


def _write_case(folder: Path, name: str, values: np.ndarray) -> str:
    Image.fromarray(values.astype(np.uint8)).save(folder / f"{name}.png")
    return f"{name}.png"


@pytest.mark.parametrize("task", ["segmentation", "detection"])
@pytest.mark.parametrize("overlapping", [False, True])
def test_a_family_measures_labelled_pixels_only(tmp_path: Path, task: str, overlapping: bool) -> None:
    family, ignored, prediction, reference = get_family(task), _ignored(), _masks(1), _masks(2)
    path = _write_case(tmp_path, "image", np.zeros(SHAPE))
    rows: list[Any] = []
    for number, under in enumerate((False, True)):
        truth = np.where(ignored, under, reference)
        predicted = np.where(ignored, not under, prediction)
        mask: Any = _write_case(tmp_path, f"mask{number}", truth)
        record = Record(
            path,
            patient="p",
            mask={"a": mask} if overlapping else mask,
            ignored=_write_case(tmp_path, "ignored", ignored),
        )
        index = Index((record,), (record,), ("a",), task, {"a": 1})
        file = tmp_path / _write_case(tmp_path, f"answer{number}", predicted)
        single = task == "segmentation" and not overlapping
        answer = Prediction(path, mask=file) if single else Prediction(path, masks={"a": file})
        rows.append(family.measure(record, answer, index, tmp_path))
        without_ignored = family.measure(replace(record, ignored=None), answer, index, tmp_path)
        assert without_ignored["figures"] != rows[-1]["figures"]
        baseline = family.predict_baseline([record, record], [record], index, tmp_path)
        assert baseline is not None
        rows[-1]["baseline"] = baseline
    assert rows[0] == rows[1]
    assert rows[0]["ignored"] == pytest.approx(ignored.mean(), abs=1e-5)
    scores = family.score(rows, index, primary="dice", baseline=rows[0]["baseline"] * 2)
    assert scores.details["ignored_share"] == pytest.approx(ignored.mean(), abs=1e-5)
    assert f"{ignored.mean():.1%} of the test pixels" in " ".join(family.answers.describe_details(scores.details))
