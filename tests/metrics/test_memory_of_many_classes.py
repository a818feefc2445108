"""Masks of many classes are measured class by class: no array holds all of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest

from m3b.data.index import Index, Record
from m3b.models import Prediction
from m3b.tasks import get_family

SHAPE = (64, 64, 32)
COUNT = 40
CLASSES = tuple(f"organ{number:02d}" for number in range(COUNT))
BYTES_OF_ALL = COUNT * SHAPE[0] * SHAPE[1] * SHAPE[2]


def write_volume(file: Path, array: np.ndarray) -> str:
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), file)
    return file.name


def draw_organ(number: int) -> np.ndarray:
    mask = np.zeros(SHAPE, np.uint8)
    mask[number : number + 5, 10:16, 5:9] = 1
    return mask


def measure_peak(action: Callable[[], object]) -> int:
    action()  # loads what is loaded once
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("overlapping", [True, False])
def test_no_array_holds_all_classes(overlapping: bool, tmp_path: Path) -> None:
    image = write_volume(tmp_path / "image.nii", np.random.default_rng(0).normal(size=SHAPE).astype(np.float32))
    if overlapping:
        files = {name: write_volume(tmp_path / f"{name}.nii", draw_organ(k)) for k, name in enumerate(CLASSES)}
        record = Record(image, patient="p1", mask=files)
        prediction = Prediction(image, masks={name: tmp_path / file for name, file in files.items()})
    else:
        label_map = np.zeros(SHAPE, np.uint8)
        for k in range(COUNT):
            label_map[k, 10:16, 5:9] = k + 1
        file = write_volume(tmp_path / "labels.nii", label_map)
        record, prediction = Record(image, patient="p1", mask=file), Prediction(image, mask=tmp_path / file)
    index = Index((record,), (record,), CLASSES, "segmentation", {name: k for k, name in enumerate(CLASSES, 1)})
    assert index.overlapping == overlapping
    family = get_family("segmentation")
    row = family.measure(record, prediction, index, tmp_path)
    assert {name: figures[0] for name, figures in row["figures"].items()} == dict.fromkeys(CLASSES, 1.0)
    assert measure_peak(lambda: family.measure(record, prediction, index, tmp_path)) < BYTES_OF_ALL / 2
    (baseline,) = family.predict_baseline([record], [record], index, tmp_path)
    assert set(baseline) == set(CLASSES)
