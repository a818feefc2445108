"""Sequences that both the folder and the name of a scan say, and that some persons lack."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from proposals_kit import decide_folder, write_picture, write_rows

N_PERSONS = 30


def _write_scans(folder: Path, sequences: tuple[str, str], *, seed: int) -> None:
    """Write scans of all persons with the first sequence and of each second person with the other, and their ages."""
    rng = np.random.default_rng(seed)
    rows: list[list[object]] = [["subject", "age"]]
    for place, number in enumerate(rng.choice(np.arange(100, 999), N_PERSONS, replace=False)):
        site = ("North", "South", "East")[place % 3]
        for sequence in sequences[: 2 - place % 2]:
            path = folder / f"set-{sequence}" / f"S{number}-{site}-{2000 + 7 * place}-{sequence}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            array = rng.integers(0, 500, (14, 14, 8)).astype(np.int16)
            nib.save(nib.Nifti1Image(array, np.eye(4)), path)  # type: ignore[no-untyped-call]
        rows.append([int(number), round(float(rng.uniform(20, 90)), 2)])
    write_rows(folder / "persons.csv", rows)


@pytest.mark.parametrize("seed", [3, 8])
@pytest.mark.parametrize(
    ("sequences", "sequence_name"), [(("T1", "T2"), "T1-weighted"), (("T2", "FLAIR"), "T2-weighted")]
)
def test_scans_are_those_of_the_sequence_that_the_request_names(
    tmp_path: Path, seed: int, sequences: tuple[str, str], sequence_name: str
) -> None:
    _write_scans(tmp_path, sequences, seed=seed)
    outcome = decide_folder(tmp_path, f"Estimate the age in years from {sequence_name} brain MRI")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == N_PERSONS
    assert all(f"-{sequences[0]}" in path for path in outcome.proposals[0].manifest.images.patterns)


def test_several_groups_of_the_kind_that_the_request_names_are_read_together(tmp_path: Path) -> None:
    rows: list[list[object]] = [["file", "label"]]
    for number in range(36):
        kind = ("ct", "mammography")[number % 3 == 2]
        name = f"{'scan_' * (number % 3)}{kind}{300 + number}.png"
        write_picture(tmp_path / f"room{number % 3 // 2}" / name, number)
        rows.append([name, ("benign", "malignant")[number // 3 % 2]])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify CT as benign or malignant")
    assert outcome.proposals[0].cases == 24
