"""Which files are the masks of an image: of objects, of observers, of slices; and images that are channels of one case."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
from proposals_kit import decide_folder, write_mask, write_picture

from m3b.dataset.manifest.model import Manifest
from m3b.dataset.proposals.outcome import Outcome


def best_manifest(outcome: Outcome) -> Manifest:
    assert outcome.proposals
    return outcome.proposals[0].manifest


def write_square(path: Path, corner: tuple[int, int], side: int = 8) -> None:
    write_picture(path, 0)  # makes the folders
    mask = np.zeros((40, 48), np.uint8)
    mask[corner[0] : corner[0] + side, corner[1] : corner[1] + side] = 255
    from PIL import Image

    Image.fromarray(mask).save(path)


@pytest.mark.parametrize("name", ["{case}/masks/{hash}.png", "masks/{case}_{number}.png"])
def test_masks_of_objects_are_united(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    for number in range(24):
        case = f"{rng.integers(16**12):012x}"
        write_picture(tmp_path / (f"{case}/images/{case}.png" if "hash" in name else f"images/{case}.png"), number)
        for place in range(2 + number % 4):
            path = name.format(case=case, hash=f"{rng.integers(16**12):012x}", number=place)
            write_square(tmp_path / path, (4 + 8 * (place // 3), 2 + 12 * (place % 3)))
    outcome = decide_folder(tmp_path, "Segment nuclei in microscopy images")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 24
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert (masks.class_key, masks.per_file) == ("", {})


def test_masks_of_two_observers_are_asked_about(tmp_path: Path) -> None:
    for number in range(24):
        write_picture(tmp_path / f"image_{number:02d}.jpg", number)
        write_square(tmp_path / f"image_{number:02d}_1stHO.png", (10, 10), 12)
        write_square(tmp_path / f"image_{number:02d}_2ndHO.png", (11, 11), 12)
    outcome = decide_folder(tmp_path, "Segment retinal vessels on fundus photographs")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "rival"
    best = [proposal.manifest.masks for proposal in outcome.proposals[:2]]
    assert {masks.files[0] if isinstance(masks.files, tuple) else masks.files for masks in best if masks} == {
        "image_{number1:number}_{number2:number}stHO.png",
        "image_{number1:number}_{number2:number}ndHO.png",
    }


def test_sequences_in_the_folder_of_a_case_are_its_channels(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for number in range(12):
        folder = tmp_path / f"patient{number:02d}"
        folder.mkdir()
        for name in ("FLAIR", "T1"):
            nibabel.save(nibabel.Nifti1Image(rng.normal(size=(20, 18, 6)), np.eye(4)), folder / f"{name}.nii.gz")
        mask = np.zeros((20, 18, 6), np.uint8)
        mask[4:9, 5:9, 2:4] = 1
        nibabel.save(nibabel.Nifti1Image(mask, np.eye(4)), folder / "lesions_mask.nii.gz")
    outcome = decide_folder(tmp_path, "Segment multiple sclerosis lesions on brain MRI")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 12
    assert [channel.name for channel in best_manifest(outcome).images.channels] == ["T1"]


def test_folders_of_numbered_slices_are_volumes_with_a_mask_for_each_slice(tmp_path: Path) -> None:
    for number in range(14):
        for place in range(6):
            write_picture(tmp_path / f"images/{number + 31}/{place:03d}.png", 10 * number + place)
            write_square(tmp_path / f"masks/{number + 31}/{place:03d}.png", (6, 9 + place))
    outcome = decide_folder(tmp_path, "Segment the tumour on brain MRI")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 14
    assert best_manifest(outcome).images.several == "slices"


def test_an_array_file_for_each_part_holds_items(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for part, count in (("train", 40), ("test", 12)):
        masks = np.zeros((count, 32, 28), np.uint8)
        masks[:, 6:14, 5:12] = 1
        np.save(tmp_path / f"{part}_images.npy", rng.integers(0, 255, (count, 32, 28), dtype=np.uint8))
        np.save(tmp_path / f"{part}_masks.npy", masks)
    outcome = decide_folder(tmp_path, "Segment the liver on CT scans")
    assert outcome.proposals[0].cases == 52
    manifest = best_manifest(outcome)
    assert manifest.images.member == "[#]"
    assert manifest.masks is not None
    assert manifest.masks.member == "[#]"


def test_masks_by_a_program_do_not_come_before_those_beside_them(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"{number:02d}.png", number)
        write_mask(tmp_path / "masks_auto_uncorrected" / f"{number:02d}.png", number, shift=2)
    outcome = decide_folder(tmp_path, "Segment polyps on endoscopy images")
    assert outcome.kind == "proposed"
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert masks.files in ("masks/{number1:number}.png", ("masks/{number1:number}.png",))
