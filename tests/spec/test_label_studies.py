"""Studies of several views that are to be answered together: asked for, they are one case; unasked, each view is its own."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from spec_kit import picture

from m3b.data.index import read_records, write_records
from m3b.data.records import Record
from m3b.data.spec.execute import execute
from m3b.data.spec.proposals import Ask, propose
from m3b.data.survey import survey
from m3b.errors import DataError


def folder(root: Path, rows: str = "study") -> Path:
    """Two views of 40 studies, one of which lacks the lateral one; a table with a row a study or an image."""
    root.mkdir()
    with (root / "films.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["study" if rows == "study" else "file", "patient_id", "finding"])
        for at in range(40):
            for view in ("frontal", "lateral"):
                if (at, view) != (7, "lateral"):
                    picture(root / "films" / f"s{at:03d}_{view}.png", 40 + 2 * at + (view == "lateral"), (24, 24))
                    if rows == "image":
                        table.writerow([f"s{at:03d}_{view}.png", f"p{at:02d}", ("normal", "pneumonia")[at % 2]])
            if rows == "study":
                table.writerow([f"s{at:03d}", f"p{at:02d}", ("normal", "pneumonia")[at % 2]])
    return root


@pytest.mark.parametrize("rows", ["study", "image"])
@pytest.mark.parametrize(
    ("request_", "views"),
    [
        ("Tell pneumonia from normal on chest films, from both views", True),
        ("Tell pneumonia from normal on frontal and lateral chest films", True),
        ("Tell pneumonia from normal on chest films", False),
    ],
)
def test_views_are_one_case_where_that_is_asked_for(rows: str, request_: str, views: bool, tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", rows)
    best = propose(survey(root), Ask("diagnosis", request_))[0]
    assert (best.spec.images.several == "views") is views
    assert best.spec.labels is not None
    assert set(best.spec.labels.classes) == {"normal", "pneumonia"}
    done = execute(best.spec, root, name="raw", work=tmp_path / "work")
    records = {one.key: one for one in (*done.train, *done.test)}
    if not views:
        assert not any(one.views for one in records.values())
        return
    assert len(records) == 40
    both = records["data/raw/films/s006_frontal.png|data/raw/films/s006_lateral.png"]
    alone = records["data/raw/films/s007_frontal.png"]
    assert both.views
    assert not alone.views
    assert (both.labels, alone.labels) == (("normal",), ("pneumonia",))
    assert any("studies of several views" in one for one in best.evidence)
    write_records(tmp_path / "train.json", done.train, "diagnosis")
    assert '"several": "views"' in (tmp_path / "train.json").read_text()
    assert read_records(tmp_path / "train.json", "diagnosis") == done.train


def test_views_beside_slices_are_refused(tmp_path: Path) -> None:
    views = Record(("data/x/1.png", "data/x/2.png"), ("ill",), "p1", views=True)
    slices = Record(("data/x/3.png", "data/x/4.png"), ("ill",), "p2")
    single = Record("data/x/5.png", ("ill",), "p3")
    write_records(tmp_path / "train.json", [views, single], "diagnosis")
    assert read_records(tmp_path / "train.json", "diagnosis") == (views, single)
    write_records(tmp_path / "train.json", [views, slices], "diagnosis")
    with pytest.raises(DataError, match="several images too"):
        read_records(tmp_path / "train.json", "diagnosis")
    write_records(
        tmp_path / "train.json", [Record(views.image, patient="p1", mask="data/x/m.png", views=True)], "segmentation"
    )
    with pytest.raises(DataError, match="takes views"):
        read_records(tmp_path / "train.json", "segmentation")
