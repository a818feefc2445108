"""Damaged files of each format: whatever bytes change, reading ends with a set or with a DataError that has a code."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.dataset.annotations import ANNOTATIONS, ImageSize, get_annotation_format
from m3b.errors import DataError

RING = [[1, 1], [9, 1], [9, 9], [1, 1]]
REGION = {
    "original_width": 20,
    "original_height": 10,
    "value": {"x": 1, "y": 2, "width": 5, "height": 5, "rectanglelabels": ["a"]},
}
BRUSH = {
    "original_width": 20,
    "original_height": 10,
    "value": {"rle": [0, 0, 3, 32, 57, 27, 27, 128], "brushlabels": ["b"]},
}
SEEDS = {
    "coco": json.dumps({
        "images": [{"id": 1, "file_name": "a.png", "width": 20, "height": 10}],
        "categories": [{"id": 1, "name": "x", "keypoints": ["p"]}],
        "annotations": [
            {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "segmentation": [[1, 1, 5, 1, 5, 5]], "keypoints": [1, 1, 2]},
            {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "segmentation": {"size": [10, 20], "counts": "05o5"}},
            {"image_id": 1, "category_id": 1, "segmentation": {"size": [10, 20], "counts": [50, 50, 100]}},
        ],
    }),
    "label_studio": json.dumps([{"data": {"image": "a.png"}, "annotations": [{"result": [REGION, BRUSH], "completed_by": 1}]}]),
    "via": json.dumps({"a": {"filename": "a.png", "regions": [
        {"shape_attributes": {"name": "ellipse", "cx": 5, "cy": 5, "rx": 3, "ry": 2, "theta": 1},
         "region_attributes": {"c": {"x": True}}}]}}),
    "labelme": json.dumps({"shapes": [{"label": "a", "points": [[1, 1], [5, 5]], "shape_type": "circle", "group_id": 1},
                                      {"label": "a", "points": [[1, 1], [2, 2]], "shape_type": "mask", "mask": "aGk="}],
                           "imagePath": "a.png", "imageWidth": 20, "imageHeight": 10}),
    "supervisely": json.dumps({"description": "", "size": {"height": 10, "width": 20}, "objects": [
        {"classTitle": "a", "geometryType": "polygon", "points": {"exterior": [[1, 1], [5, 1], [5, 5]], "interior": []}}]}),
    "geojson": json.dumps([{"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [RING]},
                            "properties": {"classification": {"name": "x"}}}]),
    "voc": "<annotation><filename>a.png</filename><size><width>20</width><height>10</height></size><object><name>x</name>"
           "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></object></annotation>",
    "cvat": '<annotations><image name="a.png" width="20" height="10"><box label="a" xtl="1" ytl="1" xbr="5" ybr="5" rotation="3"/>'
            '<mask label="m" rle="1,3" left="1" top="1" width="2" height="2"/><polygon label="a" points="1,1;5,1;5,5"/></image>'
            "</annotations>",
    "aperio": '<Annotations><Annotation Name="n"><Regions><Region Type="0"><Vertices><Vertex X="1" Y="1"/><Vertex X="5" Y="1"/>'
              '<Vertex X="5" Y="5"/></Vertices></Region></Regions></Annotation></Annotations>',
    "asap": '<ASAP_Annotations><Annotations><Annotation Type="Polygon" PartOfGroup="g"><Coordinates>'
            '<Coordinate Order="0" X="1" Y="1"/><Coordinate Order="1" X="5" Y="1"/><Coordinate Order="2" X="5" Y="5"/>'
            "</Coordinates></Annotation></Annotations></ASAP_Annotations>",
    "yolo": "0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.5 0.1 0.5 0.5\n",
    "kitti": "car 0 0 0 1 1 5 5 0 0 0 0 0 0 0\n",
    "line_boxes": "car 1 1 5 5\n",
}  # fmt: skip


def read(name: str, content: bytes) -> None:
    """Read a file of a format to the end."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.file").write_bytes(content)
        annotations = get_annotation_format(name).load(["a.file"], Path(folder))
        ANNOTATIONS[name].detect(Path("a.file"), content[:4096])
        size = ImageSize(20, 10)
        for image in annotations.images:
            annotations.boxes(image, size)
            annotations.masks(image, size)
            annotations.points(image, size)
        assert annotations.classes is not None


def read_or_fail(name: str, content: bytes) -> None:
    try:
        read(name, content)
    except DataError as error:
        if not error.code:
            raise


@pytest.mark.parametrize("name", SEEDS)
def test_the_seed_is_read(name: str) -> None:
    suffix = ".txt" if name in ("yolo", "kitti", "line_boxes") else ""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"a{suffix}").write_text(SEEDS[name])
        assert get_annotation_format(name).load([f"a{suffix}"], Path(folder)).classes


@pytest.mark.parametrize("name", [*SEEDS, "rtstruct", "dicom_seg", "seg_nrrd"])
@given(data=st.data())
def test_changed_bytes(name: str, data: st.DataObject) -> None:
    content = bytearray(SEEDS.get(name, "NRRD0004\nSegment0_ID:=1\n" + "DICM").encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    read_or_fail(name, bytes(content))


@pytest.mark.parametrize("name", SEEDS)
@given(data=st.data())
def test_changed_values(name: str, data: st.DataObject) -> None:
    """Replace a word of the file by another value."""
    text = SEEDS[name]
    words = sorted(
        {word for word in text.replace('"', " ").replace(",", " ").replace("[", " ").replace("]", " ").split() if word}
    )
    word = data.draw(st.sampled_from(words))
    value = data.draw(
        st.sampled_from(["null", "-1", "1e308", "NaN", "[]", "{}", '"x"', "999999999999", "0", "true", "", "[[1]]"])
    )
    read_or_fail(name, text.replace(word, value).encode())


@pytest.mark.parametrize("name", SEEDS)
@given(length=st.integers(0, 200))
def test_cut_files(name: str, length: int) -> None:
    read_or_fail(name, SEEDS[name].encode()[:length])
