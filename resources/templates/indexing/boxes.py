"""Cases with boxes: COCO, JSON lists, CSV tables, folders of YOLO or Pascal VOC files."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from boxfiles import from_voc, from_yolo
from boxlists import Found, from_coco, from_records, from_rows
from folder_layouts import Box, Case, half_of, image_files
from labelling import mapping, there
from rows import decode, read_rows
from Utils.formats import DataError, probe_image

from tables import Finder


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
            return from_coco(raw)
        return from_records(raw, file, args), []
    return from_rows(read_rows(file, [args.image, args.label]), file, args), []


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
            grid = probe_image(case.image).shape
        except DataError as error:
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
        counts["boxes without an area, dropped"] += 1
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
