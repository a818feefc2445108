"""Sets that come in parts: tables, reports and masks of each part, long paths in tables, and what is said of the files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import layout_kit as kit
import numpy as np
import pytest
import SimpleITK as sitk
from spec_kit import mask, picture, read

from m3b.data.delimited import sniff
from m3b.data.spec.proposals.scopes import are_parts, side_told
from m3b.data.survey import survey
from m3b.data.survey.keys import key


def table(file: Path, head: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    kit.table(file, kit.Names(), head, list(lines))


def found(root: Path, want: kit.Want, tmp_path: Path) -> kit.Verdict:
    (tmp_path / "work").mkdir(exist_ok=True)
    return kit.read(root, want, tmp_path / "work")


# --- long paths in tables --------------------------------------------------------------------------------------------


def chests(root: Path) -> None:
    """Each study's picture is called alike; a table a part names it by a path that begins above the folder."""
    head = ("Path", "Sex", "No Finding", "Cardiomegaly", "Pleural Effusion")
    for part, count in (("train", 24), ("valid", 12)):
        lines = []
        for at in range(count):
            place = f"{part}/patient{at // 2 + 500 * (part == 'valid'):05d}/study{1 + at % 2}/view1_frontal.jpg"
            picture(root / place, 60 + 3 * at, (24, 32))
            heart = "-1.0" if part == "train" and at in (2, 8) else ("1.0", "0.0")[at % 2]
            lines.append((f"Set-v1.0-small/{place}", "F", "", heart, ("0.0", "1.0", "1.0")[at % 3]))
        table(root / f"{part}.csv", head, lines)


def test_paths_that_begin_above_the_folder_name_one_file_each(tmp_path: Path) -> None:
    chests(tmp_path / "raw")
    text = "Detect pleural effusion and cardiomegaly on chest X-rays"
    got = found(tmp_path / "raw", kit.Want(text, "diagnosis", 34, tested="valid/"), tmp_path)
    assert (got.wrong, got.why) == ("", "")
    assert got.best is not None
    assert got.made is not None
    assert "100% of 36 images have a label" in got.best.evidence
    assert "uncertain (-1), so that these cases are left out: Cardiomegaly in 2 of 36 rows" in got.best.evidence
    assert any("Cardiomegaly 16, Pleural Effusion 24" in one for one in got.best.evidence)
    assert got.made.accounting.reasons()["it is uncertain whether it has Cardiomegaly"][0] == 2
    assert got.made.missing == 0
    assert not got.made.notes


def test_rows_that_disagree_on_a_finding_leave_the_case_out(tmp_path: Path) -> None:
    for at in range(8):
        picture(tmp_path / "raw" / f"{at}.png", 40 + 9 * at)
    lines = [(f"{at}.png", at % 2, 1 - at % 2) for at in range(8)] + [("0.png", 1, 0)]
    table(tmp_path / "raw/t.csv", ("image", "a", "b"), lines)
    source = {"kind": "table", "file": "t.csv", "row": "{image}", "image": "{name}", "rule": "name"}
    labels = {
        "sources": [{**source, "column": "a"}, {**source, "column": "b"}],
        "classes": {"a": [], "b": []},
        "one_hot": True,
    }
    made = read(tmp_path / "raw", tmp_path, task="diagnosis", images={"files": {"pattern": "{s}.png"}}, labels=labels,
                split={"share": 0.4})  # fmt: skip
    assert made.accounting.left["0.png"] == "the table has different labels for it"


@pytest.mark.parametrize(
    ("rule", "made"), [("tail", "c/d.png"), ("tail3", "b/c/d.png"), ("tail4", "a/b/c/d.png"), ("tail5", "")]
)
def test_so_many_last_parts_of_a_path(rule: str, made: str) -> None:
    assert key(rule, "A\\b\\c\\D.png") == made  # type: ignore[arg-type]


# --- a table of each part ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [False, True])
def test_reports_of_every_part_are_read(listed: bool, tmp_path: Path) -> None:
    root, text = tmp_path / "raw", "Computed tomography scan of the chest showing finding number {} in the left lung."
    for part, count, start in (("train", 20, 0), ("validation", 6, 100), ("test", 6, 200)):
        lines = []
        for at in range(start, start + count):
            picture(root / part / "radiology/images" / f"ROCO_{at:05d}.jpg", 60 + at % 99, (24, 32))
            lines.append((f"ROCO_{at:05d}", f"PMC{at}_fig1.jpg", text.format(at)))
        folder = root / part / "radiology"
        if listed:  # a name, a tab and a text, without a row of headings
            (folder / "captions.txt").write_text("".join(f"{name}\t {told}\n" for name, _, told in lines))
        else:
            table(folder / f"{part}data.csv", ("id", "name", "caption"), lines)
    got = found(root, kit.Want("Write a caption for a radiology image", "report", 32, tested="test/"), tmp_path)
    assert (got.wrong, got.why) == ("", "")


@pytest.mark.parametrize(
    ("path", "other", "parts"),
    [
        ("train.csv", "test.csv", True),
        ("train/radiology/traindata.csv", "test/radiology/testdata.csv", True),
        ("train/labels.csv", "test/labels.csv", True),
        ("train-abnormal.csv", "valid-acl.csv", False),
        ("traindata.csv", "train/data.csv", False),
        ("reader1.csv", "reader2.csv", False),
        ("testosterone.csv", "trainees.csv", False),
    ],
)
def test_tables_that_are_called_alike_but_for_a_side_are_parts(path: str, other: str, parts: bool) -> None:
    assert are_parts(path, other) is parts


