"""Boxes, run lengths and points in tables: roles by names, meaning by values and by the sizes of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from annotation_kit import approx_boxes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from m3b.dataset.annotations import ImageSize, VolumeGrid
from m3b.dataset.annotations.box_tables import (
    BoxReading,
    BoxRows,
    ImageGrid,
    find_paired_column,
    form_box,
    measure_boxes,
    parse_box_lists,
    propose_box_columns,
    propose_class_column,
    read_box_rows,
    to_pixels,
)
from m3b.dataset.annotations.geometry import Box
from m3b.dataset.annotations.run_tables import (
    RunRule,
    draw_runs,
    find_run_column,
    is_relative,
    measure_runs,
    parse_runs,
)
from m3b.errors import DataError

SIZES = {f"{number}.png": ImageSize(300 + 20 * number, 200 + 10 * number) for number in range(8)}


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    texts = [{name: None if value is None else str(value) for name, value in row.items()} for row in rows]
    return pl.DataFrame(texts, schema=dict.fromkeys(rows[0], pl.String))


def find_boxes(rows: BoxRows, reading: BoxReading, name: str, grid: ImageGrid) -> list[tuple[str, Box]]:
    """Return (class, box) of the rows of an image as they were measured."""
    options = {"is_ball": rows.columns.is_ball, "sizes_mm": reading.sizes_mm}
    return [
        (label, to_pixels(form_box(reading.form, numbers), grid, reading.space, **options))
        for image, label, numbers in zip(rows.names, rows.labels, rows.numbers, strict=True)
        if image == name
    ]


def draw_corners(count: int = 60, seed: int = 0) -> list[tuple[str, tuple[float, float, float, float]]]:
    """Return boxes that fill their images evenly."""
    rng = np.random.default_rng(seed)
    boxes = []
    for number in range(count):
        name = f"{number % len(SIZES)}.png"
        width, height = SIZES[name][:2]
        x0, x1 = sorted(rng.uniform(0, width, 2))
        y0, y1 = sorted(rng.uniform(0, height, 2))
        boxes.append((name, (x0, y0, x1 + 0.01, y1 + 0.01)))
    return boxes


FORMS = {
    "corners": lambda x0, y0, x1, y1: (x0, y0, x1, y1),
    "sides": lambda x0, y0, x1, y1: (x0, y0, x1 - x0, y1 - y0),
    "centres": lambda x0, y0, x1, y1: ((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0),
}
NAMES = {
    "corners": ["xmin,ymin,xmax,ymax", "X1,Y1,X2,Y2", "x0,y0,x1,y1", "bbox_x_min,bbox_y_min,bbox_x_max,bbox_y_max",
                "left,top,right,bottom", "col_start,row_start,col_end,row_end", "start_x,start_y,end_x,end_y"],
    "sides": ["x,y,width,height", "Bbox [x,y,w,h]", "left,top,width,height", "x_min,y_min,Breite,Höhe"],
    "centres": ["cx,cy,w,h", "x_center,y_center,width,height", "centerX,centerY,boxWidth,boxHeight"],
}  # fmt: skip
SCALES = {
    "pixels": lambda size: (1, 1),
    "shares": lambda size: (1 / size[0], 1 / size[1]),
    "percent": lambda size: (100 / size[0], 100 / size[1]),
}


@pytest.mark.parametrize("space", SCALES)
@pytest.mark.parametrize(("form", "names"), [(form, names) for form, several in NAMES.items() for names in several])
def test_names_and_sizes_tell_what_columns_hold(form: str, names: str, space: str) -> None:
    boxes = draw_corners()
    columns = names.split(",")
    rows = []
    for name, box in boxes:
        x_factor, y_factor = SCALES[space](SIZES[name])
        scaled = (box[0] * x_factor, box[1] * y_factor, box[2] * x_factor, box[3] * y_factor)
        rows.append({"file": name, **dict(zip(columns, FORMS[form](*scaled), strict=True)), "finding": "nodule"})
    table = frame(rows)
    proposed = propose_box_columns(table)
    assert proposed is not None
    assert set(proposed.columns.values()) == set(columns)
    assert proposed.form == form
    assert propose_class_column(table, ["file", *columns]) == "finding"
    box_rows = read_box_rows(table, proposed, table["file"].to_list(), "finding")
    reading = measure_boxes(box_rows, SIZES)
    assert (reading.form, reading.space, reading.rivals) == (form, space, ())
    boxes_of_image = find_boxes(box_rows, reading, "3.png", SIZES["3.png"])
    assert boxes_of_image == approx_boxes([("nodule", box) for name, box in boxes if name == "3.png"])


@pytest.mark.parametrize(
    ("named_form", "real"), [("corners", "sides"), ("corners", "centres"), ("sides", "centres"), ("centres", "sides")]
)
def test_values_overrule_names(named_form: str, real: str) -> None:
    boxes = draw_corners()
    columns = NAMES[named_form][0].split(",")
    table = frame([{"file": name, **dict(zip(columns, FORMS[real](*box), strict=True))} for name, box in boxes])
    proposed = propose_box_columns(table)
    assert proposed is not None
    reading = measure_boxes(read_box_rows(table, proposed, table["file"].to_list()), SIZES)
    assert reading.form == real


def test_what_fits_both_ways_is_a_rival() -> None:
    rows = [{"file": name, "x": 0.4 + place / 100, "y": 0.5, "w": 0.1, "h": 0.2} for place, name in enumerate(SIZES)]
    table = frame(rows)
    proposed = propose_box_columns(table)
    assert proposed is not None
    reading = measure_boxes(read_box_rows(table, proposed, table["file"].to_list()), SIZES)
    assert (reading.form, reading.space) == ("sides", "shares")
    assert reading.rivals == (("centres", "shares"),)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "write",
    [lambda box: str(list(box)), lambda box: " ".join(map(str, box)), lambda box: f"({', '.join(map(str, box))})"],
)
def test_lists_in_cells(form: str, write: Any) -> None:
    boxes = draw_corners()
    hint = "cxcywh" if form == "centres" else "bbox"
    table = frame([{"file": name, hint: write(tuple(map(float, FORMS[form](*box))))} for name, box in boxes])
    proposed = propose_box_columns(table)
    assert proposed is not None
    box_rows = read_box_rows(table, proposed, table["file"].to_list(), label="cell")
    reading = measure_boxes(box_rows, SIZES)
    assert (reading.form, reading.space) == (form, "pixels")
    boxes_of_image = find_boxes(box_rows, reading, "2.png", SIZES["2.png"])
    assert boxes_of_image == approx_boxes([("cell", box) for name, box in boxes if name == "2.png"])


def test_several_boxes_a_row_with_a_list_of_labels() -> None:
    table = frame(
        [
            {"file": "0.png", "boxes": "[[1, 2, 11, 12], [20, 30, 44, 50]]", "labels": "['a', 'b']"},
            {"file": "1.png", "boxes": "[]", "labels": "[]"},
            {"file": "2.png", "boxes": "[3, 4, 9, 9]", "labels": "a"},
        ]
    )
    proposed = propose_box_columns(table)
    assert proposed is not None
    box_rows = read_box_rows(table, proposed, table["file"].to_list(), "labels")
    assert list(zip(box_rows.names, box_rows.labels, strict=True)) == [("0.png", "a"), ("0.png", "b"), ("2.png", "a")]
    assert box_rows.numbers.tolist() == [[1, 2, 11, 12], [20, 30, 44, 50], [3, 4, 9, 9]]


def test_rows_without_numbers_have_no_box() -> None:
    table = frame(
        [
            {"file": "0.png", "class": "a", "xmin": "1,5", "ymin": "2", "xmax": "11", "ymax": "12"},
            {"file": "1.png", "class": "No finding", "xmin": None, "ymin": "nan", "xmax": None, "ymax": None},
            {"file": "2.png", "class": "a", "xmin": "5", "ymin": "5", "xmax": "5", "ymax": "9"},
            *[{"file": "3.png", "class": "a", "xmin": "5", "ymin": "5", "xmax": "8", "ymax": "9"}] * 60,
            {"file": "4.png", "class": "a", "xmin": "left", "ymin": "5", "xmax": "8", "ymax": "9"},
        ]
    )
    proposed = propose_box_columns(table)
    assert proposed is not None
    box_rows = read_box_rows(table, proposed, table["file"].to_list(), "class")
    assert box_rows.names == ["0.png", "2.png", *["3.png"] * 60]
    assert box_rows.numbers[0].tolist() == [1.5, 2, 11, 12]


def test_circles_are_boxes() -> None:
    table = frame(
        [{"file": "0.png", "x": 50, "y": 60, "radius": 20}, {"file": "1.png", "x": 80, "y": 70, "radius": 10}]
    )
    proposed = propose_box_columns(table)
    assert proposed is not None
    assert proposed.is_ball
    box_rows = read_box_rows(table, proposed, table["file"].to_list(), label="mass")
    boxes = find_boxes(box_rows, measure_boxes(box_rows, SIZES), "0.png", SIZES["0.png"])
    assert boxes == [("mass", (30, 40, 70, 80))]


def test_sizes_of_images_are_no_sizes_of_boxes() -> None:
    table = frame([{"file": "0.png", "width": 300, "height": 200, "xmin": 1, "ymin": 2, "xmax": 30, "ymax": 40}])
    proposed = propose_box_columns(table)
    assert proposed is not None
    assert proposed.form == "corners"
    assert set(proposed.columns) == {"xmin", "ymin", "xmax", "ymax"}


@pytest.mark.parametrize(
    "columns",
    [
        {"age": 50, "x": 3},
        {"x1": 1, "x2": 3},
        {"width": 5, "height": 7},
        {"values": "1 2 3"},
        {"x": "left", "y": "top", "w": 1, "h": 2},
    ],
)
def test_other_numbers_are_no_boxes(columns: dict[str, Any]) -> None:
    assert propose_box_columns(frame([{"file": "0.png", **columns}] * 3)) is None


# --- volumes ----------------------------------------------------------------------------------------------------------

AFFINE = np.array([[0, 0.8, 0, -150], [0.8, 0, 0, -40], [0, 0, 2.5, -300], [0, 0, 0, 1.0]])
VOLUMES = {f"v{number}": VolumeGrid((200, 220, 100), AFFINE + np.eye(4, k=3) * number) for number in range(6)}


def volume_table(space: str) -> tuple[pl.DataFrame, dict[str, list[tuple[float, ...]]]]:
    rng = np.random.default_rng(1)
    rows, boxes = [], {name: [] for name in VOLUMES}
    for number in range(24):
        name, grid = f"v{number % 6}", VOLUMES[f"v{number % 6}"]
        index, diameter = rng.uniform((20, 20, 10), (180, 200, 90)), rng.uniform(4, 20)
        place = grid.affine[:3] @ (*index, 1)
        place = place * (-1, -1, 1) if space == "ras" else place
        rows.append({"uid": name, "coordX": place[0], "coordY": place[1], "coordZ": place[2], "diameter_mm": diameter})
        middle = (index + 0.5)[[1, 0, 2]]
        reach = diameter / 2 / np.array([0.8, 0.8, 2.5])
        boxes[name].append((*(middle - reach), *(middle + reach)))
    return frame(rows), boxes


@pytest.mark.parametrize("space", ["lps", "ras"])
def test_balls_in_mm_of_the_patient(space: str) -> None:
    table, expected = volume_table(space)
    proposed = propose_box_columns(table)
    assert proposed is not None
    assert proposed.axes == 3
    box_rows = read_box_rows(table, proposed, table["uid"].to_list(), label="nodule")
    reading = measure_boxes(box_rows, VOLUMES)
    assert reading.space == space
    boxes_of_image = find_boxes(box_rows, reading, "v2", VOLUMES["v2"])
    assert boxes_of_image == approx_boxes([("nodule", box) for box in expected["v2"]])


def test_sizes_in_mm_beside_voxels() -> None:
    rows = [{"uid": name, "x": 100, "y": 60, "z": 30, "diameter_mm": 8} for name in VOLUMES]
    table = frame(rows)
    proposed = propose_box_columns(table)
    assert proposed is not None
    box_rows = read_box_rows(table, proposed, table["uid"].to_list(), label="nodule")
    reading = measure_boxes(box_rows, VOLUMES)
    assert (reading.space, reading.sizes_mm) == ("pixels", True)
    boxes_of_image = find_boxes(box_rows, reading, "v1", VOLUMES["v1"])
    assert boxes_of_image == approx_boxes([("nodule", (95, 55, 28.4, 105, 65, 31.6))])


# --- errors -----------------------------------------------------------------------------------------------------------


@given(st.text("0123456789.,;[]() eE+-|x", max_size=60))
def test_cells_of_lists_are_numbers_or_nothing(cell: str) -> None:
    boxes = parse_box_lists(cell)
    assert boxes is None or all(len(box) in (4, 6) for box in boxes)


# --- run lengths ------------------------------------------------------------------------------------------------------

RULES = [
    RunRule(order, first, relative)
    for order in ("columns", "rows")
    for first in (0, 1)
    for relative in (False, True)
    if not (relative and first)
]  # type: ignore[arg-type]


def write_runs(mask: np.ndarray, rule: RunRule) -> str:
    flat = np.concatenate([[False], mask.ravel(order="F" if rule.order == "columns" else "C"), [False]])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    starts, ends = edges[::2], edges[1::2]
    before = np.concatenate([[0], ends[:-1]]) if rule.relative and len(ends) else 0
    numbers = np.stack([starts - before + rule.first, ends - starts], axis=1).ravel()
    return " ".join(map(str, numbers))


@pytest.mark.parametrize("rule", RULES, ids=str)
@given(mask=arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_runs_decode_to_their_mask(rule: RunRule, mask: np.ndarray) -> None:
    runs = parse_runs(write_runs(mask, rule))
    assert runs is not None
    assert (draw_runs(runs, mask.shape[1], mask.shape[0], rule) == mask).all()


def disc(height: int, width: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    return np.asarray((rows - rng.uniform(20, height - 20)) ** 2 + (columns - rng.uniform(20, width - 20)) ** 2 < 15**2)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("square", [False, True])
def test_the_order_is_measured_on_images(rule: RunRule, *, square: bool) -> None:
    masks = {f"{n}.png": disc(96, 96 if square else 130, n) | disc(96, 96 if square else 130, n + 50) for n in range(8)}
    rng = np.random.default_rng(0)
    images = {name: mask * 60 + rng.normal(100, 5, mask.shape) for name, mask in masks.items()}
    first = np.zeros_like(masks["0.png"])
    first.flat[0] = first.flat[1] = rule.first == 0  # where counting from 0 shows
    rows = [{"ImageId": name, "EncodedPixels": write_runs(mask | first, rule)} for name, mask in masks.items()]
    rows.append({"ImageId": "healthy.png", "EncodedPixels": None})
    table = frame(rows)
    assert find_run_column(table) == "EncodedPixels"
    assert propose_box_columns(table) is None
    runs = {row["ImageId"]: [parse_runs(row["EncodedPixels"]) or []] for row in rows}
    reading = measure_runs(runs, images)
    assert reading.rule.order == rule.order
    assert reading.is_certain
    assert reading.rule.relative == rule.relative
    assert reading.beyond == 0
    width = masks["3.png"].shape[1]
    assert (draw_runs(runs["3.png"][0], width, 96, reading.rule) == (masks["3.png"] | first)).mean() > 0.999


def test_noise_leaves_the_order_open() -> None:
    rng = np.random.default_rng(3)
    masks = {f"{n}.png": rng.random((64, 64)) < 0.3 for n in range(12)}
    images = {name: rng.normal(100, 20, (64, 64)) for name in masks}
    runs = {name: [parse_runs(write_runs(mask, RunRule())) or []] for name, mask in masks.items()}
    reading = measure_runs(runs, images)
    assert not reading.is_certain
    assert reading.rule.order == "columns"


def test_runs_of_a_larger_image_are_counted_and_refused() -> None:
    runs = [4090, 10]
    reading = measure_runs({"0.png": [runs]}, {"0.png": np.zeros((32, 32))})
    assert reading.beyond == 1
    with pytest.raises(DataError) as raised:
        draw_runs(runs, 32, 32, RunRule())
    assert raised.value.code == "size_differs"
    with pytest.raises(DataError):
        draw_runs([0, 3], 32, 32, RunRule())
    with pytest.raises(DataError):
        draw_runs([10**9, 10**9], 32, 32, RunRule())


@pytest.mark.parametrize(
    ("cell", "runs"),
    [(None, []), ("-1", []), ("", []), ("[1, 2]", [1, 2]), ("1 2 3", None), ("a b", None), ("1 -2", None)],
)
def test_cells_of_runs(cell: str | None, runs: list[int] | None) -> None:
    assert parse_runs(cell) == runs
    assert is_relative([5, 3, 2, 4])
    assert not is_relative([5, 3, 9, 4])


@pytest.mark.parametrize("repeats", [1, 40])
def test_a_few_boxes_near_the_corner_are_pixels(repeats: int) -> None:
    table = frame([{"file": f"{n}.png", "xmin": 5, "ymin": 6, "xmax": 40 + n, "ymax": 50} for n in range(3)] * repeats)
    proposed = propose_box_columns(table)
    assert proposed is not None
    assert measure_boxes(read_box_rows(table, proposed, table["file"].to_list()), SIZES).space == "pixels"


@pytest.mark.parametrize(
    ("columns", "class_column"),
    [
        ({"(file)": ["a.csv", "b.csv"] * 4}, ""),
        ({"diameters_of_lesion": ["5.1, 4.2"] * 8}, ""),
        ({"source": ["site 1"] * 8}, ""),
        ({"source": ["site 1", "site 2"] * 4}, "source"),
        ({"label": ["nodule"] * 8}, "label"),
    ],
)
def test_files_numbers_and_what_is_always_the_same_are_no_classes(
    columns: dict[str, list[str]], class_column: str
) -> None:
    assert propose_class_column(pl.DataFrame(columns), []) == class_column


@pytest.mark.parametrize(
    ("cells", "name", "is_run"),
    [
        (["8, 7, 17, 14"] * 4, "Bounding_boxes", False),
        (["1 2 3 4 5 6"] * 4, "box", False),
        (["8 7 17 14"] * 4, "EncodedPixels", True),
        (["8 7 17 14", "8 7 17 14 30 2", "5 2"], "x", True),
    ],
)
def test_boxes_are_no_runs(cells: list[str], name: str, *, is_run: bool) -> None:
    assert find_run_column(pl.DataFrame({name: cells})) == (name if is_run else "")


def test_of_several_columns_of_numbers_the_one_called_after_boxes_is_read() -> None:
    box_columns = propose_box_columns(pl.DataFrame({"measures": ["1,2,3,4"] * 4, "boxes": ["5,6,9,9"] * 4}))
    assert box_columns is not None
    assert box_columns.list_column == "boxes"


def test_as_many_texts_as_boxes_a_row_are_their_classes() -> None:
    rows = pl.DataFrame(
        {
            "names": ["cyst", "cyst|stone", "[]"],
            "part": ["a", "a", "b"],
            "boxes": ["1,2,8,9", "[1,2,8,9],[3,4,7,9]", "[]"],
        }
    )
    box_columns = propose_box_columns(rows)
    assert box_columns is not None
    assert find_paired_column(rows, box_columns) == "names"
    assert read_box_rows(rows, box_columns, ["p", "q", "r"], "names").labels == ["cyst", "cyst", "stone"]
