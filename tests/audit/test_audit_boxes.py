"""Every finding about boxes, on real files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from m3b.data.index import BoxLabel, Index, Record
from m3b.dataset.audit import Audit, audit_index

COUNT = 24
SIZE = (40, 60)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    for at in range(COUNT):
        Image.fromarray(random.integers(0, 255, SIZE, dtype=np.uint8)).save(tmp_path / f"{at}.png")
    return tmp_path


def box(*edges: float, label: str = "nodule") -> BoxLabel:
    return BoxLabel(label, tuple(map(float, edges)))


def record(at: int, *boxes: BoxLabel, **changes: Any) -> Record:
    return replace(Record(f"{at}.png", patient=f"p{at}", boxes=boxes), **changes)


def index(changed: Mapping[int, Record] | None = None, cases: int = COUNT) -> Index:
    usual = [record(at) if at % 4 == 3 else record(at, box(5, 5, 50, 12), box(1, 30, 9, 40)) for at in range(cases)]
    records = [(changed or {}).get(at, usual[at]) for at in range(cases)]
    return Index(tuple(records[4:]), tuple(records[:4]), ("nodule",), "detection")


def weights(audit: Audit) -> dict[str, str]:
    return {finding.code: finding.severity for finding in audit.findings if finding.code != "small_test"}


def test_clean_boxes_have_no_finding(work: Path) -> None:
    audit = audit_index(index(), work)
    assert weights(audit) == {}
    assert audit.counts == {"train": {"nodule": 15}, "test": {"nodule": 3}}


@pytest.mark.parametrize(
    ("faulty_box", "code", "weight"),
    [
        (box(5, 45, 9, 50), "box_outside", "fix"),
        (box(-9, 5, -3, 9), "box_outside", "fix"),
        (box(50, 5, 75, 9), "box_beyond", "warn"),
        (box(50, 5, 60.5, 9), "", ""),
        (box(0, 0, 60, 40), "", ""),
        (box(20, 5, 10, 9), "box_reversed", "fix"),
        (box(20, 5, 20, 9), "box_no_size", "fix"),
        (box(5, 5, 9, 9, label="Nodule"), "unknown_label", "fix"),
        (box(5, 5, 1, 9, 9, 3), "box_dims", "fix"),
    ],
)
def test_one_box_at_fault(work: Path, faulty_box: BoxLabel, code: str, weight: str) -> None:
    audit = audit_index(index({6: record(6, faulty_box, box(1, 1, 4, 4))}), work)
    assert weights(audit) == ({code: weight} if code else {})
    assert [finding.cases for finding in audit.findings if finding.code == code] == [("6.png",)] * bool(code)


def test_widths_in_place_of_corners_are_explained(work: Path) -> None:
    audit = audit_index(index({6: record(6, box(30, 20, 10, 5))}), work)
    assert any("COCO" in finding.agent_message for finding in audit.findings)


def test_the_same_box_twice(work: Path) -> None:
    audit = audit_index(index({6: record(6, box(1, 1, 4, 4), box(1, 1, 4, 4))}), work)
    assert weights(audit) == {"box_twice": "fix"}


def test_shares_of_the_size(work: Path) -> None:
    shares = {at: record(at, *([box(0.1, 0.2, 0.4, 0.9)] if at % 2 else [])) for at in range(COUNT)}
    assert weights(audit_index(index(shares), work))["box_fractions"] == "fix"


def test_nothing_is_marked_anywhere_or_everywhere(work: Path) -> None:
    assert weights(audit_index(index({at: record(at) for at in range(COUNT)}), work)) == {"all_empty": "reject"}
    every = {at: record(at, box(5, 5, 9, 9)) for at in range(COUNT)}
    assert weights(audit_index(index(every), work)) == {"no_healthy": "warn"}


def test_classes_and_people(work: Path) -> None:
    base_index = index()
    two = replace(base_index, classes=("nodule", "mass"), values={"nodule": 0, "mass": 1})
    audit = audit_index(two, work)
    assert weights(audit) == {"class_nowhere": "fix"}
    assert any("mass (1)" in finding.agent_message for finding in audit.findings)
    cases_without_boxes = {at: record(at) for at in range(4)}
    assert weights(audit_index(index(cases_without_boxes), work)) == {"class_absent_test": "fix"}
    assert weights(audit_index(index(cases=6), work)) == {"few_patients": "warn"}
    assert weights(audit_index(index({at: record(at, patient="p") for at in range(4)}, cases=5), work)) == {
        "too_few_cases": "reject",
        "class_absent_test": "warn",
    }


def test_volumes_have_boxes_in_the_axes_of_their_file(work: Path) -> None:
    """40 x 24 x 10 voxels, stored back to front: what lies inside in the file's axes lies inside."""
    affine = np.diag([-1.0, 1.0, 2.0, 1.0])[[1, 0, 2, 3]]
    changed = {}
    for at in range(COUNT):
        array = np.random.default_rng(at).normal(0, 30, (40, 24, 10)).astype(np.int16)
        nib.save(nib.Nifti1Image(array, affine), work / f"{at}.nii.gz")
        boxes = [] if at % 4 == 3 else [box(30, 2, 1, 40, 20, 9)]
        changed[at] = record(at, *boxes, image=f"{at}.nii.gz")
    assert weights(audit_index(index(changed), work)) == {}
    changed[6] = record(6, box(2, 30, 1, 20, 40, 9), image="6.nii.gz")
    assert weights(audit_index(index(changed), work)) == {"box_outside": "fix"}
    changed[6] = record(6, box(2, 3, 20, 4), image="6.nii.gz")
    assert weights(audit_index(index(changed), work)) == {"box_dims": "fix"}


def test_a_box_in_an_image_that_does_not_open_is_the_images_fault(work: Path) -> None:
    (work / "6.png").write_bytes(b"\0")
    assert weights(audit_index(index(), work)) == {"unreadable": "fix"}
