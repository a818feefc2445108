"""Masks out of LabelMe shapes, COCO polygons and run lengths, and DICOM SEG; overlapping ones stay so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pycocotools import mask as runs
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, SegmentationStorage, generate_uid
from spec_kit import picture, read

from m3b.data.spec.contours import half_open
from m3b.data.spec.outlines import _coded
from m3b.dataset.reading import read_image, read_mask, read_masks
from m3b.errors import DataError

SIZE = (12, 16)
CLASSES = {"organ": 1, "lesion": 2}
BOX = [[2, 3], [9, 3], [9, 8], [2, 8]]
"""As (x, y) edges: rows 3 to 7, columns 2 to 8."""


@given(arrays.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_run_lengths_are_those_of_cocos_own_library(mask: np.ndarray) -> None:
    coded = runs.encode(np.asfortranarray(mask.astype(np.uint8)))
    text = {"size": coded["size"], "counts": coded["counts"].decode()}
    assert np.array_equal(_coded(text, mask.shape), mask)


def test_a_polygon_of_whole_edges_holds_whole_pixels() -> None:
    inside = half_open([(x, y) for x, y in BOX], SIZE)
    assert np.array_equal(np.argwhere(inside).min(0), [3, 2])
    assert np.array_equal(np.argwhere(inside).max(0), [7, 8])
    assert inside.sum() == 35


def labelled(root: Path, **more: Any) -> dict[str, Any]:
    for number in range(5):
        picture(root / f"images/c{number}.png", size=SIZE)
        shapes = [
            {"label": "Organ", "shape_type": "polygon", "points": BOX},
            {"label": "lesion", "shape_type": "rectangle", "points": [[8, 7], [12, 10]]},
            {"label": "ruler", "shape_type": "line", "points": [[0, 0], [3, 3]]},
        ]
        (root / "notes").mkdir(exist_ok=True)
        text = json.dumps({"imageHeight": SIZE[0], "imageWidth": SIZE[1], "shapes": shapes})
        (root / f"notes/c{number}.json").write_text(text)
    masks = {"files": {"pattern": "notes/{id}.json"}, "case": "{id}", "format": "labelme", "classes": CLASSES, **more}
    return {"task": "segmentation", "images": {"files": {"pattern": "images/{id}.png"}}, "masks": masks}


def test_labelme_shapes_become_label_numbers_or_a_mask_a_class(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    made = read(root, tmp_path / "one", **labelled(root))
    array = read_mask(made.train[0].mask, str(tmp_path / "one")).array
    assert {int(v): int((array == v).sum()) for v in np.unique(array)} == {0: 192 - 46, 1: 34, 2: 12}
    apart = read(root, tmp_path / "two", **labelled(root, combine="classes"))
    both = read_masks(apart.train[0].mask, apart.values, str(tmp_path / "two"))
    assert both.sum(axis=(1, 2)).tolist() == [35, 12]
    assert (both[0] & both[1]).sum() == 1, "what overlaps stays in both"


def test_a_file_drawn_on_another_size_leaves_its_case_out(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    spec = labelled(root)
    (root / "notes/c0.json").write_text(json.dumps({"imageHeight": 99, "imageWidth": 16, "shapes": []}))
    made = read(root, tmp_path, **spec)
    assert len(made.train) + len(made.test) == 4
    assert any("drawn on 99x16" in reason for reason in made.accounting.reasons())


def test_one_coco_file_speaks_of_many_images(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    images, marks = [], []
    for number in range(6):
        picture(root / f"a/c{number}.png", size=SIZE)
        images.append({"id": number, "file_name": f"c{number}.png", "height": SIZE[0], "width": SIZE[1]})
        lesion = np.zeros(SIZE, np.uint8)
        lesion[7:10, 8:12] = 1
        flat = [v for point in BOX for v in point]
        marks += [{"image_id": number, "category_id": 7, "segmentation": [flat]},
                  {"image_id": number, "category_id": 9, "segmentation": {"size": list(SIZE), "counts":
                   runs.encode(np.asfortranarray(lesion))["counts"].decode()}}]  # fmt: skip
    picture(root / "a/lost.png", size=SIZE)
    names = [{"id": 7, "name": "organ"}, {"id": 9, "name": "lesion"}]
    (root / "all.json").write_text(json.dumps({"images": images, "annotations": marks, "categories": names}))
    made = read(root, tmp_path, task="segmentation", images={"files": {"pattern": "a/*.png"}},
                masks={"files": {"pattern": "all.json"}, "format": "coco", "classes": CLASSES,
                       "combine": "classes"})  # fmt: skip
    assert len(made.train) + len(made.test) == 6
    both = read_masks(made.train[0].mask, made.values, str(tmp_path))
    assert both.sum(axis=(1, 2)).tolist() == [35, 12]
    assert "no mask" in made.accounting.reasons()


# --- DICOM SEG ----------------------------------------------------------------------------------------------------


def header(kind: str, **fields: Any) -> FileDataset:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, kind
    meta.MediaStorageSOPInstanceUID = generate_uid()
    one = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    one.SOPClassUID, one.SOPInstanceUID = kind, meta.MediaStorageSOPInstanceUID
    one.Rows, one.Columns, one.SamplesPerPixel = *SIZE, 1
    one.PhotometricInterpretation, one.PixelRepresentation = "MONOCHROME2", 0
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def item(**fields: Any) -> Dataset:
    one = Dataset()
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def series(folder: Path, uid: str, slices: int = 4) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(len(uid) + int(uid[-4:]))
    for at in range(slices):
        one = header(CTImageStorage, Modality="CT", SeriesInstanceUID=uid, PixelSpacing=[1, 2], InstanceNumber=at,
                     ImageOrientationPatient=[1, 0, 0, 0, 1, 0], ImagePositionPatient=[5, 6, -3.0 * at],
                     BitsAllocated=16, BitsStored=16, HighBit=15)  # fmt: skip
        one.PixelData = random.integers(0, 900, SIZE).astype(np.uint16).tobytes()
        one.save_as(folder / f"{at}.dcm")


def segments(file: Path, uid: str, shift: float = 0.0) -> None:
    """The organ on slices 1 and 2 (by place, not by order), the lesion on slice 2, overlapping by one pixel."""
    frames, groups = [], []
    for number, level, box in ((2, 2, (7, 10, 8, 12)), (1, 2, (3, 8, 2, 9)), (1, 1, (3, 8, 2, 9))):
        pixels = np.zeros(SIZE, np.uint8)
        pixels[box[0] : box[1], box[2] : box[3]] = 1
        frames.append(pixels)
        groups.append(item(
            PlanePositionSequence=[item(ImagePositionPatient=[5, 6, -3.0 * level + shift])],
            SegmentIdentificationSequence=[item(ReferencedSegmentNumber=number)],
        ))  # fmt: skip
    one = header(SegmentationStorage, Modality="SEG", SegmentationType="BINARY", NumberOfFrames=len(frames),
                 BitsAllocated=1, BitsStored=1, HighBit=0, ReferencedSeriesSequence=[item(SeriesInstanceUID=uid)],
                 SegmentSequence=[item(SegmentNumber=1, SegmentLabel="Organ"), item(SegmentNumber=2, SegmentLabel="Tumour")],
                 PerFrameFunctionalGroupsSequence=groups,
                 SharedFunctionalGroupsSequence=[item(
                     PlaneOrientationSequence=[item(ImageOrientationPatient=[1, 0, 0, 0, 1, 0])],
                     PixelMeasuresSequence=[item(PixelSpacing=[1, 2])])])  # fmt: skip
    one.PixelData = np.packbits(np.array(frames).ravel(), bitorder="little").tobytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    one.save_as(file)


def test_dicom_segments_lie_where_their_frames_do(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(4):
        uid = f"1.2.3.100{number}"
        series(root / f"p{number}/ct", uid)
        segments(root / f"p{number}/seg/s.dcm", uid, shift=1.6 if number == 3 else 0.0)
    spec = {"task": "segmentation", "images": {"files": {"pattern": "{id}/ct/*.dcm"}, "unit": "folder"},
            "masks": {"files": {"pattern": "{id}/seg/*.dcm"}, "format": "dicom_seg", "classes": CLASSES,
                      "names": {"lesion": ["tumour"]}, "combine": "classes"}}  # fmt: skip
    made = read(root, tmp_path, **spec)
    assert len(made.train) + len(made.test) == 3
    assert any("between or outside" in reason for reason in made.accounting.reasons())
    case = made.train[0]
    image = read_image(str(case.image).removeprefix("data/set/"), str(root)).array
    both = read_masks(case.mask, made.values, str(tmp_path))
    assert both.shape[1:] == image.shape[1:] == (*SIZE, 4)
    # read_image turns the series head up: slice 1 of the file order is the third from below
    assert both.sum(axis=(1, 2)).tolist() == [[0, 35, 35, 0], [0, 12, 0, 0]]
    assert np.argwhere(both[1]).min(0).tolist() == [7, 8, 1]


def test_a_shape_without_area_is_named(tmp_path: Path) -> None:
    from m3b.data.spec.outlines import labelme

    file = tmp_path / "x.json"
    file.write_text(json.dumps({"shapes": [{"label": "organ", "shape_type": "point", "points": [[1, 1]]}]}))
    with pytest.raises(DataError, match="'point' with 1 points bounds no area"):
        labelme(file, SIZE, CLASSES, {})


def test_slices_of_a_flat_folder_lie_in_the_order_of_their_places_and_not_of_their_names(tmp_path: Path) -> None:
    """With names that are UIDs, the slices of a series were stacked in the order of their names."""
    root = tmp_path / "raw"
    for number in range(6):
        series(tmp_path / "made" / str(number), f"1.2.3.{1000 + number}")
        for at in range(4):
            file = tmp_path / "made" / str(number) / f"{at}.dcm"
            place = root / f"{(number * 4 + at) * 7919 % 101:03d}.dcm"
            place.parent.mkdir(exist_ok=True)
            file.rename(place)
    made = read(
        root,
        tmp_path,
        task="diagnosis",
        images={"files": {"pattern": "*.dcm"}, "case": "{tag.SeriesInstanceUID}", "several": "slices"},
        labels={
            "sources": [{"keyword": "SeriesInstanceUID"}],
            "classes": {name: [f"1.2.3.{1000 + n}" for n in range(at, 6, 2)] for at, name in enumerate("ab")},
        },
    )
    assert len(made.train) + len(made.test) == 6
    for record in (*made.train, *made.test):
        places = [float(pydicom.dcmread(root / Path(one).name).ImagePositionPatient[2]) for one in record.images]
        assert places == sorted(places), "along the normal of the slices"
