"""Tables whose rows are told apart by three columns, as patient, visit and eye."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture, write_rows

FLUIDS = ("none", "IRF", "SRF")


def _fluid(patient: int, visit: int, place: int) -> str:
    return FLUIDS[(patient * 5 + visit * 2 + place * (patient % 3 + 1)) % 3]


@pytest.mark.parametrize("form", ["{patient}/{visit}/{eye}.png", "scans/{patient}_{visit}_{eye}.png"])
def test_an_image_has_the_row_of_its_patient_visit_and_eye(tmp_path: Path, form: str) -> None:
    rows: list[list[object]] = []
    expected = dict.fromkeys(FLUIDS, 0)
    for patient in range(1, 13):
        for visit in (1, 2, 3):
            for place, eye in enumerate(("OD", "OS")):
                name = form.format(patient=f"P{patient:02d}", visit=f"V{visit}", eye=eye)
                fluid = _fluid(patient, visit, place)
                if patient % 6 or visit < 3 or place:  # some rows have no image
                    write_picture(tmp_path / name, 100 * patient + 10 * visit + place)
                    expected[fluid] += 1
                rows.append([f"P{patient:02d}", f"V{visit}", eye, fluid, ("drug A", "drug B", "none")[patient % 3]])
    write_rows(tmp_path / "visits.csv", [["patient", "visit", "eye", "fluid", "treatment"], *rows])
    outcome = decide_folder(tmp_path, "Tell whether an OCT shows none, IRF or SRF fluid")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == expected


def test_rows_of_several_readers_are_not_those_of_an_image_alone(tmp_path: Path) -> None:
    """Two readers of each image: no third column makes rows those of one image."""
    rows: list[list[object]] = []
    for patient in range(1, 13):
        for eye in ("OD", "OS"):
            write_picture(tmp_path / f"P{patient:02d}" / f"{eye}.png", 10 * patient + len(rows))
            rows += [[f"P{patient:02d}", eye, reader, FLUIDS[(patient + len(reader)) % 3]] for reader in ("A", "BB")]
    write_rows(tmp_path / "visits.csv", [["patient", "eye", "reader", "fluid"], *rows])
    outcome = decide_folder(tmp_path, "Tell whether an OCT shows none, IRF or SRF fluid")
    assert outcome.kind != "proposed" or outcome.proposals[0].cases < 24
