"""Folders of layouts that are rare, each of which was once read wrongly and accepted, or refused though it says all."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_dicom, write_mask, write_picture, write_rows


def write_smooth_picture(path: Path, seed: int, size: tuple[int, int]) -> Image.Image:
    """Write a smooth picture, of which smaller copies show the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 255, (5, 5), np.uint8)
    picture = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    picture.save(path)
    return picture


def test_previews_among_images_of_many_sizes_are_no_cases(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "report"]]
    for number in range(30):
        picture = write_smooth_picture(tmp_path / f"images/{number:03d}.png", number, (60 + number, 64 + number % 7))
        if number < 8:
            (tmp_path / "klein").mkdir(exist_ok=True)
            picture.resize((24, 24)).save(tmp_path / f"klein/{number:03d}.png")
        rows.append(
            [f"{number:03d}.png", f"The left lung shows {number} small nodules and no effusion on either side."]
        )
    write_rows(tmp_path / "reports.csv", rows)
    outcome = decide_folder(tmp_path, "Write the report of chest X-rays")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 30)
    assert all("klein" not in pattern for pattern in outcome.proposals[0].manifest.images.patterns)


def test_small_images_of_other_patients_are_no_copies(tmp_path: Path) -> None:
    for number in range(40):
        size = (60, 60) if number % 2 else (80, 80)
        write_smooth_picture(tmp_path / ("benign", "malignant")[number % 2] / f"{number // 2:03d}.png", number, size)
    outcome = decide_folder(tmp_path, "Classify skin lesions as benign or malignant")
    assert outcome.proposals[0].classes == {"benign": 20, "malignant": 20}


def test_a_test_on_a_part_that_the_labelled_images_do_not_have(tmp_path: Path) -> None:
    for number in range(40):
        folder = f"train/{('cyst', 'tumour')[number % 2]}" if number < 30 else "test"
        write_picture(tmp_path / folder / f"{number:03d}.png", number)
    request = "Classify kidney ultrasound as cyst or tumour."
    assert decide_folder(tmp_path, request).kind == "proposed"
    outcome = decide_folder(tmp_path, f"{request} Test it on the test part that the folder has.")
    assert outcome.question is not None
    assert outcome.question.code == "test_part_without_targets"


