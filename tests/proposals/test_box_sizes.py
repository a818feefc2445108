"""Boxes that were drawn on larger images than those of the folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_picture, write_rows

from m3b.dataset.annotations.box_tables import OriginalSize
from m3b.dataset.manifest.execute import execute
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.proposals.original_sizes import find_original_sizes
from m3b.dataset.survey.walk import walk

WIDTH, HEIGHT = 144, 120
REQUEST = "Detect polyps with boxes"


def write_frames(
    folder: Path, factors: tuple[float, float], note: str, *, header: str = "", damaged: int = 0, corner: bool = False
) -> list[tuple[int, ...]]:
    """Write 40 frames with a box each in pixels of larger frames, and return the boxes in pixels of the frames.

    Args:
        factors: sides of the larger frames to those of the frames.
        header: names of columns of the size of the larger frames.
        damaged: boxes that lie outside any frame.
        corner: whether all boxes lie in the upper left quarter.
    """
    columns = header.split(",") if header else []
    x_factor, y_factor = factors
    boxes, rows = [], [["frame", *columns, "xmin", "ymin", "xmax", "ymax", "class"]]
    for number in range(40):
        write_picture(folder / f"frames/v{number // 4:02d}_{number % 4}.png", number, size=(HEIGHT, WIDTH))
        left, top = (2 + number % 9, 3 + number % 7) if corner else (2 + 3 * number, 3 + (11 * number) % 103)
        boxes.append((left, top, left + 12, top + 10))
        scaled = [round(side * factor) for side, factor in zip(boxes[-1], factors * 2, strict=True)]
        if number < damaged:
            scaled = [side + 9999 for side in scaled]
        size = [round(WIDTH * x_factor), round(HEIGHT * y_factor)] if header else []
        rows.append([f"v{number // 4:02d}_{number % 4}.png", *map(str, (*size, *scaled)), "polyp"])
    write_rows(folder / "polyps.csv", rows)
    (folder / "NOTES.md").write_text(note, encoding="utf-8")
    return boxes


@pytest.mark.parametrize(
    ("factors", "note", "header"),
    [
        ((8, 8), "Frames are reduced from 1152 x 960 pixels; boxes refer to the full frames.", ""),
        ((8, 8), "Die Bilder wurden um den Faktor 8 verkleinert, die Rahmen nicht.", ""),
        ((2.5, 2.5), "图像由原图缩小 2.5 倍，坐标为原图像素。", ""),
        ((10, 6), "Images redimensionnées ; boîtes en pixels des originaux (1440 × 720).", ""),
        ((10, 6), "", "width,height"),
        ((1.25, 1.25), "", "orig_img_width,orig_img_height"),
        ((4, 4), "Frames of 576x480 px before they were resized to 144x120 px.", "image_w,image_h"),
    ],
)
def test_boxes_of_originals_are_scaled(tmp_path: Path, factors: tuple[float, float], note: str, header: str) -> None:
    boxes = write_frames(tmp_path, factors, note, header=header)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    inventory = walk(tmp_path)
    executed = execute(
        outcome.proposals[0].manifest, inventory, name="data", work=tmp_path / "work", readers=FolderReaders(inventory)
    )
    read = {str(record.image)[-9:-4]: record.boxes for record in (*executed.train, *executed.test)}
    assert len(read) == 40
    for number, box in enumerate(boxes):
        (mark,) = read[f"v{number // 4:02d}_{number % 4}"] or ()
        assert tuple(mark.box) == pytest.approx(box, abs=0.5)


@pytest.mark.parametrize(
    ("factors", "note", "options"),
    [
        ((8, 8), "Frames were reduced before they were sent.", {}),
        ((1.3, 1.3), "", {}),
        ((8, 8), "The originals have 720 x 600 pixels.", {}),
        ((8, 8), "Some originals have 1152 x 960 pixels, others 1200 x 1000.", {}),
        ((8, 8), "The originals have 1152 x 960 pixels.", {"corner": True}),
    ],
)
def test_boxes_beyond_their_images_are_asked_about(
    tmp_path: Path, factors: tuple[float, float], note: str, options: dict[str, bool]
) -> None:
    write_frames(tmp_path, factors, note, **options)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "mask_size_differs"


@pytest.mark.parametrize("damaged", [0, 2])
def test_a_few_damaged_boxes_are_no_other_size(tmp_path: Path, damaged: int) -> None:
    write_frames(tmp_path, (1, 1), "Originals had 1152 x 960 pixels.", damaged=damaged)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    boxes = outcome.proposals[0].manifest.boxes
    assert boxes is not None
    assert boxes.scale == (1.0, 1.0)


@pytest.mark.parametrize(
    ("note", "sizes"),
    [
        ("Radiographs of 2048 × 1536 px, scaled down 1:4.", [OriginalSize(2048, 1536), OriginalSize(factor=4)]),
        ("A factor of 2 in dose.", []),
        ("Reducidas por un factor de 3.", [OriginalSize(factor=3)]),
        ("Pictures are 16-fold smaller than the originals", [OriginalSize(factor=16)]),
    ],
)
def test_sizes_that_notes_state(note: str, sizes: list[OriginalSize]) -> None:
    assert list(find_original_sizes(note)) == sizes


def write_coco(folder: Path, factor: int, *, corner: bool = False, has_sizes: bool = True) -> None:
    """Write frames whose outlines were drawn on larger ones, each of a size of its own."""
    images: list[dict[str, object]] = []
    outlines: list[dict[str, object]] = []
    for number in range(40):
        write_picture(folder / f"frames/v{number // 4:02d}_{number % 4}.png", number, size=(HEIGHT, WIDTH))
        width, height = (
            (factor * WIDTH + 12 * (number % 3), factor * HEIGHT + 10 * (number % 3)) if factor > 1 else (WIDTH, HEIGHT)
        )
        size = {"width": width, "height": height} if has_sizes else {}
        images.append({"id": number, "file_name": f"v{number // 4:02d}_{number % 4}.png", **size})
        left, top = (0.1, 0.1) if corner else (0.02 * number, 0.8 - 0.02 * number)
        box = [left * width, top * height, 0.2 * width, 0.2 * height]
        x, y, w, h = box
        outline = [[x, y, x + w, y, x + w, y + 0.9 * h, x + 0.9 * w, y + h, x, y + h]]
        outlines.append(
            {"id": number, "image_id": number, "category_id": 1, "bbox": box, "segmentation": outline, "area": w * h}
        )
    content = {"images": images, "annotations": outlines, "categories": [{"id": 1, "name": "polyp"}]}
    (folder / "polyps.json").write_text(json.dumps(content))


@pytest.mark.parametrize("request_text", ["Detect polyps with boxes", "Segment polyps in colonoscopy frames"])
def test_annotations_that_say_a_larger_size_are_scaled(tmp_path: Path, request_text: str) -> None:
    write_coco(tmp_path, 3)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    inventory = walk(tmp_path)
    executed = execute(
        outcome.proposals[0].manifest, inventory, name="data", work=tmp_path / "work", readers=FolderReaders(inventory)
    )
    records = {str(record.image)[-9:-4]: record for record in (*executed.train, *executed.test)}
    assert len(records) == 40
    if request_text == REQUEST:
        (mark,) = records["v02_2"].boxes or ()
        assert tuple(mark.box) == pytest.approx((0.2 * WIDTH, 0.6 * HEIGHT, 0.4 * WIDTH, 0.8 * HEIGHT), abs=0.1)
    else:
        mask = np.asarray(Image.open(tmp_path / "work" / str(records["v02_2"].mask))) > 0
        rows, columns = np.nonzero(mask)
        assert (rows.min(), columns.min()) == pytest.approx((0.6 * HEIGHT, 0.2 * WIDTH), abs=1)
        assert mask.mean() == pytest.approx(0.04, rel=0.1)


@pytest.mark.parametrize("options", [{"corner": True}, {"has_sizes": False}])
def test_annotations_of_another_size_without_evidence_are_asked_about(tmp_path: Path, options: dict[str, bool]) -> None:
    write_coco(tmp_path, 3, **options)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "mask_size_differs"
