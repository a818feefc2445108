"""Cases with boxes: COCO, JSON lists, CSV tables, folders of YOLO or Pascal VOC files."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from boxfiles import from_voc, from_yolo
from labelling import mapping, there
from layouts import Box, Case, half_of, image_files
from tables import Finder, decode, read_rows
from Utils.images import ImageError, probe

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


def box_cases(args: argparse.Namespace) -> tuple[list[Case], list[str]]:
    """The cases, and the class names in their own order."""
    cases: list[Case] = []
    order: list[str] = []
    for file, split in ((args.boxes, ""), (args.test_table, "test")):
        if file is None:
            continue
        found, names = _read(there(file), args)
        cases += _cases(found, file, split or half_of_file(file), args)
        order += [name for name in names if name not in order]
    if args.test_table and not any(case.split == "train" for case in cases):
        for case in cases:
            case.split = case.split if case.split == "test" else "train"
    if not cases:
        raise SystemExit(f"None of the images that {args.boxes} names is below {args.images or args.boxes.parent}.")
    cases = _tidy(cases)
    return _relabel(cases, order, args)


def half_of_file(file: Path) -> str:
    return half_of(f"{file.stem}/x")


def _read(file: Path, args: argparse.Namespace) -> tuple[list[Found], list[str]]:
    if file.is_dir():
        folder = there(args.images or file.parent)
        if any(file.rglob("*.xml")):
            return from_voc(file)
        if any(file.rglob("*.txt")):
            return from_yolo(file, folder, args.names)
        raise SystemExit(f"{file} holds neither YOLO .txt nor Pascal VOC .xml files.")
    if file.suffix.lower() == ".json":
        try:
            raw = json.loads(decode(file.read_bytes()))
        except (ValueError, RecursionError) as error:
            raise SystemExit(f"{file} is not valid JSON: {error}.") from None
        if isinstance(raw, dict) and isinstance(raw.get("annotations"), list) and isinstance(raw.get("images"), list):
            return _coco(raw)
        return _listed(raw, file, args), []
    return _rows(read_rows(file, [args.image, args.label]), file, args), []


# --- COCO --------------------------------------------------------------------------------------------------------


def _coco(raw: dict[str, Any]) -> tuple[list[Found], list[str]]:
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


# --- JSON --------------------------------------------------------------------------------------------------------


def _listed(raw: Any, file: Path, args: argparse.Namespace) -> list[Found]:
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


# --- tables ------------------------------------------------------------------------------------------------------


def _rows(rows: list[dict[str, str]], file: Path, args: argparse.Namespace) -> list[Found]:
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


# --- cases -------------------------------------------------------------------------------------------------------


def _cases(found: list[Found], file: Path, split: str, args: argparse.Namespace) -> list[Case]:
    folder = there(args.images or file.parent)
    finder = Finder(folder)
    cases, absent, seen = [], [], set[str]()
    for name, boxes, row in found:
        path = finder.find(name)
        if path is None:
            absent.append(name)
            continue
        seen.add(path.as_posix())
        part = row.get(args.split_column, "") or row.get("(part)", "") or split or half_of("/".join(path.parts[2:]))
        cases.append(Case(path.as_posix(), [], row.get(args.patient, ""), row, part, boxes=list(boxes)))
    if args.patient and found and not any(args.patient in row for _, _, row in found):
        raise SystemExit(f"{file} has no field {args.patient!r}. Fields: {', '.join(found[0][2])}.")
    print(f"{file.name}: images named: {len(found)}; there: {len(cases)}; absent: {len(absent)}"
          + (f" (e.g. {absent[0][:80]})" if absent else ""))  # fmt: skip
    others = [path.as_posix() for path in image_files(folder) if path.as_posix() not in seen] if not split else []
    if others:
        done = "kept as healthy" if args.unlisted == "healthy" else "left out (--unlisted healthy keeps them)"
        print(f"images that the file does not name: {len(others)}, {done}")
    if args.unlisted == "healthy":
        cases += [Case(path, [], split=half_of("/".join(path.split("/")[2:])), boxes=[]) for path in others]
    return cases


def _tidy(cases: list[Case]) -> list[Case]:
    """Boxes put into the image: corners in order, cut at the border, empty and double ones left out."""
    counts: Counter[str] = Counter()
    kept = []
    for case in cases:
        try:
            grid = probe(case.image)
        except ImageError as error:
            counts[f"images that do not open ({error})"[:200]] += 1
            continue
        limits = [grid[1], grid[0], *grid[2:3]]
        boxes: list[Box] = []
        for label, box in case.boxes or ():
            one = _inside(box, limits, counts)
            if one is not None and (label, one) not in boxes:
                boxes.append((label, one))
            elif one is not None:
                counts["double boxes"] += 1
        case.boxes = boxes
        kept.append(case)
    if counts:
        print("fixed or left out: " + ", ".join(f"{why} {n}" for why, n in counts.most_common(6)))
    return kept


def _inside(box: list[float], limits: list[int], counts: Counter[str]) -> list[float] | None:
    half = len(box) // 2
    if half == 3:  # along the file's own axes, which `probe` may turn
        limits = [2**31] * 3
    low, high = box[:half], box[half:]
    if any(a > b for a, b in zip(low, high, strict=True)):
        counts["boxes with reversed corners"] += 1
        low, high = [min(pair) for pair in zip(low, high, strict=True)], [max(p) for p in zip(low, high, strict=True)]
    cut = [[min(max(v, 0.0), float(top)) for v, top in zip(end, limits, strict=False)] for end in (low, high)]
    if cut != [low, high]:
        counts["boxes over the border"] += 1
    if any(b - a <= 0 for a, b in zip(*cut, strict=True)):
        counts["boxes without an area"] += 1
        return None
    return [round(v, 2) for v in (*cut[0], *cut[1])]


def _relabel(cases: list[Case], order: list[str], args: argparse.Namespace) -> tuple[list[Case], list[str]]:
    """Names, --map and --classes; boxes whose label is left out go, their image stays."""
    names = dict(pair.split("=", 1) for pair in args.names.split(",") if "=" in pair)
    rename: Callable[[str], str] = lambda label: names.get(label, label)  # noqa: E731
    values = Counter(rename(label) for case in cases for label, _ in case.boxes or ())
    print("boxes: " + (", ".join(f"{label} {n}" for label, n in values.most_common(30)) or "none"))
    if not values:
        raise SystemExit("No image has a box. Check --box, --label and --images.")
    new = mapping(values, args.map, args.rest)
    wanted = {one.strip().lower() for one in args.classes.split("|") if one.strip()}
    if wanted and (strange := wanted - {name.lower() for name in new.values()}):
        raise SystemExit(f"--classes: there is no class {', '.join(sorted(strange))}. Classes: {', '.join(values)}.")
    for case in cases:
        renamed = [(new[rename(label)], box) for label, box in case.boxes or ()]
        case.boxes = [(label, box) for label, box in renamed if label and (not wanted or label.lower() in wanted)]
        case.values = list(dict.fromkeys(label for label, _ in case.boxes))
    listed = list(dict.fromkeys(new.get(rename(name), "") for name in order))
    return cases, [name for name in listed if name and (not wanted or name.lower() in wanted)]
