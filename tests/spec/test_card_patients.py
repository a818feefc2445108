"""Whose an image is, as a data card says it in words: taken where nearly every case has it, else left unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spec_kit import picture

from m3b.data.spec.card_patients import with_patients
from m3b.data.spec.execute import execute
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.proposals import Proposal
from m3b.data.spec.proposals.surroundings import UNKNOWN
from m3b.data.spec.readers import Readers

NAMES: dict[str, Callable[[int], str]] = {
    "number": lambda n: f"scan{n // 2:03d}_{n % 2}.png",
    "template": lambda n: f"sub-p{n // 2:03d}_split-v{n}.png",
    "prefixes": lambda n: f"{'train' if n % 3 else 'valid'}_{n // 2}_{n}.png",
    "before": lambda n: f"{'AB'[n % 2]}{n // 2}_x{n}.png",
    "digits": lambda n: f"{1000 + n // 2}{n:04d}.png",
    "level": lambda n: f"site{n % 2}/w{n // 2:02d}/{n}.png",
}
ROW = {"file": "cases.csv", "row": "{file}", "image": "{path}", "rule": "name"}
LABELS = {"sources": [{**ROW, "column": "dx"}], "classes": {"normal": [], "sick": []}}


def folder(root: Path, named: Callable[[int], str]) -> Path:
    rows = ["file,dx,exam"]
    for n in range(24):
        picture(root / named(n))
        rows.append(f"{Path(named(n)).name},{['normal', 'sick'][n // 2 % 2]},E{n // 2}")
    (root / "cases.csv").write_text("\n".join(rows))
    return root


def proposed(**changes: Any) -> Proposal:
    raw = {"task": "diagnosis", "images": {"files": {"pattern": "**/*.png"}}, "labels": LABELS, **changes}
    return Proposal(IndexSpec.model_validate(raw), "pictures", 0.8, ("labels",), (UNKNOWN,))


def told(root: Path, key: str, one: Proposal | None = None) -> Proposal:
    return with_patients([one or proposed()], key, root, Readers(root))[0]


@pytest.mark.parametrize(("names", "key", "people", "first"), [
    ("number", "four-digit number in the file name (one scan per patient)", 12, "000"),
    ("template", "`sub-<id>` in the file name; the two years share patients", 12, "sub-p000"),
    ("prefixes", "number after `train_` or `valid_` in the name", 20, "valid_0"),
    ("before", "first part of the file name, before the underscore", 24, "A0"),
    ("digits", "first four digits of the file name", 12, "1000"),
    ("level", "patient folder (second level, <site>/<patient>/)", 12, "w00"),
    ("number", "CSV column `exam` (an exam, mostly one per patient)", 12, "E0"),
])  # fmt: skip
def test_the_card_says_whose_an_image_is(tmp_path: Path, names: str, key: str, people: int, first: str) -> None:
    root = folder(tmp_path / "raw", NAMES[names])
    found = told(root, key)
    assert found.doubts == ()
    assert found.evidence[0] == "labels"
    assert found.evidence[1].startswith(f"patients: {people} by ")
    assert found.evidence[1].endswith("(the data card says so)")
    made = execute(found.spec, root, name="set", work=tmp_path)
    records = sorted((*made.train, *made.test), key=lambda one: str(one.image))
    assert len({one.patient for one in records}) == people
    assert made.to_json()["patients"] != "unknown"
    by_file = {str(one.image).removeprefix("data/set/"): one.patient for one in records}
    assert by_file[NAMES[names](0)] == first


@pytest.mark.parametrize(("names", "key"), [
    ("number", "person number"),
    ("number", "CSV column `person`"),
    ("level", "`sub-<id>` in the file name"),
    ("number", "number between the dashes of the file name"),
    ("before", "case id"),
    ("number", ""),
])  # fmt: skip
def test_what_the_data_does_not_bear_out_stays_unknown(tmp_path: Path, names: str, key: str) -> None:
    assert told(folder(tmp_path / "raw", NAMES[names]), key) == proposed()


def test_what_was_measured_goes_before_the_card(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", NAMES["number"])
    known = proposed(patient={**ROW, "column": "exam"})
    assert told(root, "number in the file name", known) == known


def test_what_kept_cases_together_and_is_the_patient_is_not_named_twice(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", NAMES["number"])
    exam = {**ROW, "column": "exam"}
    found = told(root, "CSV column `exam`", proposed(together=[exam, "{folder}"]))
    assert [one.kind for one in found.spec.together] == ["path"]
    assert found.spec.patient == proposed(patient=exam).spec.patient


def test_slices_have_no_patient_in_their_names(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", NAMES["level"])
    slices = {"files": {"pattern": "**/*.png"}, "unit": "folder"}
    one = proposed(images=slices, labels={"sources": ["{folder0}"], "classes": {"site0": [], "site1": []}})
    assert told(root, "number in the file name", one) == one
    assert told(root, "patient folder (second level)", one).spec.patient is not None
