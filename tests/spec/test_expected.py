"""What an index would hold is told before any image is opened, and is what the executed one holds where all images open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spec_kit import mask, picture

from m3b.data.spec.execute import execute
from m3b.data.spec.expected import MAX_FILES, expected
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.readers import Readers

ROW = {"file": "cases.csv", "row": "{file}", "image": "{name}"}
LABELS = {"sources": [{**ROW, "column": "dx"}], "classes": {"normal": [], "sick": []}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty pictures of twenty people with labels, masks of thirty, boxes of the odd ones, and a list of eight."""
    root, rows, marks = tmp_path / "raw", ["file,dx,who,months,text"], ["file,x0,y0,x1,y1,what"]
    for n in range(40):
        name = f"s{n:02d}.png"
        picture(root / "img" / name)
        rows.append(f"{name},{['normal', 'sick'][n // 2 % 2]},Q{n // 2},{n + 5},{'Clear.' if n % 4 else ''}")
        if n < 30:
            mask(root / "mask" / name)
        if n % 2:
            marks.append(f"{name},1,1,5,5,nodule")
    (root / "cases.csv").write_text("\n".join(rows))
    (root / "marks.csv").write_text("\n".join(marks))
    (root / "later.txt").write_text("\n".join(f"s{n:02d}.png" for n in range(8)))
    (root / "later.csv").write_text("\n".join(["id,picture", *(f"{n},s{n:02d}.png" for n in range(8))]))
    return root


IMAGES = {"files": {"pattern": "img/{s}.png"}}
BOXES = {"format": "csv_boxes", "files": {"pattern": "marks.csv"}, "classes": {"nodule": []},
         "columns": {"image": "file", "class": "what", "xmin": "x0", "ymin": "y0", "xmax": "x1", "ymax": "y1"}}  # fmt: skip
WHO = {**ROW, "column": "who"}
LATER = {"lists": {"later": ["later.txt"]}, "image": "{name}", "rest": "others"}
SPECS: dict[str, dict[str, Any]] = {
    "drawn": {"task": "diagnosis", "images": IMAGES, "labels": LABELS, "patient": WHO},
    "listed": {"task": "diagnosis", "images": IMAGES, "labels": LABELS, "patient": WHO,
               "split": {"source": LATER, "train": ["others"], "test": ["later"]}},
    "in a table": {"task": "diagnosis", "images": IMAGES, "labels": LABELS, "patient": WHO,
                   "split": {"source": {**LATER, "lists": {"later": ["later.csv"]}, "column": "picture"},
                             "train": ["others"], "test": ["later"]}},
    "masks": {"task": "segmentation", "images": IMAGES, "patient": WHO,
              "masks": {"files": {"pattern": "mask/{s}.png"}, "by": ["", "stem"], "classes": {"spot": 255}}},
    "boxes": {"task": "detection", "images": IMAGES, "boxes": BOXES},
    "reports": {"task": "report", "images": IMAGES, "report": {"findings": {**ROW, "column": "text"}}, "patient": WHO},
    "numbers": {"task": "regression", "images": IMAGES, "patient": WHO,
                "value": {"source": {**ROW, "column": "months"}, "name": "age", "unit": "months", "codes": [7]}},
}  # fmt: skip


def told(spec: dict[str, Any], root: Path) -> str:
    readers = Readers(root)
    return expected(IndexSpec.model_validate(spec), root, readers, readers.files()).text


@pytest.mark.parametrize("name", SPECS)
def test_the_counts_are_those_of_the_executed_index(name: str, folder: Path, tmp_path: Path) -> None:
    spec = IndexSpec.model_validate(SPECS[name])
    made = execute(spec, folder, name="set", work=tmp_path / "work")
    said = told(SPECS[name], folder)
    for word, records in (("training", made.train), ("testing", made.test)):
        people = f"{len({one.patient for one in records})} patients" if made.patients else "patients unknown"
        part = next(one for one in said.split("; ") if one.startswith(word))
        assert part.startswith(f"{word} {len(records)} ("), said
        assert people in said
    whose = "the data set's own split" if spec.split.source is not None else "a split that m3b draws"
    assert said.endswith(whose)


def test_classes_are_counted_in_each_part(folder: Path) -> None:
    assert told(SPECS["listed"], folder) == (
        "training 32 (normal 16, sick 16; 16 patients); testing 8 (normal 4, sick 4; 4 patients); by the data set's own split"
    )
    assert told(SPECS["listed"], folder) == told(SPECS["in a table"], folder)
    assert "nodule" in told(SPECS["boxes"], folder)
    assert "nothing marked" in told(SPECS["boxes"], folder)


def test_patients_of_the_test_part_are_counted_there_alone(folder: Path) -> None:
    (folder / "later.txt").write_text("s00.png\ns02.png\n")
    assert "training 36 " in told(SPECS["listed"], folder)
    assert "testing 2 " in told(SPECS["listed"], folder)


def test_what_does_not_fit_or_is_too_large_is_not_counted(folder: Path) -> None:
    wrong = json.loads(json.dumps(SPECS["drawn"]).replace('"dx"', '"finding"'))
    assert told(wrong, folder) == ""
    spec, readers = IndexSpec.model_validate(SPECS["drawn"]), Readers(folder)
    assert expected(spec, folder, readers, ["x.png"] * (MAX_FILES + 1)).text == ""


def test_training_cases_are_counted_for_whoever_offers_readings(folder: Path) -> None:
    gone = {"sources": [{**ROW, "column": "dx"}], "classes": {"absent": [], "away": []}}
    readers = Readers(folder)
    found = [
        expected(IndexSpec.model_validate(spec), folder, readers, readers.files())
        for spec in ({**SPECS["drawn"], "labels": gone}, SPECS["drawn"])
    ]
    assert found[0].training == 0
    assert found[0].text.startswith("training 0 (")
    assert f"training {found[1].training} " in found[1].text
    assert found[1].training
