"""Microscopy with a file for each stain and codes of classes with blanks between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_rows

COMPARTMENTS = ("Nucleoplasm", "Nuclear membrane", "Nucleoli", "Cytosol")


def _write_stains(folder: Path, stains: tuple[str, ...], *, seed: int, with_hidden_test: bool) -> None:
    """Write 40 samples with a picture of each stain, and classes of the samples as codes with blanks between them."""
    rng = np.random.default_rng(seed)
    rows: list[list[object]] = [["Id", "Target"]]
    for number in range(48 if with_hidden_test else 40):
        name = "".join(rng.choice(list("0123456789abcdef"), 24))
        for stain in stains:
            path = folder / ("train" if number < 40 else "test") / f"{name}_{stain}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (24, 24)).astype(np.uint8)).save(path)
        if number < 40:
            codes = dict.fromkeys([number % 4, *([int(rng.integers(4))] if number % 3 == 0 else [])])
            rows.append([name, " ".join(map(str, codes))])
    write_rows(folder / "train.csv", rows)
    legend = "\n".join(f"{code}. {name}" for code, name in enumerate(COMPARTMENTS))
    (folder / "README.md").write_text(f"Classes in train.csv, separated by blanks:\n\n{legend}\n")


@pytest.mark.parametrize("seed", [2, 5])
@pytest.mark.parametrize("with_hidden_test", [True, False])
def test_stains_are_channels_and_codes_are_several_classes(tmp_path: Path, seed: int, with_hidden_test: bool) -> None:
    _write_stains(tmp_path, ("green", "red", "blue"), seed=seed, with_hidden_test=with_hidden_test)
    outcome = decide_folder(
        tmp_path, "Predict all subcellular locations of the protein in microscopy, using all three stains"
    )
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.cases == 40
    assert set(best.classes) == set(COMPARTMENTS)
    assert {best.manifest.images.name, *(part.name for part in best.manifest.images.channels)} == {
        "green",
        "red",
        "blue",
    }
    assert best.manifest.labels is not None
    assert best.manifest.labels.multi_label


def test_words_with_blanks_between_them_are_one_class(tmp_path: Path) -> None:
    rows: list[list[object]] = [["Id", "Target"]]
    for number in range(40):
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (24, 24)).astype(np.uint8)).save(
            tmp_path / f"s{number}.png"
        )
        rows.append([f"s{number}", ("type 1", "type 2", "type 1", "grade 3")[number % 4]])
    write_rows(tmp_path / "train.csv", rows)
    outcome = decide_folder(tmp_path, "Classify the Target")
    assert outcome.proposals[0].manifest.labels is not None
    assert not outcome.proposals[0].manifest.labels.separator
