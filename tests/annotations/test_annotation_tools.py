"""Documents of the tools that people mark images with: VOC, LabelMe, VIA, CVAT, Label Studio, Aperio, ASAP and QuPath."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from annotation_kit import approx_boxes, codes, detect_only, iou, take_inventory, write_files
from PIL import Image

from m3b.dataset.annotations import ANNOTATIONS, ImageSize, Polygon, detect_annotations, get_annotation_format
from m3b.errors import DataError

SIZE = ImageSize(200, 100)
BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><{0}><object><name>&c;</name></object></{0}>'


def element(tag: str, text: str = "", **attributes: object) -> ET.Element:
    node = ET.Element(tag, {name: str(value) for name, value in attributes.items()})
    node.text = text or None
    return node


def tree(tag: str, *children: ET.Element, **attributes: object) -> ET.Element:
    node = element(tag, **attributes)
    node.extend(children)
    return node


def xml(root: ET.Element) -> bytes:
    return ET.tostring(root, xml_declaration=True, encoding="utf-8")


def polygon_mask(*points: tuple[float, float]) -> np.ndarray:
    return np.asarray(Polygon.from_points(points).fill(200, 100))


# --- VOC --------------------------------------------------------------------------------------------------------------


def voc(name: str, *objects: ET.Element, size: tuple[int, int] = (200, 100)) -> bytes:
    sizes = tree("size", element("width", str(size[0])), element("height", str(size[1])), element("depth", "3"))
    return xml(tree("annotation", element("filename", name), sizes, *objects))


def voc_object(name: str, *sides: float) -> ET.Element:
    box = tree(
        "bndbox", *(element(tag, str(side)) for tag, side in zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True))
    )
    return tree("object", element("name", name), box)


def test_voc(tmp_path: Path) -> None:
    polygon = tree("polygon", *(element(f"{axis}{n}", str(v)) for n, p in enumerate([(5, 5), (50, 5), (5, 45)], 1)
                                for axis, v in zip("xy", p, strict=True)))  # fmt: skip
    entry = voc_object("WBC", 5, 5, 50, 45)
    entry.append(polygon)
    files = {
        "Annotations/a.xml": voc("a.jpg", voc_object("RBC", 1, 2.5, 30, 40), entry),
        "Annotations/b.xml": voc("b.jpg", size=(0, 0)),
        "JPEGImages/a.jpg": b"x",
    }
    source = detect_only(write_files(tmp_path, files))
    assert source.format == "voc"
    assert source.classes == {"RBC": 1, "WBC": 1}
    assert source.annotations.boxes("JPEGImages/a.jpg", SIZE) == approx_boxes(
        [("RBC", (1, 2.5, 30, 40)), ("WBC", (5, 5, 50, 45))]
    )
    assert source.annotations.boxes("b.jpg", (7, 7)) == []
    masks = source.annotations.masks("a.jpg", SIZE)
    assert (masks["WBC"] == polygon_mask((5, 5), (50, 5), (5, 45))).all()
    assert set(masks) == {"WBC"}


def test_voc_documents_that_all_name_the_same_image_are_found_by_their_own_names(tmp_path: Path) -> None:
    files = {f"xml/{stem}.xml": voc("template.jpg", voc_object("x", n, 1, 9, 9)) for n, stem in enumerate("abc")}
    source = detect_only(write_files(tmp_path, files))
    assert source.annotations.boxes("images/c.png", SIZE)[0][1][0] == 2
    assert codes(source.annotations) == {"repeated_file_name": 3}


# --- LabelMe ----------------------------------------------------------------------------------------------------------


def labelme(name: str, *shapes: dict[str, Any], size: tuple[int, int] = (200, 100)) -> dict[str, Any]:
    return {
        "version": "5.4.1",
        "flags": {},
        "shapes": shapes,
        "imagePath": name,
        "imageWidth": size[0],
        "imageHeight": size[1],
    }


def shape(label: str, kind: str, *points: tuple[float, float], **fields: Any) -> dict[str, Any]:
    return {"label": label, "points": points, "shape_type": kind, "group_id": None, **fields}


def test_labelme(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 2, (6, 9)).astype(bool)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    encoded = base64.b64encode(content.getvalue()).decode()
    corners = [(20.0, 10.0), (80.5, 15.0), (60.0, 70.0)]
    document = labelme(
        "..\\images\\a.png",
        shape("lesion", "polygon", *corners),
        shape("lesion", "rectangle", (120, 60), (100, 40)),
        shape("disc", "circle", (150, 50), (150, 70)),
        shape("brush", "mask", (3, 4), (11, 9), mask=encoded),
        shape("fovea", "point", (33.5, 44.5)),
        shape("vessel", "linestrip", (1, 1), (5, 5)),
        shape("cell", "polygon", (0, 90), (5, 90), (5, 95), group_id=1),
        shape("cell", "polygon", (10, 90), (15, 90), (15, 99), group_id=1),
    )
    source = detect_only(write_files(tmp_path, {"json/a.json": document, "json/b.json": labelme("b.png")}))
    assert source.format == "labelme"
    assert source.shapes == {"box", "outline", "mask", "point"}
    assert codes(source.annotations) == {"line_without_area": 1}
    masks = source.annotations.masks("images/a.png", SIZE)
    rectangle = np.zeros((100, 200), bool)
    rectangle[40:60, 100:120] = True
    assert (masks["lesion"] == polygon_mask(*corners) | rectangle).all()
    rows, columns = np.mgrid[:100, :200] + 0.5
    assert iou(masks["disc"], (columns - 150) ** 2 + (rows - 50) ** 2 <= 400) > 0.98
    assert (masks["brush"][4:10, 3:12] == pixels).all()
    assert masks["brush"].sum() == pixels.sum()
    boxes = dict(source.annotations.boxes("a.png", SIZE))
    assert boxes["cell"] == pytest.approx((0, 90, 15, 99))
    assert boxes["disc"] == pytest.approx((130, 30, 170, 70), abs=0.02)
    assert source.annotations.points("a.png", SIZE) == [("fovea", (33.5, 44.5))]
    assert source.annotations.masks("b.png", SIZE) == {}
    with pytest.raises(DataError) as raised:
        source.annotations.masks("a.png", (100, 50))
    assert raised.value.code == "size_differs"


def test_a_labelme_mask_of_another_size_is_damaged(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.new("1", (5000, 5000)).save(content, "PNG")
    mask = shape("a", "mask", (0, 0), (4, 4), mask=base64.b64encode(content.getvalue()).decode())
    source = detect_only(write_files(tmp_path, {"a.json": labelme("a.png", mask), "b.json": labelme("b.png", mask)}))
    with pytest.raises(DataError) as raised:
        source.annotations.masks("a.png", SIZE)
    assert raised.value.code == "damaged_mask"


# --- Supervisely ------------------------------------------------------------------------------------------------------


def supervisely(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"description": "", "tags": [], "size": {"height": 100, "width": 200}, "objects": list(objects)}


def supervisely_object(label: str, kind: str, *points: Any, interior: Any = ()) -> dict[str, Any]:
    return {"classTitle": label, "geometryType": kind, "points": {"exterior": points, "interior": interior}}


def test_supervisely(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 2, (6, 9)).astype(bool)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    bitmap = {"data": base64.b64encode(zlib.compress(content.getvalue())).decode(), "origin": [20, 30]}
    damaged = {"classTitle": "brush", "geometryType": "bitmap", "bitmap": {"data": "aGVsbG8=", "origin": [0, 0]}}
    document = supervisely(
        supervisely_object(
            "gland",
            "polygon",
            [10, 10],
            [90, 10],
            [90, 90],
            [10, 90],
            interior=[[[30, 30], [60, 30], [60, 60], [30, 60]]],
        ),
        supervisely_object("cell", "rectangle", [100, 20], [140, 50]),
        supervisely_object("nucleus", "point", [5, 6]),
        supervisely_object("fibre", "line", [5, 6], [7, 8]),
        {"classTitle": "brush", "geometryType": "bitmap", "bitmap": bitmap},
        damaged,
    )
    files = {
        "set/ann/a.png.json": document,
        "set/ann/b.png.json": supervisely(),
        "set/img/a.png": b"x",
        "set/img/b.png": b"x",
    }
    source = detect_only(write_files(tmp_path, files))
    assert source.format == "supervisely"
    assert codes(source.annotations) == {"damaged_mark": 1, "line_without_area": 1}
    matches = source.annotations.match(["set/img/a.png", "set/img/b.png"])
    masks = source.annotations.masks(matches["set/img/a.png"], SIZE)
    assert masks["gland"].sum() == 80 * 80 - 30 * 30
    assert (masks["brush"][30:36, 20:29] == pixels).all()
    assert dict(source.annotations.boxes("set/img/a.png", SIZE))["cell"] == (100, 20, 140, 50)
    assert source.annotations.points("set/img/a.png", SIZE) == [("nucleus", (5.0, 6.0))]
    assert source.annotations.boxes(matches["set/img/b.png"], SIZE) == []


# --- VIA --------------------------------------------------------------------------------------------------------------

VIA_REGIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "polygon", "all_points_x": [10, 50, 30], "all_points_y": [10, 12, 60]}, {"type": "lesion", "by": ""}),
    ({"name": "rect", "x": 100, "y": 20, "width": 40, "height": 30}, {"type": {"cyst": True}, "by": "anna"}),
    ({"name": "circle", "cx": 60, "cy": 50, "r": 20}, {"type": "disc"}),
    ({"name": "ellipse", "cx": 150, "cy": 50, "rx": 30, "ry": 10, "theta": math.pi / 2}, {"type": "oval"}),
    ({"name": "point", "cx": 5, "cy": 6}, {"type": "fovea"}),
    ({"name": "polyline", "all_points_x": [1, 2], "all_points_y": [1, 2]}, {"type": "vessel"}),
]


def via_files(version: str) -> dict[str, Any]:
    regions = [{"shape_attributes": shape, "region_attributes": attributes} for shape, attributes in VIA_REGIONS]
    images = {
        "a.png123": {"filename": "a.png", "size": 123, "regions": regions, "file_attributes": {}},
        "b.png9": {"filename": "b.png", "size": 9, "regions": [], "file_attributes": {}},
    }
    if version == "1":
        numbered: Any = {str(number): region for number, region in enumerate(regions)}
        images["a.png123"]["regions"] = numbered
        images["b.png9"]["regions"] = {}
    if version == "csv":
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(
            [
                "filename",
                "file_size",
                "file_attributes",
                "region_count",
                "region_id",
                "region_shape_attributes",
                "region_attributes",
            ]
        )
        for number, (shape_attributes, attributes) in enumerate(VIA_REGIONS):
            row = ["a.png", 123, "{}", 6, number, json.dumps(shape_attributes), json.dumps(attributes)]
            writer.writerow(row)
        writer.writerow(["b.png", 9, "{}", 0, 0, "{}", "{}"])
        return {"via_export.csv": text.getvalue()}
    return {"via.json": {"_via_settings": {}, "_via_img_metadata": images} if version == "2" else images}


@pytest.mark.parametrize("version", ["1", "2", "csv"])
def test_via(tmp_path: Path, version: str) -> None:
    source = detect_only(write_files(tmp_path, via_files(version)))
    assert source.format == "via"
    assert source.classes == {"lesion": 1, "cyst": 1, "disc": 1, "oval": 1, "fovea": 1}
    assert codes(source.annotations) == {"line_without_area": 1, "several_attributes": 2}
    masks = source.annotations.masks("x/a.png", SIZE)
    assert (masks["lesion"] == polygon_mask((10, 10), (50, 12), (30, 60))).all()
    assert masks["cyst"].sum() == 1200
    boxes = dict(source.annotations.boxes("a.png", SIZE))
    assert boxes["cyst"] == pytest.approx((100, 20, 140, 50))
    assert boxes["oval"] == pytest.approx((140, 20, 160, 80), abs=1e-6)
    assert boxes["disc"] == pytest.approx((40, 30, 80, 70), abs=1e-6)
    assert source.annotations.boxes("b.png", SIZE) == []
    assert source.annotations.points("a.png", SIZE) == [("fovea", (5.0, 6.0))]


# --- CVAT -------------------------------------------------------------------------------------------------------------


def test_cvat_images(tmp_path: Path) -> None:
    labels = tree("labels", *(tree("label", element("name", name)) for name in ("tumour", "vessel", "unused")))
    image = tree(
        "image",
        element("box", label="tumour", xtl=10, ytl=20, xbr=50.5, ybr=40, occluded=0),
        element("box", label="tumour", xtl=40, ytl=40, xbr=80, ybr=60, rotation=90.0),
        element("polygon", label="vessel", points="10,10;60,12;30,70"),
        element("ellipse", label="vessel", cx=150, cy=50, rx=20, ry=10),
        element("mask", label="tumour", rle="2, 3, 1", left=190, top=95, width=3, height=2),
        element("points", label="vessel", points="1,2;3,4.5"),
        element("polyline", label="vessel", points="1,2;3,4.5"),
        element("tag", label="good"),
        id=0, name="sub/a.png", width=200, height=100,
    )  # fmt: skip
    second = element("image", id=1, name="sub/b.png", width=200, height=100)
    root = tree("annotations", element("version", "1.1"), tree("meta", tree("task", labels)), image, second)
    source = detect_only(write_files(tmp_path, {"annotations.xml": xml(root)}))
    assert source.format == "cvat"
    assert source.classes == {"tumour": 3, "vessel": 4, "unused": 0}
    boxes = source.annotations.boxes("images/sub/a.png", SIZE)
    assert boxes[:3] == approx_boxes(
        [("tumour", (10, 20, 50.5, 40)), ("tumour", (50, 30, 70, 70)), ("vessel", (10, 10, 60, 70))]
    )
    assert boxes[4][1] == (190, 95, 193, 97)
    masks = source.annotations.masks("sub/a.png", SIZE)
    assert masks["tumour"][95:97, 190:193].tolist() == [[False, False, True], [True, True, False]]
    assert (masks["vessel"][:, :100] == polygon_mask((10, 10), (60, 12), (30, 70))[:, :100]).all()
    assert source.annotations.points("sub/a.png", SIZE) == [("vessel", (1.0, 2.0)), ("vessel", (3.0, 4.5))]
    assert source.annotations.texts("sub/a.png") == ["good"]
    assert source.annotations.boxes("sub/b.png", SIZE) == []


def test_cvat_videos(tmp_path: Path) -> None:
    task = tree(
        "task",
        element("name", "scan"),
        element("size", "4"),
        tree("original_size", element("width", "200"), element("height", "100")),
    )
    sides = {"xtl": 10, "ytl": 20, "xbr": 50, "ybr": 40}
    track = tree(
        "track",
        element("box", frame=1, outside=0, keyframe=1, **sides),
        element("box", frame=2, outside=0, keyframe=0, **{**sides, "xtl": 12}),
        element("box", frame=3, outside=1, keyframe=1, **sides),
        id=0, label="polyp",
    )  # fmt: skip
    root = tree("annotations", element("version", "1.1"), tree("meta", task, element("source", "scan.mp4")), track)
    source = detect_only(write_files(tmp_path, {"annotations.xml": xml(root)}))
    assert [image.name for image in source.images] == [f"scan.mp4#{number}" for number in range(4)]
    assert source.classes == {"polyp": 2}
    assert source.annotations.boxes("frames/frame_000002.PNG", SIZE) == approx_boxes([("polyp", (12, 20, 50, 40))])
    assert source.annotations.boxes("frames/frame_000003.PNG", SIZE) == []


# --- Label Studio -----------------------------------------------------------------------------------------------------


def pack_brush(alpha: np.ndarray, *, literal: bool) -> list[int]:
    """Write a mask as Label Studio does: RGBA bytes as runs, or as literals only."""
    flat = np.repeat(alpha.ravel()[:, None], 4, axis=1).ravel()
    bits = f"{len(flat):032b}{7:05b}" + "".join(f"{size - 1:04b}" for size in (3, 4, 8, 16))
    place = 0
    while place < len(flat):
        end = place + 1
        while end < len(flat) and end - place < (8 if literal else 65_536) and (literal or flat[end] == flat[place]):
            end += 1
        count = end - place - 1
        size_class = 0 if count < 8 else 1 if count < 16 else 2 if count < 256 else 3
        bits += f"{int(not literal)}{size_class:02b}{count:0{(3, 4, 8, 16)[size_class]}b}"
        bits += "".join(f"{value:08b}" for value in (flat[place:end] if literal else flat[place : place + 1]))
        place = end
    bits += "0" * (-len(bits) % 8)
    return [int(bits[start : start + 8], 2) for start in range(0, len(bits), 8)]


def region(kind: str, label: str, **value: Any) -> dict[str, Any]:
    return {"type": kind, "original_width": 200, "original_height": 100, "image_rotation": 0, "from_name": "label",
            "value": {**value, kind: [label]}}  # fmt: skip


@pytest.mark.parametrize("literal", [False, True])
def test_label_studio(tmp_path: Path, *, literal: bool) -> None:
    alpha = np.zeros((100, 200), np.uint8)
    alpha[20:50, 60:90] = 255
    result = [
        region("rectanglelabels", "cell", x=10, y=20, width=25.5, height=30, rotation=0),
        region("rectanglelabels", "cell", x=50, y=10, width=20, height=40, rotation=90),
        region("polygonlabels", "gland", points=[[5, 10], [30, 12], [15, 70]]),
        region("ellipselabels", "oval", x=50, y=50, radiusX=10, radiusY=20, rotation=0),
        region("brushlabels", "brush", format="rle", rle=pack_brush(alpha, literal=literal)),
        region("keypointlabels", "nucleus", x=25, y=50, width=0.5),
    ]
    rejected = {"was_cancelled": True, "result": [region("rectanglelabels", "wrong", x=0, y=0, width=1, height=1)]}
    tasks = [
        {
            "id": 1,
            "data": {"image": "/data/upload/1/1a2b3c4d-a.png"},
            "annotations": [rejected, {"result": result, "completed_by": 1}],
        },
        {
            "id": 2,
            "data": {"image": "/data/local-files/?d=set/b.png"},
            "annotations": [{"result": [], "completed_by": 1}],
        },
        {"id": 3, "data": {"image": "/data/upload/1/1a2b3c4d-c.png"}, "annotations": [rejected]},
        {"id": 4, "data": {"image": "/data/upload/1/1a2b3c4d-d.png"}, "annotations": []},
    ]
    source = detect_only(write_files(tmp_path, {"export.json": tasks}))
    assert source.format == "label_studio"
    assert set(source.classes) == {"cell", "gland", "oval", "brush", "nucleus"}
    boxes = source.annotations.boxes("images/a.png", SIZE)
    assert boxes[:3] == approx_boxes(
        [("cell", (20, 20, 71, 50)), ("cell", (60, 10, 100, 50)), ("gland", (10, 10, 60, 70))]
    )
    assert boxes[4] == ("brush", (60, 20, 90, 50))
    masks = source.annotations.masks("images/a.png", SIZE)
    assert (masks["brush"] == (alpha > 0)).all()
    assert (masks["gland"] == polygon_mask((10, 10), (60, 12), (30, 70))).all()
    assert masks["oval"].sum() == pytest.approx(math.pi * 20 * 20, rel=0.02)
    assert source.annotations.points("a.png", SIZE) == [("nucleus", (50.0, 50.0))]
    assert source.annotations.boxes("set/b.png", SIZE) == []


def test_label_studio_minimal(tmp_path: Path) -> None:
    label = {
        "x": 10,
        "y": 20,
        "width": 25.5,
        "height": 30,
        "rectanglelabels": ["cell"],
        "original_width": 200,
        "original_height": 100,
    }
    tasks = [
        {"image": "/data/upload/1a2b3c4d-a.png", "id": 1, "label": [label]},
        {"image": "/data/upload/1a2b3c4e-b.png", "id": 2},
    ]
    source = detect_only(write_files(tmp_path, {"export.json": tasks}))
    assert source.annotations.boxes("a.png", SIZE) == approx_boxes([("cell", (20, 20, 71, 50))])
    assert source.annotations.boxes("b.png", SIZE) == []


@pytest.mark.parametrize("rle", [[], [0, 1, 56, 128], [255] * 40, [1, 2, "x"], [0, 1, 56, 128, 57, 27, 27, 128]])
def test_damaged_brushes(tmp_path: Path, rle: list[Any]) -> None:
    tasks = [
        {
            "data": {"image": "a.png"},
            "annotations": [{"result": [region("brushlabels", "x", rle=rle)], "completed_by": 1}],
        }
    ]
    source = detect_only(write_files(tmp_path, {"export.json": tasks}))
    with pytest.raises(DataError) as raised:
        source.annotations.masks("a.png", SIZE)
    assert raised.value.code == "damaged_mask"


# --- slides -----------------------------------------------------------------------------------------------------------


def aperio_region(kind: int, *points: tuple[float, float], hole: bool = False, text: str = "") -> ET.Element:
    vertices = tree("Vertices", *(element("Vertex", X=x, Y=y, Z=0) for x, y in points))
    return tree("Region", vertices, Type=kind, NegativeROA=int(hole), Text=text)


def test_aperio(tmp_path: Path) -> None:
    layer = tree(
        "Annotation",
        tree("Attributes", element("Attribute", Name="Description", Value="nucleus")),
        tree(
            "Regions",
            aperio_region(0, (10, 10), (60, 12), (30, 70)),
            aperio_region(0, (25, 20), (35, 20), (30, 30), hole=True),
            aperio_region(3, (1, 1), (5, 5)),
        ),
    )
    texts = tree(
        "Annotation", tree("Regions", aperio_region(2, (100, 20), (160, 60), text="vessel"), aperio_region(0, (1, 1)))
    )
    files = {
        "a.xml": xml(tree("Annotations", layer, texts, MicronsPerPixel=0.25)),
        "b.xml": xml(tree("Annotations", MicronsPerPixel=0.25)),
    }
    source = detect_only(write_files(tmp_path, files))
    assert source.format == "aperio"
    masks = source.annotations.masks("a.tif", SIZE)
    outer, hole = polygon_mask((10, 10), (60, 12), (30, 70)), polygon_mask((25, 20), (35, 20), (30, 30))
    assert (masks["nucleus"] == outer & ~hole).all()
    assert masks["vessel"].sum() == pytest.approx(math.pi * 30 * 20, rel=0.02)
    assert [label for label, _ in source.annotations.boxes("a.tif", SIZE)] == ["nucleus", "vessel"]
    assert codes(source.annotations) == {"damaged_mark": 1, "line_without_area": 1}
    assert source.annotations.masks("b.tif", SIZE) == {}


def test_asap(tmp_path: Path) -> None:
    def coordinates(*points: tuple[float, float]) -> ET.Element:
        return tree(
            "Coordinates", *reversed([element("Coordinate", Order=n, X=x, Y=y) for n, (x, y) in enumerate(points)])
        )

    annotations = tree(
        "Annotations",
        tree(
            "Annotation",
            coordinates((10, 10), (60, 12), (30, 70)),
            Name="Annotation 0",
            Type="Polygon",
            PartOfGroup="Tumor",
        ),
        tree("Annotation", coordinates((5, 6)), Name="Annotation 1", Type="Dot", PartOfGroup="Mitosis"),
    )
    source = detect_only(write_files(tmp_path, {"a.xml": xml(tree("ASAP_Annotations", annotations))}))
    assert source.format == "asap"
    assert (source.annotations.masks("a.tif", SIZE)["Tumor"] == polygon_mask((10, 10), (60, 12), (30, 70))).all()
    assert source.annotations.points("a.tif", SIZE) == [("Mitosis", (5.0, 6.0))]


def feature(kind: str, coordinates: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


@pytest.mark.parametrize("collection", [True, False])
@pytest.mark.parametrize("suffix", [".geojson", ".json"])
def test_qupath(tmp_path: Path, suffix: str, *, collection: bool) -> None:
    outer, inner = (
        [[10, 10], [90, 10], [90, 90], [10, 90], [10, 10]],
        [[30, 30], [60, 30], [60, 60], [30, 60], [30, 30]],
    )
    far = [[[120, 10], [140, 10], [140, 30], [120, 10]]]
    features = [
        feature(
            "Polygon", [outer, inner], classification={"name": "Tumor", "color": [200, 0, 0]}, objectType="annotation"
        ),
        feature("MultiPolygon", [[outer], far], classification={"names": ["Immune", "CD8"]}),
        feature("Point", [5, 6], name="landmark"),
        feature("LineString", [[1, 1], [2, 2]]),
        feature("Polygon", [[[1, 1], [2, 2]]]),
    ]
    document = {"type": "FeatureCollection", "features": features} if collection else features
    source = detect_only(write_files(tmp_path, {f"a{suffix}": document}))
    assert source.format == "geojson"
    masks = source.annotations.masks("a.tif", SIZE)
    assert masks["Tumor"].sum() == 80 * 80 - 30 * 30
    assert masks["Immune: CD8"].sum() == pytest.approx(80 * 80 + 200, abs=12)
    assert dict(source.annotations.boxes("a.tif", SIZE))["Immune: CD8"] == pytest.approx((10, 10, 140, 90))
    assert source.annotations.points("a.tif", SIZE) == [("landmark", (5.0, 6.0))]
    assert codes(source.annotations) == {"damaged_mark": 1, "line_without_area": 1}


# --- Create ML --------------------------------------------------------------------------------------------------------


def test_createml(tmp_path: Path) -> None:
    marks = [
        {"label": "cell", "coordinates": {"x": 50, "y": 40, "width": 20, "height": 10}},
        {"label": "cell", "coordinates": {"x": 50, "width": 20, "height": 10}},
    ]
    document = [{"image": "a.png", "annotations": marks}, {"imagefilename": "b.png", "annotation": []}]
    source = detect_only(write_files(tmp_path, {"_annotations.createml.json": document}))
    assert source.format == "createml"
    assert source.annotations.boxes("a.png", SIZE) == approx_boxes([("cell", (40, 35, 60, 45))])
    assert source.annotations.boxes("b.png", SIZE) == []
    assert codes(source.annotations) == {"damaged_mark": 1}


# --- hostile and foreign files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "root"),
    [("voc", "annotation"), ("cvat", "annotations"), ("aperio", "Annotations"), ("asap", "ASAP_Annotations")],
)
def test_entities_are_not_expanded(tmp_path: Path, name: str, root: str) -> None:
    write_files(tmp_path, {"a.xml": BOMB.format(root), "b.xml": "<" + root, "c.xml": "<other/>"})
    for path, code in (("a.xml", "entities"), ("b.xml", "damaged"), ("c.xml", "not_this_format")):
        with pytest.raises(DataError) as raised:
            get_annotation_format(name).load([path], tmp_path)
        assert raised.value.code == code


@pytest.mark.parametrize("name", [name for name, item in ANNOTATIONS.items() if ".json" in item.suffixes])
@pytest.mark.parametrize(
    "content", ["{}", "[]", "3", '{"images": 3, "shapes": 4}', "[{}]", "[[]]", '{"a": {"filename": 1}}']
)
def test_other_json_is_not_of_the_format(tmp_path: Path, name: str, content: str) -> None:
    write_files(tmp_path, {"a.json": content})
    with pytest.raises(DataError) as raised:
        get_annotation_format(name).load(["a.json"], tmp_path)
    assert raised.value.code == "not_this_format"
    assert detect_annotations(take_inventory(tmp_path)) == []
