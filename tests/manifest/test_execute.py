"""A manifest is executed: pixels, masks, boxes, parts, and the accounting of every file."""

from __future__ import annotations

import json
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from manifest_kit import case_reasons, draw_mask, draw_picture, execute_folder, file_reasons, list_folder
from PIL import Image

from m3b.data.index import read_index
from m3b.data.records import Record
from m3b.dataset.manifest.box_grids import fill_boxes
from m3b.dataset.manifest.execute import PROMPTED_LIST, Executed, NothingOpens, TooFewCases, execute, grouped_by, write
from m3b.dataset.manifest.model import Manifest, Masks
from m3b.dataset.manifest.pixels import thumbnail_of
from m3b.dataset.reading import read_image, read_mask
from m3b.dataset.survey.walk import walk
from m3b.errors import DataError

GRADED: dict[str, Any] = {
    "task": "diagnosis",
    "images": {"files": "{part}/{grade:number}/{patient:number}{side:word}.png"},
    "labels": {"value": "{grade}", "classes": {"0": [], "1": [], "2": []}, "ordered": True},
    "patient": "{patient}",
    "split": {"value": "{part}", "train": ["train"], "test": ["test"]},
}


@pytest.fixture
def graded(tmp_path: Path) -> Path:
    root = tmp_path / "raw"
    for part, count in (("train", 6), ("test", 2)):
        for grade in range(3):
            for number in range(count):
                for side in "LR":
                    patient = grade * 100 + number + (50 if part == "test" else 0)
                    draw_picture(root / part / str(grade) / f"{patient:04d}{side}.png")
    (root / "README.md").write_text("notes")
    return root


def records_of(executed: Executed) -> dict[str, Record]:
    return {Path(str(record.image)).name: record for record in (*executed.train, *executed.test)}


def test_class_folders_with_a_split_of_their_own(graded: Path, tmp_path: Path) -> None:
    executed = execute_folder(graded, tmp_path, **GRADED)
    assert (len(executed.train), len(executed.test)) == (36, 12)
    assert executed.values == {"0": 0, "1": 1, "2": 2}
    assert {record.patient for record in executed.train}.isdisjoint(record.patient for record in executed.test)
    assert executed.train[0].image == "data/set/train/0/0000L.png"
    assert file_reasons(executed.resolved) == {"document": 1}


def test_an_index_that_is_written_reads_back(graded: Path, tmp_path: Path) -> None:
    executed = execute_folder(graded, tmp_path, **GRADED)
    write(executed, tmp_path)
    assert read_index(tmp_path, "diagnosis").train == executed.train
    accounting = json.loads((tmp_path / "Datapath" / "accounting.json").read_text())
    assert Manifest.model_validate(accounting["manifest"]) == executed.manifest
    assert accounting["accounting"]["files"] == 49
    assert accounting["accounting"]["used"] == {"image": 48}
    assert accounting["patients"] == "known"


def test_a_patient_in_both_parts_is_counted_and_stays_in_the_test_part(graded: Path, tmp_path: Path) -> None:
    draw_picture(graded / "test/0/0000R.png", 30)
    executed = execute_folder(graded, tmp_path, **GRADED)
    assert executed.crossing == 1
    assert case_reasons(executed.resolved) == {"patient_in_test_part": 2}
    assert len(executed.test) == 13


def test_a_split_without_one_part_gives_way_to_a_drawn_one(graded: Path, tmp_path: Path) -> None:
    executed = execute_folder(
        graded, tmp_path, **{**GRADED, "split": {"value": "{part}", "train": ["train", "test"], "test": ["later"]}}
    )
    assert len(executed.train) + len(executed.test) == 48
    assert len(executed.test) > 4
    assert any("a new one is drawn" in note for note in executed.notes)


def test_a_study_of_views_is_a_case_and_said_to_be_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(16):
        for place, view in enumerate(("frontal", "lateral")):
            draw_picture(data / f"{('ill', 'healthy')[number % 2]}_{number:02d}_{view}.png", 2 * number + place)
    executed = execute_folder(
        data, tmp_path, task="diagnosis", labels={"value": "{kind}", "classes": {"healthy": ["healthy"], "ill": ["ill"]}},
        images={"files": "{kind:word}_{study:number}_{view:word}.png", "case": "{study}", "several": "views"},
    )  # fmt: skip
    assert len(executed.train) + len(executed.test) == 16
    assert all(len(record.image) == 2 and record.views for record in executed.train)
    assert [note for note in executed.notes if "a case is a study" in note]


