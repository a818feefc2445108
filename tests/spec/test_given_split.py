"""A split that a person names by one file: its names are one part, all other images the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_kit import picture

from m3b.data.spec.execute import execute
from m3b.data.spec.given import Given, check_names
from m3b.data.spec.proposals import Ask
from m3b.data.spec.proposals.narrowed import propose_given
from m3b.data.survey import survey
from m3b.errors import DataError

REQUEST = "Tell plain from spot on these scans"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "raw"
    for n in range(40):
        picture(root / ("plain", "spot")[n % 2] / f"s{n * 37:04d}.png")
    named = [f"s{n * 37:04d}" for n in range(12)]
    (root / "second_visit.txt").write_text("\n".join(f"{name}.png" for name in named))
    (root / "training_cases.txt").write_text("\n".join(f"s{n * 37:04d}" for n in range(12, 40)))
    (root / "visits.csv").write_text("\n".join(["scanner,scan", *(f"A{n % 3},{name}" for n, name in enumerate(named))]))
    (root / "strangers.txt").write_text("\n".join(f"other{n}" for n in range(12)))
    return root


@pytest.mark.parametrize("file", ["second_visit.txt", "training_cases.txt", "visits.csv"])
def test_one_file_says_both_parts(folder: Path, tmp_path: Path, file: str) -> None:
    given = Given(split=file)
    check_names(given, folder)
    best, *_ = propose_given(survey(folder), Ask("diagnosis", REQUEST), given, folder)
    made = execute(best.spec, folder, name="set", work=tmp_path / "work")
    tested = {Path(str(one.image)).stem for one in made.test}
    assert tested == {f"s{n * 37:04d}" for n in range(12)}
    assert len(made.train) == 28
    assert file in made.accounting.used


def test_a_file_that_names_no_image_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"keeps to --split strangers\.txt"):
        propose_given(survey(folder), Ask("diagnosis", REQUEST), Given(split="strangers.txt"), folder)
