"""What a manifest finds by names and tables: one small folder a mechanism."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_kit import case_reasons, codes, file_reasons, list_paths, resolve_folder

from m3b.dataset.inventory import Inventory

YES_NO = {"value": "{t.label}", "classes": {"no": ["0"], "yes": ["1"]}}


def folder(root: Path, *paths: str, **tables: str) -> Path:
    """Empty files, and tables with their text."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    for name, text in tables.items():
        (root / f"{name}.csv").write_text(text)
    return root


def diagnosis(table: dict[str, object] | None = None, **changes: object) -> dict[str, object]:
    return {
        "task": "diagnosis",
        "images": {"files": "images/*.png"},
        "tables": {"t": {"files": "t.csv", "key": "{image}", "image": "{stem}", **(table or {})}},
        "labels": YES_NO,
        **changes,
    }


def test_every_file_has_one_use_or_one_reason(tmp_path: Path) -> None:
    names = [f"images/i{at}.png" for at in range(6)]
    root = folder(
        tmp_path, *names, "README.md", "old.csv", "other/x.dat", t="image,label\ni0,0\ni1,1\ni2,0\ni3,2\ni9,1"
    )
    resolved = resolve_folder(root, **diagnosis(exclude=[{"files": "other/*", "reason": "of another study"}]))
    assert resolved.frame["case"].to_list() == names[:3]
    assert resolved.frame["labels"].to_list() == [["no"], ["yes"], ["no"]]
    assert case_reasons(resolved) == {"text_without_class": 1, "no_label": 2}
    assert file_reasons(resolved) == {"text_without_class": 1, "no_label": 2, "stated": 1, "document": 1, "empty": 1}
    assert dict(resolved.uses.group_by("use").len().drop_nulls().iter_rows()) == {"image": 3, "table": 1}
    assert resolved.unused_rows == {"t": 1}
    assert resolved.missing_files == (1, ("i9",))
    assert codes(resolved) == {"text_without_class"}
    assert not resolved.errors


def test_files_that_a_manifest_leaves_out_are_no_images(tmp_path: Path) -> None:
    names = [f"images/{part}i{at}.png" for part in ("", "old_") for at in range(4)]
    root = folder(
        tmp_path,
        *names,
        t="\n".join(["image,label", *(f"{Path(name).stem},{at % 2}" for at, name in enumerate(names))]),
    )
    resolved = resolve_folder(root, **diagnosis(exclude=[{"files": "images/old_*", "reason": "an older version"}]))
    assert resolved.frame["case"].to_list() == names[:4]
    assert file_reasons(resolved) == {"stated": 4}


@pytest.mark.parametrize(
    ("change", "code", "part"),
    [
        ({"images": {"files": "pictures/*.png"}}, "pattern_matches_nothing", "images.files"),
        ({"images": {"files": "re:(("}}, "bad_pattern", "images.files"),
        ({"images": {"files": "images/*.png", "case": "{eye}"}}, "unknown_column", "images.case"),
        ({"labels": {**YES_NO, "value": "{t.lable}"}}, "unknown_column", "tables.t"),
        ({"labels": {**YES_NO, "value": "{table.label}"}}, "unknown_column", "labels.value"),
        ({"labels": {**YES_NO, "value": {"value": "{t.label}", "find": "(("}}}, "bad_expression", "labels.value"),
        ({"labels": {**YES_NO, "classes": {"no": ["0"], "yes": ["0", "1"]}}}, "text_of_two_classes", "labels.classes"),
        ({"labels": {**YES_NO, "classes": {"a": ["7"], "b": ["8"]}}}, "no_cases", "images"),
        ({"labels": {**YES_NO, "classes": {"no": ["0", "1"], "yes": ["8"]}}}, "class_without_cases", "labels.classes"),
        (
            {"tables": {"t": {"files": "no.csv", "key": "{image}", "image": "{stem}"}}},
            "pattern_matches_nothing",
            "tables.t.files",
        ),
        ({"tables": {"t": {"files": "t.csv", "key": "{name}", "image": "{stem}"}}}, "unknown_column", "tables.t.key"),
        (
            {"tables": {"t": {"files": "t.csv", "key": "{image}", "image": "{path}"}}},
            "join_matches_nothing",
            "tables.t",
        ),
        ({"task": "segmentation"}, "wrong_target", "task"),
    ],
)
def test_what_is_wrong_has_a_code_a_place_and_a_remedy(
    tmp_path: Path, change: dict[str, object], code: str, part: str
) -> None:
    root = folder(tmp_path, "images/a.png", "images/b.png", t="image,label\na,0\nb,1")
    resolved = resolve_folder(root, **{**diagnosis(), **change})
    problem = next(problem for problem in resolved.errors if problem.code == code)
    assert problem.part == part
    assert problem.finding
    assert problem.remedy


