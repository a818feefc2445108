"""YOLO, KITTI and plain lines of boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from annotation_kit import approx_boxes, codes, detect_only, iou, take_inventory, write_files

from m3b.dataset.annotations import ImageSize, Polygon, detect_annotations, get_annotation_format
from m3b.errors import DataError

SIZE = ImageSize(200, 100)


def with_images(files: dict[str, Any]) -> dict[str, Any]:
    """Return the files and an image for each text."""
    return {**{f"images/{Path(name).stem}.jpg": b"x" for name in files if name.endswith(".txt")}, **files}


def yolo(files: dict[str, Any]) -> dict[str, Any]:
    return {"data.yaml": "path: .\nnames:\n  0: polyp\n  1: 'tool, sharp'\n", **files}


def test_boxes_are_shares_of_the_image_and_an_empty_file_is_healthy(tmp_path: Path) -> None:
    files = {
        "labels/train/a.txt": "0 0.5 0.5 0.2 0.4\n1 0.1 0.2 0.1 0.1 0.93\n",
        "labels/train/b.txt": "",
        "labels/val/c.txt": "7 0.25 0.25 0.5 0.5\n",
        "images/train/a.jpg": b"x",
        "images/train/b.jpg": b"x",
        "images/val/c.jpg": b"x",
    }
    source = detect_only(write_files(tmp_path, yolo(files)))
    assert source.format == "yolo"
    assert source.classes == {"polyp": 1, "tool, sharp": 1, "7": 1}
    assert codes(source.annotations) == {"unknown_category_id": 1}
    matches = source.annotations.match([name for name in files if name.endswith(".jpg")])
    assert {path: image.source for path, image in matches.items()} == {
        "images/train/a.jpg": "labels/train/a.txt",
        "images/train/b.jpg": "labels/train/b.txt",
        "images/val/c.jpg": "labels/val/c.txt",
    }
    expected = [("polyp", (80, 30, 120, 70)), ("tool, sharp", (10, 15, 30, 25))]
    assert source.annotations.boxes("images/train/a.jpg", SIZE) == approx_boxes(expected)
    assert source.annotations.boxes("images/train/b.jpg", SIZE) == []


def test_outlines_are_filled(tmp_path: Path) -> None:
    corners = [(0.1, 0.2), (0.6, 0.1), (0.5, 0.9)]
    text = "1 " + " ".join(f"{x} {y}" for x, y in corners)
    source = detect_only(write_files(tmp_path, with_images(yolo({"labels/a.txt": text, "labels/b.txt": text}))))
    assert source.shapes == {"outline"}
    mask = source.annotations.masks("a.png", SIZE)["tool, sharp"]
    assert iou(mask, Polygon.from_points([(x * 200, y * 100) for x, y in corners]).fill(200, 100)) == 1
    assert source.annotations.boxes("a.png", SIZE) == approx_boxes([("tool, sharp", (20, 10, 120, 90))])


def test_keypoints_follow_the_box_if_the_data_file_says_so(tmp_path: Path) -> None:
    files = {
        "data.yaml": "names: [hand]\nkpt_shape: [2, 3]\n",
        "labels/a.txt": "0 0.5 0.5 0.2 0.4 0.45 0.4 2 0.5 0.5 0\n",
        "labels/b.txt": "0 0.5 0.5 0.2 0.4 0.45 0.4 1 0.5 0.5 2\n",
    }
    source = detect_only(write_files(tmp_path, with_images(files)))
    assert source.shapes == {"box", "point"}
    assert source.annotations.boxes("a.png", SIZE) == approx_boxes([("hand", (80, 30, 120, 70))])
    assert source.annotations.points("a.png", SIZE) == [("0", (90.0, 40.0))]
    assert len(source.annotations.points("b.png", SIZE)) == 2


@pytest.mark.parametrize("name", ["classes.txt", "labels/classes.txt", "obj.names"])
def test_lists_of_classes(tmp_path: Path, name: str) -> None:
    files = {"labels/a.txt": "1 0.5 0.5 0.2 0.4", "labels/b.txt": "0 0.5 0.5 0.2 0.4", name: "polyp\ntool\n"}
    source = detect_only(write_files(tmp_path, with_images(files)))
    assert source.classes == {"polyp": 1, "tool": 1}
    assert len(source.images) == 2


def test_two_readers_of_the_same_images_are_two_sources(tmp_path: Path) -> None:
    files: dict[str, Any] = {f"images/{number}.png": b"x" for number in range(5)}
    for reader in ("reader1", "reader2"):
        files |= {f"{reader}/{number}.txt": "0 0.5 0.5 0.2 0.4" for number in range(5)}
    sources = detect_annotations(take_inventory(write_files(tmp_path, files)))
    assert [len(source.files) for source in sources] == [5, 5]
    files |= {f"more/{number}.png": b"x" for number in range(5)}
    source = detect_only(write_files(tmp_path, files))
    assert len(source.files) == 10


def test_many_label_files_are_taken_by_a_sample(tmp_path: Path) -> None:
    files = {f"labels/{number}.txt": "0 0.5 0.5 0.2 0.4" if number % 3 else "" for number in range(400)}
    assert len(detect_only(write_files(tmp_path, with_images(files))).images) == 400


@pytest.mark.parametrize(
    "text", ["0 0.5 0.5 2.2 0.4", "0 0.5 0.5 0.2", "hello", "-1 0.5 0.5 0.2 0.1", "0 nan 0.5 0.2 0.1"]
)
def test_lines_that_are_no_shares(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, with_images({"labels/a.txt": text}))
    assert detect_annotations(take_inventory(tmp_path)) == []
    with pytest.raises(DataError) as raised:
        get_annotation_format("yolo").load(["labels/a.txt"], tmp_path)
    assert raised.value.code == "not_this_format"


def test_kitti_has_the_class_first_and_corners_in_pixels(tmp_path: Path) -> None:
    line = "{} 0.00 0 0 10.5 20.25 110 90 0 0 0 0 0 0 0"
    files = {
        "labels/a.txt": f"{line.format('rbc')}\n{line.format('wbc')} 0.5\n",
        "labels/b.txt": "",
        "images/a.png": b"x",
    }
    source = detect_only(write_files(tmp_path, files))
    assert source.format == "kitti"
    assert source.classes == {"rbc": 1, "wbc": 1}
    (image,) = source.annotations.match(["images/a.png"]).values()
    boxes = source.annotations.boxes(image, SIZE)
    assert boxes == approx_boxes([("rbc", (10.5, 20.25, 110, 90)), ("wbc", (10.5, 20.25, 110, 90))])
    assert len(source.images) == 2


@pytest.mark.parametrize("line", ["car 10 20 30 45.5", "car 0.9 10 20 30 45.5"])
def test_plain_lines_of_boxes(tmp_path: Path, line: str) -> None:
    source = detect_only(write_files(tmp_path, with_images({"a.txt": line, "b.txt": line})))
    assert source.format == "line_boxes"
    assert source.annotations.boxes("a.png", SIZE) == approx_boxes([("car", (10, 20, 30, 45.5))])


def test_prose_is_no_annotation(tmp_path: Path) -> None:
    files = {"a.txt": "The patient is well.\n", "README.txt": "0.1 0.2\n0.3 0.4\n", "b.txt": "12 13 14 15 16\n"}
    assert detect_annotations(take_inventory(write_files(tmp_path, with_images(files)))) == []


def test_lines_without_an_image_of_their_name_are_no_annotation(tmp_path: Path) -> None:
    files = {"features.txt": "0 0.5 0.5 0.2 0.4\n", "places.txt": "clinic 1 2 3 4\n", "images/a.png": b"x"}
    assert detect_annotations(take_inventory(write_files(tmp_path, files))) == []
    list_of_boxes = {"a.txt": "a.png 1 2 3 4\n", "features.txt": ""}
    assert detect_annotations(take_inventory(write_files(tmp_path, list_of_boxes))) == []
