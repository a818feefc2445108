"""The example of `EXPECTED.json` in docs/bench.md is the one of a set that can be divided."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from docs_kit import FENCE, ROOT
from PIL import Image

from m3b.bench.field_carving import carve_field_set
from m3b.bench.field_sets import EXPECTATION_KEYS, FieldSet, load_field_sets
from m3b.metrics.verdict import MIN_VERDICT_PATIENTS

PAGE = (ROOT / "docs/bench.md").read_text(encoding="utf-8")


def write_eyes(folder: Path, name_of: str) -> None:
    """Write two photographs of each of 40 patients, named as the page says, and a table of labels."""
    rows, random = [], np.random.default_rng(0)
    (folder / name_of).parent.mkdir(parents=True)
    for patient in range(40):
        for eye in "LR":
            file = (folder / name_of).with_name(f"eye_{patient:03d}{eye}.png")
            pixels = random.normal(150 if patient % 2 else 70, 8, (48, 48, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(file)
            rows.append([file.name, ("healthy", "ill")[patient % 2]])
    with (folder / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["image", "diagnosis"], *rows])


@pytest.fixture
def example(tmp_path: Path) -> FieldSet:
    """The field set of the example, with data as its note says."""
    (text,) = [fence[1] for fence in FENCE.findall(PAGE) if fence[0] == "json"]
    (entry,) = json.loads(text)
    write_eyes(tmp_path / entry["folder"], entry["note"].split()[-1])
    (tmp_path / "EXPECTED.json").write_text(text)
    notes: list[str] = []
    (field_set,) = load_field_sets(tmp_path, notes.append)
    assert notes == []
    return field_set


def test_the_example_of_expectations_is_one(example: FieldSet) -> None:
    files = [path.as_posix() for path in Path(example.folder).rglob("*.png")]
    groups = {match[1] for file in files if (match := re.search(example.group_pattern, file))}
    assert (len(files), len(groups)) == (example.min_cases, 40)


@pytest.mark.slow
def test_the_example_of_expectations_is_divided(example: FieldSet, tmp_path: Path) -> None:
    carve_out = carve_field_set(example, tmp_path / "carved")
    assert carve_out.no_exam == ""
    assert carve_out.hidden == 2 * carve_out.hidden_patients
    assert carve_out.hidden + carve_out.kept == 80


@pytest.mark.parametrize("key", EXPECTATION_KEYS)
def test_every_key_is_explained(key: str) -> None:
    section = PAGE.split("## Field tasks")[1].split("\n## ")[0]
    assert any(f"`{key}`" in line.split("|")[1] for line in section.splitlines() if line.startswith("|"))


def test_the_smallest_number_of_hidden_patients_is_that_of_the_code() -> None:
    assert f"Fewer than {MIN_VERDICT_PATIENTS} patients are hidden" in PAGE