def test_several_faults_are_said_at_once_with_what_was_meant(tmp_path: Path) -> None:
    root = folder(tmp_path, "images/a.png", t="image,label,patient_id\na,0,p1")
    resolved = resolve_folder(
        root, **diagnosis(patient="{t.patient}", attributes={"sex": "{t.sex}"}, split={"value": "{side}"})
    )
    assert [problem.code for problem in resolved.errors].count("unknown_column") == 3
    assert next(problem for problem in resolved.errors if "t.patient" in problem.finding).values["did_you_mean"] == [
        "t.patient_id"
    ]


# --- joins -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "image", "match"),
    [
        ("p7", "{stem}", "normalized"),
        ("P007.jpg", "{path}", "stem"),
        ("P007.png", "{path}", "basename"),
        (r"D:\x\images\P007.png", "{path}", "path_tail"),
        ("7", "{stem}", "number"),
        (" p007 ", "{stem}", "exact"),
    ],
)
def test_keys_are_compared_by_a_rule(tmp_path: Path, key: str, image: str, match: str) -> None:
    root = folder(tmp_path, "images/P007.png", "images/P008.png", t=f"image,label\n{key},1")
    resolved = resolve_folder(
        root, **diagnosis({"image": image, "match": match}, labels={**YES_NO, "classes": {"yes": ["1"], "no": ["0"]}})
    )
    assert resolved.frame["case"].to_list() == ["images/P007.png"]


def test_a_join_over_two_columns_together(tmp_path: Path) -> None:
    root = folder(tmp_path, "images/p1_03.png", "images/p1_04.png", t="patient,slice,label\np1,3,0\np1,4,1\np2,3,1")
    resolved = resolve_folder(root, **diagnosis({"key": "{patient}_{slice}", "match": "normalized"}))
    assert resolved.frame["labels"].to_list() == [["no"], ["yes"]]


def test_a_table_that_leads_to_another_one(tmp_path: Path) -> None:
    root = folder(
        tmp_path, "images/a.png", "images/b.png", files="image,study\na,s1\nb,s2", t="study,label\ns1,0\ns2,1"
    )
    tables = {
        "f": {"files": "files.csv", "key": "{image}", "image": "{stem}"},
        "t": {"files": "t.csv", "key": "{study}", "image": "{f.study}"},
    }
    assert resolve_folder(root, **diagnosis(tables=tables)).frame["labels"].to_list() == [["no"], ["yes"]]


def test_a_row_that_names_two_images(tmp_path: Path) -> None:
    root = folder(tmp_path, "images/l1.png", "images/r1.png", t="left,right,label\nl1,r1,1")
    labels = {**YES_NO, "classes": {"yes": ["1"], "no": ["0"]}}
    resolved = resolve_folder(root, **diagnosis({"key": ["{left}", "{right}"]}, labels=labels))
    assert len(resolved.frame) == 2


def test_rows_that_agree_count_once_and_others_leave_the_case_out(tmp_path: Path) -> None:
    root = folder(tmp_path, *(f"images/{name}.png" for name in "abc"), t="image,label\na,0\na,0\nb,0\nb,1\nc,1\nc,")
    resolved = resolve_folder(root, **diagnosis())
    assert dict(resolved.frame.select("case", pl.col("labels").list.first()).iter_rows()) == {
        "images/a.png": "no",
        "images/c.png": "yes",
    }
    assert case_reasons(resolved) == {"conflicting_labels": 1}


def test_rows_of_one_image_are_gathered_for_several_labels(tmp_path: Path) -> None:
    root = folder(
        tmp_path, *(f"images/{name}.png" for name in "abcd"), t="image,label\na,mass\na,cyst|edema\nb,none\nc,\nc,cyst"
    )
    labels = {
        "value": "{t.label}",
        "separator": "|",
        "multi_label": True,
        "classes": {"mass": [], "cyst": ["CYST"], "edema": []},
    }
    resolved = resolve_folder(root, **diagnosis(labels=labels))
    assert [sorted(names) for names in resolved.frame["labels"].to_list()] == [["cyst", "edema", "mass"], [], ["cyst"]]
    assert case_reasons(resolved) == {"no_label": 1}


