"""The generator of layouts: the same for a seed, wide, true to what it writes, and checked by a comparison that sees faults."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pydicom
import pytest
import scipy.io
import SimpleITK
import tifffile
from PIL import Image, ImageOps
from pycocotools import mask as coco_mask

from layouts.axes import AXES, UNUSED, draw_axes, valid_values
from layouts.generate import draw_layout, write_layout
from layouts.layout import Layout, case_files
from layouts.truth import IndexRecord, Truth, TruthCase, compare

TIMED = (".npz", ".xlsx", ".mat", ".zip", ".gz", ".ome.tif")
"""Files into which their libraries write the time or a new identifier."""
DRAWN_LAYOUTS = 300
DRAWN_AXES = 5000
MAX_MASKS_READ = 6
TASKS = AXES["task"]


def digest(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith(TIMED)
    }


def draw_solvable(**fixed: str) -> Layout:
    return draw_layout(1, plainness=0.0, solvability="solvable", **fixed)


# --- drawing -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def layouts() -> list[Layout]:
    return [draw_layout(seed) for seed in range(DRAWN_LAYOUTS)]


def test_a_seed_gives_the_same_layout_and_files(tmp_path: Path) -> None:
    for seed in (2, 3, 17, 20):
        for name in ("first", "second"):
            write_layout(draw_layout(seed), tmp_path / name / str(seed))
        assert draw_layout(seed) == draw_layout(seed)
        files = digest(tmp_path / "first" / str(seed))
        assert files
        assert files == digest(tmp_path / "second" / str(seed))


def test_there_are_at_least_fourteen_axes_and_every_value_occurs() -> None:
    counts: dict[str, Counter[str]] = {axis: Counter() for axis in AXES}
    for seed in range(DRAWN_AXES):
        for axis, value in draw_axes(np.random.default_rng(seed)).to_dict().items():
            counts[axis][value] += 1
    assert len(AXES) >= 14
    assert {
        axis: set(values) - set(counts[axis]) for axis, values in AXES.items() if set(values) - set(counts[axis])
    } == {}


def test_every_draw_is_valid(layouts: list[Layout]) -> None:
    for layout in layouts:
        choices: dict[str, str] = {}
        for axis, value in layout.axes.to_dict().items():
            assert value in valid_values(axis, choices)
            choices[axis] = value


def test_a_fifth_is_not_solvable_and_says_what_is_right_and_why(layouts: list[Layout]) -> None:
    unsolvable = [layout for layout in layouts if layout.axes.solvability != "solvable"]
    assert len(unsolvable) >= 0.2 * len(layouts)
    for layout in layouts:
        is_solvable = layout.axes.solvability == "solvable"
        assert ("proposed" in layout.truth.outcomes) == is_solvable
        assert (layout.truth.reason == "") == is_solvable
        assert set(layout.truth.outcomes) <= {"proposed", "ask", "refuse"}


def test_folders_have_60_to_150_images_with_distinct_files(layouts: list[Layout]) -> None:
    for layout in layouts:
        assert 60 <= len(layout.cases) <= 150
        files = [file for case in layout.truth.cases for file in case.files]
        assert len(set(files)) == len(files), layout.seed


def test_sides_share_patients_only_where_that_is_the_layout(layouts: list[Layout]) -> None:
    for layout in layouts:
        sides: dict[str, set[str | None]] = {}
        for case in layout.truth.cases:
            sides.setdefault(case.patient or case.id, set()).add(case.side)
        assert any(len(patient_sides) > 1 for patient_sides in sides.values()) <= (layout.axes.split == "crossing")


# --- files and truth ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", AXES["carrier_family"])
def test_files_of_the_truth_exist(family: str, tmp_path: Path) -> None:
    layout = draw_solvable(carrier_family=family)
    write_layout(layout, tmp_path)
    for case in layout.truth.cases:
        for name in case.files:
            assert (tmp_path / name.partition("#")[0]).is_file()
    if family == "archives":
        names = {name.partition("#")[2] for case in layout.truth.cases for name in case.files}
        container = tmp_path / layout.truth.cases[0].files[0].partition("#")[0]
        if container.suffix == ".zip":
            assert names <= set(zipfile.ZipFile(container).namelist())
        elif container.suffix != ".parquet":
            with tarfile.open(container) as archive:
                assert names <= set(archive.getnames())


@pytest.mark.parametrize(
    ("distractor", "reason"),
    [("previews", "preview"), ("other_modality", "another kind of image"), ("copies", "copy"), ("localizers", "localizer"),
     ("truncated", "truncated")],
)  # fmt: skip
def test_what_is_no_case_is_there_and_excluded(distractor: str, reason: str, tmp_path: Path) -> None:
    layout = draw_solvable(distractor=distractor)
    write_layout(layout, tmp_path)
    excluded = {file for file, exclusion in layout.truth.exclusions.items() if exclusion == reason}
    assert len(excluded) >= 3
    assert not excluded & {file for case in layout.truth.cases for file in case.files}
    assert all((tmp_path / file.partition("#")[0]).is_file() for file in excluded)


def test_a_folder_that_lacks_images_has_its_targets(tmp_path: Path) -> None:
    layout = draw_layout(1, solvability="no_images")
    write_layout(layout, tmp_path)
    assert not any((tmp_path / file).exists() for case in layout.truth.cases for file in case.files)
    assert any(file.is_file() for file in tmp_path.rglob("*"))


def read_array(file: Path) -> np.ndarray[Any, Any]:
    """Read an array with (slices,) rows and columns, by the library of its format."""
    name = file.name
    if file.is_dir():
        return np.stack([np.asarray(Image.open(path)) for path in sorted(file.iterdir())])
    if name.endswith((".nii", ".nii.gz", ".mgz", ".hdr")):
        return np.asarray(nibabel.load(file).get_fdata()).T
    if name.endswith((".nrrd", ".mha", ".mhd")):
        return SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(file)))
    if name.endswith((".tif", ".tiff")):
        return np.asarray(tifffile.imread(file))
    if name.endswith(".npy"):
        return np.asarray(np.load(file))
    if name.endswith(".npz"):
        return np.asarray(np.load(file)["mask"])
    if name.endswith(".h5"):
        return np.asarray(h5py.File(file)["mask"])
    if name.endswith(".mat"):
        return np.asarray(scipy.io.loadmat(file)["mask"])
    return np.asarray(Image.open(file))


def areas_of(array: np.ndarray[Any, Any], values: Mapping[int, int]) -> dict[int, float]:
    """Return the share of each class that occurs: class -> share."""
    shares = {position: float((np.abs(array - value) < 0.01).mean()) for position, value in values.items()}
    return {position: share for position, share in shares.items() if share}


MASK_CASES = [(form, carrier) for form, carrier in [
    ("ids", "png"), ("ids", "nifti_3d"), ("ids", "mha"), ("ids", "slice_folder"), ("slope", "nifti_3d"), ("seg_nrrd", "nrrd"),
    ("palette_void", "png"), ("inside", "npz_case"), ("inside", "hdf5_volume"), ("inside", "mat_volume"), ("ids", "npy_volume"),
    ("ids", "mgz"), ("ids", "tiff_stack"),
]]  # fmt: skip


@pytest.mark.parametrize(("form", "carrier"), MASK_CASES)
def test_masks_are_those_of_the_truth(form: str, carrier: str, tmp_path: Path) -> None:
    fixed = {"split": "none", "distractor": "none", "mask_place": UNUSED if form == "inside" else "same_name"}
    layout = draw_solvable(mask_form=form, carrier=carrier, **fixed)
    write_layout(layout, tmp_path)
    values = dict(enumerate(layout.values if form in ("ids", "inside") else range(1, len(layout.classes) + 1)))
    for case, truth in list(zip(layout.cases, layout.truth.cases, strict=True))[:MAX_MASKS_READ]:
        file = tmp_path / truth.files[0]
        if form != "inside":
            folder = (
                tmp_path
                / layout.base
                / case.directory.replace(layout.folder_word("images"), layout.folder_word("masks"))
            )
            [file] = [
                path
                for path in folder.iterdir()
                if path.name.split(".")[0] == case.stem and path.suffix not in (".raw", ".img")
            ]
        assert areas_of(read_array(file), values) == pytest.approx(truth.areas)


def test_dicom_segmentations_and_contours_are_those_of_the_truth(tmp_path: Path) -> None:
    for form in ("dicom_seg", "rtstruct"):
        layout = draw_solvable(mask_form=form, mask_place="same_name", split="none", distractor="none")
        (tmp_path / form).mkdir()
        layout = replace(layout, cases=layout.cases[:3])
        write_layout(layout, tmp_path / form)
        for case, truth in zip(layout.cases, layout.truth.cases, strict=False):
            names = [path for path in (tmp_path / form).rglob(f"{case.stem}.dcm")]
            document = pydicom.dcmread(names[0])
            if form == "dicom_seg":
                totals = Counter[int]()
                shared = document.SharedFunctionalGroupsSequence[0]
                for number, frame in enumerate(document.PerFrameFunctionalGroupsSequence):
                    group = frame if "SegmentIdentificationSequence" in frame else shared  # the same for all frames
                    segment = group.SegmentIdentificationSequence[0].ReferencedSegmentNumber
                    totals[segment - 1] += int(np.atleast_3d(document.pixel_array.T)[..., number].sum())
                shares = {key: total / np.prod(case.size) for key, total in totals.items() if total}
                assert shares == pytest.approx(truth.areas)
            else:
                used = {
                    region.ReferencedROINumber - 1 for region in document.ROIContourSequence if region.ContourSequence
                }
                assert used == set(truth.areas)


def test_run_lengths_and_coco_are_those_of_the_truth(tmp_path: Path) -> None:
    layout = draw_solvable(mask_form="coco_rle", carrier="png", split="none", distractor="none")
    write_layout(layout, tmp_path)
    [file] = tmp_path.rglob("annotations.json")
    document = json.loads(file.read_text("utf-8"))
    areas: Counter[str] = Counter()
    for annotation in document["annotations"]:
        name = next(image["file_name"] for image in document["images"] if image["id"] == annotation["image_id"])
        areas[name.rpartition("/")[2]] += int(coco_mask.area(annotation["segmentation"]))
    for truth in layout.truth.cases:
        picture = Image.open(tmp_path / truth.files[0])
        total = picture.size[0] * picture.size[1]
        assert areas[truth.files[0].rpartition("/")[2]] == pytest.approx(sum(truth.areas.values()) * total)


def test_turned_photographs_show_their_objects_where_the_truth_has_them(tmp_path: Path) -> None:
    layout = draw_solvable(carrier="jpeg_exif", task="detection")
    write_layout(layout, tmp_path)
    turned = 0
    for truth in layout.truth.cases[:12]:
        if not truth.boxes or truth.files[0] in layout.truth.exclusions:
            continue
        picture = Image.open(tmp_path / truth.files[0])
        turned += picture.getexif().get(0x0112, 1) != 1
        pixels = np.asarray(ImageOps.exif_transpose(picture).convert("L")).astype(float)
        for _, (x0, y0, x1, y1) in truth.boxes:
            assert pixels[int(y0) + 1 : int(y1) - 1, int(x0) + 1 : int(x1) - 1].mean() > np.median(pixels) + 15
    assert turned >= 6


def test_truncated_files_do_not_open(tmp_path: Path) -> None:
    layout = draw_solvable(distractor="truncated", carrier="png")
    write_layout(layout, tmp_path)
    broken = [file for file, reason in layout.truth.exclusions.items() if reason == "truncated"]
    assert len(broken) == 3
    for file in broken:
        with pytest.raises(OSError):
            Image.open(io.BytesIO((tmp_path / file).read_bytes())).load()


# --- comparison --------------------------------------------------------------------------------------------------------


def make_index(truth: Truth) -> list[IndexRecord]:
    """Return the index that a perfect reader gives."""

    def to_record(case: TruthCase) -> IndexRecord:
        names = {number: f"class {number}" for number in range(9)}
        return IndexRecord(
            files=case.files,
            side="test" if case.side == "test" else "train",
            patient=case.patient,
            labels=tuple(names[number] for number in case.classes)
            if truth.task in ("diagnosis", "multi_label", "grading")
            else (),
            value=case.value,
            event=case.event,
            areas={names[number]: area for number, area in case.areas.items()}
            if truth.task == "segmentation"
            else None,
            boxes=tuple((names[number], box) for number, box in case.boxes) if truth.task == "detection" else None,
            report=case.report or None,
        )

    return [to_record(case) for case in truth.cases]


@pytest.mark.parametrize("task", TASKS)
def test_a_perfect_index_has_no_differences_and_a_tampered_one_has(task: str) -> None:
    layout = draw_solvable(task=task, split="folders", images_per_patient="several")
    truth, order = layout.truth, [f"class {number}" for number in range(len(layout.classes))]
    index = make_index(truth)
    assert compare(index, truth, order) == []
    assert {item.code for item in compare(index[1:], truth, order)} >= {"missing_case"}
    extra = replace(index[0], files=("elsewhere/preview.png",))
    assert "extra_case" in {item.code for item in compare([*index, extra], truth, order)}
    turned = [replace(record, side={"train": "test", "test": "train"}[record.side]) for record in index]
    assert {item.code for item in compare(turned, truth, order)} == {"wrong_side"}
    alone = [replace(record, patient=None) for record in index]
    assert {item.code for item in compare(alone, truth, order)} == {"patients_split_up"}
    together = [replace(record, patient="same") for record in index]
    assert {item.code for item in compare(together, truth, order)} == {"patients_merged"}


def test_sides_that_cross_patients_may_stay_be_drawn_anew_or_lose_training_cases() -> None:
    truth = draw_solvable(task="regression", split="crossing").truth
    index = make_index(truth)
    assert compare(index, truth) == []
    tested = {record.patient for record in index if record.side == "test"}
    disjoint = [record for record in index if record.side == "test" or record.patient not in tested]
    assert len(disjoint) < len(index)
    assert compare(disjoint, truth) == []
    by_patient = [replace(record, side="test" if record.patient in tested else "train") for record in index]
    assert compare(by_patient, truth) == []
    some_moved = [
        replace(record, side="test") if record.side == "train" and number % 3 else record
        for number, record in enumerate(index)
    ]
    assert "wrong_side" in {item.code for item in compare(some_moved, truth)}


TAMPERINGS: list[tuple[str, str, Callable[[IndexRecord], IndexRecord]]] = [
    ("diagnosis", "wrong_label", lambda record: replace(record, labels=("class 0" if record.labels != ("class 0",) else "class 1",))),
    ("grading", "wrong_label", lambda record: replace(record, labels=("class 0" if record.labels != ("class 0",) else "class 1",))),
    ("multi_label", "wrong_label", lambda record: replace(record, labels=() if record.labels else ("class 0",))),
    ("regression", "wrong_value", lambda record: replace(record, value=(record.value or 0) + 1)),
    ("survival", "wrong_event", lambda record: replace(record, event=not record.event)),
    ("report", "wrong_report", lambda record: replace(record, report="Something else.")),
    ("segmentation_2d", "wrong_mask_area", lambda record: replace(record, areas={key: 0.5 for key in record.areas or {}})),
    ("segmentation_3d", "wrong_mask_area", lambda record: replace(record, areas={})),
    ("detection", "wrong_box", lambda record: replace(record, boxes=(("class 0", (0.0, 0.0, 3.0, 3.0)),))),
    ("detection", "missing_box", lambda record: replace(record, boxes=())),
]  # fmt: skip


@pytest.mark.parametrize(("task", "code", "tamper"), TAMPERINGS)
def test_a_wrong_target_is_found(task: str, code: str, tamper: Callable[[IndexRecord], IndexRecord]) -> None:
    layout = draw_solvable(task=task)
    index = make_index(layout.truth)
    number = next(number for number, case in enumerate(layout.truth.cases) if case.boxes or task != "detection")
    index[number] = tamper(index[number])
    assert code in {item.code for item in compare(index, layout.truth)}


def test_swapped_names_and_grades_in_another_order_are_found() -> None:
    layout = draw_solvable(task="diagnosis", class_naming="codes")
    forms = [sorted(forms - {"0", "1", "2", "3"})[0] for forms in layout.truth.class_forms]
    swapped = dict(zip((f"class {number}" for number in range(len(forms))), forms[1:] + forms[:1], strict=True))
    index = [
        replace(record, labels=tuple(swapped[label] for label in record.labels)) for record in make_index(layout.truth)
    ]
    assert "class_named_wrongly" in {item.code for item in compare(index, layout.truth)}
    layout = draw_solvable(task="grading")
    order = [f"class {number}" for number in range(len(layout.classes))]
    assert {item.code for item in compare(make_index(layout.truth), layout.truth, order[::-1])} == {
        "grades_out_of_order"
    }


def test_series_count_by_their_folder_and_arrays_by_their_item() -> None:
    layout = draw_solvable(carrier="dicom_series", task="regression", split="none")
    index = [replace(record, files=(record.files[0].rpartition("/")[0],)) for record in make_index(layout.truth)]
    assert compare(index, layout.truth) == []
    layout = draw_solvable(carrier="npz_set", task="diagnosis")
    index = [
        replace(record, files=(record.files[0].replace("#", "#images[") + "]",)) for record in make_index(layout.truth)
    ]
    assert compare(index, layout.truth) == []


# --- habits ------------------------------------------------------------------------------------------------------------

LISTS = [("detection", "box_format", name) for name in ("coco", "via", "cvat", "csv_corners_pixels", "yolo", "labelme")]
LISTS += [("segmentation_2d", "mask_form", name) for name in ("coco_rle", "via")]


@pytest.mark.parametrize(("task", "axis", "value"), LISTS)
def test_images_outside_a_list_are_there_and_no_annotation_names_them(
    task: str, axis: str, value: str, tmp_path: Path
) -> None:
    fixed = {"task": task, axis: value, "carrier": "png", "patients": "none", "split": "none", "distractor": "none"}
    layout = draw_solvable(habit="images_outside_list", **fixed)
    write_layout(layout, tmp_path)
    unlisted = [case for case in layout.cases if not case.is_labelled]
    assert 0.14 < len(unlisted) / len(layout.cases) < 0.31
    listed_ids = {case.id for case in layout.truth.cases}
    assert listed_ids == {f"{case.number:03d}" for case in layout.cases if case.is_labelled}
    names = {file.name for file in tmp_path.rglob("*") if file.suffix != ".png"}
    texts = " ".join(
        file.read_text("utf-8") for file in tmp_path.rglob("*") if file.suffix in (".json", ".xml", ".csv", ".txt")
    )
    for case in unlisted:
        assert case_files(layout, case)[0] in layout.truth.exclusions
        assert (tmp_path / case_files(layout, case)[0]).is_file()
        assert f"{case.stem}.png" not in texts
        assert not {f"{case.stem}.txt", f"{case.stem}.json"} & names
    assert layout.truth.outcomes == (("proposed", "ask") if value.startswith("csv") else ("proposed",))


STRUCTURES = [
    ("detection", "box_format", "coco"),
    ("detection", "box_format", "csv_corners_pixels"),
    ("segmentation_2d", "mask_form", "coco_rle"),
    ("segmentation_2d", "mask_form", "ids"),
    ("segmentation_3d", "mask_form", "file_per_class"),
    ("segmentation_3d", "mask_form", "rtstruct"),
]


@pytest.mark.parametrize(("task", "axis", "value"), STRUCTURES)
def test_further_structures_are_marked_and_not_asked_for(task: str, axis: str, value: str) -> None:
    layout = draw_solvable(
        habit="further_structures", task=task, **{axis: value}, request_language="en", class_naming="english"
    )
    assert 1 <= layout.n_further <= 2
    assert len(layout.class_names) == len(layout.classes) == len(layout.values) == layout.n_targets + layout.n_further
    assert len(layout.truth.class_forms) == layout.n_targets
    further = layout.class_names[layout.n_targets :]
    assert not any(name in layout.request for name in further)
    marked = {shape.class_index for case in layout.cases for shape in case.shapes}
    assert marked == set(range(len(layout.classes)))
    in_truth = {position for case in layout.truth.cases for position in (*case.areas, *(box[0] for box in case.boxes))}
    assert in_truth == set(range(layout.n_targets))
    for case in layout.cases:
        covered = sum(shape.mask(case.size).astype(int) for shape in case.shapes)
        assert np.max(covered, initial=0) <= 1


def test_a_single_target_among_further_structures_that_the_folder_lacks() -> None:
    layout = draw_layout(
        2, habit="further_structures", solvability="other_classes", request_language="en", class_naming="english"
    )
    assert len(layout.classes) >= 2
    assert set(layout.truth.outcomes) == {"ask", "refuse"}
    assert not any(name in layout.request for name in layout.class_names)


def test_layouts_without_a_habit_are_drawn_as_if_there_were_none(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = {seed: draw_layout(seed) for seed in range(12)}
    monkeypatch.setitem(AXES, "habit", ("none",))
    for seed, layout in layouts.items():
        assert layout.axes.habit != "none" or draw_layout(seed) == layout
