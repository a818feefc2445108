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


@pytest.mark.parametrize("alike", [True, False])
def test_views_of_a_breast_are_a_study_and_both_breasts_are_not(alike: bool, tmp_path: Path) -> None:
    """`W001_L_CC`: left and right of one view had been a study, whose second view was left out without a word."""
    rows = ["woman,finding"]
    for n in range(40):
        rows.append(f"W{n:03d},{('benign', 'malignant')[n % 2]}")
        for side in ("L", "R"):
            for view in ("CC", "MLO"):
                if view == "CC" or n % 9:
                    size = (24, 24) if alike or view == "CC" else (24, 30)
                    picture(tmp_path / "raw" / "png" / f"W{n:03d}_{side}_{view}.png", 60 + n, size)
    (tmp_path / "raw" / "exams.csv").write_text("\n".join(rows))
    request = "Tell benign from malignant on mammograms, both views together"
    best = propose(survey(tmp_path / "raw"), Ask("diagnosis", request))[0]
    assert best.spec.labels is not None
    assert set(best.spec.labels.classes) == {"benign", "malignant"}
    if "are wanted too: they are other views" in best.unclear:
        return
    done = execute(best.spec, tmp_path / "raw", name="raw", work=tmp_path / "work")
    keys = {one.key for one in (*done.train, *done.test)}
    assert len(keys) == 80
    assert "data/raw/png/W001_L_CC.png|data/raw/png/W001_L_MLO.png" in keys
    assert "data/raw/png/W009_L_CC.png" in keys


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