def test_a_name_of_files_in_two_folders_is_said(tmp_path: Path) -> None:
    root = folder(tmp_path, "train/1.png", "test/1.png", t="image,label\n1.png,1")
    resolved = resolve_folder(root, **diagnosis({"image": "{path}", "match": "basename"}, images={"files": "*/*.png"}))
    problem = next(problem for problem in resolved.problems if problem.code == "ambiguous_join")
    assert problem.severity == "warning"
    assert problem.values["example"] == ["test/1.png", "train/1.png"]


def test_tables_of_parts_are_stacked_and_their_slots_are_columns(tmp_path: Path) -> None:
    root = folder(tmp_path, "train/1.png", "test/1.png", "test/2.png", train="id,label\n1,0", test="id,label\n1,1\n2,0")
    resolved = resolve_folder(
        root,
        task="diagnosis",
        images={"files": "{part}/*.png"},
        tables={"t": {"files": "{part}.csv", "key": "{part}/{id}", "image": "{part}/{stem}"}},
        labels=YES_NO,
        split={"value": "{t.part}", "train": "train", "test": "test"},
    )
    assert dict(resolved.frame.select("case", "split").iter_rows()) == {
        "train/1.png": "train",
        "test/1.png": "test",
        "test/2.png": "test",
    }
    assert resolved.frame.filter(pl.col("case") == "test/1.png")["labels"].to_list() == [["yes"]]


CELLS = st.sampled_from(["a", "b", "c", "A ", ""])