def test_the_side_that_a_table_speaks_of() -> None:
    assert [side_told(one) for one in ("training_set_pixel_size_and_HC.csv", "a/val/x.csv", "train/test_x.csv", "x.csv")] == [
        "train", "val", "test", ""
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("scan_001\tA round lesion\nscan_002\tTwo lesions\nscan_003\tNo lesion\nscan_004\tOne, left\n", False),
        ("name\ttext\nscan_002\tTwo lesions\nscan_003\tNo lesion\nscan_004\tOne, left\n", True),
        ("t1,t2\na3,b4\na4,b5\na5,b6\n", True),
    ],
)
def test_a_first_row_that_goes_on_below_is_no_row_of_headings(text: str, header: bool) -> None:
    assert sniff(text.encode(), ".txt").header is header


# --- masks of each part -----------------------------------------------------------------------------------------------


def frames(root: Path, marked: tuple[str, ...]) -> None:
    for part, first, count in (("training", 1, 12), ("testing", 101, 6)):
        for at in range(first, first + count):
            folder = root / part / f"patient{at:03d}"
            picture(folder / f"patient{at:03d}_rest.png", 50 + at % 60, (24, 32))
            for frame in (1, 5):
                picture(folder / f"patient{at:03d}_frame{frame:02d}.png", 60 + at % 60 + frame, (24, 32))
                if part in marked:
                    box = (at % 9, frame, at % 9 + 7, frame + 6 + at % 8)
                    mask(folder / f"patient{at:03d}_frame{frame:02d}_gt.png", box, size=(24, 32))


def test_a_test_part_of_which_some_images_have_no_mask_stands(tmp_path: Path) -> None:
    frames(tmp_path / "raw", ("training", "testing"))
    got = found(tmp_path / "raw", kit.Want("Segment the left ventricle on cine MRI slices", "segmentation", 36, tested="testing/"),
                tmp_path)  # fmt: skip
    assert (got.wrong, got.why) == ("", "")


def test_a_test_part_without_masks_does_not_stand(tmp_path: Path) -> None:
    frames(tmp_path / "raw", ("training",))
    got = found(
        tmp_path / "raw", kit.Want("Segment the left ventricle on cine MRI slices", "segmentation", 24), tmp_path
    )
    assert got.wrong == ""
    assert got.best is not None
    assert "the test part of the data set's own split (18) has no masks: a new one is drawn" in got.best.evidence


# --- what is said of files --------------------------------------------------------------------------------------------


def test_names_of_files_that_are_there_are_not_missing(tmp_path: Path) -> None:
    lines: list[tuple[object, ...]] = []
    for at in range(24):
        picture(tmp_path / "raw/images" / f"i{at:02d}.png", 40 + 5 * at)
        lines.append((f"i{at:02d}.png", ("AD", "CN", "MCI")[at % 3]))
    table(tmp_path / "raw/t.csv", ("image", "Group"), [*lines, ("gone.png", "AD")])
    want = kit.Want("Tell AD from CN on brain MRI slices", "diagnosis", 16, frozenset(("ad", "cn")))
    got = found(tmp_path / "raw", want, tmp_path)
    assert got.wrong == ""
    assert got.made is not None
    assert got.made.missing == 1


def test_the_data_of_a_header_of_its_own_is_used_or_left_out_with_it(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    root.mkdir()
    for at in range(10):
        array = np.random.default_rng(at).integers(0, 255, (4, 12, 12)).astype(np.uint8)
        sitk.WriteImage(sitk.GetImageFromArray(array), str(root / f"Case{at:02d}.mhd"))
        if at:
            marked = np.zeros_like(array)
            marked[1:3, at : at + 2, 2:6] = 1
            sitk.WriteImage(sitk.GetImageFromArray(marked), str(root / f"Case{at:02d}_mask.mhd"))
    (root / "stray.raw").write_bytes(b"0")
    masks = {"files": {"pattern": "Case{n:number}_mask.mhd"}, "case": "{n}", "image": "{n}", "classes": {"prostate": 1}}
    made = read(root, tmp_path, task="segmentation", images={"files": {"pattern": "Case{n:number}.mhd"}}, masks=masks)
    assert made.accounting.counts() == {"image": 18, "mask": 18}
    assert made.accounting.left["Case00.raw"] == made.accounting.left["Case00.mhd"]
    assert "not named" in made.accounting.left["stray.raw"]
    assert made.accounting.whole


# --- what images were taken from --------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["sequence_id", "video", "Slide No", "series", "eye_id", "wsi", "clip name"])
def test_images_of_one_source_that_a_column_tells_stay_on_one_side(column: str, tmp_path: Path) -> None:
    root, lines = tmp_path / "raw", []
    for at in range(1, 31):
        picture(root / "PNG/Original" / f"{at}.png", 40 + 3 * at)
        mask(root / "PNG/Ground Truth" / f"{at}.png", (at % 5, 2, at % 5 + 4, 6 + at % 8))
        lines.append((at, f"s{(at - 1) // 5}", f"PNG/Original/{at}.png", f"PNG/Ground Truth/{at}.png"))
    table(root / "metadata.csv", ("frame_id", column, "png_image_path", "png_mask_path"), lines)
    grouping = next(one for one in survey(root).groupings if one.ends[0].name == column)
    assert (grouping.distinct, grouping.evidence) == (6, ("column_source",))
    if column == "sequence_id":
        want = kit.Want("Segment polyps in colonoscopy", "segmentation", 30)
        got = found(root, want, tmp_path)
        assert got.best is not None
        assert got.made is not None
        assert any(
            one.startswith("kept on one side: 6 groups by the column 'sequence_id'") for one in got.best.evidence
        )
        sides = [
            {(int(str(one.image).rsplit("/", 1)[-1][:-4]) - 1) // 5 for one in part}
            for part in (got.made.train, got.made.test)
        ]
        assert not sides[0] & sides[1], json.dumps([sorted(some) for some in sides])
