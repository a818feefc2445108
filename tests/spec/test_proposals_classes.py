"""Values of the data brought together with what a request lists, and what is asked rather than guessed."""

from __future__ import annotations

import csv
from pathlib import Path

import layout_kit as kit
import pytest
from layout_kit_known import marks, volume
from spec_kit import picture

from m3b.data.spec.execute import execute
from m3b.data.spec.model import FromTable
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.spec.proposals.classes import classes_for
from m3b.data.spec.proposals.glossary import glosses, told_names, told_ranges
from m3b.data.spec.proposals.matching import Said
from m3b.data.survey import survey


def mapped(values: str, request: str, **options: object) -> tuple[dict[str, tuple[str, ...]], str]:
    made = classes_for(dict.fromkeys(values.split("|"), 5), request, **options)  # type: ignore[arg-type]
    return made.mapping, made.doubt


@pytest.mark.parametrize(
    ("values", "request_text", "classes"),
    [
        ("glioma|meningioma|notumor|pituitary", "Tell glioma, meningioma, pituitary tumours and no tumor apart on MRI",
         {"notumor", "glioma", "meningioma", "pituitary"}),
        ("AD|CN|EMCI|LMCI|MCI|SMC", "Tell Alzheimer's disease, mild cognitive impairment and normal cognition apart on MRI",
         {"AD", "MCI", "CN"}),
        ("benign|malignant|normal", "Distinguish healthy, benign and malignant lesions on ultrasound images",
         {"normal", "benign", "malignant"}),
        ("regular|COVID-19|TB", "Tell COVID-19 and healthy lungs apart on X-rays", {"regular", "COVID-19"}),
        ("Normal|CP|NCP", "Distinguish COVID-19 pneumonia, common pneumonia and normal lungs on 3D chest CT",
         {"Normal", "CP", "NCP"}),
        ("partial|complete|intact", "Grade the ligament: intact, partial tear, complete rupture",
         {"intact", "partial", "complete"}),
        ("0|1|2|3|4", "Grade knee osteoarthritis (Kellgren-Lawrence 0 to 4) on knee X-rays", {"0", "1", "2", "3", "4"}),
        ("COVID|Normal|Viral", "Tell COVID from the rest", {"COVID", "other"}),
        ("oedema|haemorrhage", "Tell edema from hemorrhage on head CT", {"oedema", "haemorrhage"}),
    ],
)  # fmt: skip
def test_classes_that_are_certain(values: str, request_text: str, classes: set[str]) -> None:
    mapping, doubt = mapped(values, request_text)
    assert (set(mapping), doubt) == (classes, "")


@pytest.mark.parametrize(
    ("values", "request_text"),
    [
        ("regular|COVID-19|Bacterial pneumonia|Viral pneumonia", "Tell COVID-19, pneumonia and healthy lungs apart"),
        ("covid|normal", "Tell covid from pneumonia on chest X-rays"),
        ("benign|malignant", "Detect pneumonia on chest X-rays"),
        ("covid|pneumonia|tuberculosis", "Tell covid, pneumonia and healthy lungs apart"),
        ("north|south", "Tell cysts from stones on CT slices"),
        ("0|1", "Grade the ligament: intact, partial tear, complete rupture"),
        ("yes|no", "Tell COVID-19, pneumonia and healthy lungs apart"),
    ],
)
def test_what_is_a_guess_is_asked(values: str, request_text: str) -> None:
    assert mapped(values, request_text)[1]


def test_notes_name_numbers_and_short_values() -> None:
    said = Said({"0": "none", "1": "mild", "2": "severe"}, {})
    assert mapped("2|0|1", "Grade retinopathy", said=said) == ({"none": ("0",), "mild": ("1",), "severe": ("2",)}, "")
    said = Said({}, glosses(["XA", "XB"], "Folders: XA (bacterial keratitis) and XB (fungal keratitis)."))
    mapping, doubt = mapped("XA|XB|XC", "Tell fungal keratitis from bacterial keratitis on photographs", said=said)
    assert (set(mapping), doubt) == ({"XA", "XB"}, "")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Labels: 0 none, 1 mild, 2 severe.", {0: "none", 1: "mild", 2: "severe"}),
        ("Task: 2D classification\nimages (N,28,28) uint8; label 0 normal, 1 pneumonia. N 38/52",
         {0: "normal", 1: "pneumonia"}),
        ("1 = liver; 2 = spleen", {1: "liver", 2: "spleen"}),
        ("12 patients, 3 readers", {}),
        ("grade 0 none, 1 mild, 4 severe", {}),
        ("class 0 ill, 1 well. class 0 well, 1 ill", {0: "ill", 1: "well"}),
    ],
)  # fmt: skip
def test_numbers_are_named_where_the_words_leave_no_doubt(text: str, names: dict[int, str]) -> None:
    assert told_names(text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Mask values 1-3 are C1-C3, 8-9 T1-T2, and 28 is T13; 26 and 27 never occur. 12-15 years",
         {1: "C1", 2: "C2", 3: "C3", 8: "T1", 9: "T2", 28: "T13"}),
        ("1 to 3: rib 1 to 3", {1: "rib 1", 2: "rib 2", 3: "rib 3"}),
        ("28 is T13", {}),  # a single one may be anything
        ("1-3 are C1-C4", {}),
        ("1-3 are C1-C3, 3 is T1", {}),
        ("ages 20-30, weeks 8-12", {}),
    ],
)  # fmt: skip
def test_ranges_of_numbers_are_named_by_ranges_of_names(text: str, names: dict[int, str]) -> None:
    assert told_ranges(text) == names