@pytest.mark.parametrize(
    ("request_text", "code"),
    [("Grade the severity on heart MRI", "target_not_marked"), ("Predict the sex from heart MRI", "")],
)
def test_a_column_about_the_person_is_no_grade(tmp_path: Path, request_text: str, code: str) -> None:
    rows: list[list[object]] = [["image", "patient", "sex", "scanner"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:03d}.png", number)
        rows.append([f"{number:03d}", f"{number + 1:04d}", "FM"[number % 2], "XYZ"[number % 3]])
    write_rows(tmp_path / "cases.csv", rows)
    outcome = decide_folder(tmp_path, request_text)
    assert (outcome.question.code if outcome.question else "") == code


def test_the_middle_of_a_word_is_not_all_of_the_key(tmp_path: Path) -> None:
    """A column of other images, which names each image once, comes after the column of the subject."""
    rows: list[list[object]] = [["subject", "slice", "diagnosis", "compared_with"]]
    for number in range(40):
        write_picture(tmp_path / f"images/S{number:02d}x_1.png", number)
        rows.append([f"S{number:02d}x", 1, ("cyst", "tumour")[number % 3 % 2], f"S{(number + 17) % 40:02d}x_1"])
    write_rows(tmp_path / "cases.csv", rows)
    manifest = decide_folder(tmp_path, "Classify kidney ultrasound as cyst or tumour").proposals[0].manifest
    assert (manifest.tables["cases"].key, manifest.tables["cases"].image) == ("{subject}", "S{number1}x")


def write_scouted_series(folder: Path, name: str, patient: int, n_slices: int, kind: str) -> None:
    for place in range(n_slices):
        tags = {
            "PatientID": "",
            "StudyInstanceUID": f"1.2.{name.partition('_scout')[0].replace('_', '')}1",
            "SeriesInstanceUID": f"1.2.3.{patient + 1}.{n_slices}.{len(name)}",
            "InstanceNumber": place + 1,
            "ImageType": ["ORIGINAL", "PRIMARY", kind],
            "ImagePositionPatient": [0, 0, place],
            "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
            "PixelSpacing": [1, 1],
        }
        write_dicom(folder / f"IM{place + 1:03d}.dcm", patient * 100 + n_slices * 10 + place, tags)


def test_scouts_of_some_patients_and_folders_that_two_columns_name(tmp_path: Path) -> None:
    rows: list[list[object]] = [["patient", "slice"]]
    for number in range(24):
        name, grade = f"{number // 2 + 1:04d}_{number % 2 + 1}", ("mild", "severe")[number // 2 % 2]
        write_scouted_series(tmp_path / grade / name, name, number, 5, "AXIAL")
        if number < 4:
            write_scouted_series(tmp_path / grade / f"{name}_scout", f"{name}_scout", number, 1, "LOCALIZER")
        rows.append([f"{number // 2 + 1:04d}", number % 2 + 1])
    write_rows(tmp_path / "cases.csv", rows)
    outcome = decide_folder(tmp_path, "Grade the severity on CT")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 24)
    manifest = outcome.proposals[0].manifest
    assert manifest.images.min_files == 2
    assert manifest.labels is not None
    assert list(manifest.labels.classes) == ["mild", "severe"]
    assert manifest.patient is not None
    assert manifest.patient.value == "{cases.patient}"


@pytest.mark.parametrize("name", ["{date}_{number:04d}/image.png", "{date}_{number:04d}.png"])
def test_dates_are_no_patients_and_no_classes(tmp_path: Path, name: str) -> None:
    for number in range(48):
        date = f"20{number % 12 + 10}-{number % 9 + 1:02d}-{number % 27 + 1:02d}"
        write_picture(tmp_path / "images" / name.format(date=date, number=number), number)
    write_rows(
        tmp_path / "age.csv", [["(id)", "age"], *[[f"{number:04d}", 20 + number * 7 % 60] for number in range(48)]]
    )
    outcome = decide_folder(tmp_path, "Predict the age from hand X-rays")
    assert outcome.proposals[0].manifest.patient is None
    assert decide_folder(tmp_path, "Grade the severity on hand X-rays").kind != "proposed"


def test_versions_of_masks_with_several_values_keep_the_legend(tmp_path: Path) -> None:
    for number in range(12):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        write_mask(tmp_path / f"masks/{number:03d}.png", number, (1, 2))
        write_mask(tmp_path / f"masks_auto/{number:03d}.png", number, (1, 2), shift=8)
    (tmp_path / "labels.txt").write_text("1 spleen\n2 kidney\n")
    best = decide_folder(tmp_path, "Segment the annotated structures on abdominal ultrasound").proposals[0]
    assert best.manifest.masks is not None
    assert best.manifest.masks.classes == {"spleen": (1,), "kidney": (2,)}


def test_a_legend_is_no_table_of_labels(tmp_path: Path) -> None:
    """The numbers of the images of a patient are no codes of grades, as long as nothing gives each image its grade."""
    for number in range(60):
        write_picture(tmp_path / f"images/S{number // 3 + 1:02d}_{number % 3 + 1}.png", number)
    (tmp_path / "classes.json").write_text(json.dumps({str(grade): f"{grade}/3" for grade in range(4)}))
    assert decide_folder(tmp_path, "Grade the severity on dental X-rays").kind != "proposed"


def test_a_label_beside_the_only_image_of_a_file(tmp_path: Path) -> None:
    for number in range(30):
        with h5py.File(tmp_path / f"case{number:03d}.h5", "w") as file:
            file["image"] = np.random.default_rng(number).integers(0, 255, (40, 48), np.uint8)
            file["label"] = number % 3
    (tmp_path / "classes.json").write_text(json.dumps({"0": "mild", "1": "moderate", "2": "severe"}))
    outcome = decide_folder(tmp_path, "Grade the severity on wrist X-rays")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"mild": 10, "moderate": 10, "severe": 10}


@pytest.mark.parametrize(("suffix", "kind"), [(".hdr", "ask"), (".png", "proposed")])
def test_few_pictures_of_volumes_that_are_not_there(tmp_path: Path, suffix: str, kind: str) -> None:
    rows: list[list[object]] = [["image", "report"]]
    for number in range(50):
        rows.append(
            [f"images/{number:03d}{suffix}", f"The heart is of size {number} and shows no effusion on either side."]
        )
    for number in range(50 if suffix == ".png" else 15):
        write_picture(tmp_path / f"{'images' if suffix == '.png' else 'vistas'}/{number:03d}.png", number)
    write_rows(tmp_path / "cases.csv", rows)
    outcome = decide_folder(tmp_path, "Write the report of heart MRI")
    assert outcome.kind == kind
    assert (outcome.question.code if outcome.question else "") == ("images_missing" if kind == "ask" else "")


def test_one_border_around_a_single_class_is_no_noise(tmp_path: Path) -> None:
    for number in range(12):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        mask = np.zeros((40, 48), np.uint8)
        mask[8:24, 10 + number : 26 + number] = 255
        mask[9:23, 11 + number : 25 + number] = 1
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.fromarray(mask).save(tmp_path / f"masks/{number:03d}.png")
    (tmp_path / "classes.json").write_text(json.dumps({"1": "fracture"}))
    best = decide_folder(tmp_path, "Segment the fracture on wrist X-rays").proposals[0]
    assert best.manifest.masks is not None
    assert (best.manifest.masks.classes, best.manifest.masks.void) == ({"fracture": (1,)}, (255,))


