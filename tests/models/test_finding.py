"""Folders given to `m3b predict`: which images they hold, in which order, and what is skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from m3b.models.image_jobs import find_images


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def below(folder: Path, images: list[str | list[str]]) -> list[str]:
    return [str(Path(image if isinstance(image, str) else "|".join(image)).relative_to(folder)) for image in images]


def test_a_tree_of_volumes(tmp_path: Path) -> None:
    touch(tmp_path, "b/scan10.nii.gz", "b/scan2.nii.gz", "a.mha", "notes.txt", "b/table.csv", ".hidden.nii.gz")
    touch(tmp_path, "series/1.png", "series/2.png", "series/10.png", "empty/readme.md")
    result = find_images([tmp_path], is_2d=False)
    assert below(tmp_path, result.images) == ["a.mha", "b/scan2.nii.gz", "b/scan10.nii.gz", "series"]
    assert len(result.notes) == 3
    assert "notes.txt" in result.notes[0]
    assert "table.csv" in result.notes[1]


def test_a_tree_of_pictures(tmp_path: Path) -> None:
    touch(tmp_path, "10.png", "9.jpg", "p/1.png", "p/2.png")
    assert below(tmp_path, find_images([tmp_path], is_2d=True).images) == ["9.jpg", "10.png", "p/1.png", "p/2.png"]
    studies = find_images([tmp_path], is_2d=True, group_views=True).images
    assert [len(study) for study in studies] == [2, 2]
    assert [Path(path).name for path in studies[1]] == ["1.png", "2.png"]


def test_slices_beside_volumes_are_not_taken_for_one(tmp_path: Path) -> None:
    touch(tmp_path, "scan.nii.gz", "1.png", "2.png")
    result = find_images([tmp_path], is_2d=False)
    assert below(tmp_path, result.images) == ["scan.nii.gz"]
    assert "2 slices were skipped" in result.notes[0]


def test_plain_paths_and_references_stay(tmp_path: Path) -> None:
    assert find_images(["x.npz#images[3]", tmp_path / "scan.nii"], is_2d=True).images == [
        "x.npz#images[3]",
        str(tmp_path / "scan.nii"),
    ]
    assert find_images([tmp_path], is_2d=True).notes == [f"{tmp_path}: no image in this folder"]


@pytest.mark.parametrize("count", [1, 2])
def test_dicom_series(tmp_path: Path, count: int) -> None:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    for series in range(count):
        uid = generate_uid()
        for number in range(2 + series):
            meta = FileMetaDataset()
            meta.TransferSyntaxUID = ExplicitVRLittleEndian
            meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
            meta.MediaStorageSOPInstanceUID = generate_uid()
            item = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
            item.SeriesInstanceUID = uid
            item.save_as(tmp_path / f"IM{series}{number}")  # no extension: told by content
    result = find_images([tmp_path], is_2d=False)
    assert result.images == [str(tmp_path)]
    assert [("2 DICOM series" in note) for note in result.notes] == ([True] if count == 2 else [])


def test_one_picture_alone_is_an_image_of_a_volume_model_too(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "only.png")
    assert find_images([tmp_path], is_2d=False).images == [str(tmp_path / "only.png")]
