"""Boxes in a file an image: YOLO text files and Pascal VOC XML files."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from folder_layouts import Box, image_files, natural, stem
from labelling import pairs
from Utils.formats import DataError, probe_image

LISTS = ("classes.txt", "obj.names", "classes.names", "labels.txt", "predefined_classes.txt")
NO_IMAGE = ("readme", "license", "requirements", "notes", *(Path(name).stem for name in LISTS))
Found = tuple[str, list[Box], dict[str, str]]


def from_yolo(folder: Path, images: Path, names: str) -> tuple[list[Found], list[str]]:
    """One .txt an image, `class x y width height` in shares of the image's size; an empty one is a healthy image."""
    known = yolo_names(folder, names)
    places = {stem(path.name).lower(): path for path in image_files(images)}
    found, bare = [], []
    for file in sorted(folder.rglob("*.txt"), key=lambda path: natural(path.as_posix())):
        if file.stem.lower() in NO_IMAGE or file.name in LISTS:
            continue
        path = places.get(file.stem.lower())
        if path is None:
            bare.append(file.name)
            continue
        try:
            grid = probe_image(path.as_posix()).shape
        except DataError as error:
            print(f"left out, does not open: {error}")
            continue
        found.append((path.relative_to(images).as_posix(), _yolo_boxes(file, grid, known), {}))
    if bare:
        print(f"text files without an image: {len(bare)} (e.g. {bare[0]})")
    return found, list(dict.fromkeys(known[number] for number in sorted(known)))


def _yolo_boxes(file: Path, grid: tuple[int, ...], known: dict[int, str]) -> list[Box]:
    boxes = []
    for line in file.read_text(encoding="utf-8-sig", errors="replace").splitlines():
        cells = line.split()
        if not cells:
            continue
        try:
            number, (x, y, wide, high) = int(float(cells[0])), [float(cell) for cell in cells[1:5]]
        except ValueError:
            raise SystemExit(f"{file}: {line[:60]!r} is no YOLO line `class x y width height`.") from None
        if max(x, y, wide, high) > 1.001:
            raise SystemExit(f"{file}: {line[:60]!r}: YOLO boxes are shares of the image's size, from 0 to 1.")
        edges = ((x - wide / 2) * grid[1], (y - high / 2) * grid[0], (x + wide / 2) * grid[1], (y + high / 2) * grid[0])
        boxes.append((known.get(number, f"class_{number}"), [float(edge) for edge in edges]))
    return boxes


def yolo_names(folder: Path, names: str) -> dict[int, str]:
    """Class names by number: as given, else from classes.txt, obj.names or data.yaml in the folder or above it."""
    if names:
        return {int(number): name for number, name in pairs(names).items()}
    for place in (folder, *folder.parents[:2]):
        for name in LISTS:
            if (place / name).is_file():
                return dict(enumerate(_lines(place / name)))
        for file in sorted((*place.glob("*.yaml"), *place.glob("*.yml"))):
            if found := _yaml_names(file.read_text(encoding="utf-8", errors="replace")):
                return found
    return {}


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def _yaml_names(text: str) -> dict[int, str]:
    """`names: [a, b]`, or `names:` with lines `- a` or `0: a`; no YAML reader is needed for that."""
    block = re.search(r"^names:[ \t]*(.*(?:\n[ \t]+\S.*|\n- .*)*)", text, re.MULTILINE)
    if not block:
        return {}
    body = block.group(1)
    if inner := re.match(r"\[(.*?)\]", body, re.DOTALL):
        return dict(enumerate(part.strip().strip("'\"") for part in inner.group(1).split(",") if part.strip()))
    if numbered := re.findall(r"(\d+)\s*:\s*['\"]?([^'\"\n,}]+)", body):
        return {int(number): name.strip() for number, name in numbered}
    return dict(enumerate(part.strip().strip("'\"") for part in re.findall(r"^\s*- (.+)$", body, re.MULTILINE)))


def from_voc(folder: Path) -> tuple[list[Found], list[str]]:
    """One .xml an image, `<object><name/><bndbox/></object>`; VOC counts pixels from 1 and includes the last one,
    unless one begins at 0."""
    found = []
    for file in sorted(folder.rglob("*.xml"), key=lambda path: natural(path.as_posix())):
        try:
            root = ElementTree.parse(file).getroot()
        except ElementTree.ParseError as error:
            print(f"left out, no valid XML: {file.name}: {error}")
            continue
        boxes: list[Box] = []
        for item in root.iter("object"):
            edges = [item.findtext(f"bndbox/{name}") for name in ("xmin", "ymin", "xmax", "ymax")]
            if all(edges):
                x0, y0, x1, y1 = (float(str(edge)) for edge in edges)
                boxes.append((str(item.findtext("name") or "finding"), [x0, y0, x1, y1]))
        found.append((root.findtext("filename") or file.stem, boxes, {}))
    if any(min(box[:2]) < 1 for _, boxes, _ in found for _, box in boxes):
        print("boxes of these VOC files count pixels from 0, as some begin at 0")
        return found, []
    print("Pascal VOC counts pixels from 1: 1 is taken off xmin and ymin")
    return [
        (name, [(label, [box[0] - 1, box[1] - 1, *box[2:]]) for label, box in boxes], row) for name, boxes, row in found
    ], []
