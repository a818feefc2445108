"""A reading that is borne out just as well as the one that is taken is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from spec_kit import mask, picture

from m3b.data.spec.inside import answer as answered
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.proposals import Proposal, rival


def reading(title: str, score: float, folder: str, **more: object) -> Proposal:
    masks = {"files": {"pattern": f"{folder}/{{s}}.png"}, "by": ["", "stem"], "classes": {"polyp": 255}}
    raw = {"task": "segmentation", "images": {"files": {"pattern": "images/{s}.png"}}, "masks": masks, **more}
    return Proposal(IndexSpec.model_validate(raw), title, score, ("evidence",))


FIRST = reading("masks from first", 0.651, "first")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (reading("masks from second", 0.649, "second"), True),
        (reading("masks from second", 0.64, "second"), False),
        (reading("masks from first, other split", 0.651, "first", split={"share": 0.3}), False),
    ],
)
def test_another_target_of_the_same_score_is_a_rival(other: Proposal, named: bool) -> None:
    assert (other.title in rival([FIRST, other])) is named
    assert rival([FIRST]) == rival([]) == ""


def test_classes_of_a_diagnosis_are_asked_about_elsewhere() -> None:
    labels = [{"sources": [f"{{folder{n}}}"], "classes": {"a": [], "b": []}} for n in (0, 1)]
    specs = [IndexSpec.model_validate({"task": "diagnosis", "images": {"files": {"pattern": "*/*/{s}.png"}}, "labels": one})
             for one in labels]  # fmt: skip
    best = replace(FIRST, spec=specs[0])
    assert rival([best, replace(best, spec=specs[1], title="level 1")]) == ""
    graded = [one.model_copy(update={"task": "grading", "labels": one.labels and one.labels.model_copy(update={"ordered": True})})
              for one in specs]  # fmt: skip
    assert "level 1" in rival([replace(best, spec=graded[0]), replace(best, spec=graded[1], title="level 1")])


def test_two_observers_masks_are_told_with_the_proposals(tmp_path: Path) -> None:
    root, place = tmp_path / "polyps", tmp_path / "job"
    place.mkdir()
    for n in range(16):
        picture(root / "images" / f"p{n * 3:03d}.png")
        mask(root / "first" / f"p{n * 3:03d}.png", (n % 8, n % 11, n % 8 + 3, n % 11 + 4))
        mask(root / "second" / f"p{n * 3:03d}.png", (n % 7, n % 11, n % 7 + 4, n % 11 + 4))
    job = {"do": "propose", "task": "segmentation", "request": "Segment polyps in endoscopy images", "classes": [], "notes": "",
           "boxes": None, "seconds": 60, "root": str(root), "place": str(place)}  # fmt: skip
    answer = answered(job)
    assert answer["insufficient"] == ""
    first, second = (next(i for i, one in enumerate(answer["readings"]) if name in one["title"]) for name in
                     ("first", "second"))  # fmt: skip
    assert {first, second} == {0, 1}
    assert answer["readings"][1]["title"] in answer["rival"]
    assert answer["readings"][0]["doubts"][0] == answer["rival"]
