"""Images in pickles and PyTorch files, and slices of volumes in folders of different lengths."""

from __future__ import annotations

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
from proposals_kit import decide_folder, write_picture, write_rows


@pytest.mark.parametrize("suffix", [".pck", ".pkl", pytest.param(".pt", marks=pytest.mark.slow)])
def test_volumes_in_pickles_are_images(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    rows: list[list[object]] = [["scan", "grade"]]
    for number in range(24):
        volume = rng.integers(0, 900, (12 + number % 5, 24, 24)).astype(np.uint16)
        path = tmp_path / "volumes" / f"{1000 + number}{suffix}"
        path.parent.mkdir(exist_ok=True)
        if suffix == ".pt":
            import torch

            torch.save(torch.from_numpy(volume.astype(np.int32)), path)
        else:
            path.write_bytes(pickle.dumps(volume, protocol=2))
        rows.append([path.name, ("intact", "torn")[number % 2]])
    write_rows(tmp_path / "scans.csv", rows)
    outcome = decide_folder(tmp_path, "Classify the ligament on knee MRI as intact or torn")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"intact": 12, "torn": 12}


def test_pickles_that_hold_no_array_are_no_images(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.pkl").write_bytes(pickle.dumps({"seed": number}))
    outcome = decide_folder(tmp_path, "Classify the ligament on knee MRI as intact or torn")
    assert outcome.refusal is not None


@pytest.mark.parametrize(("is_counted", "is_volume"), [(True, True), (False, False)])
def test_folders_of_slices_of_any_length_are_volumes(tmp_path: Path, *, is_counted: bool, is_volume: bool) -> None:
    rng = np.random.default_rng(0)
    for label in ("COVID", "Normal"):
        for patient in range(15):
            numbers = range(5 + 4 * patient) if is_counted else rng.choice(9999, 5 + 4 * patient, replace=False)
            for number in numbers:
                write_picture(tmp_path / label / f"{label[0]}{patient}" / f"{number:04d}.png", int(rng.integers(10**6)))
    outcome = decide_folder(tmp_path, "Tell COVID from normal lungs on 3D chest CT")
    assert outcome.proposals
    images = outcome.proposals[0].manifest.images
    assert (images.several == "slices") == is_volume
    assert not is_volume or outcome.proposals[0].cases == 30


@pytest.mark.parametrize("carrier", ["npz", "npz_parts", "npy", "npy_parts", "h5", "colours", "volumes"])
def test_images_and_masks_of_one_length_are_stacks(tmp_path: Path, carrier: str) -> None:
    rng = np.random.default_rng(0)
    shape = (20, 12, 24, 24) if carrier == "volumes" else (20, 48, 48)
    images = rng.integers(0, 255, shape).astype(np.uint8)
    masks = np.zeros(shape, np.uint8)
    masks[..., 4:14, 4:14], masks[..., 16:22, 16:22] = 1, 2
    if carrier == "colours":
        images, masks = np.stack([images] * 3, axis=-1), masks[..., None]
    if carrier == "npz_parts":
        parts = {"train_images": images[:14], "train_masks": masks[:14], "test_images": images[14:]}
        np.savez(tmp_path / "data.npz", **parts, test_masks=masks[14:])
    elif carrier == "npy_parts":
        for part, places in (("train", slice(14)), ("test", slice(14, None))):
            np.save(tmp_path / f"{part}_images.npy", images[places])
            np.save(tmp_path / f"{part}_masks.npy", masks[places])
    elif carrier == "npy":
        np.save(tmp_path / "images.npy", images)
        np.save(tmp_path / "masks.npy", masks)
    elif carrier == "h5":
        with h5py.File(tmp_path / "data.h5", "w") as file:
            file["image"], file["label"] = images, masks
    else:
        np.savez(tmp_path / "data.npz", images=images, masks=masks)
    (tmp_path / "labels.txt").write_text("1 liver\n2 spleen\n")
    outcome = decide_folder(tmp_path, "Segment liver and spleen on CT")
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.cases == 20
    assert best.manifest.masks is not None
    assert best.manifest.masks.classes == {"liver": (1,), "spleen": (2,)}
    assert best.manifest.split.is_given == carrier.endswith("parts")


def test_a_volume_a_file_is_no_stack_beside_its_mask(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(12):
        masks = np.zeros((20, 40, 40), np.uint8)
        masks[:, 4:14, 4:14] = 1
        np.savez(tmp_path / f"case{number:02d}.npz", image=rng.normal(size=masks.shape), label=masks)
    outcome = decide_folder(tmp_path, "Segment the liver on CT")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 12
