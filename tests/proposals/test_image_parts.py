"""Parts of a larger image, such as the cells of a smear, lie on one side of the split."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture

from m3b.dataset.manifest.execute import execute
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.survey.walk import walk

REQUEST = "Classify the cropped cells as koilocytotic or parabasal"


@pytest.mark.parametrize("place", ["{type}/CROPPED", "crops/{type}"])
def test_parts_of_an_image_stay_together_where_numbers_restart(tmp_path: Path, place: str) -> None:
    for seed, kind in enumerate(("koilocytotic", "parabasal")):
        folder = "images" if place.startswith("crops") else ""
        for number in range(1, 9):
            write_picture(tmp_path / folder / kind / f"{number:03}.png", 1000 * seed + number, size=(90, 90))
            for part in range(1, 4):
                path = tmp_path / place.format(type=kind) / f"{number:03}_{part:02}.png"
                write_picture(path, 1000 * seed + 10 * number + part)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 48
    assert "copies" in {assumption.kind for assumption in outcome.assumptions}
    inventory = walk(tmp_path)
    manifest = outcome.proposals[0].manifest
    index = execute(manifest, inventory, name="data", work=tmp_path / "work", readers=FolderReaders(inventory))
    sides = [{str(case.image).rpartition("_")[0] for case in part} for part in (index.train, index.test)]
    assert all(sides)
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("n_examples", [0, 2])
def test_names_with_numbers_are_no_parts_without_their_images(tmp_path: Path, n_examples: int) -> None:
    for kind in ("koilocytotic", "parabasal")[:n_examples]:
        write_picture(tmp_path / "examples" / f"{kind}.png", 0, size=(90, 90))
    for number in range(40):
        kind = ("koilocytotic", "parabasal")[number % 2]
        write_picture(tmp_path / kind / f"{kind}_{number:03}.png", number)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    assert not outcome.proposals[0].manifest.together
