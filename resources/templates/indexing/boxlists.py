"""Boxes in one file for many images: COCO, JSON records, and tables with a box a row."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from folder_layouts import Box

IMAGE_KEYS = ("image_path", "file_name", "filename", "image", "img", "image_id", "path", "file", "name", "id")


LABEL_KEYS = ("labels", "label", "syms", "classes", "class", "names", "categories", "category", "finding", "class_name")


BOX_KEYS = ("boxes", "bboxes", "bbox", "box", "bounding_boxes")


CORNERS = (
    ("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"),
    ("x0", "y0", "x1", "y1"), ("left", "top", "right", "bottom"),
    ("x0", "y0", "z0", "x1", "y1", "z1"), ("x1", "y1", "z1", "x2", "y2", "z2"),
)  # fmt: skip


SIZES = (("x", "y", "width", "height"), ("x", "y", "w", "h"), ("left", "top", "width", "height"))


NOTHING = ("", "none", "no finding", "normal", "negative", "healthy", "background")


Found = tuple[str, list[Box], dict[str, str]]
"""The name of an image, its boxes as corners, and what else is known of it."""


def from_coco(raw: dict[str, Any]) -> tuple[list[Found], list[str]]:
    names = {item.get("id"): str(item.get("name")) for item in raw.get("categories") or () if isinstance(item, dict)}
    boxes: dict[Any, list[Box]] = defaultdict(list)
    bare = 0
    for item in raw["annotations"]:
        corners = _corners(item.get("bbox"), "xywh")
        if corners is None:
            bare += 1
        else:
            boxes[item.get("image_id")].append(
                (names.get(item.get("category_id"), str(item.get("category_id"))), corners)
            )
    if bare:
        print(f"annotations without a box, left out: {bare}")
    found = [(str(one.get("file_name", "")), boxes.get(one.get("id"), []), _flat(one)) for one in raw["images"]]
    used = {label for listed in boxes.values() for label, _ in listed}
    return found, [name for _, name in sorted(names.items(), key=lambda pair: str(pair[0]).zfill(9)) if name in used]


def _flat(item: dict[str, Any], before: str = "") -> dict[str, str]:
    row: dict[str, str] = {}
    for key, value in item.items():
        if isinstance(value, dict):
            row.update(_flat(value, f"{before}{key}."))
        elif not isinstance(value, list):
            row[f"{before}{key}"] = "" if value is None else str(value).strip()
    return row


def from_records(raw: Any, file: Path, args: argparse.Namespace) -> list[Found]:
    """Records an image, `{"file_name": ..., "syms": [...], "boxes": [[...], ...]}`, or boxes by the image's name."""
    items = list(_items(raw))
    if not items:
        raise SystemExit(f"{file} holds no list of images with boxes.")
    keys = list(dict.fromkeys(key for item in items[:200] for key in item))
    image = args.image or next((key for key in IMAGE_KEYS if key in keys), "")
    box = args.box or next((key for key in BOX_KEYS if key in keys), "")
    label = args.label or next((key for key in LABEL_KEYS if key in keys), "")
    if image not in keys or box not in keys:
        raise SystemExit(f"{file}: give --image and --box. Fields: {', '.join(keys)}.")
    joined: dict[str, Found] = {}
    for item in items:
        name = str(item.get(image, ""))
        one = joined.setdefault(name, (name, [], _flat({k: v for k, v in item.items() if k not in (box, label)})))
        one[1].extend(_item_boxes(item, box, label, args.box_format or "xyxy", f"{file}, {name}"))
    return list(joined.values())


def _items(raw: Any) -> Iterator[dict[str, Any]]:
    if isinstance(raw, list):
        yield from (item for item in raw if isinstance(item, dict))
    elif isinstance(raw, dict):
        for key, value in raw.items():
            if isinstance(value, list) and value and all(isinstance(item, dict) and _has_image(item) for item in value):
                yield from ({"(part)": key, **item} for item in value)
            elif isinstance(value, dict):
                yield {"image": key, **value}
            elif isinstance(value, list):
                yield {"image": key, "boxes": value}


