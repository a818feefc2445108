"""Targets of an index that a script made, held against the archive: masks, boxes and texts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from spec_kit import mask, picture

from m3b.data.records import BoxLabel, Record, Report
from m3b.data.spec.against import Compared, compare
from m3b.data.spec.against.texts import share_of
from m3b.data.spec.proposals import Ask, propose
from m3b.data.survey import survey

SIZE, CASES = (24, 30), 12
SEGMENT = Ask("segmentation", "Segment polyps in colonoscopy images")
FIND = Ask("detection", "Find masses and nodules on mammograms, with boxes", boxes=True)
WRITE = Ask("report", "Write the findings of chest X-rays")


def held(root: Path, ask: Ask, records: list[Record], values: dict[str, int], base: Path | None = None) -> Compared:
    return compare(propose(survey(root), ask), root, "set", records, values, base)


# --- masks -----------------------------------------------------------------------------------------------------------


def polyps(root: Path) -> list[Record]:
    """Images with masks, and an index that names the archive's own files."""
    for at in range(CASES):
        picture(root / "images" / f"p{at:02d}.png", 80, SIZE)
        mask(root / "masks" / f"p{at:02d}.png", (at, 3 + at, at + 6, 9 + at), size=SIZE)
    return [
        Record(f"data/set/images/p{at:02d}.png", patient=f"p{at}", mask=f"data/set/masks/p{at:02d}.png")
        for at in range(CASES)
    ]


def redrawn(root: Path, base: Path, records: list[Record], draw: Callable[[np.ndarray], np.ndarray]) -> list[Record]:
    """The index with masks that a script wrote."""
    made = []
    for at, record in enumerate(records):
        array = np.asarray(Image.open(root / "masks" / f"p{at:02d}.png"))
        file = base / "Datapath" / "made" / f"{at}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw(array > 0).astype(np.uint8)).save(file)
        made.append(replace(record, mask=f"Datapath/made/{at}.png"))
    return made


def test_the_archives_own_mask_files_agree(tmp_path: Path) -> None:
    found = held(tmp_path, SEGMENT, polyps(tmp_path), {"polyp": 255})
    assert (found.what, found.compared, found.agreeing, found.expected) == ("masks", CASES, CASES, True)
    assert "masks/" in found.source


def test_masks_that_were_written_anew_with_the_same_pixels_agree(tmp_path: Path) -> None:
    root, base = tmp_path / "raw", tmp_path / "work"
    made = redrawn(root, base, polyps(root), lambda marked: marked * 1)
    found = held(root, SEGMENT, made, {"lesion": 1}, base)
    assert (found.compared, found.agreeing, found.fits) == (CASES, CASES, True)


@pytest.mark.parametrize(
    "draw",
    [
        lambda marked: marked * 0,
        lambda marked: marked * 0 + 1,
        lambda marked: np.roll(marked, 5, 1),
        lambda marked: 1 - marked,
    ],
    ids=["empty", "everything", "moved", "inverted"],
)
def test_masks_that_a_script_made_up_do_not(tmp_path: Path, draw: Callable[[np.ndarray], np.ndarray]) -> None:
    root, base = tmp_path / "raw", tmp_path / "work"
    made = redrawn(root, base, polyps(root), draw)
    found = held(root, SEGMENT, made, {"polyp": 1}, base)
    assert found.compared == CASES
    assert not found.fits
    assert "marked pixels are not as they are there" in found.differing[0]


def test_masks_of_other_images_are_seen(tmp_path: Path) -> None:
    root, base = tmp_path / "raw", tmp_path / "work"
    records = polyps(root)
    shifted = [replace(one, mask=records[at - 1].mask) for at, one in enumerate(records)]
    found = held(root, SEGMENT, shifted, {"polyp": 255}, base)
    assert (found.compared, found.agreeing) == (CASES, 0)


def test_classes_whose_names_changed_places_are_seen(tmp_path: Path) -> None:
    names = {"disc": 1, "cup": 2}
    records = []
    for at in range(CASES):
        picture(tmp_path / "images" / f"p{at:02d}.png", 80, SIZE)
        both = np.zeros(SIZE, np.uint8)
        both[at : at + 8, 4:14], both[at + 2 : at + 5, 6:10] = 1, 2
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.fromarray(both).save(tmp_path / "masks" / f"p{at:02d}.png")
        records.append(Record(f"data/set/images/p{at:02d}.png", patient=f"p{at}", mask=f"data/set/masks/p{at:02d}.png"))
    (tmp_path / "labels.json").write_text(json.dumps({"1": "disc", "2": "cup"}))
    ask = Ask("segmentation", "Segment the optic disc and cup on fundus photographs", notes="Masks: 1 disc, 2 cup")
    assert held(tmp_path, ask, records, names).fits
    swapped = held(tmp_path, ask, records, {"disc": 2, "cup": 1})
    assert (swapped.compared, swapped.agreeing) == (CASES, 0)
    assert "another value" in swapped.differing[0]


def outlined(root: Path) -> list[Record]:
    """Images with LabelMe rectangles beside them; the index's masks come from a script."""
    for at in range(CASES):
        picture(root / f"p{at:02d}.png", 80, SIZE)
        shape = {"label": "polyp", "shape_type": "rectangle", "points": [[3, at], [19, at + 10]]}
        raw = {"imagePath": f"p{at:02d}.png", "imageHeight": SIZE[0], "imageWidth": SIZE[1], "shapes": [shape]}
        (root / f"p{at:02d}.json").write_text(json.dumps(raw))
    return [Record(f"data/set/p{at:02d}.png", patient=f"p{at}", mask=f"{at}.png") for at in range(CASES)]


