"""COCO documents, written by json and pycocotools."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotation_kit import approx_boxes, codes, detect_only, iou, write_files
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pycocotools import mask as coco_mask

from m3b.dataset.annotations import ImageSize, get_annotation_format
from m3b.dataset.annotations.coco import decode_coco_runs
from m3b.dataset.annotations.geometry import turn_mask
from m3b.errors import DataError

CATEGORIES = [{"id": 7, "name": "rbc"}, {"id": 3, "name": "wbc"}, {"id": 9, "name": "platelet"}]
POLYGON = [10.0, 10.0, 60.0, 12.0, 55.0, 45.0, 15.0, 50.0]


def document(images: list[Any], annotations: list[Any], **fields: Any) -> dict[str, Any]:
    return {"images": images, "annotations": annotations, "categories": CATEGORIES, **fields}


def image(number: int, name: str, width: int = 80, height: int = 60) -> dict[str, Any]:
    return {"id": number, "file_name": name, "width": width, "height": height}


def box(image_id: int, category_id: int, *sides: float, **fields: Any) -> dict[str, Any]:
    return {"id": 1, "image_id": image_id, "category_id": category_id, "bbox": list(sides), **fields}


def load(root: Path, *paths: str) -> Any:
    return get_annotation_format("coco").load(paths, root)


def test_boxes_classes_and_images_without_marks(tmp_path: Path) -> None:
    annotations = [box(1, 7, 1.5, 2.25, 10, 20), box(1, 3, 0, 0, 5, 5), box(1, 4, 1, 1, 2, 2), box(8, 7, 1, 1, 2, 2)]
    write_files(tmp_path, {"a.json": document([image(1, "x/one.png"), image(2, "x/two.png")], annotations)})
    source = detect_only(tmp_path)
    assert source.format == "coco"
    assert source.classes == {"rbc": 1, "wbc": 1, "platelet": 0, "4": 1}
    assert source.shapes == {"box"}
    assert codes(source.annotations) == {"unknown_category_id": 1, "unknown_image_id": 1}
    boxes = source.annotations.boxes("photos/x/one.png", (80, 60))
    assert boxes == approx_boxes([("rbc", (1.5, 2.25, 11.5, 22.25)), ("wbc", (0, 0, 5, 5)), ("4", (1, 1, 3, 3))])
    assert source.annotations.boxes("x/two.png", (80, 60)) == []
    with pytest.raises(DataError) as raised:
        source.annotations.boxes("x/three.png", (80, 60))
    assert raised.value.code == "image_not_annotated"


def test_masks_equal_those_of_pycocotools(tmp_path: Path) -> None:
    mask = np.zeros((60, 80), np.uint8, order="F")
    mask[5:30, 20:33] = 1
    mask[40:44, 60:80] = 1
    compressed = coco_mask.encode(mask)
    counts = [0] if mask.T.flat[0] else []
    flat = mask.T.ravel()
    edges = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff([0, *edges, flat.size]).tolist()
    annotations = [
        box(1, 7, 0, 0, 9, 9, segmentation=[POLYGON]),
        box(1, 3, 20, 5, 60, 39, segmentation={"size": [60, 80], "counts": compressed["counts"].decode()}),
        box(1, 9, 20, 5, 60, 39, segmentation={"size": [60, 80], "counts": counts}, iscrowd=1),
    ]
    write_files(tmp_path, {"a.json": document([image(1, "one.png")], annotations)})
    source = detect_only(tmp_path)
    masks = source.annotations.masks("one.png", (80, 60))
    expected = coco_mask.decode(coco_mask.frPyObjects([POLYGON], 60, 80))[..., 0].astype(bool)
    assert iou(masks["rbc"], expected) > 0.95  # pycocotools rounds corners to pixels
    assert (masks["wbc"] == mask.astype(bool)).all()
    assert (masks["platelet"] == mask.astype(bool)).all()
    assert [label for label, _ in source.annotations.boxes("one.png", (80, 60))] == ["rbc", "wbc"]
    assert source.shapes == {"box", "outline", "mask"}
    assert codes(source.annotations) == {"crowd": 1}


@given(arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 12))))
def test_compressed_runs_decode_to_their_mask(mask: np.ndarray) -> None:
    encoded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    height, width = mask.shape
    assert (decode_coco_runs(encoded["counts"].decode(), width, height).fill(width, height) == mask).all()


@given(st.text(st.characters(min_codepoint=48, max_codepoint=112), max_size=40))
def test_damaged_compressed_runs_are_data_errors(counts: str) -> None:
    with suppress(DataError):
        assert decode_coco_runs(counts, 5, 4).fill(5, 4).shape == (4, 5)


@pytest.mark.parametrize("counts", ["o", "PPPo", "4oooooooooo1", "é4", "4 4"])
def test_compressed_runs_that_pycocotools_would_read_beyond_the_end_of_are_refused(counts: str) -> None:
    with pytest.raises(DataError) as raised:
        decode_coco_runs(counts, 5, 4).fill(5, 4)
    assert raised.value.code == "damaged_mask"


def test_keypoints_and_captions(tmp_path: Path) -> None:
    categories = [{"id": 1, "name": "spine", "keypoints": ["top", "middle", "end"]}]
    marks = [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "keypoints": [1, 2, 2, 0, 0, 0, 5, 6, 1]}]
    texts = [{"image_id": 1, "caption": "Two vertebrae."}, {"image_id": 1, "caption": "A fracture."}]
    files = {
        "keypoints.json": {"images": [image(1, "one.png")], "annotations": marks, "categories": categories},
        "captions.json": {"images": [image(1, "one.png")], "annotations": texts},
    }
    source = detect_only(write_files(tmp_path, files))
    assert source.annotations.points("one.png", (80, 60)) == [("top", (1.0, 2.0)), ("end", (5.0, 6.0))]
    assert source.annotations.texts("one.png") == ["Two vertebrae.", "A fracture."]
    assert source.shapes == {"box", "point", "text"}
    assert len(source.images) == 1
    assert source.classes == {"spine": 1}


def test_parts_in_folders_are_merged_and_do_not_cross(tmp_path: Path) -> None:
    files: dict[str, Any] = {}
    for place, part in enumerate(("train", "valid", "test")):
        names = [f"{number:03d}.png" for number in range(4)]
        files |= {f"{part}/{name}": b"x" for name in names}
        images = [image(number, name) for number, name in enumerate(names)]
        marks = [box(number, 7, 10 * place, 5, 8, 8) for number in range(4)]
        files[f"{part}/_annotations.coco.json"] = document(images, marks)
    files["test/004.png"] = b"x"
    source = detect_only(write_files(tmp_path, files))
    assert source.classes["rbc"] == 12
    assert codes(source.annotations) == {"parts_merged": 3}
    paths = [name for name in files if name.endswith(".png")]
    matches = source.annotations.match(paths)
    assert set(matches) == set(paths) - {"test/004.png"}
    for place, part in enumerate(("train", "valid", "test")):
        ((_, box_found),) = source.annotations.boxes(matches[f"{part}/002.png"], (80, 60))
        assert box_found[0] == 10 * place


def test_images_of_another_part_that_lie_in_a_folder_are_not_annotated(tmp_path: Path) -> None:
    files: dict[str, Any] = {"train/a.png": b"x", "train/b.png": b"x", "test/b.png": b"x"}
    files["train/x.json"] = document([image(1, "train/a.png")], [box(1, 7, 1, 1, 2, 2)])
    files["test/x.json"] = document([image(1, "test/b.png")], [box(1, 7, 1, 1, 2, 2)])
    source = detect_only(write_files(tmp_path, files))
    assert set(source.annotations.match(["train/a.png", "train/b.png", "test/b.png"])) == {"train/a.png", "test/b.png"}


@pytest.mark.parametrize("dates", [("", ""), ("2021-01-01", "2023-05-05")])
def test_a_stale_copy_is_left_out(tmp_path: Path, dates: tuple[str, str]) -> None:
    images = [image(number, f"{number}.png") for number in range(6)]
    rng = np.random.default_rng(3)
    marks = [box(number % 6, 7, *rng.uniform(5, 30, 2), 20, 15) for number in range(18)]
    shifted = [box(mark["image_id"], 7, *np.add(mark["bbox"], [1, 0, 0, 0])) for mark in marks]
    old = document(images, shifted[:10] if not dates[0] else [*shifted, *shifted[:3]], info={"date_created": dates[0]})
    new = document(images, marks, info={"date_created": dates[1]})
    source = detect_only(write_files(tmp_path, {"instances.json": new, "instances_v1.json": old}))
    assert source.classes["rbc"] == 18
    (note,) = [note for note in source.notes if note.code == "stale_duplicate"]
    assert note.examples == ("instances_v1.json -> instances.json",)


def test_two_parts_with_the_same_names_are_no_copies(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    parts = {
        f"annotations/{part}.json": document(
            [image(number, f"{number}.png", 400, 400) for number in range(6)],
            [box(number % 6, 7, *rng.uniform(0, 340, 2), *rng.uniform(20, 60, 2)) for number in range(120)],
        )
        for part in ("train", "val")
    }
    source = detect_only(write_files(tmp_path, parts))
    assert source.classes["rbc"] == 240
    matches = source.annotations.match(
        [f"images/{part}/{number}.png" for part in ("train", "val") for number in range(6)]
    )
    assert {path.split("/")[1]: box_found.source for path, box_found in matches.items()} == {
        "train": "annotations/train.json",
        "val": "annotations/val.json",
    }
    assert len(matches) == 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_and_masks_of_stored_pixels_are_turned_with_the_image(tmp_path: Path, orientation: int) -> None:
    marks = [box(1, 7, 10, 5, 20, 8, segmentation=[[10, 5, 30, 5, 30, 13, 10, 13]])]
    write_files(tmp_path, {"a.json": document([image(1, "one.jpg", 80, 60)], marks)})
    annotations = detect_only(tmp_path).annotations
    upright = ImageSize(60, 80, orientation) if orientation >= 5 else ImageSize(80, 60, orientation)
    mask = np.zeros((60, 80), bool)
    mask[5:13, 10:30] = True
    expected = turn_mask(mask, orientation) if orientation >= 5 else mask
    assert (annotations.masks("one.jpg", upright)["rbc"] == expected).all()
    ((_, (x0, y0, x1, y1)),) = annotations.boxes("one.jpg", upright)
    assert expected[int(y0) : int(y1), int(x0) : int(x1)].sum() == 160
    if orientation >= 5:  # drawn on the upright image
        boxes = annotations.boxes("one.jpg", ImageSize(80, 60, orientation))
        assert boxes == approx_boxes([("rbc", (10, 5, 30, 13))])
    with pytest.raises(DataError) as raised:
        annotations.masks("one.jpg", ImageSize(40, 30, orientation))
    assert raised.value.code == "size_differs"


def test_damaged_marks_are_noted_and_left_out(tmp_path: Path) -> None:
    nan = float("nan")
    marks: list[Any] = [
        box(1, 7, 1, 1, 0, 4), box(1, 7, nan, 1, 2, 2), box(1, 7, 1, 1, 2), box(1, 7, "a", 1, 2, 2),
        box(1, 7, 3, 3, 4, 4, segmentation=[[1, 2, 3]]), box(1, 7, 1, 1, 2, 2, segmentation={"size": [60]}),
        {"image_id": 1, "category_id": 7}, box(1, 7, 1, 1, 2, 2, segmentation=[[1, 1, 5, nan, 3, 3]]),
    ]  # fmt: skip
    source = detect_only(write_files(tmp_path, {"a.json": document([image(1, "one.png")], marks)}))
    assert source.classes["rbc"] == 1
    assert codes(source.annotations) == {"damaged_mark": 5, "empty_box": 1, "no_shape": 1}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ('{"images": [', "damaged"),
        ({"images": [{"file_name": "a"}], "annotations": []}, "not_this_format"),
        ({"images": {}, "annotations": []}, "not_this_format"),
        ([1, 2], "not_this_format"),
        ({"images": [image(1, "a")], "annotations": [3]}, "damaged"),
        ('{"images":' + "[" * 100_000 + "]" * 100_000 + "}", "too_deep"),
        (b"\x00\xff\xfe\x00", "damaged"),
    ],
)
def test_malformed_documents_have_codes(tmp_path: Path, content: Any, code: str) -> None:
    write_files(tmp_path, {"a.json": content})
    with pytest.raises(DataError) as raised:
        load(tmp_path, "a.json")
    assert raised.value.code == code


def test_one_damaged_part_is_noted(tmp_path: Path) -> None:
    files = {"a.json": document([image(1, "a.png")], [box(1, 7, 1, 1, 2, 2)]), "b.json": '{"images": ['}
    annotations = load(write_files(tmp_path, files), "a.json", "b.json")
    assert codes(annotations) == {"file_damaged": 1}
    assert len(annotations.images) == 1


def test_links_and_missing_files_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("/etc/hostname")
    for path in ("a.json", "b.json"):
        with pytest.raises(DataError) as raised:
            load(tmp_path, path)
        assert raised.value.code == "unreadable"