def _has_image(item: dict[str, Any]) -> bool:
    return any(key in item for key in IMAGE_KEYS if key not in ("name", "id"))


def _item_boxes(item: dict[str, Any], box: str, label: str, form: str, where: str) -> list[Box]:
    listed = item.get(box) or []
    if isinstance(listed, list) and listed and not isinstance(listed[0], list | dict):
        listed = [listed]
    labels = item.get(label)
    found = []
    for at, one in enumerate(listed):
        if isinstance(one, dict):
            name = next((one[key] for key in (label, *LABEL_KEYS) if key in one), "finding")
            values: Any = next((one[key] for key in BOX_KEYS if key in one), None) or _named_corners(one)
        else:
            if isinstance(labels, list) and len(labels) != len(listed):
                raise SystemExit(f"{where}: {len(listed)} boxes and {len(labels)} labels.")
            name, values = (labels[at] if isinstance(labels, list) else labels or "finding"), one
        corners = _corners(values, form)
        if corners is None:
            raise SystemExit(f"{where}: {one!r} is no box of 4 or 6 numbers.")
        found.append((str(name), corners))
    return found


def _named_corners(one: dict[str, Any]) -> list[float] | None:
    for names in CORNERS:
        if all(name in one for name in names):
            return [one[name] for name in names]
    for names in SIZES:
        if all(name in one for name in names):
            x, y, wide, high = (float(one[name]) for name in names)
            return [x, y, x + wide, y + high]
    return None


def _corners(values: Any, form: str) -> list[float] | None:
    if not isinstance(values, list | tuple) or len(values) not in (4, 6):
        return None
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        return None
    half = len(numbers) // 2
    if form == "xywh":
        return numbers[:half] + [a + b for a, b in zip(numbers[:half], numbers[half:], strict=True)]
    return numbers


def from_rows(rows: list[dict[str, str]], file: Path, args: argparse.Namespace) -> list[Found]:
    """One box a row; rows without numbers, or whose label says that there is none, name a healthy image."""
    columns = list(rows[0]) if rows else []
    low = {name.lower(): name for name in columns}
    image = args.image or next((low[key] for key in IMAGE_KEYS if key in low), "")
    label = args.label or _label_column(low)
    cells, form = _box_columns(low, args)
    if image not in columns or not cells:
        raise SystemExit(f"{file}: give --image and --box (four columns). Columns: {', '.join(columns)}.")
    joined: dict[str, Found] = {}
    for row in rows:
        one = joined.setdefault(row[image], (row[image], [], row))
        texts = _numbers(row, cells)
        corners = _corners(texts, args.box_format or form) if all(texts) else None
        name = row.get(label, "") if label else "finding"
        if corners is not None and (not label or name.lower() not in NOTHING):
            one[1].append((name, corners))
    return list(joined.values())


def _label_column(low: dict[str, str]) -> str:
    """The column of a box's class: one of the usual names, or one that ends in such a word (`cell_type`)."""
    usual = next((low[key] for key in LABEL_KEYS if key in low), "")
    ends = re.compile(r".*(?:^|[_ -])(?:label|class|category|type|finding)(?:[_ -]?name)?$")
    return usual or next((name for key, name in low.items() if ends.match(key)), "")


def _box_columns(low: dict[str, str], args: argparse.Namespace) -> tuple[list[str], str]:
    if args.box:
        return [name.strip() for name in args.box.split(",")], args.box_format or "xyxy"
    for names in CORNERS:
        if all(name in low for name in names):
            return [low[name] for name in names], "xyxy"
    for names in SIZES:
        if all(name in low for name in names):
            return [low[name] for name in names], "xywh"
    single = next((low[name] for name in BOX_KEYS if name in low), "")
    return ([single] if single else []), "xyxy"


def _numbers(row: dict[str, str], cells: list[str]) -> list[str]:
    texts = [row.get(name, "") for name in cells]
    return re.findall(r"-?\d+(?:\.\d+)?", texts[0]) if len(cells) == 1 else texts