@pytest.mark.parametrize(("wider", "fits"), [(0, True), (1, True), (3, False)])
def test_outlines_may_be_drawn_a_pixel_wider(tmp_path: Path, wider: int, *, fits: bool) -> None:
    root, base = tmp_path / "raw", tmp_path / "work"
    base.mkdir()
    for at, _ in enumerate(records := outlined(root)):
        mask(base / f"{at}.png", (max(0, at - wider), 3 - wider, at + 10 + wider, 19 + wider), 1, SIZE)
    found = held(root, SEGMENT, records, {"polyp": 1}, base)
    assert (found.compared, found.fits) == (CASES, fits)


# --- boxes -----------------------------------------------------------------------------------------------------------


def marks(root: Path) -> list[Record]:
    """A table of corners, and the index that follows from it."""
    rows, records = [], []
    for at in range(CASES):
        picture(root / "images" / f"m{at:02d}.png", 80, (60, 60))
        boxes = [("mass", (5 + at, 6, 20 + at, 22)), ("nodule", (30, 30 + at, 38, 40 + at))][: 1 + at % 2]
        rows += [(f"m{at:02d}.png", name, *box) for name, box in boxes]
        labelled = tuple(BoxLabel(name, tuple(map(float, box))) for name, box in boxes)
        records.append(Record(f"data/set/images/m{at:02d}.png", patient=f"m{at}", boxes=labelled))
    with (root / "boxes.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("filename", "class", "xmin", "ymin", "xmax", "ymax"), *rows])
    return records


def moved(record: Record, by: float) -> Record:
    return replace(record, boxes=tuple(BoxLabel(b.label, tuple(v + by for v in b.box)) for b in record.boxes or ()))


def test_boxes_within_a_pixel_agree_whatever_their_classes_are_called(tmp_path: Path) -> None:
    records = [moved(one, -1.0) for one in marks(tmp_path)]
    found = held(tmp_path, FIND, records, {"mass": 0, "nodule": 1})
    assert (found.what, found.compared, found.agreeing, found.expected) == ("boxes", CASES, CASES, True)
    renamed = [replace(one, boxes=tuple(BoxLabel(f"a {b.label}", b.box) for b in one.boxes or ())) for one in records]
    assert held(tmp_path, FIND, renamed, {"a mass": 0, "a nodule": 1}).fits
    one_class = [replace(one, boxes=tuple(b for b in one.boxes or () if b.label == "mass")) for one in records]
    assert held(tmp_path, FIND, one_class, {"mass": 0}).fits


def test_boxes_elsewhere_of_other_classes_or_missing_are_seen(tmp_path: Path) -> None:
    records = marks(tmp_path)
    values = {"mass": 0, "nodule": 1}
    other = {"mass": "nodule", "nodule": "mass"}
    swapped = [replace(one, boxes=tuple(BoxLabel(other[b.label], b.box) for b in one.boxes or ())) for one in records]
    for wrong in ([moved(one, 4.0) for one in records], swapped, [replace(one, boxes=()) for one in records]):
        found = held(tmp_path, FIND, wrong, values)
        assert (found.compared, found.agreeing) == (CASES, 0), found.differing
    assert "boxes there are not in the index" in found.differing[0]


# --- texts -----------------------------------------------------------------------------------------------------------


def reports(root: Path) -> list[Record]:
    rows, records = [], []
    for at in range(CASES):
        picture(root / "images" / f"r{at:02d}.png", 80, SIZE)
        text = f"The heart is of normal size. There is a nodule of {at + 3} mm in the {('left', 'right')[at % 2]} lung, zone {at}."
        rows.append((f"r{at:02d}.png", text))
        records.append(Record(f"data/set/images/r{at:02d}.png", patient=f"r{at}", report=Report(text, "")))
    with (root / "reports.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("filename", "findings"), *rows])
    return records


def test_texts_agree_when_they_are_tidied_and_not_when_they_are_of_others_or_made_up(tmp_path: Path) -> None:
    records = reports(tmp_path)
    tidied = [
        replace(one, report=Report(one.report.findings.upper().replace(". ", ".\n"), ""))
        for one in records
        if one.report
    ]
    found = held(tmp_path, WRITE, tidied, {})
    assert (found.what, found.compared, found.agreeing, found.expected) == ("texts", CASES, CASES, True)
    shifted = [replace(one, report=records[at - 1].report) for at, one in enumerate(records)]
    assert held(tmp_path, WRITE, shifted, {}).agreeing == 0
    same = [replace(one, report=Report("No acute disease of the chest is seen today.", "")) for one in records]
    wrong = held(tmp_path, WRITE, same, {})
    assert wrong.agreeing == 0
    assert "a text of 9 words that is not there" in wrong.differing[0]


def test_short_texts_must_stand_there_as_a_whole() -> None:
    assert share_of("Normal.", "normal chest") == 1.0
    assert share_of("Normal heart", "the heart is normal") == 0.0
    assert share_of("", "normal") == 0.0