def test_files_that_list_the_findings_of_an_image(tmp_path: Path) -> None:
    for number in range(60):
        write_picture(tmp_path / f"{number:03d}.png", number)
        findings = [name for name, period in (("drusen", 2), ("edema", 3)) if number % period == 0]
        (tmp_path / f"{number:03d}.json").write_text(json.dumps({"labels": findings}))
    outcome = decide_folder(tmp_path, "Decide for each finding (drusen and edema) whether it is present on OCT images")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 60)
    assert outcome.proposals[0].classes == {"drusen": 30, "edema": 20}


@pytest.mark.parametrize("names", ["IMG_{:08x}", "scan_{:06d}", "case-{:x}a"])
def test_lists_of_names_without_suffix_are_a_split(tmp_path: Path, names: str) -> None:
    rows: list[list[object]] = [["filename", "label"]]
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for number in range(40):
        name = names.format(number * 7919 + 100)
        write_dicom(tmp_path / "images" / name, number, {})
        rows.append([name, ("cyst", "tumour")[number % 2]])
        lists["test" if number % 4 == 0 else "train"].append(name)
    write_rows(tmp_path / "cases.csv", rows)
    for side, image_names in lists.items():
        (tmp_path / f"{side}.txt").write_text("\n".join(image_names) + "\n")
    manifest = decide_folder(tmp_path, "Classify kidney CT as cyst or tumour").proposals[0].manifest
    assert manifest.split.value is not None
    assert (manifest.split.train, manifest.split.test) == (("train",), ("test",))


def test_lists_of_a_split_among_files_of_single_labels(tmp_path: Path) -> None:
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for number in range(40):
        name = write_id(number)
        write_picture(tmp_path / f"{name}.png", number)
        (tmp_path / f"{name}.txt").write_text(("cyst", "tumour")[number % 3 % 2])
        lists["test" if number % 4 == 0 else "train"].append(name)
    for side, image_names in lists.items():
        (tmp_path / f"{side}.txt").write_text("\n".join(image_names) + "\n")
    manifest = decide_folder(tmp_path, "Classify kidney ultrasound as cyst or tumour").proposals[0].manifest
    assert (manifest.split.train, manifest.split.test) == (("train",), ("test",))


@pytest.mark.parametrize(("shared", "code"), [(0, "split_not_used"), (15, "")])
def test_lists_that_cannot_be_used_are_asked_about(tmp_path: Path, shared: int, code: str) -> None:
    """Each file is one line; files that name the same images are no parts of a split."""
    names = [f"{number:03d}" for number in range(40)]
    for number, name in enumerate(names):
        write_picture(tmp_path / ("cyst", "tumour")[number % 2] / f"{name}.png", number)
    (tmp_path / "train.txt").write_text(" ".join(names[:30]))
    (tmp_path / "test.txt").write_text(" ".join(names[30 - shared :]))
    outcome = decide_folder(tmp_path, "Classify kidney ultrasound as cyst or tumour")
    assert (outcome.question.code if outcome.question else "") == code


def write_id(number: int) -> str:
    """Return eight hexadecimal digits, of which some are letters alone or digits alone in few of them."""
    return f"{(number + 1) * 0x9E3779B1 % 2**32:08x}"


def write_slices(folder: Path, seed: int, *, masks: bool = False) -> None:
    for number in range(6):
        write = write_mask if masks else write_picture
        write(folder / f"{number:03d}.png", seed * 10 + number)


def test_masks_in_folders_called_like_ids_and_a_structure(tmp_path: Path) -> None:
    """Some ids of letters and digits are digits alone."""
    for number in range(24):
        name = write_id(number) if number % 6 else f"{number * 104729 + 10_000_000}"
        write_slices(tmp_path / "train" / "images" / name, number)
        write_slices(tmp_path / "train" / "masks" / f"{name}_ventricle", number, masks=True)
    outcome = decide_folder(tmp_path, "Segment the ventricle on cardiac MRI")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 24)
    assert outcome.proposals[0].manifest.masks is not None
    assert outcome.proposals[0].manifest.masks.files == "train/masks/{text1}_ventricle/{number1:number}.png"


def test_masks_whose_names_tell_no_volumes_apart(tmp_path: Path) -> None:
    for number in range(60):
        side = ("train", "test")[number % 4 == 0]
        write_slices(tmp_path / side / "images" / write_id(number), number)
        write_slices(tmp_path / side / "masks" / f"{write_id(number + 500)}_ventricle", number, masks=True)
    outcome = decide_folder(tmp_path, "Segment the marked structures on cardiac MRI")
    assert (outcome.kind, outcome.proposals) == ("refuse", ())


def test_the_last_word_of_folders_of_slices_is_the_class(tmp_path: Path) -> None:
    for number in range(24):
        name = (
            f"20{10 + number % 9}-0{1 + number % 9}-{11 + number % 13}_{number:04d}_{('dru', 'norm')[number % 3 % 2]}"
        )
        write_slices(tmp_path / "images" / f"pat-{number}" / name, number)
    outcome = decide_folder(tmp_path, "Classify OCT volumes as drusen or normal")
    assert sorted(outcome.proposals[0].classes.values()) == [8, 16]
