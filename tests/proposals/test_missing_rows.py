"""Images that a table of numbers or labels does not name, or of which it says nothing, beside rows of images that are not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from proposals_kit import decide_folder, write_picture, write_rows

N_IMAGES = 48


def _write_ages(
    folder: Path, *, seed: int, n_blank: int = 0, n_without_row: int = 0, n_without_image: int = 0, n_renamed: int = 0
) -> None:
    """Write pictures of 48 persons, and a table of their ages.

    Args:
        n_blank: rows without an age.
        n_without_row: pictures that the table lacks.
        n_without_image: further rows.
        n_renamed: persons of the last site, whom the table numbers otherwise.
    """
    rng = np.random.default_rng(seed)
    numbers = [int(number) for number in rng.choice(np.arange(100, 900), N_IMAGES + n_without_image, replace=False)]
    rows: list[list[object]] = []
    for place, number in enumerate(numbers):
        if place < N_IMAGES:
            write_picture(folder / "images" / f"subject{number}.png", number)
        age = "" if place < n_blank else round(float(rng.uniform(20, 90)), 2)
        if not n_blank <= place < n_blank + n_without_row:
            is_renamed = N_IMAGES - n_renamed <= place < N_IMAGES
            rows.append([number + 5000 if is_renamed else number, age])
    write_rows(folder / "ages.csv", [["subject_id", "age"], *rows])


@pytest.mark.parametrize("seed", [1, 6, 13])
@pytest.mark.parametrize(
    "missing",
    [
        {"n_blank": 3, "n_without_image": 4},
        {"n_without_row": 1, "n_without_image": 3},
        {"n_blank": 2, "n_without_row": 2, "n_without_image": 4},
    ],
)
def test_single_images_without_a_number_are_left_out_and_counted(
    tmp_path: Path, seed: int, missing: dict[str, int]
) -> None:
    _write_ages(tmp_path, seed=seed, **missing)
    outcome = decide_folder(tmp_path, "Estimate the age of the subject")
    assert outcome.kind == "proposed"
    n_lacking = missing.get("n_blank", 0) + missing.get("n_without_row", 0)
    best = outcome.proposals[0]
    assert best.cases == N_IMAGES - n_lacking
    assert next(item.message for item in outcome.assumptions if item.kind == "exclusions").startswith(f"{n_lacking} ")


@pytest.mark.parametrize("seed", [1, 6, 13])
@pytest.mark.parametrize("n_renamed", [4, 6, 12])
def test_a_part_of_the_images_that_is_called_otherwise_is_a_question(tmp_path: Path, seed: int, n_renamed: int) -> None:
    _write_ages(tmp_path, seed=seed, n_renamed=n_renamed)
    outcome = decide_folder(tmp_path, "Estimate the age of the subject")
    assert outcome.question is not None
    assert outcome.question.code == "unexplained_exclusions"
