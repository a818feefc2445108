"""What a manifest would give, before any image is opened, and how two manifests differ."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from manifest_kit import draw_picture, execute_folder, list_folder, list_paths

from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.explain import Explanation, diff, explain, summary_lines
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.resolve import resolve

FILES = [f"{'ab'[at % 2]}/p{at // 2}_{at}.png" for at in range(24)]
MANIFEST: dict[str, Any] = {
    "task": "diagnosis",
    "images": {"files": "{kind}/{patient}_{n}.png"},
    "labels": {"value": "{kind}", "classes": {"benign": ["a"], "malignant": ["b"]}},
    "patient": "{patient}",
}


def explained(inventory: Inventory, **manifest: Any) -> Explanation:
    model = Manifest.model_validate(manifest)
    return explain(model, resolve(model, inventory))


def test_counts_of_parts_classes_and_patients() -> None:
    explanation = explained(list_paths(*FILES, "README.md"), **MANIFEST)
    assert (explanation.cases, explanation.split) == (24, "drawn")
    assert explanation.testing.classes == {
        "benign": explanation.testing.cases // 2,
        "malignant": explanation.testing.cases // 2,
    }
    assert explanation.training.patients == explanation.training.cases // 2
    assert (explanation.files, explanation.used_files) == (25, 24)
    assert explanation.files_by_use == {"image": 24}
    assert "24 of 25 files are used: 24 images; not used: a document (1)" in summary_lines(explanation)
    assert [(exclusion.code, exclusion.count) for exclusion in explanation.excluded_files] == [("document", 1)]
    assert Explanation.model_validate_json(explanation.model_dump_json()).training == explanation.training


def test_names_that_are_numbers_stand_apart_from_their_counts() -> None:
    labels = {"value": "{kind}", "classes": {"0": ["a"], "1": ["b"]}}
    explanation = explained(list_paths(*FILES), **{**MANIFEST, "labels": labels})
    counts = re.findall(r"\b([01]): (\d+)\b", " ".join(summary_lines(explanation)))
    parts = (explanation.training, explanation.testing)
    assert [(name, int(count)) for name, count in counts] == [item for part in parts for item in part.classes.items()]


def test_a_drawn_split_is_that_of_the_execution(tmp_path: Path) -> None:
    for path in FILES:
        draw_picture(tmp_path / "raw" / path)
    executed = execute_folder(tmp_path / "raw", tmp_path, **MANIFEST)
    explanation = explained(list_folder(tmp_path / "raw"), **MANIFEST)
    assert (explanation.training.cases, explanation.testing.cases) == (len(executed.train), len(executed.test))


def test_the_summary_has_ten_lines_at_most() -> None:
    explanation = explained(list_paths(*FILES, *(f"c/{at}.png" for at in range(9))),
                      **{**MANIFEST, "images": {"files": ["{kind}/{patient}_{n}.png", "{kind}/{n}.png"]}})  # fmt: skip
    lines = summary_lines(explanation)
    assert len(lines) <= 10
    assert lines[0] == "diagnosis: 24 cases, classes benign, malignant"
    assert any("its label 'c' is of no class (9)" in line for line in lines)


def test_cases_that_an_edit_loses_are_counted() -> None:
    files = list_paths(*FILES)
    labels = {"value": "{kind}", "multi_label": True, "classes": {"benign": ["a"], "malignant": ["b"]}}
    old = explained(files, **{**MANIFEST, "labels": {**labels, "classes": {"malignant": ["b"]}}})
    new = explained(files, **{**MANIFEST, "labels": {"value": "{kind}", "classes": {"malignant": ["b"], "x": ["z"]}}})
    explanation = diff(new, old)
    assert (explanation.lost, explanation.gained, explanation.changed) == (12, 0, 0)
    assert explanation.classes_gained == ("x",)
    assert explanation.lines()[0].startswith("12 cases fewer")
    assert not explanation.is_empty
    assert diff(old, old).is_empty


def test_renamed_classes_and_changed_targets() -> None:
    files = list_paths(*FILES)
    old = explained(files, **MANIFEST)
    renamed = explained(
        files, **{**MANIFEST, "labels": {"value": "{kind}", "classes": {"good one": ["a"], "malignant": ["b"]}}}
    )
    assert diff(renamed, old).renamed == {"benign": "good one"}
    assert diff(renamed, old).changed == 0
    swapped = explained(
        files, **{**MANIFEST, "labels": {"value": "{kind}", "classes": {"benign": ["b"], "malignant": ["a"]}}}
    )
    assert diff(swapped, old).changed == 24


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_numbers_marks_and_own_parts(share: float) -> None:
    files = list_paths(*(f"{'train' if at % 3 else 'test'}/{at}.png" for at in range(30)))
    value = {"value": {"value": "{stem}", "find": r"\d+"}, "title": "age", "unit": "years"}
    explanation = explained(
        files, task="regression", images={"files": "{part}/*.png"}, value=value, split={"share": share}
    )
    assert explanation.number is not None
    assert (explanation.number.low, explanation.number.high) == (0, 29)
    assert abs(explanation.testing.cases - share * 30) <= 5
    own_split = explained(files, task="regression", images={"files": "{part}/*.png"}, value=value,
                    split={"value": "{part}", "train": ["train"], "test": ["test"]})  # fmt: skip
    assert (own_split.split, own_split.testing.cases) == ("own", 10)
    assert own_split.training.patients is None


def test_masks_and_patients_in_both_parts() -> None:
    paths = [
        f"{part}/p{at}{kind}.png"
        for part, ids in (("train", (1, 2, 3)), ("test", (3, 4)))
        for at in ids
        for kind in ("", "_m")
    ]
    explanation = explained(
        list_paths(*paths), task="segmentation", images={"files": "{part}/{id}.png", "exclude": ["**/*_m.png"]}, patient="{id}",
        masks={"files": "{part}/{id}_m.png", "key": "{part}{id}", "classes": {"x": [1]}},
        split={"value": "{part}", "train": ["train"], "test": ["test"]},
    )  # fmt: skip
    assert (explanation.training.cases, explanation.testing.cases) == (2, 2)
    assert explanation.training.classes == {"marked": 2}
    assert [problem.code for problem in explanation.problems] == ["patients_cross_split"]


@pytest.mark.parametrize("validation", [0, 6])
def test_the_folders_own_validation_part_is_counted(tmp_path: Path, validation: int) -> None:
    parts = {"train": 12, "val": validation, "test": 6}
    files = [f"{part}/{'ab'[at % 2]}_{part}{at}.png" for part, count in parts.items() for at in range(count)]
    manifest = {
        "task": "diagnosis",
        "images": {"files": "{part}/{kind}_{n}.png"},
        "labels": {"value": "{kind}", "classes": {"benign": ["a"], "malignant": ["b"]}},
        "split": {"value": "{part}", "train": ["train"], "val": ["val"], "test": ["test"]},
    }
    for path in files:
        draw_picture(tmp_path / "raw" / path)
    explanation = explained(list_folder(tmp_path / "raw"), **manifest)
    assert (explanation.training.cases, explanation.validation_cases) == (12 + validation, validation)
    executed = execute_folder(tmp_path / "raw", tmp_path, **manifest)
    assert len(executed.train) == 12 + validation
    notes = [note for note in executed.notes if "validation part" in note]
    assert len(notes) == (1 if validation else 0)
    assert all(note.startswith(f"{validation} ") for note in notes)
