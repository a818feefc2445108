"""The page that shows how a folder is read: pictures from the reader only, everything else escaped."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
from PIL import Image

from m3b.data.index import Index, Record, write_records
from m3b.models.example_images import choose_examples, draw_examples, format_labels
from m3b.models.image_jobs import ExampleCase, ExampleCases, ExamplesRequest
from m3b.report.manifest_page import is_png, render_manifest_page

PLAN = {
    "task": "segmentation",
    "proposals": [
        {"title": "<b>best</b>", "score": 0.9, "evidence": ["88 masks"], "doubts": ["patients"], "manifest": {"task": "x"}},
        {"title": "another", "score": 0.4, "evidence": [], "doubts": []},
    ],
    "insufficient": "which is meant?",
    "counts": {
        "train": 30, "test": 8, "patients": "unknown", "grouped_by": "the part {id} of {id}.png", "notes": ["cut at 128"],
        "accounting": {"files": 90, "used": {"image": 44}, "left_out": [{"reason": "no mask", "files": 2, "examples": ["a"]}]},
    },
}  # fmt: skip


def make(work: Path) -> Path:
    records = []
    for at in range(10):
        Image.fromarray(np.full((20, 24), 90, np.uint8)).save(work / f"i{at}.png")
        mask = np.zeros((20, 24), np.uint8)
        mask[4:12, 5:15] = 1
        Image.fromarray(mask).save(work / f"m{at}.png")
        records.append(Record(f"i{at}.png", patient=f"p{at}", mask=f"m{at}.png"))
    (work / "i3.png").write_bytes(b"no picture")
    write_records(work / "Datapath/train.json", records[:7], "segmentation")
    write_records(work / "Datapath/test.json", records[7:], "segmentation")
    (work / "Datapath/label_dict.json").write_text(json.dumps({"polyp": 1}))
    return work


def test_examples_show_masks_of_both_parts_and_say_what_does_not_open(tmp_path: Path) -> None:
    examples = draw_examples(ExamplesRequest(make(tmp_path), "segmentation"))
    cases = examples.cases
    assert [(name, len(colour)) for name, colour in examples.legend] == [("polyp", 7)]
    assert {case.split for case in cases} == {"training", "testing"}
    good = [case for case in cases if case.png]
    assert len(good) >= 5
    assert all(is_png(case.png) for case in good)
    assert all(case.error for case in cases if not case.png)
    (tmp_path / "a.png").write_bytes(base64.b64decode(good[0].png))
    with Image.open(tmp_path / "a.png") as picture:
        colours = picture.convert("RGB").getcolors(1 << 20) or []
    assert len(colours) > 1, "the contour of the mask is drawn"


def test_every_class_is_among_the_examples() -> None:
    records = [Record(f"{at}.png", (("a", "b", "c")[at % 3],), f"p{at}") for at in range(60)]
    examples = choose_examples(Index(tuple(records[:40]), tuple(records[40:]), ("a", "b", "c")))
    assert {(side, record.labels[0]) for side, record in examples} >= {
        (s, c) for s in ("training", "testing") for c in "abc"
    }
    assert len(examples) <= 12


def test_labels_of_examples_in_words() -> None:
    followed = Record("a.png", (), "p", extra={"time": 12.5, "event": False})
    assert format_labels(followed, ["survival (months)"]) == "survival (months) 12.5, no event"
    assert format_labels(Record("a.png", (), "p", extra={"value": 40.2}), ["density (g)"]) == "density (g) 40.2"
    assert format_labels(Record("a.png", (), "p"), ["round", "square"]) == "none"
    assert format_labels(Record("a.png", (), "p", mask="m.png"), ["liver"]) == ""


def test_the_page_tells_all_and_runs_nothing() -> None:
    bad = ExampleCase("<i>x</i>", "training", "polyp", png='"><script>alert(1)</script>')
    page = render_manifest_page("Find <script>", PLAN, ExampleCases((bad,), (("<b>polyp", "#ff0000"), ("x", "red;}"))))
    assert "<script>alert" not in page
    assert "<b>best" not in page
    assert 'fill="#ff0000"' in page
    assert "&lt;b&gt;polyp" in page
    assert "red;" not in page
    assert "http" not in page.replace("http-equiv", "")
    for words in ("which is meant?", "88 masks", "another", "left out: no mask", "cut at 128", "unknown", "--manifest"):
        assert words in page
    assert not is_png(base64.b64encode(b"GIF89a").decode())