def test_notes_with_ranges_come_before_a_list_of_names_without_numbers(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(6):
        volume(root / "images" / f"s{at}.nii.gz")
        marks(root / "masks" / f"s{at}.nii.gz", values=(1, 2, 3, 6))
    (root / "labels.json").write_text('["A1", "A2", "A3", "B1", "B2", "A9"]')
    notes = "Mask values 1-3 are A1-A3, 4-5 B1-B2, and 6 is A4."
    best = propose(survey(root), Ask("segmentation", "Segment the vertebrae", notes=notes))[0]
    assert best.spec.masks is not None
    assert best.spec.masks.classes == {"A1": 1, "A2": 2, "A3": 3, "B1": 4, "B2": 5, "A4": 6}


@pytest.mark.parametrize("chosen", [(), ("head", "tail"), ("tail", "head")])
def test_which_value_of_a_mask_is_which_class_stays_open_when_classes_are_chosen(
    tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    """The names that a Task Manager chose do not say which number each has."""
    root = tmp_path / "raw"
    for at in range(6):
        volume(root / "images" / f"s{at}.nii.gz")
        marks(root / "masks" / f"s{at}.nii.gz", values=(1, 2))
    found = propose(survey(root), Ask("segmentation", "Segment the head and the tail on MRI", chosen))
    assert "which of the values 1, 2" in sufficient(found)
    by_number = propose(
        survey(root), Ask("segmentation", "Segment the head and the tail on MRI", ("label_1", "label_2"))
    )
    assert sufficient(by_number) == ""


def test_numbers_of_a_request_are_never_the_only_classes() -> None:
    mapping, doubt = mapped("0|1|2|3|4", "Grade osteoarthritis 0 to 4 on knee X-rays")
    assert (list(mapping), doubt) == (["0", "1", "2", "3", "4"], "")


def test_a_table_that_names_few_of_the_images_and_many_others_is_asked_about(tmp_path: Path) -> None:
    root, rows = tmp_path / "raw", []
    for at in range(40):
        other = "".join(chr(97 + (at * step) % 26) for step in (3, 5, 7, 11))
        picture(root / "images" / (f"scan_{at:02d}.png" if at < 19 else f"{other}.png"), 80)
        rows.append((f"scan_{at:02d}.png", ("benign", "malignant")[at % 2]))
    kit.table(root / "t.csv", kit.Names(), ("image", "diagnosis"), rows)
    found = propose(survey(root), Ask("diagnosis", "Tell benign from malignant lesions"))
    assert "files may have been renamed" in sufficient(found)
    kit.table(root / "t.csv", kit.Names(), ("image", "diagnosis"), rows[:19])
    assert "renamed" not in sufficient(propose(survey(root), Ask("diagnosis", "Tell benign from malignant lesions")))


def named_files(root: Path, column: str = "label") -> Path:
    """Pictures whose names begin with their finding, cut short, and a table that divides one finding in two."""
    kinds = {"Pneu": "Bacterial pneumonia", "Vir": "Viral pneumonia", "Cov": "COVID-19", "Reg": "regular"}
    rows = [["file", "probe", column]]
    for at in range(48):
        short = list(kinds)[at % 4]
        probe = ("convex", "linear")[at % 8 == 0]
        picture(root / "lungs" / probe / f"{short}_site{at * 37 % 91}_x.png")
        rows.append([f"{short}_site{at * 37 % 91}_x", probe, kinds[short]])
    rows += [[f"gone{at}", "convex", "COVID-19"] for at in range(30)]
    with (root / "list.csv").open("w", newline="") as out:
        csv.writer(out).writerows(rows)
    return root


def test_names_cut_short_tell_what_a_table_leaves_open(tmp_path: Path) -> None:
    found = propose(survey(named_files(tmp_path)), Ask("diagnosis", "Tell COVID-19, pneumonia and healthy lungs apart"))
    assert sufficient(found) == ""
    labels = found[0].spec.labels
    assert labels is not None
    assert labels.classes == {"Reg": ("Reg",), "Cov": ("Cov",), "Pneu": ("Pneu",)}
    assert any("leaves open what is meant: 'pneumonia' may mean" in one for one in found[0].evidence)
    assert "'Viral pneumonia'" in found[1].unclear


def test_a_table_is_joined_by_what_names_each_file_and_not_by_a_folder_of_many(tmp_path: Path) -> None:
    request = "Tell COVID-19, bacterial pneumonia and regular lungs apart"
    found = propose(survey(named_files(tmp_path)), Ask("diagnosis", request))
    table = next(one for one in found if "column" in one.title)
    source = table.spec.labels and table.spec.labels.sources[0]
    assert isinstance(source, FromTable)
    assert source.row == "{file}"
    made = execute(table.spec, tmp_path, name="set", work=tmp_path)
    assert len(made.train) + len(made.test) == 36
