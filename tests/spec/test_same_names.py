"""Files of several folders that are called alike: a row, a mask or a report of one is not taken for the others'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import layout_kit as kit
import pytest
from spec_kit import mask, picture

from m3b.data.spec.model import FromTable, IndexSpec
from m3b.data.spec.sources import below, folder_of

HEAD = ("filename", "head circumference (mm)")
REQUEST = "Estimate the head circumference in mm from fetal ultrasound"


def parts(root: Path, train: str = "training_set", test: str = "test_set", size: int = 24, tested: int = 8) -> None:
    for part, count in ((train, size), (test, tested)):
        for at in range(count):
            picture(root / part / f"{at:03d}_HC.png", 60 + 3 * at, (24, 32))


def rows(count: int, first: float = 80.0) -> list[tuple[str, float]]:
    return [(f"{at:03d}_HC.png", round(first + 3.1 * at, 1)) for at in range(count)]


def table(file: Path, head: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    kit.table(file, kit.Names(), head, list(lines))


def found(root: Path, want: kit.Want, tmp_path: Path) -> kit.Verdict:
    (tmp_path / "work").mkdir(exist_ok=True)
    return kit.read(root, want, tmp_path / "work")


@pytest.mark.parametrize("name", ["training_set_pixel_size_and_HC.csv", "training_set/values.csv", "train.csv"])
def test_rows_of_one_part_say_nothing_of_the_other(name: str, tmp_path: Path) -> None:
    parts(tmp_path / "raw")
    table(tmp_path / "raw" / name, HEAD, rows(24))
    got = found(tmp_path / "raw", kit.Want(REQUEST, "regression", 24), tmp_path)
    assert (got.wrong, got.why) == ("", "")
    assert got.best is not None
    assert got.best.spec.value is not None
    assert isinstance(got.best.spec.value.source, FromTable)
    assert set(got.best.spec.value.source.within.values()) == {"training_set"}


def test_rows_that_may_be_of_either_folder_are_asked_about(tmp_path: Path) -> None:
    parts(tmp_path / "raw", "first", "second")
    table(tmp_path / "raw/values.csv", HEAD, rows(24))
    got = found(tmp_path / "raw", kit.Want(REQUEST, "regression", 24), tmp_path)
    assert "which of the folders first, second the rows of values.csv speak of" in got.why


def test_rows_that_name_all_of_one_folder_and_some_of_another_are_those_of_the_first(tmp_path: Path) -> None:
    parts(tmp_path / "raw", "first", "second")
    for at in range(90, 99):
        picture(tmp_path / "raw/second" / f"{at:03d}_HC.png", 60, (24, 32))
    table(tmp_path / "raw/values.csv", HEAD, rows(24))
    got = found(tmp_path / "raw", kit.Want(REQUEST, "regression", 24), tmp_path)
    assert (got.wrong, got.why) == ("", "")


def test_each_part_with_a_table_keeps_its_own_values(tmp_path: Path) -> None:
    root, label = tmp_path / "raw", ("image", "diagnosis")
    parts(root, "train", "test", 24, 12)
    table(root / "train.csv", label, [(f"{at:03d}_HC.png", ("sick", "healthy")[at % 2]) for at in range(24)])
    table(root / "test.csv", label, [(f"{at:03d}_HC.png", ("healthy", "sick")[at % 2]) for at in range(12)])
    want = kit.Want("Tell sick from healthy", "diagnosis", 36, frozenset(("sick", "healthy")), tested="test/")
    got = found(root, want, tmp_path)
    assert (got.wrong, got.why) == ("", "")
    assert got.made is not None
    by_path = {one.image: one.labels for one in (*got.made.train, *got.made.test)}
    assert by_path["data/set/train/000_HC.png"] == ("sick",)
    assert by_path["data/set/test/000_HC.png"] == ("healthy",)


def test_masks_of_one_part_are_not_those_of_the_other(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    parts(root)
    for at in range(24):
        mask(root / "training_set" / f"{at:03d}_HC_Annotation.png", (at % 8, 2, at % 8 + 7, 9 + at), size=(24, 32))
    got = found(root, kit.Want("Segment the fetal head on ultrasound", "segmentation", 24), tmp_path)
    assert (got.wrong, got.why) == ("", "")


def test_masks_that_may_be_of_either_folder_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    parts(root, "first", "second", 20, 8)
    for at in range(20):
        mask(root / "masks" / f"{at:03d}_HC.png", (at % 8, 2, at % 8 + 7, 9 + at), size=(24, 32))
    got = found(root, kit.Want("Segment the fetal head on ultrasound", "segmentation", 20), tmp_path)
    assert "whose the masks are: 16 images" in got.why


def test_boxes_that_may_be_of_either_folder_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    parts(root, "first", "second", 20, 20)
    head = ("filename", "xmin", "ymin", "xmax", "ymax", "class")
    table(root / "boxes.csv", head, [(f"{at:03d}_HC.png", at % 9, 2, at % 9 + 8, 12, "lesion") for at in range(20)])
    assert found(root, kit.Want("Find lesions with boxes", "detection", 20, boxes=True), tmp_path).why


def test_a_part_s_reports_are_not_the_other_s(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    parts(root, "train", "test", 20, 8)
    text = "The scan shows a round lesion of {} mm in the left lobe, which enhances at its border."
    table(root / "train_reports.csv", ("image", "caption"), [(f"{at:03d}_HC.png", text.format(at)) for at in range(20)])
    got = found(root, kit.Want("Write a caption for an ultrasound image", "report", 20), tmp_path)
    assert (got.wrong, got.why) == ("", "")


def test_views_of_a_case_share_a_row(tmp_path: Path) -> None:
    root, lines = tmp_path / "raw", []
    for at in range(20):
        for view in ("frontal", "lateral"):
            picture(root / view / f"{at:03d}.png", 60 + 3 * at, (24, 32))
        lines.append((f"{at:03d}.png", ("sick", "healthy")[at % 2]))
    table(root / "labels.csv", ("image", "diagnosis"), lines)
    want = kit.Want("Tell sick from healthy on frontal X-rays", "diagnosis", 20, frozenset(("sick", "healthy")))
    got = found(root, want, tmp_path)
    assert "which of the folders" not in got.why


def test_a_table_speaks_of_its_folder() -> None:
    value = FromTable(
        file="{site}/labels.csv", row="{image}", column="label", within={"*/labels.csv": "{folder0}/images"}
    )
    assert folder_of(value, "a/labels.csv", {"folder0": "a"}) == "a/images"
    assert (folder_of(value, "labels.csv", {}), below("a/b/c.png", ""), below("a/b/c.png", "a/b")) == ("", True, True)
    assert not below("a/bc.png", "a/b")
    assert IndexSpec.model_json_schema()