def test_images_that_do_not_open_and_copies_are_left_out(graded: Path, tmp_path: Path) -> None:
    (graded / "train/0/0001L.png").write_bytes(b"no picture")
    shutil.copy(graded / "train/1/0101L.png", graded / "train/1/0102R.png")
    shutil.copy(graded / "train/2/0201L.png", graded / "train/0/0003R.png")
    executed = execute_folder(graded, tmp_path, **GRADED)
    assert case_reasons(executed.resolved) == {"unreadable": 1, "copy": 1, "contradicting_copies": 2}
    assert len(executed.train) == 32
    with_copies = execute_folder(graded, tmp_path, **{**GRADED, "keep_copies": True})
    assert case_reasons(with_copies.resolved) == {"unreadable": 1, "contradicting_copies": 2}


def test_unknown_patients_are_a_state_of_their_own(graded: Path, tmp_path: Path) -> None:
    executed = execute_folder(graded, tmp_path, **{**GRADED, "patient": None})
    assert not executed.patients_known
    assert len({record.patient for record in (*executed.train, *executed.test)}) == 48
    assert all(not record.patient_known for record in executed.train)


def test_a_drawn_split_keeps_what_belongs_together(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(20):
        for copy in ("", "_turned_1", "_turned_2"):
            draw_picture(root / "ab"[number % 2] / f"im{number:02d}{copy}.png")
    executed = execute_folder(
        root, tmp_path, task="diagnosis", images={"files": r"re:(?P<c>[ab])/(?P<id>im\d+)(_turned_\d)?\.png"},
        labels={"value": "{c}", "classes": {"a": [], "b": []}}, together=["{id}"],
    )  # fmt: skip
    sides = [{Path(str(record.image)).name[:4] for record in part} for part in (executed.train, executed.test)]
    assert sides[0].isdisjoint(sides[1])
    assert len(executed.test) == 12
    assert {label for record in executed.test for label in record.labels} == {"a", "b"}


def test_nothing_opens_and_too_few_cases_are_errors_of_their_own(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for name in "ab":
        (root / name).mkdir(parents=True)
        (root / name / "1.png").write_bytes(b"no picture")
    manifest = {
        "task": "diagnosis",
        "images": {"files": "{c}/*.png"},
        "labels": {"value": "{c}", "classes": {"a": [], "b": []}},
    }
    with pytest.raises(NothingOpens):
        execute_folder(root, tmp_path, **manifest)
    for name in "ab":
        draw_picture(root / name / "1.png")
    with pytest.raises(TooFewCases):
        execute_folder(root, tmp_path, **manifest)


def test_a_manifest_that_does_not_fit_says_all_of_it(graded: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\{eye\}.*\{part2\}"):
        execute_folder(graded, tmp_path, **{**GRADED, "patient": "{eye}", "split": {"value": "{part2}"}})


# --- masks -------------------------------------------------------------------------------------------------------------------


def segment(root: Path, work: Path, **masks: object) -> Executed:
    return execute_folder(
        root, work, task="segmentation", images={"files": "images/{case}.{png,jpg}"},
        masks={"files": "masks/{case}.*", "key": "{case}", "image": "{case}", **masks},
    )  # fmt: skip


def areas(executed: Executed, work: Path, name: str) -> dict[int, int]:
    """Value -> pixels of the derived mask of a case."""
    array = read_mask(records_of(executed)[name].mask, str(work)).array
    values, counts = np.unique(array, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def save(file: Path, array: np.ndarray, **options: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array, **options).save(file)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Pictures with label masks: values 1 (12 pixels), 2 (9 pixels) and 255 (3 pixels)."""
    root = tmp_path / "raw"
    for at in range(6):
        draw_picture(root / f"images/{at}.png")
        array = np.zeros((12, 16), np.uint8)
        array[:3, :4], array[5:8, 5:8], array[10, :3] = 1, 2, 255
        save(root / f"masks/{at}.png", array)
    return root


def test_masks_with_a_number_a_class_stay_as_they_are(labelled: Path, tmp_path: Path) -> None:
    executed = segment(labelled, tmp_path, classes={"a": [1], "b": [2]})
    assert executed.train[0].mask == executed.train[0].image.replace("images", "masks")
    assert executed.values == {"a": 1, "b": 2}
    assert not list((tmp_path / "Datapath/masks").glob("*"))
    assert dict(executed.resolved.uses.group_by("use").len().iter_rows()) == {"image": 6, "mask": 6}


@pytest.mark.parametrize(
    ("masks", "value_counts"),
    [
        ({"classes": {"a": [1], "b": [2]}, "void": [255]}, {0: 171, 1: 12, 2: 9}),
        ({"classes": {"all": [1, 2]}}, {0: 171, 1: 21}),
        ({"classes": {"all": ["*"]}}, {0: 168, 1: 24}),
        ({"classes": {"all": ["*"]}, "void": [255]}, {0: 171, 1: 21}),
        ({"classes": {"high": []}, "above": 1.5}, {0: 180, 1: 12}),
        ({"classes": {"b": [2], "rest": [1, 255]}}, {0: 168, 1: 9, 2: 15}),
    ],
)
def test_masks_that_are_derived(
    labelled: Path, tmp_path: Path, masks: dict[str, Any], value_counts: dict[int, int]
) -> None:
    executed = segment(labelled, tmp_path, **masks)
    assert areas(executed, tmp_path, "3.png") == value_counts
    assert executed.values == {name: at for at, name in enumerate(masks["classes"], 1)}
    if "void" in masks:
        assert any("18 pixels of masks are void (1.6% of all, in 6 masks)" in note for note in executed.notes)
        record = records_of(executed)["3.png"]
        assert record.ignored is not None
        assert np.array_equal(read_mask(record.ignored, str(tmp_path)).array > 0, void_pixels(labelled, "3.png"))


def void_pixels(root: Path, name: str) -> np.ndarray:
    return np.array(Image.open(root / "masks" / name)) == 255


def test_void_pixels_are_in_the_index_on_the_grid_of_the_image(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(6):
        draw_picture(root / f"images/{at}.png", size=(24, 32))
        array = np.zeros((12, 16), np.uint8)
        array[:3, :4], array[5:8], array[10] = 1, 254, 255
        save(root / f"masks/{at}.png", array if at else np.full((12, 16), 255, np.uint8))
    executed = segment(root, tmp_path, classes={"a": [1]}, void=[254, 255, 77], resized=True)
    assert case_reasons(executed.resolved) == {"only_void": 1}
    record = records_of(executed)["3.png"]
    assert read_mask(str(record.ignored), str(tmp_path)).array.sum() == 4 * (3 + 1) * 16
    assert [note for note in executed.notes if "no mask has 77;" in note]
    write(executed, tmp_path)
    assert read_index(tmp_path, "segmentation").train == executed.train
    assert all(record.ignored in record.targets for record in executed.train)


@pytest.mark.parametrize(("overlapping", "count"), [(True, 4), (False, 2)])
def test_void_of_one_file_and_class_of_another(tmp_path: Path, overlapping: bool, count: int) -> None:
    """Classes that exclude each other know a pixel that one file marks; of those that overlap, it stays open."""
    root = tmp_path / "raw"
    for at in range(6):
        draw_picture(root / f"images/{at}.png")
        first, second = np.zeros((12, 16), np.uint8), np.zeros((12, 16), np.uint8)
        first[0, :4], first[1, :4], second[1, 2:4] = 1, 255, 1
        save(root / f"masks/{at}_disc.png", first)
        save(root / f"masks/{at}_cup.png", second)
    executed = segment(
        root, tmp_path, files="masks/{case}_{kind:word}.png", classes={"cup": [], "disc": []}, void=[255],
        per_file={"cup": [], "disc": []}, class_key="{kind}", overlapping=overlapping,
    )  # fmt: skip
    record = records_of(executed)["3.png"]
    assert read_mask(str(record.ignored), str(tmp_path)).array.sum() == count


@pytest.mark.parametrize(
    "masks",
    [
        {"classes": {"a": [1], "b": [255]}, "void": [255]},
        {"classes": {"a": ["#ff8000"]}, "void": ["#FF8000"]},
        {"classes": {"a": []}, "above": 3.0, "void": [255]},
        {"classes": {"a": ["x"]}, "format": "coco", "void": ["y"]},
    ],
)
def test_void_that_is_a_class_or_has_no_code_is_refused(masks: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"masks\.void"):
        Masks.model_validate({"files": "m/*.png", **masks})


def test_lossy_masks_are_cut(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(6):
        draw_picture(root / f"images/{at}.jpg", size=(48, 64))
        draw_mask(root / f"masks/{at}.jpg", (8, 8, 32, 40), size=(48, 64), quality=60)
    executed = segment(root, tmp_path, classes={"polyp": []}, above=127)
    assert abs(areas(executed, tmp_path, "2.jpg")[1] - 24 * 32) < 40


def test_colours_of_masks_and_palettes_are_the_same_classes(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    colours = {1: (128, 0, 0), 2: (0, 128, 0), 3: (224, 224, 192)}
    for at in range(8):
        draw_picture(root / f"images/{at}.png")
        array = np.zeros((12, 16), np.uint8)
        array[:3, :4], array[5:8, 5:8], array[10, :3] = 1, 2, 3
        if at % 2:
            painted = np.zeros((12, 16, 3), np.uint8)
            for value, colour in colours.items():
                painted[array == value] = colour
            save(root / f"masks/{at}.png", painted)
        else:
            image = Image.fromarray(array, mode="P")
            image.putpalette([0, 0, 0, *(part for colour in colours.values() for part in colour)])
            (root / "masks").mkdir(exist_ok=True)
            image.save(root / f"masks/{at}.png")
    executed = segment(root, tmp_path, classes={"red": ["#800000"], "green": ["#008000"]}, void=["#e0e0c0"])
    assert areas(executed, tmp_path, "3.png") == {0: 171, 1: 12, 2: 9}
    assert areas(executed, tmp_path, "2.png") == {0: 171, 1: 12, 2: 9}


def test_a_file_an_instance_is_united_and_unmatched_ones_are_said(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(5):
        draw_picture(root / f"c{number}/images/i.png")
        for at in range(3):
            draw_mask(root / f"c{number}/masks/{at}.png", (at * 4, 0, at * 4 + 3, 5))
    draw_mask(root / "lost/masks/0.png")
    draw_picture(root / "bare/images/i.png")
    executed = execute_folder(root, tmp_path, task="segmentation", images={"files": "{id}/images/*.png"},
                          masks={"files": "{id}/masks/*.png", "key": "{id}", "classes": {"nucleus": ["*"]}})  # fmt: skip
    assert len(executed.train) + len(executed.test) == 5
    assert read_mask(executed.train[0].mask, str(tmp_path)).array.sum() == 45
    assert file_reasons(executed.resolved) == {"mask_without_image": 1, "no_mask": 1}


@pytest.mark.parametrize("overlapping", [True, False])
def test_a_file_a_class(tmp_path: Path, overlapping: bool) -> None:
    root = tmp_path / "raw"
    for at in range(6):
        draw_picture(root / f"images/{at}.png")
        draw_mask(root / f"masks/{at}_disc_1.png", (0, 0, 6, 6))
        draw_mask(root / f"masks/{at}_disc_2.png", (6, 0, 8, 2))
        draw_mask(root / f"masks/{at}_cup_1.png", (8, 8, 10, 10) if at else (2, 2, 4, 4))
    executed = segment(
        root, tmp_path, files="masks/{case}_{kind:word}_{n}.png", classes={"cup": [], "disc": []},
        per_file={"cup": [], "disc": []}, class_key="{kind}", overlapping=overlapping,
    )  # fmt: skip
    if overlapping:
        mask = records_of(executed)["0.png"].mask
        assert list(mask) == ["cup", "disc"]
        assert mask["cup"] == "data/set/masks/0_cup_1.png"
        assert read_mask(mask["disc"], str(tmp_path)).array.sum() == 40
        assert executed.values == {"cup": 1, "disc": 2}
    else:
        assert areas(executed, tmp_path, "1.png") == {0: 148, 1: 4, 2: 40}
        assert case_reasons(executed.resolved) == {"classes_overlap": 1}


def test_a_mask_of_another_size_leaves_its_case_out(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(6):
        draw_picture(root / f"images/{number}.png")
        draw_mask(root / f"masks/{number}.png", size=(12, 16) if number else (10, 16))
    for masks in ({"classes": {"x": [255]}}, {"classes": {"x": ["*"]}}):
        executed = segment(root, tmp_path, **masks)
        assert case_reasons(executed.resolved) == {"mask_size_differs": 1}
        assert any("10x16, its image 12x16" in exclusion.reason for exclusion in executed.resolved.excluded_cases)


def test_masks_in_the_proportions_of_their_images_are_brought_to_their_size(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(6):
        draw_picture(root / f"images/{number}.png")
        draw_mask(root / f"masks/{number}.png", (1, 2, 2, 3), size=(6, 8) if number else (12, 8))
    executed = segment(root, tmp_path, classes={"x": [255]}, resized=True)
    assert areas(executed, tmp_path, "1.png") == {0: 188, 1: 4}
    assert case_reasons(executed.resolved) == {"mask_size_differs": 1}


def test_masks_of_turned_photographs(tmp_path: Path) -> None:
    """EXIF turns the photograph by 90 degrees; its mask is of the stored or of the upright size."""
    root = tmp_path / "raw"
    exif = Image.Exif()
    exif[0x0112] = 6
    for at in range(6):
        draw_picture(root / f"images/{at}.jpg", size=(12, 20), exif=exif)
        draw_mask(root / f"masks/{at}.png", size=(12, 20) if at % 2 else (20, 12))
    executed = segment(root, tmp_path, classes={"x": [255]})
    assert len(executed.train) + len(executed.test) == 6


def test_volumes_of_slices_with_a_mask_a_slice(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for case in range(5):
        for at in range(4):
            draw_picture(root / f"c{case}/s{at}.png")
            draw_mask(root / f"c{case}/m{at}.png", (0, 0, 2, at + 1), value=1)
    manifest: dict[str, Any] = {
        "task": "segmentation", "images": {"files": "{case}/s{at}.png", "case": "{case}", "several": "slices"},
        "masks": {"files": "{case}/m{at}.png", "key": "{case} {at}", "classes": {"x": [1]}},
    }  # fmt: skip
    executed = execute_folder(root, tmp_path, **manifest)
    assert executed.train[0].mask == tuple(
        path.replace("/s", "/m").replace("data/met", "data/set") for path in executed.train[0].image
    )
    manifest["masks"]["classes"] = {"x": ["*"]}
    executed = execute_folder(root, tmp_path, **manifest)
    array = read_mask(executed.train[0].mask, str(tmp_path)).array
    assert array.shape == (12, 16, 4)
    assert array.sum() == 2 * (1 + 2 + 3 + 4)


def test_layers_of_arrays(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    root.mkdir()
    rng = np.random.default_rng(0)
    np.save(root / "x.npy", rng.integers(0, 255, (6, 8, 8), np.uint8))
    masks = np.zeros((6, 8, 8, 3), np.uint8)
    masks[:, :2, :, 0], masks[:, 3:5, :, 1], masks[:, 4, :4, 2] = 7, 1, 1
    np.save(root / "y.npy", masks)
    manifest = {
        "task": "segmentation", "images": {"files": "x.npy", "member": "[#]"},
        "masks": {"files": "y.npy", "member": "[#]", "key": "{index}", "classes": {"a": [], "b": []},
                  "layers": {"a": [0], "b": [1, 2]}},
    }  # fmt: skip
    executed = execute_folder(root, tmp_path, **manifest)
    array = read_mask(executed.train[0].mask, str(tmp_path)).array
    assert [(array == value).sum() for value in (1, 2)] == [16, 16]


def test_outlines_and_boxes_of_an_annotation_format(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    marks, images = [], []
    for at in range(8):
        draw_picture(root / f"images/{at}.png")
        images.append({"id": at, "file_name": f"{at}.png", "width": 16, "height": 12})
        if at != 7:
            outline = [2, 2, 8, 2, 8, 6, 2, 6]
            marks.append(
                {
                    "id": at,
                    "image_id": at,
                    "category_id": 1,
                    "bbox": [2, 2, 6, 4],
                    "segmentation": [outline],
                    "iscrowd": 0,
                }
            )
    document = {"images": images, "annotations": marks, "categories": [{"id": 1, "name": "cell"}]}
    (root / "coco.json").write_text(json.dumps(document))
    executed = execute_folder(root, tmp_path, task="segmentation", images={"files": "images/*.png"},
                          masks={"format": "coco", "files": "coco.json", "classes": {"cell": []}})  # fmt: skip
    assert areas(executed, tmp_path, "3.png") == {0: 168, 1: 24}
    boxes = {"format": "coco", "files": "coco.json", "classes": {"cell": []}}
    executed = execute_folder(root, tmp_path, task="detection", images={"files": "images/*.png"}, boxes=boxes)
    assert [(box.label, box.box) for box in records_of(executed)["3.png"].boxes or ()] == [
        ("cell", (2.0, 2.0, 8.0, 6.0))
    ]
    assert records_of(executed)["7.png"].boxes == ()
    with pytest.raises(DataError, match=r"no case has one.*cell"):
        execute_folder(
            root,
            tmp_path,
            task="detection",
            images={"files": "images/*.png"},
            boxes={**boxes, "classes": {"nucleus": []}},
        )


def test_boxes_on_images_in_an_archive(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    root.mkdir()
    rows = ["image,a,b,c,d", *(f"{at},1,2,5,6" for at in range(5))]
    with zipfile.ZipFile(root / "set.zip", "w") as archive:
        for at in range(5):
            archive.write(draw_picture(tmp_path / f"{at}.png"), f"images/{at}.png")
        archive.writestr("t.csv", "\n".join(rows))
    executed = execute(
        Manifest.model_validate({
            "task": "detection", "images": {"files": "set.zip/images/*.png"},
            "tables": {"t": {"files": "set.zip/t.csv", "key": "{image}", "image": "{stem}"}},
            "boxes": {"format": "table", "table": "t", "classes": {"x": ["*"]},
                      "columns": {"xmin": "a", "ymin": "b", "xmax": "c", "ymax": "d"}},
        }),
        walk(root), name="set", work=tmp_path,
    )  # fmt: skip
    assert [box.box for box in executed.train[0].boxes or ()] == [(1.0, 2.0, 5.0, 6.0)]


def test_slices_of_a_mask_with_different_shapes_leave_the_case_out(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for case in range(5):
        for at in range(3):
            draw_picture(root / f"images/{case}/{at}.png")
            size = (14, 10) if case == at == 1 else (12, 16)
            draw_mask(root / f"masks/{case}/{at}.png", size=size)
    executed = execute_folder(
        root, tmp_path, task="segmentation",
        images={"files": "images/{case}/{at}.png", "case": "{case}", "several": "slices"},
        masks={"files": "masks/{case}/{at}.png", "key": "{case}", "image": "{case}", "classes": {"x": ["*"]}},
    )  # fmt: skip
    assert case_reasons(executed.resolved) == {"unusable_mask": 1}


def test_boxes_beyond_the_image_twice_or_without_area(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(5):
        draw_picture(root / f"{at}.png")
    rows = [
        "0,1,1,50,5",
        "0,1,1,50,5",
        "0,3,3,3,3",
        "0,90,90,95,95",
        "1,2,2,4,4",
        "2,2,2,4,4",
        "3,2,2,4,4",
        "4,2,2,4,4",
    ]
    (root / "t.csv").write_text("\n".join(["image,a,b,c,d", *rows]))
    executed = execute_folder(
        root, tmp_path, task="detection", images={"files": "*.png"},
        tables={"t": {"files": "t.csv", "key": "{image}", "image": "{stem}"}},
        boxes={"format": "table", "table": "t", "classes": {"x": ["*"]},
               "columns": {"xmin": "a", "ymin": "b", "xmax": "c", "ymax": "d"}},
    )  # fmt: skip
    assert [box.box for box in records_of(executed)["0.png"].boxes or ()] == [(1.0, 1.0, 16.0, 5.0)]
    assert sum("boxes left out" in note for note in executed.notes) == 2


# --- other images ------------------------------------------------------------------------------------------------------------


def test_channels_and_what_cannot_be_brought_to_one_grid(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(7):
        case = f"{'ill' if number % 2 else 'well'}{number}"
        rng = np.random.default_rng(zlib.crc32(case.encode()))
        (root / case).mkdir(parents=True)
        for name in ("flair", "t1")[: 1 if number == 5 else 2]:
            affine = np.eye(4)
            affine[:3, 3] = 900 if name == "t1" and number == 6 else 0
            nib.save(
                nib.Nifti1Image(rng.normal(size=(6, 6, 4)).astype(np.float32), affine), root / case / f"{name}.nii"
            )
    channels = [{"name": "t1", "files": "{case}/t1.nii", "key": "{case}", "image": "{case}"}]
    executed = execute_folder(
        root, tmp_path, task="diagnosis", images={"files": "{case}/flair.nii", "name": "flair", "channels": channels},
        labels={"value": {"value": "{case}", "find": "^[a-z]+"}, "classes": {"ill": [], "well": []}},
    )  # fmt: skip
    assert case_reasons(executed.resolved) == {"missing_channel": 1, "channels_apart": 1}
    assert executed.train[0].channels == ("flair", "t1")


def test_items_of_files_that_are_used_are_left_out_in_words(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    root.mkdir()
    np.savez(
        root / "all.npz", x=np.random.default_rng(0).integers(0, 255, (9, 8, 8), np.uint8), y=np.array([0, 1] * 4 + [7])
    )
    executed = execute_folder(root, tmp_path, task="diagnosis", images={"files": "all.npz", "member": "x[#]"},
                          labels={"value": "{member.y}", "classes": {"a": ["0"], "b": ["1"]}})  # fmt: skip
    assert len(executed.train) + len(executed.test) == 8
    assert executed.resolved.uses["use"].to_list() == ["image"]
    assert any(note.startswith("1 images of files that are used are left out") for note in executed.notes)


def test_detached_data_go_with_their_header(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    root.mkdir()
    for at in range(6):
        values = np.random.default_rng(at).integers(0, 99, (4, 5, 6)).astype(np.uint8)
        (root / f"{at}.raw").write_bytes(values.tobytes())
        (root / f"{at}.mhd").write_text(
            f"NDims = 3\nDimSize = 6 5 4\nElementType = MET_UCHAR\nElementDataFile = {at}.raw\n"
        )
    executed = execute_folder(
        root, tmp_path, task="regression", images={"files": "*.mhd"}, value={"value": "{stem}", "title": "n"}
    )
    assert dict(executed.resolved.uses.group_by("use").len().iter_rows()) == {"image": 12}


def test_prompted_masks_stand_in_for_training_cases(tmp_path: Path) -> None:
    root, work = tmp_path / "raw", tmp_path / "work"
    for part, count in (("train", 6), ("test", 4)):
        for at in range(count):
            draw_picture(root / part / f"{at}.png")
            if at:
                draw_mask(root / part / f"{at}_m.png", value=1)
    (work / PROMPTED_LIST).parent.mkdir(parents=True)
    made_masks = []
    for part in ("train", "test"):
        draw_mask(work / f"Datapath/prompted/{part}.png", (0, 0, 4, 4))
        made_masks.append(
            {"image": f"data/set/{part}/0.png", "target": "Cell", "file": f"Datapath/prompted/{part}.png"}
        )
    (work / PROMPTED_LIST).write_text(json.dumps(made_masks))
    executed = execute_folder(
        root, work, task="segmentation", images={"files": "{part}/{n:number}.png"},
        masks={"files": "{part}/{n}_m.png", "key": "{part} {n}", "classes": {"cell": [1]}},
        split={"value": "{part}", "train": ["train"], "test": ["test"]},
    )  # fmt: skip
    prompted = [record for record in (*executed.train, *executed.test) if record.extra]
    assert [record.image for record in prompted] == ["data/set/train/0.png"]
    assert read_mask(prompted[0].mask, str(work)).array.sum() == 16
    assert case_reasons(executed.resolved) == {"prompted_test_case": 1}


@pytest.mark.parametrize("shape", [(700, 431), (40, 900), (385, 385)])
def test_thumbnails_of_large_pictures_are_means_of_areas(shape: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 60, shape) + np.linspace(0, 150, shape[1]).astype(int)
    large = thumbnail_of(picture[None].astype(np.uint8))
    exact = thumbnail_of(picture[None].astype(np.float64))  # no shrinking first
    assert float(large @ exact) > 0.9995


def test_an_inventory_is_all_that_is_walked(graded: Path, tmp_path: Path) -> None:
    inventory = list_folder(graded)
    draw_picture(graded / "train/0/0999L.png")
    executed = execute(Manifest.model_validate(GRADED), inventory, name="set", work=tmp_path)
    assert len(executed.train) == 36


def test_frames_of_clips(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(6):
        frames = [
            Image.fromarray(np.random.default_rng(10 * at + n).integers(0, 255, (12, 16), np.uint8)) for n in range(5)
        ]
        (root / "ab"[at % 2]).mkdir(parents=True, exist_ok=True)
        frames[0].save(root / "ab"[at % 2] / f"{at}.gif", save_all=True, append_images=frames[1:])
    executed = execute_folder(root, tmp_path, task="diagnosis", images={"files": "{kind}/*.gif", "frames": 2},
                              labels={"value": "{kind}", "classes": {"a": [], "b": []}})  # fmt: skip
    assert {str(record.image).partition("#")[2] for record in (*executed.train, *executed.test)} == {"frames=2"}
    assert len(executed.train) + len(executed.test) == 6
    assert any("2 evenly spaced frames" in note for note in executed.notes)


def test_slices_of_a_series_lie_by_their_positions(tmp_path: Path) -> None:
    """Files of two series lie in one folder under names that say nothing."""
    import pydicom
    from pydicom.data import get_testdata_file

    root = tmp_path / "raw"
    root.mkdir()
    for series in range(10):
        for at in range(3):
            header = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
            header.SeriesInstanceUID, header.SOPInstanceUID = f"1.2.{series}", f"1.2.{series}.{at}"
            header.PatientID, header.ImagePositionPatient = f"P{series}", [0, 0, 5.0 * at]
            header.PixelData = (
                np.random.default_rng(3 * series + at).integers(0, 99, (128, 128)).astype(np.int16).tobytes()
            )
            header.save_as(root / f"f{series}{2 - at}.dcm")
    executed = execute_folder(
        root, tmp_path, task="regression", patient="{tag.PatientID}",
        value={"value": {"value": "{tag.PatientID}", "find": r"\d$"}, "title": "n"},
        images={"files": "*.dcm", "case": "{tag.SeriesInstanceUID}", "several": "slices"},
    )  # fmt: skip
    volume = next(record for record in (*executed.train, *executed.test) if record.patient == "P1")
    assert volume.image == ("data/set/f12.dcm", "data/set/f11.dcm", "data/set/f10.dcm")
    assert volume.extra == {"value": 1.0}


@pytest.mark.parametrize("images", [
    {"files": "{case}/dicom/*.dcm", "case": "{folder}", "several": "slices", "unit": "folder"},
    {"files": "{case}/dicom/*.dcm", "case": "{case}", "several": "slices"},
])  # fmt: skip
@pytest.mark.parametrize("names", [("i0", "i1", "i2", "i3"), ("90", "7", "45", "12")], ids=["counted", "without order"])
def test_masks_of_slices_follow_them_in_the_order_of_their_positions(
    tmp_path: Path, images: dict[str, Any], names: tuple[str, ...]
) -> None:
    """The slices of a series are numbered from the head down, and lie from the feet up."""
    import pydicom
    from pydicom.data import get_testdata_file

    root = tmp_path / "raw"
    for case in range(6):
        for at in range(4):
            header = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
            header.SeriesInstanceUID, header.SOPInstanceUID = f"1.2.{case}", f"1.2.{case}.{at}"
            header.PatientID, header.ImagePositionPatient = f"P{case}", [0, 0, -5.0 * at]
            header.InstanceNumber = at + 1
            pixels = np.random.default_rng(4 * case + at).integers(0, 99, (128, 128)).astype(np.int16)
            pixels[10 * at : 10 * at + 9, :20] = 2000
            header.PixelData = pixels.tobytes()
            for folder in ("dicom", "truth"):
                (root / f"c{case}" / folder).mkdir(parents=True, exist_ok=True)
            header.save_as(root / f"c{case}/dicom/{names[at]}.dcm")
            Image.fromarray(((pixels == 2000) * 255).astype(np.uint8)).save(root / f"c{case}/truth/m{at:02d}.png")
    executed = execute_folder(
        root, tmp_path, task="segmentation", images=images,
        masks={"files": "{case}/truth/*.png", "key": "{case}", "image": "{folder0}" if "unit" in images else "{case}",
               "classes": {"liver": ["*"]}},
    )  # fmt: skip
    records = [*executed.train, *executed.test]
    assert len(records) == 6
    for record in records:
        image = read_image([str(root / path.removeprefix("data/set/")) for path in record.images]).array[0]
        mask = read_mask(str(tmp_path / str(record.mask))).array
        assert (image[mask > 0] > 900).all()
        assert (image[mask == 0] < 900).all()


@pytest.mark.parametrize(
    ("patient", "words"),
    [
        ("{cases.who}", "the column who of cases.csv"),
        ("{id}", "the part in brackets of img/[*]_*.png"),
        ("{folder0}", "the folder"),
        ({"value": "{tag.PatientID}", "find": "P[0-9]+"}, "what P[0-9]+ finds in the header field PatientID"),
    ],
)
def test_what_keeps_cases_together_is_said_in_words(patient: Any, words: str) -> None:
    tables = {"cases": {"files": "cases.csv", "key": "{file}", "image": "{name}"}}
    labels = {"value": "{cases.dx}", "classes": {"a": [], "b": []}}
    values = {"task": "diagnosis", "images": {"files": "img/{id}_{n}.png"}, "tables": tables, "labels": labels}
    assert grouped_by(Manifest.model_validate({**values, "patient": patient})) == words


def test_boxes_are_masks_of_a_segmentation_file_by_class_and_marked_as_such(tmp_path: Path) -> None:
    root, lines = tmp_path / "raw", ["image,x0,y0,x1,y1,label"]
    for at in range(10):
        draw_picture(root / f"images/{at}.png")
        lines += [f"{at},2,1,6,4,nodule", f"{at},5.4,3,9,7.6,cyst"] if at % 2 else [f"{at},0,0,3,2,nodule"]
    (root / "boxes.csv").write_text("\n".join(lines))
    columns = {"xmin": "x0", "ymin": "y0", "xmax": "x1", "ymax": "y1", "class": "label"}
    boxes = {"format": "table", "table": "b", "columns": columns, "classes": {"nodule": [], "cyst": []}}
    tables = {"b": {"files": "boxes.csv", "key": "{image}", "image": "{case}"}}
    manifest = {"task": "segmentation", "images": {"files": "images/{case}.png"}, "tables": tables, "boxes": boxes}
    executed = execute_folder(root, tmp_path, **manifest)
    record = records_of(executed)["3.png"]
    assert (record.boxes, record.extra) == (None, {"mask_origin": "boxes"})
    assert isinstance(record.mask, dict)
    masks = {name: read_mask(path, str(tmp_path)).array for name, path in record.mask.items()}
    assert {name: mask.sum() for name, mask in masks.items()} == {"nodule": 4 * 3, "cyst": 4 * 5}
    assert masks["nodule"][1:4, 2:6].all()
    assert executed.values == {"nodule": 1, "cyst": 2}
    assert sum(executed.class_counts[part]["cyst"] for part in ("train", "test")) == 5
    assert any("masks are boxes" in note for note in executed.notes)
    write(executed, tmp_path)
    assert read_index(tmp_path, "segmentation").train == executed.train


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, -1, 1), (-1, 1, -1)])
def test_boxes_of_volumes_are_filled_along_the_axes_of_the_file(tmp_path: Path, signs: tuple[int, int, int]) -> None:
    affine, filled = np.diag([*signs, 1.0]), np.zeros((12, 10, 8), np.uint8)
    filled[2:5, 3:9, 1:4], filled[7:12, 0:2, 5:6] = 1, 1
    nib.save(nib.Nifti1Image(np.zeros((12, 10, 8), np.int16), affine), tmp_path / "image.nii.gz")
    nib.save(nib.Nifti1Image(filled, affine), tmp_path / "mask.nii.gz")
    boxes = [(2.0, 3.0, 1.0, 5.0, 9.0, 4.0), (7.2, -0.3, 5.1, 11.6, 2.4, 5.4)]
    assert np.array_equal(fill_boxes(boxes, "image.nii.gz", tmp_path), read_mask("mask.nii.gz", str(tmp_path)).array)
