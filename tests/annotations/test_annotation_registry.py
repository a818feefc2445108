"""Registering formats, by call and by entry point; finding images by their names."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from annotation_kit import detect_only, write_files

from m3b.dataset.annotations import ANNOTATIONS, get_annotation_format, registry
from m3b.dataset.annotations.coco import Coco
from m3b.dataset.annotations.names import ImageNames, clean_name, split_suffix
from m3b.errors import DataError


class InstalledFormat(Coco):
    """A format of another package."""

    name = "installed_format"


class SameName(Coco):
    """A format whose name is taken."""

    name = "voc"


def test_names_are_taken_once() -> None:
    registry.register_annotation_format(Coco())
    with pytest.raises(ValueError, match="voc"):
        registry.register_annotation_format(SameName())
    with pytest.raises(DataError) as raised:
        get_annotation_format("no_such_format")
    assert raised.value.code == "unknown_format"


def test_installed_formats_are_loaded_and_broken_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    group = registry.ENTRY_POINT_GROUP
    points = [
        EntryPoint("broken", "no_such_module:Format", group),
        EntryPoint("installed", f"{__name__}:InstalledFormat", group),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry.load_annotation_plugins.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="no_such_module"):
            assert get_annotation_format("installed_format").name == "installed_format"
    finally:
        ANNOTATIONS.pop("installed_format", None)
        monkeypatch.undo()
        registry.load_annotation_plugins.cache_clear()


def test_parsers_are_imported_when_they_are_needed() -> None:
    heavy = "numpy polars pydicom SimpleITK PIL yaml pycocotools defusedxml"
    code = f"import sys, m3b.dataset.annotations; print([name for name in {heavy.split()} if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("A.NII.GZ", ("a", ".nii.gz")),
        ("scan.2", ("scan.2", "")),
        ("1.2.840.113", ("1.2.840.113", "")),
        (".hidden", (".hidden", "")),
        ("x.jpeg", ("x", ".jpeg")),
        ("plain", ("plain", "")),
    ],
)
def test_suffixes(name: str, parts: tuple[str, str]) -> None:
    assert split_suffix(name) == parts


def test_windows_paths_and_absolute_paths_are_found_by_their_ends() -> None:
    assert clean_name("C:\\data\\.\\x.png") == "C:/data/x.png"
    names = ImageNames([(("C:\\data\\train\\x.png",), "a.json"), (("/home/me/test/x.png",), "a.json")])
    paths = ["set/train/x.png", "set/test/x.png", "set/more/x.png"]
    assert names.match(paths) == {"set/train/x.png": 0, "set/test/x.png": 1}
    assert names.find("set/test/x.png") == 1
    assert names.find("set/other/x.png") is None
    assert names.find("y.png") is None


def test_an_exact_suffix_goes_before_a_stem() -> None:
    names = ImageNames([(("a.png",), "a.json")])
    assert names.match(["x/a.png", "y/a.jpg"]) == {"x/a.png": 0}
    assert names.match(["y/a.jpg"]) == {"y/a.jpg": 0}


def test_what_is_ambiguous_is_matched_to_nothing() -> None:
    names = ImageNames([(("a.png",), "one.json")])
    assert names.match(["x/a.png", "y/a.png"]) == {}
    names = ImageNames([(("a.png",), "x/one.json"), (("a.png",), "y/one.json")])
    assert names.match(["x/a.png", "y/a.png"]) == {"x/a.png": 0, "y/a.png": 1}


def test_dots_in_stems() -> None:
    names = ImageNames([(("image-1_png.rf.0dfd",), "labels/a.txt"), (("patient.v2",), "labels/b.txt")])
    assert names.match(["image-1_png.rf.0dfd.jpg", "patient.v2.png"]) == {
        "image-1_png.rf.0dfd.jpg": 0,
        "patient.v2.png": 1,
    }


def test_files_of_one_name_belong_to_the_only_image_of_their_folder(tmp_path: Path) -> None:
    shape = {"label": "cyst", "points": [[1, 1], [5, 1], [5, 5]], "shape_type": "polygon"}
    outline = {"version": "5.0", "shapes": [shape], "imagePath": None, "imageHeight": 9, "imageWidth": 9}
    files: dict[str, Any] = {}
    for number in range(4):
        files |= {f"case{number}/outline.json": outline, f"case{number}/scan.png": b"x"}
    source = detect_only(write_files(tmp_path, files))
    matches = source.annotations.match([f"case{number}/scan.png" for number in range(5)])
    assert {path: image.source for path, image in matches.items()} == {
        f"case{number}/scan.png": f"case{number}/outline.json" for number in range(4)
    }


def test_files_keep_the_order_of_their_folder(tmp_path: Path) -> None:
    """Otherwise the order of classes, and with it their names, would change from process to process."""
    names = [f"p{number:02d}.json" for number in range(30)]
    documents = {
        name: {"imagePath": name, "shapes": [{"label": name, "points": [[1, 1], [5, 1], [5, 5]]}]} for name in names
    }
    write_files(tmp_path, {name: json.dumps(document) for name, document in documents.items()})
    source = detect_only(tmp_path)
    assert list(source.files) == names
    assert list(source.classes) == names
