"""One mask file a class: classes that share no voxel become ids, however many they are; memory does not grow with them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from segmentation_kit import nifti
from template_kit import load

CLASSES = [f"structure_{place:03d}" for place in range(70)]
LABELS = {name: place + 1 for place, name in enumerate(CLASSES)}


def _record(folder: Path, case: str, *, overlapping: bool = False) -> dict[str, Any]:
    """70 bars side by side, each in a file of its own; with `overlapping` the second reaches into the first."""
    image = np.random.default_rng(len(case)).normal(0, 1, (28, 20, 3)).astype(np.float32)
    files = {}
    for place, name in enumerate(CLASSES):
        mask = np.zeros(image.shape, np.uint8)
        row, column = divmod(place, 10)
        mask[4 * row : 4 * row + 3, 2 * column : 2 * column + 2] = 255
        if overlapping and place == 1:
            mask[0, 0, 0] = 255
        files[name] = str(folder / nifti(folder / f"{case}_{name}.nii.gz", mask))
    return {"image_path": str(folder / nifti(folder / f"{case}.nii.gz", image)), "mask_path": files, "patient": case}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("structures")
    return [_record(folder, "a"), _record(folder, "bb")]


def test_classes_that_share_no_voxel_are_ids(records: list[dict[str, Any]]) -> None:
    facts = load("segmentation.fingerprint").measure_cases(records, LABELS)
    assert facts["overlap"] is False
    assert facts["sizes"]["structure_069"] == [18, 18]
    plan = {"dims": 3, "channels": 1, "spacing": None, "intensity": {"mode": "percentile"}, **facts}
    _, ids, _ = load("volume_cache").prepare_case(records[0], plan)
    assert ids.shape == (20, 28, 3)
    assert set(np.unique(ids)) == set(range(71))


def test_classes_that_meet_in_one_case_stay_apart(records: list[dict[str, Any]], tmp_path: Path) -> None:
    facts = load("segmentation.fingerprint").measure_cases(
        [records[0], _record(tmp_path, "ccc", overlapping=True)], LABELS
    )
    assert facts["overlap"] is True
    assert facts["sizes"]["structure_001"] in ([18, 19], [19, 18])


def test_ids_of_files_that_meet_all_the_same_keep_the_smaller_class(
    records: list[dict[str, Any]], tmp_path: Path
) -> None:
    grid = load("mask_grid")
    record = _record(tmp_path, "ccc", overlapping=True)
    image = load("m3b.dataset.formats").read_image(record["image_path"])
    ids = grid.load_label_ids(record, {"classes": CLASSES, "labels": None}, image)
    assert (ids == 1).sum() == 18
    assert (ids == 2).sum() == 18


def test_nnunet_keeps_every_class(records: list[dict[str, Any]], tmp_path: Path) -> None:
    plan = {"classes": CLASSES, "labels": None, "overlap": False, "dims": 3, "channels": 1, "extent": None}
    plan |= {"spacing": [1.0, 1.0, 1.0], "channel_names": None, "intensity": {"mode": "percentile"}}
    data = load("segmentation.nnunet_data")
    present: list[np.ndarray] = []
    held_out = data.write_dataset(
        records, plan, tmp_path, lambda table: present.append(table) or np.array([False, True])
    )
    assert held_out == [1]
    assert present[0].shape == (2, 70)
    assert present[0].all()
    exported_labels = (
        load("m3b.dataset.formats")
        .read_labels(str(tmp_path / "raw" / data.DATASET_NAME / "labelsTr" / "case_00000.nii.gz"))
        .array
    )
    assert set(np.unique(exported_labels)) == set(range(71))


def test_regions_of_more_than_64_classes_are_told_apart() -> None:
    presets = load("segmentation.nnunet_presets")
    masks = np.eye(70, dtype=bool)
    masks[69, 68] = True
    regions = presets.Regions(70)
    numbers, labels = regions.encode(enumerate(masks), (70,)), regions.labels()
    for place, mask in enumerate(masks):
        assert np.array_equal(np.isin(numbers, labels[f"class{place + 1}"]), mask)


def _peak_megabytes(task: Any) -> float:
    tracemalloc.start()
    task()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


@pytest.mark.parametrize("overlap", [False, True])
def test_caching_104_classes_needs_less_than_a_gigabyte(monkeypatch: pytest.MonkeyPatch, overlap: bool) -> None:
    """Volumes of 128 x 128 x 128 voxels, mask files decoded one at a time."""
    volumes, grid, formats = load("volume_cache"), load("mask_grid"), load("m3b.dataset.formats")
    side, classes = 128, [f"structure_{place}" for place in range(104)]
    ids = np.zeros((side,) * 3, np.uint8)
    for place in range(104):
        row, column = divmod(place, 13)
        ids[16 * row : 16 * row + 15, 9 * column : 9 * column + 8, 10:118] = place + 1
    image = formats.Image(np.zeros((1, side, side, side), np.float32), (1.0, 1.0, 1.0), 3, "mr")
    monkeypatch.setattr(volumes, "read_case", lambda *_: image)
    monkeypatch.setattr(
        grid,
        "read_numbered_labels",
        lambda file, _: SimpleNamespace(array=(ids == int(file)).view(np.uint8), affine=None),
    )
    record = {"image_path": "x", "mask_path": {name: str(place + 1) for place, name in enumerate(classes)}}
    plan = {"dims": 3, "channels": 1, "spacing": [1.28] * 3, "intensity": {"mode": "percentile"}, "classes": classes}
    plan |= {"labels": None, "overlap": overlap}
    prepared: list[Any] = []

    def cache() -> None:
        prepared.extend(volumes.prepare_case(record, plan))
        prepared.append(volumes.sample_points(prepared[1], plan))

    assert _peak_megabytes(cache) < (400 if overlap else 150)
    assert set(np.unique(prepared[-1][:, 0])) == set(range(104))
