"""Which files are the masks of an image: of objects, of observers, of slices; and images that are channels of one case."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import nibabel
import numpy as np
import pytest
from proposals_kit import decide_folder, write_mask, write_picture, write_rows

from m3b.dataset.manifest.execute import execute
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.proposals.decide import list_candidates
from m3b.dataset.proposals.image_sets import list_image_sets
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.proposals.request import parse
from m3b.dataset.survey.facts import AnnotationFacts, SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk


def best_manifest(outcome: Outcome) -> Manifest:
    assert outcome.proposals
    return outcome.proposals[0].manifest


def write_square(path: Path, corner: tuple[int, int], side: int = 8) -> None:
    write_picture(path, 0)  # makes the folders
    mask = np.zeros((40, 48), np.uint8)
    mask[corner[0] : corner[0] + side, corner[1] : corner[1] + side] = 255
    from PIL import Image

    Image.fromarray(mask).save(path)


@pytest.mark.parametrize("name", ["{case}/masks/{hash}.png", "masks/{case}_{number}.png"])
def test_masks_of_objects_are_united(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    for number in range(24):
        case = f"{rng.integers(16**12):012x}"
        write_picture(tmp_path / (f"{case}/images/{case}.png" if "hash" in name else f"images/{case}.png"), number)
        for place in range(2 + number % 4):
            path = name.format(case=case, hash=f"{rng.integers(16**12):012x}", number=place)
            write_square(tmp_path / path, (4 + 8 * (place // 3), 2 + 12 * (place % 3)))
    outcome = decide_folder(tmp_path, "Segment nuclei in microscopy images")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 24
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert (masks.class_key, masks.per_file) == ("", {})


def first_pattern(outcome: Outcome) -> str:
    masks = best_manifest(outcome).masks
    assert masks is not None
    return masks.files if isinstance(masks.files, str) else masks.files[0]


@pytest.mark.parametrize("second", [24, 12])
def test_of_numbered_observers_the_first_is_the_reference(tmp_path: Path, second: int) -> None:
    for number in range(24):
        write_picture(tmp_path / f"image_{number:02d}.jpg", number)
        write_square(tmp_path / f"image_{number:02d}_1stHO.png", (10, 10), 12)
        if number < second:
            write_square(tmp_path / f"image_{number:02d}_2ndHO.png", (11, 11), 12)
    outcome = decide_folder(tmp_path, "Segment retinal vessels on fundus photographs")
    assert outcome.kind == "proposed"
    assert first_pattern(outcome) == "image_{number1:number}_{number2:number}stHO.png"
    assert outcome.proposals[0].cases == 24
    assert "classes" in {assumption.kind for assumption in outcome.assumptions}


def test_masks_of_two_named_observers_are_asked_about(tmp_path: Path) -> None:
    for number in range(24):
        write_picture(tmp_path / f"image_{number:02d}.jpg", number)
        write_square(tmp_path / f"image_{number:02d}_anna_manual.png", (10, 10), 12)
        write_square(tmp_path / f"image_{number:02d}_bert_manual.png", (11, 11), 12)
    outcome = decide_folder(tmp_path, "Segment retinal vessels on fundus photographs")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "rival"


def test_masks_of_two_readers_and_classes_are_asked_about(tmp_path: Path) -> None:
    for number in range(24):
        folder = tmp_path / f"scan_{number:02d}"
        write_picture(folder / "image.png", number)
        for reader in (1, 2):
            write_square(folder / f"myocardium_reader{reader}.png", (8 + reader, 10), 12)
            write_square(folder / f"ventricle_reader{reader}.png", (26 + reader, 10), 10)
    outcome = decide_folder(tmp_path, "Segment myocardium and ventricle on cardiac MRI")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "rival"


def test_numbered_masks_of_an_image_are_one_class(tmp_path: Path) -> None:
    for number in range(24):
        write_picture(tmp_path / f"scan ({number}).png", number)
        write_square(tmp_path / f"scan ({number})_mask.png", (4, 4))
        if number % 5 == 0:
            write_square(tmp_path / f"scan ({number})_mask_1.png", (20, 20))
    outcome = decide_folder(tmp_path, "Segment lesions on breast ultrasound images")
    assert outcome.kind == "proposed"
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert (list(masks.classes), masks.per_file) == (["lesions"], {})


@pytest.mark.parametrize(
    ("folders", "structure", "classes"),
    [
        (("aorta", "liver", "spleen"), "liver and spleen", {"liver": ("liver",), "spleen": ("spleen",)}),
        (("aorta", "liver", "spleen"), "the liver", {"liver": ("liver",)}),
        (("leftMask", "rightMask"), "left and right lung", {"left": ("leftMask",), "right": ("rightMask",)}),
    ],
)
def test_of_masks_in_folders_of_classes_those_that_are_asked_for_are_taken(
    tmp_path: Path, folders: tuple[str, ...], structure: str, classes: dict[str, tuple[str, ...]]
) -> None:
    for number in range(16):
        write_picture(tmp_path / f"images/p_{number:02d}.png", number)
        for place, folder in enumerate(folders):
            write_square(tmp_path / f"masks/{folder}/p_{number:02d}.png", (4 + 12 * place, 4))
    outcome = decide_folder(tmp_path, f"Segment {structure} on X-rays")
    assert outcome.kind == "proposed"
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert masks.per_file == classes or first_pattern(outcome) == "masks/liver/p_{number1:number}.png"
    assert list(masks.classes) == list(classes)


def test_masks_are_called_by_the_part_of_their_path_that_says_most(tmp_path: Path) -> None:
    for number in range(16):
        write_picture(tmp_path / f"images/p_{number:02d}.png", number)
        for place, (folder, code) in enumerate((("1. Oedema", "OE"), ("2. Necrosis", "NE"), ("3. Cysts", "CY"))):
            write_square(tmp_path / f"masks/{folder}/p_{number:02d}_{code}.png", (4 + 12 * place, 4))
    outcome = decide_folder(tmp_path, "Segment cysts and necrosis on ultrasound images")
    assert outcome.kind == "proposed"
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert masks.per_file == {"cysts": ("3. Cysts",), "necrosis": ("2. Necrosis",)}


def test_a_folder_of_the_target_alone_comes_before_one_of_more(tmp_path: Path) -> None:
    for number in range(16):
        write_picture(tmp_path / f"images/p_{number:02d}.png", number)
        for place, folder in enumerate(("Kidney_Mask", "Kidney_and_Cyst_Mask", "Cyst_Mask")):
            write_square(tmp_path / f"{folder}/p_{number:02d}.png", (4 + 6 * place, 4))
    outcome = decide_folder(tmp_path, "Segment cysts on ultrasound images")
    assert outcome.kind == "proposed"
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert list(masks.per_file.values()) == [("Cyst_Mask",)]


def test_sequences_in_the_folder_of_a_case_are_its_channels(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for number in range(12):
        folder = tmp_path / f"patient{number:02d}"
        folder.mkdir()
        for name in ("FLAIR", "T1"):
            nibabel.save(nibabel.Nifti1Image(rng.normal(size=(20, 18, 6)), np.eye(4)), folder / f"{name}.nii.gz")
        mask = np.zeros((20, 18, 6), np.uint8)
        mask[4:9, 5:9, 2:4] = 1
        nibabel.save(nibabel.Nifti1Image(mask, np.eye(4)), folder / "lesions_mask.nii.gz")
    outcome = decide_folder(tmp_path, "Segment multiple sclerosis lesions on brain MRI")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 12
    assert [channel.name for channel in best_manifest(outcome).images.channels] == ["T1"]


def test_folders_of_numbered_slices_are_volumes_with_a_mask_for_each_slice(tmp_path: Path) -> None:
    for number in range(14):
        for place in range(6):
            write_picture(tmp_path / f"images/{number + 31}/{place:03d}.png", 10 * number + place)
            write_square(tmp_path / f"masks/{number + 31}/{place:03d}.png", (6, 9 + place))
    outcome = decide_folder(tmp_path, "Segment the tumour on brain MRI")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 14
    assert best_manifest(outcome).images.several == "slices"


@pytest.mark.parametrize(
    "request_text", ["Segment the tumour on brain MRI", "Segmentar las estructuras anotadas en TC"]
)
def test_slices_with_masks_and_those_of_a_program_beside_them_are_volumes(tmp_path: Path, request_text: str) -> None:
    for number in range(14):
        folder = tmp_path / f"images/P{number // 2:03d}/{number + 31}"
        for place in range(6):
            write_picture(folder / f"series/{place:03d}.png", 10 * number + place)
            write_square(folder / f"mask/{place:03d}.png", (6, 9 + place))
            write_square(folder / f"mask_auto_uncorrected/{place:03d}.png", (7, 10 + place))
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 14
    manifest = best_manifest(outcome)
    assert manifest.images.several == "slices"
    assert manifest.masks is not None
    assert "auto" not in str(manifest.masks.files)


def test_an_array_file_for_each_part_holds_items(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for part, count in (("train", 40), ("test", 12)):
        masks = np.zeros((count, 32, 28), np.uint8)
        masks[:, 6:14, 5:12] = 1
        np.save(tmp_path / f"{part}_images.npy", rng.integers(0, 255, (count, 32, 28), dtype=np.uint8))
        np.save(tmp_path / f"{part}_masks.npy", masks)
    outcome = decide_folder(tmp_path, "Segment the liver on CT scans")
    assert outcome.proposals[0].cases == 52
    manifest = best_manifest(outcome)
    assert manifest.images.member == "[#]"
    assert manifest.masks is not None
    assert manifest.masks.member == "[#]"


def test_masks_by_a_program_do_not_come_before_those_beside_them(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"{number:02d}.png", number)
        write_mask(tmp_path / "masks_auto_uncorrected" / f"{number:02d}.png", number, shift=2)
    outcome = decide_folder(tmp_path, "Segment polyps on endoscopy images")
    assert outcome.kind == "proposed"
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert masks.files in ("masks/{number1:number}.png", ("masks/{number1:number}.png",))


@pytest.mark.parametrize(("smaller", "kind"), [(2, "proposed"), (20, "ask")])
def test_a_few_masks_of_another_size_are_left_out(tmp_path: Path, smaller: int, kind: str) -> None:
    for number in range(40):
        write_picture(tmp_path / f"images/p_{number:02d}.png", number)
        is_smaller = number % (40 // smaller) == 5 % (40 // smaller)
        write_mask(tmp_path / f"masks/p_{number:02d}.png", number, size=(20, 24) if is_smaller else (40, 48))
    outcome = decide_folder(tmp_path, "Segment polyps in colonoscopy images")
    assert outcome.kind == kind
    proposal = outcome.proposals[0]
    codes = {item.code for item in (proposal.evidence if kind == "proposed" else proposal.doubts)}
    assert "mask_size_differs" in codes


def write_outline(path: Path, image: str, labels: Sequence[str]) -> None:
    shapes = [
        {
            "label": label,
            "points": [[4, 4 + 9 * place], [14, 4 + 9 * place], [14, 11 + 9 * place]],
            "shape_type": "polygon",
        }
        for place, label in enumerate(labels)
    ]
    document = {"shapes": shapes, "imagePath": image, "imageWidth": 48, "imageHeight": 40}
    path.write_text(json.dumps(document))


def test_outlines_beside_images_of_two_kinds_of_names(tmp_path: Path) -> None:
    for number in range(40):
        name = f"DSC{number:04d}" if number % 2 else f"photo {number}"
        write_picture(tmp_path / f"{name}.jpg", number)
        if number % 10:
            write_outline(
                tmp_path / f"{name}.json", f"D:/old/{name}.jpg" if number % 7 == 0 else f"{name}.jpg", ["ulcer"]
            )
    outcome = decide_folder(tmp_path, "Outline the ulcers on wound photos")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 36)


@pytest.mark.parametrize(
    ("spellings", "other_labels", "request_text", "classes"),
    [
        (("ulcer", "Ulcer", "ulcer ", "ulcers"), (), "Outline the ulcers on wound photos", ["ulcer"]),
        (("GTV", "gtv", "GTV_1", "gtv p"), ("body", "spinal cord"), "Segment the lung tumour (GTV)", ["GTV"]),
    ],
)
def test_spellings_of_a_label_are_one_class(
    tmp_path: Path, spellings: tuple[str, ...], other_labels: tuple[str, ...], request_text: str, classes: list[str]
) -> None:
    for number in range(40):
        write_picture(tmp_path / f"scan_{number:02d}.png", number)
        labels = [spellings[number % 16 % len(spellings)], *other_labels]
        write_outline(tmp_path / f"scan_{number:02d}.json", f"scan_{number:02d}.png", labels)
    masks = best_manifest(decide_folder(tmp_path, request_text)).masks
    assert masks is not None
    assert sorted(masks.classes) == classes


def test_files_of_annotations_that_open_as_images_have_no_targets(tmp_path: Path) -> None:
    for number in range(14):
        write_picture(tmp_path / f"images/p_{number:02d}.png", number)
        write_mask(tmp_path / f"masks/seg_{number:02d}.png", number)
    inventory = walk(tmp_path)
    survey = survey_inventory(inventory, SurveyLimits())
    masks = next(group for group in survey.groups if group.pattern.startswith("masks"))
    facts = AnnotationFacts(
        format="seg_nrrd",
        files=tuple(masks.examples[:3]),
        file_count=14,
        group=masks.id,
        shapes=("mask",),
        classes=(),
        images=14,
    )
    survey = survey.model_copy(update={"annotations": (facts,)})
    candidates = list_candidates(survey, list_image_sets(survey, inventory), parse("Segment cysts"), ("segmentation",))
    annotated = [item for item in candidates if item.target.title.startswith("masks of")]
    assert annotated
    assert not [item for item in annotated if masks.id in item.image_set.groups]


@pytest.mark.parametrize(
    ("sizes", "mask_sizes", "kind"),
    [
        ([(40, 48)], [(20, 24)], "proposed"),
        ([(40, 48), (50, 61)], [(30, 36), (38, 46)], "proposed"),
        ([(40, 48)], [(30, 36)], "ask"),  # may be cut out
        ([(40, 48), (50, 61)], [(20, 24), (38, 46)], "ask"),
    ],
)
def test_masks_at_a_common_factor_of_their_images_are_brought_to_their_size(
    tmp_path: Path, sizes: list[tuple[int, int]], mask_sizes: list[tuple[int, int]], kind: str
) -> None:
    for number in range(24):
        name, place = f"p_{number:02d}.png", number % len(sizes)
        write_picture(tmp_path / "images" / name, number, size=sizes[place])
        write_mask(tmp_path / "masks" / name, number, size=mask_sizes[place])
    outcome = decide_folder(tmp_path, "Segment the nodule")
    assert outcome.kind == kind
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert masks.resized == (kind == "proposed")
    assert ("classes" in {assumption.kind for assumption in outcome.assumptions}) == (kind == "proposed")


@pytest.mark.parametrize(
    "notes",
    [
        "masks_v1: first try, WRONG, do not use\nmasks_v2: started, unfinished\nmasks_v2_final: corrected, use these",
        "Die Masken in masks_v1 bitte nicht verwenden. masks_v2 ist unvollständig.",
    ],
)
def test_folders_of_masks_that_notes_forbid_are_not_taken(tmp_path: Path, notes: str) -> None:
    (tmp_path / "README.txt").write_text(notes, encoding="utf-8")
    for number in range(30):
        write_picture(tmp_path / "images" / f"case{number:02d}.png", number)
        for shift, folder in enumerate(("masks_v1", "masks_v2", "masks_v2_final")):
            write_mask(tmp_path / folder / f"case{number:02d}.png", number, shift=shift)
    outcome = decide_folder(tmp_path, "Segment the placenta in ultrasound")
    assert outcome.kind == "proposed"
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    assert masks.files == "masks_v2_final/case{number1:number}.png"


def test_a_value_that_is_to_be_ignored_forbids_no_folder(tmp_path: Path) -> None:
    notes = "masks: 0 background, 1 cyst, 2 stone, 255 not annotated, to be ignored."
    (tmp_path / "README.txt").write_text(notes, encoding="utf-8")
    for number in range(30):
        write_picture(tmp_path / "images" / f"case{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"case{number:02d}.png", number, (1, 2, 255))
    masks = best_manifest(decide_folder(tmp_path, "Segment cysts and stones on ultrasound")).masks
    assert masks is not None
    assert sorted(code for codes in masks.classes.values() for code in codes) == [1, 2]


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        (["xmin", "ymin", "xmax", "ymax"], ["[{0}, 20]", "[{1}, 20]", "[{2}, 30]", "[{3}, 30]"]),
        (["xmin", "ymin", "width", "height"], ["{0}", "{1}", "9", "8"]),
        (["x", "y", "width", "height"], ["{0} 20", "{1} 20", "9 10", "8 10"]),
        (["bbox"], ["[[{0}, {1}, 9, 8], [20, 20, 10, 10]]"]),
    ],
)
def test_boxes_of_tables_are_executed_as_they_were_proposed(
    tmp_path: Path, header: list[str], cells: list[str]
) -> None:
    rows: list[list[object]] = [["image", *header, "finding"]]
    for number in range(30):
        write_picture(tmp_path / f"images/p{number:02d}.png", number)
        sides = (3 + number % 5, 4 + number % 7, 12 + number % 5, 12 + number % 7)
        rows.append([f"p{number:02d}.png", *(cell.format(*sides) for cell in cells), "nodule"])
    write_rows(tmp_path / "boxes.csv", rows)
    manifest = best_manifest(decide_folder(tmp_path, "Find nodules with boxes"))
    inventory = walk(tmp_path)
    executed = execute(manifest, inventory, name="data", work=tmp_path / "work", readers=FolderReaders(inventory))
    boxes = [len(record.boxes or ()) for record in (*executed.train, *executed.test)]
    assert boxes == [2 if any(mark in "".join(cells) for mark in "[ ") else 1] * 30
    first = next(record for record in (*executed.train, *executed.test) if "p00" in str(record.image))
    assert next(tuple(mark.box) for mark in first.boxes or ()) == (3, 4, 12, 12)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("organs.ctbl", "# Color table\n0 none 0 0 0 0\n2 pancreas 9 8 7 255\n5 stomach 1 2 3 255\n"),
        ("itksnap.label", '  2 9 0 0 1 1 1 "pancreas"\n 5 0 0 9 1 1 1 "stomach"\n'),
        ("organs.lsetp", '<LabelSet><Label id="2" name="pancreas"/><Label id="5" name="stomach"/></LabelSet>'),
        ("values.txt", "5 stomach\n2 pancreas\n"),
    ],
)
def test_label_files_name_the_values_of_masks(tmp_path: Path, name: str, text: str) -> None:
    for number in range(30):
        write_picture(tmp_path / f"scans/s{number:02d}.png", number)
        if number < 26:
            write_mask(tmp_path / f"labels/s{number:02d}.png", number, (2, 5))
    (tmp_path / name).write_text(text)
    outcome = decide_folder(tmp_path, "Segment stomach and pancreas")
    assert outcome.kind == "proposed"
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert masks.classes == {"pancreas": (2,), "stomach": (5,)}
    assert outcome.proposals[0].cases == 26


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["left lung", "right lung", "infection"], {"left lung": 1, "right lung": 2, "infection": 3}),
        (["background", "left lung", "right lung", "infection"], {"left lung": 1, "right lung": 2, "infection": 3}),
    ],
)
def test_a_list_of_names_counts_marks_from_one(tmp_path: Path, names: list[str], values: dict[str, int]) -> None:
    for number in range(20):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        write_mask(tmp_path / f"masks/{number:03d}.png", number, (1, 2, 3))
    (tmp_path / "labels.json").write_text(json.dumps(names))
    outcome = decide_folder(tmp_path, "Segment lung infection and the lungs on chest CT slices")
    masks = best_manifest(outcome).masks
    assert masks is not None
    assert {name: codes[0] for name, codes in masks.classes.items()} == values


def test_numbers_that_a_sample_of_masks_lacks_are_named_by_the_legend(tmp_path: Path) -> None:
    for number in range(60):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        write_mask(tmp_path / f"masks/{number:03d}.png", number, (1, 2, 28) if number == 59 else (1, 2))
    (tmp_path / "README.md").write_text("1-2 are C1-C2, and 28 is T13.\n")
    (tmp_path / "labels.json").write_text(json.dumps(["C1", "C2", "T13"]))
    masks = best_manifest(decide_folder(tmp_path, "Segment the vertebrae on spine CT")).masks
    assert masks is not None
    assert masks.classes == {"C1": (1,), "C2": (2,), "T13": (28,)}


def test_examples_in_a_request_leave_no_class_out(tmp_path: Path) -> None:
    for number in range(20):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        write_mask(tmp_path / f"masks/{number:03d}.png", number, (1, 2, 3))
    (tmp_path / "labels.json").write_text(json.dumps({"1": "liver", "2": "spleen", "3": "aorta"}))
    masks = best_manifest(
        decide_folder(tmp_path, "Segment abdominal organs such as liver and spleen on CT slices")
    ).masks
    assert masks is not None
    assert set(masks.classes) == {"liver", "spleen", "aorta"}
