"""Other names for the classes of a manifest, as the Data Engineer may give them."""

from __future__ import annotations

from typing import Any

import pytest

from m3b.run.manifests import rename_classes

NAMES = {"0": "none", "1": "mild"}
PARTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "labels",
        {"value": {"value": "{grade}"}, "classes": {"0": ["0"], "1": []}, "ordered": True},
        {"value": {"value": "{grade}"}, "classes": {"none": ["0"], "mild": ["1"]}, "ordered": True},
    ),
    (
        "labels",
        {"columns": {"0": {"value": "{a}"}, "1": {"value": "{b}"}}, "multi_label": True},
        {"columns": {"none": {"value": "{a}"}, "mild": {"value": "{b}"}}, "multi_label": True},
    ),
    ("masks", {"classes": {"0": [1], "1": [2]}}, {"classes": {"none": [1], "mild": [2]}}),
    (
        "masks",
        {"classes": {"0": [], "1": []}, "format": "coco"},
        {"classes": {"none": ["0"], "mild": ["1"]}, "format": "coco"},
    ),
    (
        "masks",
        {"classes": {"0": [], "1": []}, "per_file": {"0": ["a"], "1": ["b"]}, "class_key": "{part}"},
        {"classes": {"none": [], "mild": []}, "per_file": {"none": ["a"], "mild": ["b"]}, "class_key": "{part}"},
    ),
    ("masks", {"classes": {"0": [], "1": []}, "above": 0}, {"classes": {"none": [], "mild": []}, "above": 0}),
    (
        "boxes",
        {"classes": {"1": ["1"], "0": []}, "columns": {"xmin": "x"}},
        {"classes": {"mild": ["1"], "none": ["0"]}, "columns": {"xmin": "x"}},
    ),
]


@pytest.mark.parametrize(("part", "values", "expected"), PARTS)
def test_every_mention_of_a_class_is_renamed(part: str, values: dict[str, Any], expected: dict[str, Any]) -> None:
    manifest = {"task": "grading", part: values, "patient": "{id}"}
    renamed = rename_classes(manifest, NAMES)
    assert renamed == {"task": "grading", part: expected, "patient": "{id}"}
    assert rename_classes(renamed, NAMES) == renamed, "a reply may be repeated"
    key = "columns" if values.get("columns") and part == "labels" else "classes"
    assert [NAMES[name] for name in values[key]] == list(renamed[part][key]), "the order stays"


@pytest.mark.parametrize(
    "names",
    [
        None,
        ["none", "mild"],
        {"0": "none"},
        {**NAMES, "2": "severe"},
        {"0": "none", "1": "None "},
        {"0": "none", "1": ""},
        {"0": "none", "1": 1},
        {"0": "none", "1": "x" * 201},
    ],
    ids=str,
)
def test_names_that_do_not_fit_are_refused(names: Any) -> None:
    with pytest.raises(ValueError):
        rename_classes({"labels": {"classes": {"0": ["0"], "1": ["1"]}}}, names)


@pytest.mark.parametrize("manifest", [[], {}, {"labels": 1}, {"labels": {"classes": 1, "columns": "x"}}], ids=str)
def test_a_manifest_without_classes_has_none_to_rename(manifest: Any) -> None:
    with pytest.raises(ValueError):
        rename_classes(manifest, NAMES)
