"""The task that a look takes where a request names none: the one of which the folder gives a reading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from wrong_kit import picture, polyps

from m3b.cli.app import app
from m3b.errors import UsageError
from m3b.run.dataset_preview import preview_dataset


@pytest.mark.parametrize(("request_", "task"), [("Find polyps in endoscopy images", "detection"),
                                                ("Polyps in endoscopy images", "segmentation")])  # fmt: skip
def test_masks_are_read_where_no_class_is(tmp_path: Path, request_: str, task: str) -> None:
    polyps(tmp_path / "data")
    (tmp_path / "place").mkdir()
    preview = preview_dataset(tmp_path / "data", request_, tmp_path / "place")
    assert preview.task == task
    assert preview.counts["train"] + preview.counts["test"] == 16


def test_a_task_that_is_named_stays(tmp_path: Path) -> None:
    polyps(tmp_path / "data")
    (tmp_path / "place").mkdir()
    preview = preview_dataset(tmp_path / "data", "Find polyps", tmp_path / "place", task="diagnosis")
    assert preview.task == "diagnosis"
    assert not preview.proposals
    with pytest.raises(UsageError, match=r"'foo'.*segmentation"):
        preview_dataset(tmp_path / "data", "Find polyps", tmp_path / "place", task="foo")


def test_masks_are_read_though_the_request_speaks_of_boxes(tmp_path: Path) -> None:
    polyps(tmp_path / "data")
    (tmp_path / "place").mkdir()
    preview = preview_dataset(tmp_path / "data", "Segment polyps; no boxing is wanted", tmp_path / "place")
    assert (preview.task, preview.insufficient) == ("segmentation", "")


def test_nothing_that_fits_is_a_refusal_with_what_there_is(tmp_path: Path) -> None:
    for number in range(8):
        picture(tmp_path / "data" / f"s{number}.png", number)
    (tmp_path / "place").mkdir()
    preview = preview_dataset(tmp_path / "data", "Find polyps", tmp_path / "place")
    assert preview.decision.kind == "refuse"
    assert preview.decision.code == "no_targets"
    with pytest.raises(UsageError, match="empty"):
        preview_dataset(tmp_path / "data", " ", tmp_path / "place")


def objects(root: Path) -> None:
    """A table with a row an object: box and kind of cell; most images show both kinds."""
    rows = ["filename,xmin,ymin,xmax,ymax,cell_type"]
    for at in range(30):
        picture(root / "images" / f"smear_{at:02d}.png", at)
        for kind, x_min in (("red", 4), ("white", 24 if at else 30))[: 1 if at % 10 == 0 else 2]:
            rows.append(f"smear_{at:02d}.png,{x_min + at % 5},{5 + at % 7},{x_min + 7},{22 + at % 3},{kind}")
    (root / "cells.csv").write_text("\n".join(rows) + "\n")


def test_a_table_of_objects_labels_no_images(tmp_path: Path) -> None:
    """Read as a diagnosis by the column of the objects' kinds, four of thirty images were left, and it passed."""
    objects(tmp_path / "raw")
    (tmp_path / "place").mkdir()
    preview = preview_dataset(tmp_path / "raw", "Detect blood cells in these smears", tmp_path / "place")
    assert (preview.task, preview.insufficient) == ("detection", "")
    assert preview.counts["train"] + preview.counts["test"] == 30
    (tmp_path / "other").mkdir()
    preview = preview_dataset(tmp_path / "raw", "Tell red from white blood cells", tmp_path / "other", task="diagnosis")
    assert preview.insufficient


def test_without_a_request_it_is_told_what_is_there(tmp_path: Path) -> None:
    objects(tmp_path / "raw")
    result = CliRunner().invoke(app, ["look", str(tmp_path / "raw")])
    assert result.exit_code == 0, result.output
    assert "images/smear_{number1:number}.png x30" in result.output
    assert "as detection: " in result.output
    preview = json.loads(CliRunner().invoke(app, ["look", str(tmp_path / "raw"), "--json"]).output)
    assert {proposal["task"] for proposal in preview["proposals"]} >= {"detection", "diagnosis"}
    (tmp_path / "empty").mkdir()
    for words, message in (
        (["look", str(tmp_path / "empty")], "holds no images, tables or annotations"),
        (["look", str(tmp_path / "raw"), "--page", "x.html"], "say what the model should do"),
    ):
        done = CliRunner().invoke(app, words)
        assert message in str(done.exception)