@given(rows=st.lists(st.tuples(CELLS, st.sampled_from(["0", "1", ""])), max_size=8))
def test_joins_agree_with_python(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    root = folder(tmp_path_factory.mktemp("join"), "images/a.png", "images/b.png")
    (root / "t.csv").write_text("image,label,x\n" + "\n".join(f"{key},{label},y" for key, label in rows))
    resolved = resolve_folder(root, **diagnosis())
    if not rows:
        return
    expected = {}
    for name in ("a", "b"):
        labels = {label for key, label in rows if key.strip().lower() == name and label}
        if len(labels) == 1:
            expected[f"images/{name}.png"] = {"0": "no", "1": "yes"}[labels.pop()]
    assert dict(resolved.frame.select("case", pl.col("labels").list.first()).iter_rows()) == expected


# --- labels, numbers, texts --------------------------------------------------------------------------------------------------


def test_yes_no_columns(tmp_path: Path) -> None:
    rows = "image,mass,cyst\na,1,0\nb,yes,TRUE\nc,-1,0\nd,,1\ne,no,0"
    root = folder(tmp_path, *(f"images/{name}.png" for name in "abcde"), t=rows)
    columns = {"mass": "{t.mass}", "cyst": "{t.cyst}"}
    resolved = resolve_folder(root, **diagnosis(labels={"columns": columns, "multi_label": True}))
    assert resolved.frame["labels"].to_list() == [["mass"], ["mass", "cyst"], [], ["cyst"], []]
    assert resolved.frame["unknown_labels"].to_list() == [[], [], ["mass"], ["mass"], []]
    assert not case_reasons(resolved)
    unfilled = resolve_folder(root, **diagnosis(labels={"columns": {"mass": "{t.mass}"}, "multi_label": True}))
    assert case_reasons(unfilled) == {"uncertain_label": 1, "no_label": 1}
    filled = {"mass": {"value": "{t.mass}", "missing": "0", "unknown": "-1"}, "cyst": "{t.cyst}"}
    resolved = resolve_folder(root, **diagnosis(labels={"columns": filled, "multi_label": True}))
    assert resolved.frame["labels"].to_list() == [["mass"], ["mass", "cyst"], [], ["cyst"], []]
    resolved = resolve_folder(root, **diagnosis(labels={"columns": columns}))
    assert case_reasons(resolved) == {"uncertain_label": 1, "no_label": 2, "several_labels": 1}


def test_a_column_of_other_texts_is_no_yes_no_column(tmp_path: Path) -> None:
    root = folder(tmp_path, "images/a.png", t="image,age\na,61")
    resolved = resolve_folder(root, **diagnosis(labels={"columns": {"old": "{t.age}"}, "multi_label": True}))
    assert "not_yes_no" in codes(resolved)


def test_numbers_with_decimal_comma_and_unit(tmp_path: Path) -> None:
    rows = 'image,bmd\na,"1,1 g/cm2"\nb,"0,95 g/cm2"\nc,see note\nd,\ne,"1,1"\ne,"1,2"'
    root = folder(tmp_path, *(f"images/{name}.png" for name in "abcde"), t=rows)
    resolved = resolve_folder(root, **{**diagnosis(), "task": "regression", "labels": None,
                                    "value": {"value": "{t.bmd}", "title": "density", "unit": "g/cm2"}})  # fmt: skip
    assert resolved.frame["number"].to_list() == [1.1, 0.95]
    assert case_reasons(resolved) == {"not_a_number": 1, "no_number": 1, "conflicting_numbers": 1}
    assert resolved.classes == ("density (g/cm2)",)


def test_survival(tmp_path: Path) -> None:
    rows = "image,days,dead\na,100,1\nb,20,0\nc,-3,1\nd,50,?\ne,70,"
    root = folder(tmp_path, *(f"images/{name}.png" for name in "abcde"), t=rows)
    survival = {
        "time": {"value": "{t.days}", "title": "overall survival", "unit": "days"},
        "event": "{t.dead}",
        "observed": "1",
    }
    resolved = resolve_folder(
        root, **{**diagnosis(), "task": "survival", "labels": None, "survival": {**survival, "censored": ["0"]}}
    )
    assert resolved.frame.select("time", "event").rows() == [(100.0, True), (20.0, False)]
    assert case_reasons(resolved) == {"negative_time": 1, "unknown_event": 1, "no_event": 1}
    resolved = resolve_folder(root, **{**diagnosis(), "task": "survival", "labels": None, "survival": survival})
    assert resolved.frame["event"].to_list() == [True, False, False]


def test_reports_of_two_columns_and_labels_besides(tmp_path: Path) -> None:
    root = folder(
        tmp_path, *(f"images/{name}.png" for name in "abc"), t="image,f,i,label\na,clear,,1\nb,,nothing,\nc,,,0"
    )
    resolved = resolve_folder(
        root, **{**diagnosis(), "task": "report", "report": {"findings": "{t.f}", "impression": "{t.i}"}}
    )
    assert resolved.frame.select("findings", "impression").rows() == [("clear", None), (None, "nothing")]
    assert resolved.frame["labels"].to_list() == [["yes"], []]
    assert case_reasons(resolved) == {"no_report": 1}


def test_states_attributes_and_covariates(tmp_path: Path) -> None:
    rows = "image,state,sex,age,crp\na,Good,F,61,3\nb,bad,M,x,\nc,odd,F,3,1\nd,,F,3,1"
    root = folder(tmp_path, *(f"images/{name}.png" for name in "abcd"), t=rows)
    resolved = resolve_folder(
        root,
        **{
            **diagnosis(), "task": "detection", "labels": None, "attributes": {"sex": "{t.sex}"},
            "states": {"value": "{t.state}", "normal": "good", "abnormal": ["bad"]},
            "covariates": {"age": {"value": "{t.age}"}, "crp": {"value": "{t.crp}", "kind": "category"}},
        },
    )  # fmt: skip
    assert resolved.frame.select("abnormal", "attribute.sex", "covariate.age", "covariate.crp").rows() == [
        (False, "F", 61.0, "3"),
        (True, "M", None, None),
    ]
    assert case_reasons(resolved) == {"unknown_state": 2}


# --- patients, parts, cases --------------------------------------------------------------------------------------------------


def test_parts_and_patients_on_both_sides(tmp_path: Path) -> None:
    paths = ["train/p1_a.png", "train/p2_a.png", "test/p1_b.png", "test/p3_a.png", "later/p4_a.png", "train/none.png"]
    resolved = resolve_folder(
        folder(tmp_path, *paths),
        task="diagnosis",
        images={"files": "{part}/*.png"},
        labels={"value": {"value": "{stem}", "find": "[ab]$", "missing": "a"}, "classes": {"a": [], "b": []}},
        patient={"value": "{stem}", "find": r"^(p\d)_"},
        split={"value": "{part}", "train": ["train"], "test": ["test"]},
    )
    assert case_reasons(resolved) == {"in_no_part": 1, "no_patient": 1}
    problem = next(problem for problem in resolved.problems if problem.code == "patients_cross_split")
    assert problem.values == {"patients": 1, "cases": 1}


def test_a_test_part_without_targets_is_said(tmp_path: Path) -> None:
    root = folder(tmp_path, "train/a.png", "train/b.png", "test/c.png", t="image,label\na,0\nb,1")
    resolved = resolve_folder(
        root,
        **diagnosis(images={"files": "{part}/*.png"}, split={"value": "{part}", "train": ["train"], "test": ["test"]}),
    )
    assert "test_part_without_targets" in codes(resolved)
    assert not resolved.errors


def test_lists_of_parts_may_name_a_case_several_times(tmp_path: Path) -> None:
    """A list of training and validation together says no more than those of each; the others must not contradict."""
    root = folder(tmp_path, *(f"{at}.png" for at in range(6)))
    lists = {"train": "0 1 4", "val": "2 1", "trainval": "0 1 2 4 5", "test": "3 4"}
    for name, numbers in lists.items():
        (root / f"{name}.txt").write_text(numbers.replace(" ", "\n"))
    resolved = resolve_folder(
        root,
        task="regression",
        images={"files": "*.png"},
        tables={"l": {"files": "{part}.txt", "form": "lines", "key": "{line}", "image": "{stem}"}},
        value={"value": "{stem}", "title": "n"},
        split={"value": "{l.part}", "train": ["train"], "val": ["val"], "test": ["test"]},
    )
    assert dict(resolved.frame.select("case", "split").iter_rows()) == {
        "0.png": "train",
        "1.png": "train",
        "2.png": "val",
        "3.png": "test",
    }
    assert case_reasons(resolved) == {"conflicting_parts": 1, "in_no_part": 1}


def test_a_part_of_the_name_that_is_one_entry() -> None:
    resolved = resolve_folder(
        list_paths(*(f"IDRiD_{at:03d}{'test' if at > 3 else ''}.jpg" for at in range(1, 6))),
        task="regression",
        images={"files": "*.jpg"},
        value={"value": {"value": "{stem}", "find": r"\d+"}, "title": "n"},
        split={"value": {"value": "{stem}", "find": "test"}, "test": ["test"], "missing": "train"},
    )
    assert resolved.frame["split"].to_list() == ["train"] * 3 + ["test"] * 2


def test_cases_of_slices_views_folders_and_one_image() -> None:
    files = list_paths(*(f"{patient}/{at}.png" for patient in ("p10", "p2") for at in (1, 2, 10)))
    target = {"task": "diagnosis", "labels": {"value": "{patient}", "classes": {"a": ["p2"], "b": ["p10"]}}}
    for several in ("slices", "views"):
        resolved = resolve_folder(
            files, images={"files": "{patient}/*.png", "case": "{patient}", "several": several}, **target
        )
        assert resolved.frame["case"].to_list() == ["p2", "p10"]
        assert resolved.frame["refs"].to_list()[0] == ["p2/1.png", "p2/2.png", "p2/10.png"]
    resolved = resolve_folder(files, images={"files": "{patient}/*.png", "unit": "folder"}, **target)
    assert resolved.frame["case"].to_list() == ["p2", "p10"]
    resolved = resolve_folder(files, images={"files": "{patient}/*.png", "case": "{patient}"}, **target)
    assert resolved.frame["refs"].to_list() == [["p2/1.png"], ["p10/1.png"]]
    assert file_reasons(resolved) == {"second_image": 4}


def test_images_of_a_case_that_disagree_leave_it_out(tmp_path: Path) -> None:
    root = folder(
        tmp_path,
        *(f"images/{name}.png" for name in ("p1_a", "p1_b", "p2_a", "p2_b")),
        t="image,label\np1_a,0\np1_b,1\np2_a,1",
    )
    images = {"files": "images/{patient}_{view}.png", "case": "{patient}", "several": "views"}
    resolved = resolve_folder(root, **diagnosis(images=images))
    assert resolved.frame.select("case", pl.col("labels").list.first()).rows() == [("p2", "yes")]
    assert case_reasons(resolved) == {"conflicting_labels": 1}


def test_channels_belong_to_the_first_image() -> None:
    paths = ["a/flair.nii", "a/t1.nii", "b/flair.nii", "c/flair.nii", "c/t1.nii", "c/x/t1.nii"]
    channels = [{"name": "t1", "files": ["{case}/t1.nii", "{case}/x/t1.nii"], "key": "{case}", "image": "{case}"}]
    resolved = resolve_folder(
        list_paths(*paths),
        task="diagnosis",
        images={"files": "{case}/flair.nii", "name": "flair", "channels": channels},
        labels={"value": "{case}", "classes": {"a": [], "b": [], "c": []}},
    )
    assert resolved.frame["channels"].to_list() == [["a/flair.nii", "a/t1.nii"]]
    assert case_reasons(resolved) == {"missing_channel": 1, "several_channels": 1}


def test_cases_without_a_channel_are_kept_if_the_manifest_says_so() -> None:
    channel = {"name": "t1", "files": "{case}/t1.nii", "key": "{case}", "image": "{case}", "missing": "keep"}
    resolved = resolve_folder(
        list_paths("a/flair.nii", "a/t1.nii", "b/flair.nii"),
        task="diagnosis",
        images={"files": "{case}/flair.nii", "name": "flair", "channels": [channel]},
        labels={"value": "{case}", "classes": {"a": [], "b": []}},
    )
    assert resolved.frame["channels"].to_list() == [["a/flair.nii", "a/t1.nii"], ["b/flair.nii", None]]
    assert not case_reasons(resolved)


def test_only_some_cases_are_meant() -> None:
    resolved = resolve_folder(
        list_paths("PA_1.png", "AP_2.png", "PA_3.png", "x.png"),
        task="regression",
        images={"files": "*.png"},
        value={"value": {"value": "{stem}", "find": r"\d"}, "title": "n"},
        only=[{"value": {"value": "{stem}", "find": "^([A-Z]+)_"}, "texts": ["pa"]}],
    )
    assert len(resolved.frame) == 2
    assert case_reasons(resolved) == {"not_asked_for": 1, "unknown_kind": 1}


# --- containers, headers -----------------------------------------------------------------------------------------------------


def test_items_of_containers_with_values_of_their_own(tmp_path: Path) -> None:
    arrays = {f"{part}_images": np.zeros((n, 4, 4), np.uint8) for part, n in (("train", 3), ("test", 2))}
    np.savez(tmp_path / "all.npz", **arrays, train_labels=np.array([0, 1, 0]), test_labels=np.array([[1], [0]]))
    resolved = resolve_folder(
        tmp_path,
        task="diagnosis",
        images={"files": "*.npz", "member": "{part}_images[#]"},
        labels={"value": "{member.{part}_labels}", "classes": {"no": ["0"], "yes": ["1"]}},
        split={"value": "{part}", "train": ["train"], "test": ["test"]},
    )
    assert resolved.frame["refs"].to_list()[:2] == [["all.npz#train_images[0]"], ["all.npz#train_images[1]"]]
    assert [labels[0] for labels in resolved.frame["labels"].to_list()] == ["no", "yes", "no", "yes", "no"]
    assert resolved.frame["split"].to_list() == ["train"] * 3 + ["test"] * 2
    resolved = resolve_folder(tmp_path, task="diagnosis", images={"files": "*.npz", "member": "{part}_images[#]"},
                           labels={"value": "{member.labels}", "classes": {"no": ["0"], "yes": ["1"]}})  # fmt: skip
    assert "unknown_member" in codes(resolved)


def test_sibling_arrays_are_tables(tmp_path: Path) -> None:
    for part, n in (("a", 3), ("b", 2)):
        np.save(tmp_path / f"x_{part}.npy", np.zeros((n, 4, 4), np.uint8))
        np.save(tmp_path / f"y_{part}.npy", np.arange(n))
    resolved = resolve_folder(
        tmp_path,
        task="regression",
        images={"files": "x_{part}.npy", "member": "[#]"},
        tables={"y": {"files": "y_{part}.npy", "key": "{part} {(row)}", "image": "{part} {index}"}},
        value={"value": "{y.value}", "title": "n"},
    )
    assert resolved.frame["number"].to_list() == [0, 1, 2, 0, 1]
    assert resolved.uses["use"].to_list() == ["image", "image", "table", "table"]


def test_headers_choose_files_and_name_patients(tmp_path: Path) -> None:
    from pydicom.data import get_testdata_file

    for name, source in (("a", "CT_small.dcm"), ("b", "MR_small.dcm")):
        (tmp_path / name).write_bytes(Path(str(get_testdata_file(source))).read_bytes())
    (tmp_path / "note.txt").write_text("no DICOM")
    resolved = resolve_folder(
        tmp_path,
        task="diagnosis",
        images={"files": "*", "where": {"{tag.Modality}": ["ct"]}},
        labels={"value": "{tag.Modality}", "classes": {"CT": [], "MR": []}},
        patient="{tag.PatientID}",
    )
    assert resolved.frame.select("case", "patient").rows() == [("a", "1CT1")]


# --- masks and boxes ---------------------------------------------------------------------------------------------------------


def segmentation(**masks: object) -> dict[str, object]:
    return {
        "task": "segmentation",
        "images": {"files": "{part}/images/{case}.png"},
        "masks": {"files": "{part}/masks/{case}_m.png", "key": "{part} {case}", "classes": {"cell": 1}, **masks},
    }


def test_masks_are_paired_by_keys_and_not_across_parts() -> None:
    paths = [
        "train/images/1.png",
        "test/images/1.png",
        "test/images/2.png",
        "train/masks/1_m.png",
        "test/masks/1_m.png",
        "test/masks/3_m.png",
    ]
    resolved = resolve_folder(list_paths(*paths), **segmentation())
    assert dict(resolved.frame.select("case", "mask_refs").iter_rows()) == {
        "test/images/1.png": ["test/masks/1_m.png"],
        "train/images/1.png": ["train/masks/1_m.png"],
    }
    assert file_reasons(resolved) == {"no_mask": 1, "mask_without_image": 1}
    resolved = resolve_folder(list_paths(*paths), **segmentation(key="{case}"))
    assert "ambiguous_join" in codes(resolved)
    assert case_reasons(resolved) == {"several_masks": 2, "no_mask": 1}
    assert "join_matches_nothing" in codes(
        resolve_folder(list_paths(*paths), **segmentation(key="{path}", image="{path}"))
    )


def test_masks_under_another_word_are_paired_by_number() -> None:
    paths = [f"v/ilist{at:02d}.nii.gz" for at in range(3)] + [f"v/slist{at}.nii.gz" for at in range(3)]
    resolved = resolve_folder(
        list_paths(*paths), task="segmentation", images={"files": "v/ilist*.nii.gz"},
        masks={"files": "v/slist*.nii.gz", "key": "{stem}", "image": "{stem}", "match": "number", "classes": {"x": [1]}},
    )  # fmt: skip
    assert [refs[0] for refs in resolved.frame["mask_refs"].to_list()] == [f"v/slist{at}.nii.gz" for at in range(3)]


def test_a_mask_file_a_class() -> None:
    paths = ["i/1.png", "i/2.png", "m/1_disc.png", "m/1_cup.png", "m/2_disc.png", "m/2_vessel.png"]
    resolved = resolve_folder(
        list_paths(*paths),
        task="segmentation",
        images={"files": "i/{case}.png"},
        masks={"files": "m/{case}_{kind}.png", "key": "{case}", "classes": {"disc": [], "cup": []},
               "per_file": {"disc": ["DISC"], "cup": []}, "class_key": "{kind}", "overlapping": True},
    )  # fmt: skip
    assert [sorted(texts) for texts in resolved.frame["mask_texts"].to_list()] == [["cup", "disc"], ["disc"]]
    assert file_reasons(resolved) == {"mask_of_no_class": 1}


def test_masks_of_normal_images_are_not_used() -> None:
    paths = ["good/1.png", "bad/2.png", "bad/3.png", "m/1.png", "m/2.png"]
    resolved = resolve_folder(
        list_paths(*paths),
        task="detection",
        images={"files": "{state}/*.png", "exclude": ["m/*"]},
        masks={"files": "m/*.png", "key": "{stem}", "image": "{stem}", "classes": {"spot": [1]}, "empty": "healthy"},
        states={"value": "{state}", "normal": ["good"]},
    )
    assert resolved.frame["case"].to_list() == ["bad/2.png", "good/1.png"]
    assert file_reasons(resolved) == {"mask_of_normal": 1, "unmarked": 1}
    assert resolved.uses.filter(pl.col("path") == "m/2.png")["use"].to_list() == ["mask"]


def test_boxes_in_a_table(tmp_path: Path) -> None:
    rows = "image,kind,x,y,w,h\na,cyst,1,2,3,4\na,stone,1,1,2,2\nb,cyst,,,,\nc,gas,1,1,2,2"
    root = folder(tmp_path, *(f"images/{name}.png" for name in "abcd"), t=rows)
    boxes = {"format": "table", "table": "t", "classes": {"cyst": [], "stone": []},
             "columns": {"class": "kind", "x": "x", "y": "y", "width": "w", "height": "h"}}  # fmt: skip
    manifest = {**diagnosis(), "task": "detection", "labels": None, "boxes": boxes}
    resolved = resolve_folder(root, **manifest)
    assert resolved.frame["n_marks"].to_list() == [2, 0, 0, 0]
    assert resolved.annotated["boxes"].strange == {"gas": 1}
    assert "text_without_class" in codes(resolved)
    resolved = resolve_folder(root, **{**manifest, "boxes": {**boxes, "empty": "leave_out"}})
    assert case_reasons(resolved) == {"no_annotation": 1}
    resolved = resolve_folder(root, **{**manifest, "boxes": {**boxes, "columns": {"x": "x", "y": "y"}}})
    assert "missing_roles" in codes(resolved)
    assert "unknown_table" in codes(resolve_folder(root, **{**manifest, "boxes": {**boxes, "table": "u"}}))


def test_boxes_of_a_format_that_names_its_images(tmp_path: Path) -> None:
    for part, count in (("train", 2), ("test", 1)):
        folder(tmp_path, *(f"{part}/{at}.png" for at in range(count + 1)))
        images = [{"id": at, "file_name": f"{at}.png", "width": 9, "height": 9} for at in range(count)]
        marks = [{"id": at, "image_id": at, "category_id": 1, "bbox": [1, 1, 3, 3]} for at in range(count)]
        document = {"images": images, "annotations": marks, "categories": [{"id": 1, "name": "nodule"}]}
        (tmp_path / part / "_annotations.coco.json").write_text(json.dumps(document))
    boxes = {"format": "coco", "files": "*/_annotations.coco.json", "classes": {"nodule": []}, "empty": "leave_out"}
    manifest = {"task": "detection", "images": {"files": "{part}/*.png"}, "boxes": boxes}
    resolved = resolve_folder(tmp_path, **manifest)
    assert resolved.frame["n_marks"].sum() == 3
    assert case_reasons(resolved) == {"no_annotation": 2}
    assert "unknown_format" in codes(resolve_folder(tmp_path, **{**manifest, "boxes": {**boxes, "format": "kokos"}}))
    assert "annotations_unreadable" in codes(
        resolve_folder(tmp_path, **{**manifest, "boxes": {**boxes, "files": "train/*.png"}})
    )


# --- properties --------------------------------------------------------------------------------------------------------------


@given(order=st.permutations(range(8)), has_notes=st.booleans())
def test_neither_order_nor_another_file_changes_what_is_found(order: list[int], has_notes: bool) -> None:
    names = [f"{'ab'[at % 2]}/p{at // 2}_{at}.png" for at in range(8)]
    manifest = {
        "task": "diagnosis", "images": {"files": "{kind}/{patient}_{n}.png", "case": "{patient}", "several": "views"},
        "labels": {"value": "{patient}", "classes": {"x": ["p0", "p1"], "y": ["p2", "p3"]}},
    }  # fmt: skip
    expected = resolve_folder(list_paths(*names), **manifest)
    shuffled = [names[at] for at in order] + (["zz/notes.dat"] if has_notes else [])
    result = resolve_folder(list_paths(*shuffled), **manifest)
    assert result.frame.equals(expected.frame)
    assert len(result.uses) == len(shuffled)


def test_a_folder_without_files() -> None:
    empty = Inventory(Path("/nowhere"), pl.DataFrame(schema={"path": pl.String, "bytes": pl.Int64}))
    resolved = resolve_folder(empty, **{**segmentation(), "patient": "{case}", "together": ["{part}"]})
    assert codes(resolved) >= {"pattern_matches_nothing"}
    assert not len(resolved.frame)
