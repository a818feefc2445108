"""Writers of boxes and outlines in each annotation format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree  # only written, never read

import numpy as np
from pycocotools import mask as coco_mask

from layouts.carriers import to_json
from layouts.shapes import Shape


@dataclass(frozen=True)
class AnnotatedImage:
    """An image and what is marked on it.

    Args:
        name: how annotations call the file.
        base: path without suffix for an annotation file of its own.
        part: train, val, test or another name of the file that lists it.
        size: rows and columns.
    """

    name: str
    base: Path
    part: str
    size: tuple[int, int]
    shapes: tuple[Shape, ...]


Images = Sequence[AnnotatedImage]
Names = Sequence[str]
CATEGORY_IDS = (1, 2, 4, 7, 9)
"""Numbers of COCO categories, with gaps as they come up when categories are removed."""


def make_coco(images: Images, names: Names, *, segmentation: str = "") -> dict[str, Any]:
    """Return a COCO document.

    Args:
        segmentation: `polygon` or `rle`; '' for boxes alone.
    """
    document: dict[str, Any] = {
        "info": {"description": "export", "year": 2022},
        "images": [],
        "annotations": [],
        "categories": [
            {"id": number, "name": name, "supercategory": ""} for number, name in zip(CATEGORY_IDS, names, strict=False)
        ],
    }
    for image_id, image in enumerate(images, 11):
        rows, columns = image.size
        document["images"].append({"id": image_id, "file_name": image.name, "width": columns, "height": rows})
        for shape in image.shapes:
            x0, y0, x1, y1 = shape.box
            annotation: dict[str, Any] = {
                "id": len(document["annotations"]) + 1, "image_id": image_id, "category_id": CATEGORY_IDS[shape.class_index],
                "bbox": [x0, y0, x1 - x0, y1 - y0], "iscrowd": 0, "area": int(shape.mask(image.size).sum()),
            }  # fmt: skip
            if segmentation == "polygon":
                annotation["segmentation"] = [[float(value) for point in shape.outline() for value in point]]
            elif segmentation == "rle":
                encoded = coco_mask.encode(np.asfortranarray(shape.mask(image.size).astype(np.uint8)))
                annotation["segmentation"] = {"size": [rows, columns], "counts": encoded["counts"].decode()}
            document["annotations"].append(annotation)
    return document


def write_coco(folder: Path, images: Images, names: Names, segmentation: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "annotations.json").write_text(to_json(make_coco(images, names, segmentation=segmentation)), "utf-8")


def write_coco_parts(folder: Path, images: Images, names: Names) -> None:
    """Write a file for each part, and an older copy of the first that lacks a fifth of its boxes."""
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[AnnotatedImage]] = {}
    for image in images:
        parts.setdefault(image.part, []).append(image)
    for part, members in parts.items():
        (folder / f"instances_{part}.json").write_text(to_json(make_coco(members, names)), "utf-8")
    first = next(iter(parts))
    stale = make_coco(parts[first], names)
    stale["annotations"] = [item for number, item in enumerate(stale["annotations"]) if number % 5]
    (folder / f"instances_{first}_old.json").write_text(to_json(stale), "utf-8")


def write_yolo(folder: Path, images: Images, names: Names, *, outlines: bool = False) -> None:
    for image in images:
        rows, columns = image.size
        lines = []
        for shape in image.shapes:
            x0, y0, x1, y1 = shape.box
            if outlines:
                numbers = [value for x, y in shape.outline() for value in (x / columns, y / rows)]
            else:
                numbers = [
                    (x0 + x1) / 2 / columns,
                    (y0 + y1) / 2 / rows,
                    (x1 - x0) / columns,
                    (y1 - y0) / rows,
                ]
            lines.append(" ".join([str(shape.class_index), *(f"{number:.6f}" for number in numbers)]))
        _write_beside(image, ".txt", "\n".join(lines) + ("\n" if lines else ""))


def write_voc(folder: Path, images: Images, names: Names) -> None:
    for image in images:
        root = ElementTree.Element("annotation")
        ElementTree.SubElement(root, "filename").text = image.name.rpartition("/")[2]
        size = ElementTree.SubElement(root, "size")
        for key, value in zip(("width", "height", "depth"), (image.size[1], image.size[0], 1), strict=True):
            ElementTree.SubElement(size, key).text = str(value)
        for shape in image.shapes:
            item = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(item, "name").text = names[shape.class_index]
            box = ElementTree.SubElement(item, "bndbox")
            for key, value in zip(("xmin", "ymin", "xmax", "ymax"), shape.box, strict=True):
                ElementTree.SubElement(box, key).text = str(value)
        _write_beside(image, ".xml", ElementTree.tostring(root, encoding="unicode"))


def write_kitti(folder: Path, images: Images, names: Names) -> None:
    for image in images:
        lines = [
            f"{names[shape.class_index].replace(' ', '_')} 0.00 0 0.00 {' '.join(f'{edge:.2f}' for edge in shape.box)} 0 0 0 0 0 0 0"
            for shape in image.shapes
        ]
        _write_beside(image, ".txt", "\n".join(lines) + ("\n" if lines else ""))


def write_labelme(folder: Path, images: Images, names: Names, *, outlines: bool = False) -> None:
    for image in images:
        marks: list[dict[str, Any]] = [
            {
                "label": names[shape.class_index],
                "points": [list(point) for point in shape.outline()]
                if outlines
                else [list(shape.box[:2]), list(shape.box[2:])],
                "group_id": None,
                "shape_type": "polygon" if outlines else "rectangle",
                "flags": {},
            }
            for shape in image.shapes
        ]
        document: dict[str, Any] = {
            "version": "5.2.1", "flags": {}, "shapes": marks, "imagePath": image.name.rpartition("/")[2], "imageData": None,
            "imageHeight": image.size[0], "imageWidth": image.size[1],
        }  # fmt: skip
        _write_beside(image, ".json", to_json(document))


def write_via(folder: Path, images: Images, names: Names, *, outlines: bool = False) -> None:
    document: dict[str, Any] = {}
    for image in images:
        regions: list[dict[str, Any]] = []
        for shape in image.shapes:
            x0, y0, x1, y1 = shape.box
            points = shape.outline()
            attributes: dict[str, Any] = {
                "name": "rect",
                "x": x0,
                "y": y0,
                "width": x1 - x0,
                "height": y1 - y0,
            }
            if outlines:
                attributes = {
                    "name": "polygon",
                    "all_points_x": [x for x, _ in points],
                    "all_points_y": [y for _, y in points],
                }
            regions.append({"shape_attributes": attributes, "region_attributes": {"class": names[shape.class_index]}})
        document[f"{image.name}-1"] = {"filename": image.name, "size": -1, "regions": regions, "file_attributes": {}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "via_region_data.json").write_text(to_json(document), "utf-8")


def write_cvat(folder: Path, images: Images, names: Names, *, outlines: bool = False) -> None:
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    for number, image in enumerate(images):
        item = ElementTree.SubElement(
            root, "image", id=str(number), name=image.name, width=str(image.size[1]), height=str(image.size[0])
        )
        for shape in image.shapes:
            label = names[shape.class_index]
            if outlines:
                points = ";".join(f"{x:.2f},{y:.2f}" for x, y in shape.outline())
                ElementTree.SubElement(item, "polygon", label=label, occluded="0", points=points)
            else:
                mark = ElementTree.SubElement(item, "box", label=label, occluded="0")
                for key, edge in zip(("xtl", "ytl", "xbr", "ybr"), shape.box, strict=True):
                    mark.set(key, f"{edge:.2f}")
    folder.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(folder / "annotations.xml", encoding="utf-8", xml_declaration=True)


BOX_COLUMNS = {
    "csv_corners_pixels": ("x_min", "y_min", "x_max", "y_max"),
    "csv_size_pixels": ("x", "y", "width", "height"),
    "csv_centre_shares": ("x_center", "y_center", "width", "height"),
    "csv_corners_shares": ("xmin", "ymin", "xmax", "ymax"),
}


def box_cells(shape: Shape, size: tuple[int, int], box_format: str) -> list[float]:
    """Return the four numbers of a box as a table of this format has them."""
    x0, y0, x1, y1 = shape.box
    rows, columns = size
    if box_format == "csv_corners_pixels":
        return [x0, y0, x1, y1]
    if box_format == "csv_size_pixels":
        return [x0, y0, x1 - x0, y1 - y0]
    if box_format == "csv_corners_shares":
        return [round(value, 6) for value in (x0 / columns, y0 / rows, x1 / columns, y1 / rows)]
    centre = ((x0 + x1) / 2 / columns, (y0 + y1) / 2 / rows, (x1 - x0) / columns, (y1 - y0) / rows)
    return [round(value, 6) for value in centre]


def _write_beside(image: AnnotatedImage, suffix: str, text: str) -> None:
    image.base.parent.mkdir(parents=True, exist_ok=True)
    image.base.with_name(image.base.name + suffix).write_text(text, "utf-8")


ANNOTATION_WRITERS: Mapping[str, Callable[[Path, Images, Names], None]] = {
    "coco": write_coco,
    "coco_parts_stale": write_coco_parts,
    "yolo": write_yolo,
    "voc": write_voc,
    "kitti": write_kitti,
    "labelme": write_labelme,
    "via": write_via,
    "cvat": write_cvat,
}
OUTLINE_WRITERS: Mapping[str, Callable[[Path, Images, Names], None]] = {
    "coco": lambda folder, images, names: write_coco(folder, images, names, "polygon"),
    "coco_rle": lambda folder, images, names: write_coco(folder, images, names, "rle"),
    "yolo_outline": lambda folder, images, names: write_yolo(folder, images, names, outlines=True),
    "labelme": lambda folder, images, names: write_labelme(folder, images, names, outlines=True),
    "via": lambda folder, images, names: write_via(folder, images, names, outlines=True),
    "cvat": lambda folder, images, names: write_cvat(folder, images, names, outlines=True),
}
PER_IMAGE_FORMATS = ("yolo", "voc", "kitti", "labelme", "yolo_outline")
"""Formats with a file for each image."""
