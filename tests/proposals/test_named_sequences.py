"""Folders of cases with several sequences under names of their own, beside one mask."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from proposals_kit import decide_folder

from m3b.dataset.proposals.image_sets import list_image_sets
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk

GRID, COARSE_GRID = (24, 24, 10), (12, 12, 8)


def _write_volume(path: Path, array: np.ndarray, spacing: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, np.diag([spacing, spacing, 3.0, 1.0])), path)  # type: ignore[no-untyped-call]


def _write_cases(folder: Path, sequences: dict[str, tuple[int, ...]], *, seed: int) -> None:
    """Write cases of four centres, of up to two slices more than a grid has: a volume of each sequence, a mask on `GRID`."""
    rng = np.random.default_rng(seed)
    for number in range(16):
        centre = f"Centre_{number % 4 + 1:02d}"
        case = folder / centre / f"{centre}_Case_{10 + 3 * number}"
        for name, grid in sequences.items():
            values = rng.integers(50, 900, (*grid[:2], grid[2] + number % 3)).astype(np.int16)
            _write_volume(case / "images" / f"{name}.nii.gz", values, 24 / grid[0])
        mask = np.zeros((*GRID[:2], GRID[2] + number % 3), np.uint8)
        start = int(rng.integers(2, 10))
        mask[start : start + 6, 5:12, 3:7] = 1
        _write_volume(case / "drawn" / "lesion-label.nii.gz", mask, 1.0)


def _images_of(folder: Path, request: str) -> tuple[str, list[str]]:
    """Return the outcome, and the names of the files that are images."""
    outcome = decide_folder(folder, request)
    images = outcome.proposals[0].manifest.images
    patterns = [pattern for part in (images, *images.channels) for pattern in part.patterns]
    return outcome.kind, sorted(pattern.rpartition("/")[2].partition(".")[0] for pattern in patterns)


@pytest.mark.parametrize("seed", [1, 9])
def test_masks_belong_to_the_images_of_their_grid(tmp_path: Path, seed: int) -> None:
    _write_cases(tmp_path, {"DWI": COARSE_GRID, "axial": GRID}, seed=seed)
    assert _images_of(tmp_path, "Segment the lesion on MRI") == ("proposed", ["axial"])


@pytest.mark.parametrize(
    ("request_text", "names"),
    [
        ("Segment the lesion on FLAIR MRI", ["FLAIR_brain"]),
        ("Segmentiere die Läsion auf T2-gewichteten MRT-Aufnahmen", ["T2_brain"]),
        ("Segment the lesion on FLAIR and T2 MRI", ["FLAIR_brain", "T2_brain"]),
    ],
)
@pytest.mark.parametrize("seed", [1, 9])
def test_sequences_are_those_that_the_request_names(
    tmp_path: Path, seed: int, request_text: str, names: list[str]
) -> None:
    _write_cases(tmp_path, {"FLAIR_brain": GRID, "T2_brain": GRID}, seed=seed)
    assert _images_of(tmp_path, request_text) == ("proposed", names)


def test_sequences_are_of_one_grid_whatever_number_of_them_is_opened(tmp_path: Path) -> None:
    _write_cases(tmp_path, {"FLAIR": GRID, "T1": GRID}, seed=2)
    inventory = walk(tmp_path)
    survey = survey_inventory(inventory, SurveyLimits())
    groups = []
    for group in survey.groups:
        if group.content is not None and group.pattern.endswith("FLAIR.nii.gz"):
            shapes = tuple(shape.model_copy(update={"count": shape.count + 1}) for shape in group.content.shapes)
            group = group.model_copy(update={"content": group.content.model_copy(update={"shapes": shapes})})
        groups.append(group)
    image_sets = list_image_sets(survey.model_copy(update={"groups": tuple(groups)}), inventory)
    assert any(channel.name == "T1" for image_set in image_sets for channel in image_set.images.channels)


def test_phases_are_those_that_the_request_names(tmp_path: Path) -> None:
    _write_cases(tmp_path, {"ct_portal": GRID, "ct_native": GRID, "ct_delayed": GRID}, seed=4)
    assert _images_of(tmp_path, "Segment the lesion on native CT") == ("proposed", ["ct_native"])
