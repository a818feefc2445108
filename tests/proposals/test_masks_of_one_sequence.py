"""Studies of several sequences in the layout of BIDS, whose masks are drawn on one of them."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from proposals_kit import decide_folder

SHAPE = (14, 14, 8)


def _write_volume(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, np.diag([1.0, 1.0, 3.0, 1.0])), path)  # type: ignore[no-untyped-call]


def _write_study(folder: Path, *, masks: tuple[str, ...], n_missing: int = 0) -> int:
    """Write two sessions of ten subjects with FLAIR and T1, and masks on the sequences `masks`; return the sessions."""
    rng = np.random.default_rng(7)
    sessions = [(f"sub-{subject:02d}", f"ses-{session:02d}") for subject in range(1, 11) for session in (1, 2)]
    for number, (subject, session) in enumerate(sessions):
        stem = f"{subject}_{session}"
        for sequence in ("FLAIR", "T1w"):
            array = rng.integers(100, 900, SHAPE).astype(np.int16)
            _write_volume(folder / subject / session / "anat" / f"{stem}_{sequence}.nii.gz", array)
        for sequence in masks if number >= n_missing else ():
            mask = np.zeros(SHAPE, np.uint8)
            start = 2 + number % 6
            mask[start : start + 4, 3:8, 2:5] = 1
            name = f"{stem}_space-{sequence}_desc-lesion_mask.nii.gz"
            _write_volume(folder / "derivatives" / "lesions" / subject / session / "anat" / name, mask)
    return len(sessions)


@pytest.mark.parametrize("n_missing", [0, 2])
def test_the_other_sequence_is_a_channel(tmp_path: Path, n_missing: int) -> None:
    sessions = _write_study(tmp_path, masks=("FLAIR",), n_missing=n_missing)
    outcome = decide_folder(tmp_path, "Segment white matter lesions on FLAIR and T1 MRI")
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.cases == sessions - n_missing
    images = best.manifest.images
    assert {images.name, *(channel.name for channel in images.channels)} == {"FLAIR", "T1w"}
    assert best.manifest.masks is not None
    assert best.manifest.masks.key != "{parent}"


def test_a_folder_that_all_files_share_pairs_nothing(tmp_path: Path) -> None:
    _write_study(tmp_path, masks=("FLAIR", "T1w"))
    outcome = decide_folder(tmp_path, "Segment white matter lesions on FLAIR and T1 MRI")
    keys = {item.manifest.masks.key for item in outcome.proposals if item.manifest.masks is not None}
    assert "{parent}" not in keys
