"""Layouts of public detection sets: balls and boxes of volumes, boxes in one column, outlines of slides, YOLO in parts, fractions."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from pathlib import Path

import numpy as np
from layout_kit import SIZE, Layout, Names, Want, number, table
from picture_kit import picture

LPS = np.array([[-0.8, 0, 0, 60.0], [0, 0.8, 0, -50.0], [0, 0, 2.0, -300.0]])
"""From voxels of a NIfTI file to mm, RAS."""


def volume(file: Path, affine: np.ndarray = LPS, shape: tuple[int, int, int] = (24, 20, 10)) -> None:
    import nibabel as nib

    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(file.name.encode())).normal(0, 90, shape).astype(np.int16)
    nib.save(nib.Nifti1Image(noise, np.vstack([affine, [0, 0, 0, 1]])), file)


def metaimage(file: Path) -> None:
    """A volume whose middle is 100 mm off the origin, half a mm by 0.5 by 2, rows running backwards."""
    import SimpleITK as sitk

    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(file.name.encode())).normal(-500, 90, (10, 24, 24)).astype(np.int16)
    image = sitk.GetImageFromArray(noise)
    image.SetSpacing((0.5, 0.5, 2.0))
    image.SetOrigin((-100.0, 80.0, -250.0))
    image.SetDirection((1, 0, 0, 0, -1, 0, 0, 0, 1))
    sitk.WriteImage(image, str(file))


def balls_in_mm(root: Path, names: Names, rng: random.Random) -> Want:
    """Nodules by their middle and diameter in mm, and a list of candidates that are none."""
    rows, none = [], []
    for at in range(12):
        uid = f"1.3.6.1.4.1.14519.5.2.1.6279.6001.{10007 + 131 * at}"
        metaimage(root / names.top / f"subset{at % 3}" / f"{uid}.mhd")
        for nodule in range(1 + at % 2):
            rows.append((uid, -95.0 + nodule, 76.0 - at % 4, -240.0 - 2 * nodule, 3.5))
        none.append((uid, -97.0, 77.0, -236.0, 0))
    table_names = Names(separator=names.separator)
    table(
        root / names.top / "annotations.csv",
        table_names,
        ("seriesuid", "coordX", "coordY", "coordZ", "diameter_mm"),
        rows,
    )
    table(root / names.top / "candidates.csv", table_names, ("seriesuid", "coordX", "coordY", "coordZ", "class"), none)
    return Want("Find lung nodules with boxes on CT", "detection", 12, values=1, boxes=True, marked=18)


def boxes_of_volumes(root: Path, names: Names, rng: random.Random) -> Want:
    """Two corners in voxels."""
    rows = []
    for at in range(12):
        name = f"case{names.gap}{number(names, at)}"
        volume(root / names.top / names.images / f"{name}.nii.gz")
        rows.append((name, 4 + at % 3, 5, 2, 12 + at % 3, 11, 6))
    header = ("case_id", "x_min", "y_min", "z_min", "x_max", "y_max", "z_max")
    table(root / names.top / "boxes.csv", names, header, rows)
    return Want("Find aneurysms with boxes on 3D MRA", "detection", 12, values=1, boxes=True, marked=12)


def one_column(root: Path, names: Names, rng: random.Random) -> Want:
    """Four numbers in a cell, beside other columns of several numbers."""
    rows = []
    for at in range(24):
        name = f"{at // 2 + 1:06d}_01_01_{100 + at:03d}{names.suffix}"
        picture(root / names.top / names.images / name, 90, SIZE)
        rows.append((name, at // 2 + 1, 100 + at, "4,5,6,7", "8.0, 7.0, 17.0, 14.5", "5.1, 4.2", 1))
    header = ("File_name", "Patient_index", "Key_slice_index", "Measurement_coordinates", "Bounding_boxes",
              "Lesion_diameters_Pixel_", "Train_Val_Test")  # fmt: skip
    table(root / names.top / "DL_info.csv", names, header, rows)
    return Want(
        "Find lesions with boxes on CT slices", "detection", 24, values=1, boxes=True, marked=24, groups=r"/(\d{6})_"
    )


def sides_in_brackets(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(20):
        name = f"{zlib.crc32(str(at).encode()):09x}"
        picture(root / names.top / "train" / f"{name}{names.suffix}", 90, SIZE)
        rows += [(name, SIZE[1], SIZE[0], f"[{11.0 + cell}, {9.0 - cell}, 5.0, 6.0]", "site_1") for cell in range(2)]
    table(root / names.top / "train.csv", names, ("image_id", "width", "height", "bbox", "source"), rows)
    return Want("Find cells with boxes on microscopy images", "detection", 20, values=1, boxes=True, marked=40)


def slides(root: Path, names: Names, rng: random.Random) -> Want:
    """An Aperio file an image, in a folder of their own."""
    top = root / names.top
    (top / "Annotations").mkdir(parents=True)
    for at in range(12):
        name = f"TCGA-{at:02d}-A1B2-01Z-00-DX1"
        picture(top / "Tissue Images" / f"{name}.tif", 90, SIZE)
        (top / "Annotations" / f"{name}.xml").write_text(
            aperio([(2, 2), (7, 2), (7, 8), (2, 8)], [(11, 4), (15, 4), (15, 9)])
        )
    return Want("Segment nuclei on H&E histology", "segmentation", 12, values=1)


def aperio(*outlines: list[tuple[float, float]], name: str = "", hole: int = -1) -> str:
    """An ImageScope document of one layer."""
    regions = "".join(
        f'<Region Id="{at}" Type="0" NegativeROA="{int(at == hole)}"><Vertices>'
        + "".join(f'<Vertex X="{x}" Y="{y}" Z="0"/>' for x, y in points) + "</Vertices></Region>"
        for at, points in enumerate(outlines)
    )  # fmt: skip
    layer = f'<Annotation Id="1" Name="{name}"><Attributes><Attribute Name="Description" Value=""/></Attributes>'
    return f'<Annotations MicronsPerPixel="0.25">{layer}<Regions>{regions}</Regions></Annotation></Annotations>'


def yolo_parts(root: Path, names: Names, rng: random.Random) -> Want:
    """Parts in folders, names in a data file, and images without a mark with an empty file."""
    top = root / names.top
    top.mkdir(parents=True, exist_ok=True)
    class_names = "['WBC', 'RBC', 'Platelets']"
    (top / "data.yaml").write_text(f"train: ../train/images\nval: ../valid/images\n\nnc: 3\nnames: {class_names}\n")
    marked = 0
    for part, count in (("train", 14), ("valid", 5), ("test", 5)):
        for at in range(count):
            stem = f"smear_{at + 100 * len(part):05d}_jpg.rf.{hashlib.sha256(f'{part}{at}'.encode()).hexdigest()[:32]}"
            picture(top / part / "images" / f"{stem}{names.suffix}", 90, SIZE)
            lines = [f"{label} 0.{2 + label} 0.4 0.2 0.{2 + label}" for label in range(3 if at % 4 else 0)]
            (top / part / "labels").mkdir(exist_ok=True)
            (top / part / "labels" / f"{stem}.txt").write_text("\n".join(lines))
            marked += len(lines)
    return Want("Detect WBC, RBC and platelets with boxes on blood smears", "detection", 24,
                frozenset({"wbc", "rbc", "platelets"}), tested="test/", boxes=True, marked=marked)  # fmt: skip


def yolo_outlines(root: Path, names: Names, rng: random.Random) -> Want:
    """Files of the parts are called differently, a line is an outline, and one image has no file."""
    top = root / names.top
    top.mkdir(parents=True, exist_ok=True)
    (top / "polyps.yaml").write_text(
        "path: ../polyps\ntrain: images/train\nval: images/val\n\nnames:\n  0: polyp\n  1: tool\n"
    )
    for part, count in (("train", 16), ("val", 6)):
        for at in range(count):
            stem = f"{part[0]}{at:05d}"
            picture(top / "images" / part / f"{stem}{names.suffix}", 90, SIZE)
            if at != 3:
                file = top / "labels" / part / f"{stem}.txt"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"{at % 2} 0.1 0.2 0.5 0.2 0.5 0.6 0.1 0.6\n")
    return Want("Find polyps and tools with boxes on endoscopy images", "detection", 22, frozenset({"polyp", "tool"}),
                boxes=True, marked=20)  # fmt: skip


def fractions(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(20):
        name = f"{zlib.crc32(str(at).encode()):08x}{at:08x}"
        picture(root / names.top / names.images / f"{name}{names.suffix}", 90, SIZE)
        rows += [(name, ("Nodule", "Mass")[box], 0.1 + box / 10, 0.5, 0.25, 0.5 + box / 4) for box in range(2)]
    table(root / names.top / "boxes.csv", names, ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"), rows)
    return Want("Find nodules and masses with boxes on chest X-rays", "detection", 20, frozenset({"nodule", "mass"}),
                boxes=True, marked=40)  # fmt: skip


def region_lists(root: Path, names: Names, rng: random.Random) -> Want:
    """One document with the regions of every image, as the VGG annotator exports them."""
    entries: dict[str, object] = {}
    for at in range(16):
        name = f"c{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 90, SIZE)
        regions = [{"shape_attributes": {"name": "rect", "x": 3 + 7 * item, "y": 4, "width": 6, "height": 8},
                    "region_attributes": {"type": ("mitosis", "apoptosis")[item]}} for item in range(2 if at % 5 else 0)]  # fmt: skip
        entries[f"{name}1234"] = {"filename": name, "size": 1234, "regions": regions, "file_attributes": {}}
    (root / names.top / "via_region_data.json").write_text(json.dumps(entries))
    return Want("Find mitosis and apoptosis with boxes on histology", "detection", 16, frozenset({"mitosis", "apoptosis"}),
                boxes=True, marked=24)  # fmt: skip


def region_rows(root: Path, names: Names, rng: random.Random) -> Want:
    """A row a region, whose place and class stand as documents in cells."""
    rows = []
    for at in range(16):
        name = f"c{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 90, SIZE)
        for region, class_name in enumerate(("mitosis", "apoptosis")):
            place = {"name": "rect", "x": 3 + 7 * region, "y": 4, "width": 6, "height": 8}
            rows.append((name, 1234, "{}", 2, region, json.dumps(place), json.dumps({"type": class_name})))
    header = ("filename", "file_size", "file_attributes", "region_count", "region_id", "region_shape_attributes",
              "region_attributes")  # fmt: skip
    table(root / names.top / "via_region_data.csv", names, header, rows)
    return Want("Find mitosis and apoptosis with boxes on histology", "detection", 16, frozenset({"mitosis", "apoptosis"}),
                boxes=True, marked=32)  # fmt: skip


def one_document(root: Path, names: Names, rng: random.Random) -> Want:
    """CVAT: an XML document of all images, with boxes, outlines and ellipses."""
    text = "<annotations><version>1.1</version><meta><job><size>16</size></job></meta>"
    for at in range(16):
        name = f"c{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 90, SIZE)
        label = ("Cyst", "Stone")[at // 2 % 2]
        shape = (
            f'<box label="{label}" xtl="3.0" ytl="4.0" xbr="14.5" ybr="12.5"></box>',
            f'<polygon label="{label}" points="3.0,4.0;14.5,4.0;14.5,12.5"></polygon>',
            f'<ellipse label="{label}" cx="8.75" cy="8.25" rx="5.75" ry="4.25"></ellipse>',
            "",
        )[at % 4]
        text += f'<image id="{at}" name="{name}" width="20" height="16">{shape}</image>'
    (root / names.top / "annotations.xml").write_text(text + "</annotations>")
    return Want("Find cysts and stones with boxes on CT slices", "detection", 16, frozenset({"cyst", "stone"}),
                boxes=True, marked=12)  # fmt: skip


BOXED = (
    Layout("region_rows", region_rows, ("images", "width", "suffix", "top")),
    Layout("one_document", one_document, ("images", "width", "suffix", "top")),
    Layout("balls_in_mm", balls_in_mm, ("separator", "top")),
    Layout("boxes_of_volumes", boxes_of_volumes, ("images", "width", "gap", "separator", "top")),
    Layout("one_column", one_column, ("images", "suffix", "top", "order")),
    Layout("sides_in_brackets", sides_in_brackets, ("suffix", "top")),
    Layout("slide_outlines", slides, ("top",)),
    Layout("yolo_parts", yolo_parts, ("suffix", "top")),
    Layout("yolo_outlines", yolo_outlines, ("suffix", "top")),
    Layout("fractions", fractions, ("images", "suffix", "separator", "top", "order")),
    Layout("region_lists", region_lists, ("images", "width", "suffix", "top")),
)
