"""Which files are the cases, which numbers are persons, and which tables are joined, on small folders."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest
from proposals_kit import decide_folder, write_mask, write_picture, write_rows

from m3b.dataset.proposals.image_sets import list_image_sets
from m3b.dataset.proposals.outcome import ManifestProposal
from m3b.dataset.proposals.roles import roles_of
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk

CHEST = "Classify chest X-rays as normal or pneumonia"


def propose(folder: Path, request: str) -> ManifestProposal:
    outcome = decide_folder(folder, request)
    assert outcome.kind == "proposed", outcome.question or outcome.refusal
    return outcome.proposals[0]


def test_numbers_that_start_anew_in_each_part_are_no_patients(tmp_path: Path) -> None:
    for part, count in (("train", 20), ("test", 8)):
        for number in range(count):
            label = ("normal", "pneumonia")[number % 2]
            write_picture(tmp_path / part / label / f"{part[:2]}_{number:03d}.png", number)
    proposal = propose(tmp_path, CHEST)
    assert proposal.cases == 28
    assert proposal.manifest.patient is None


def test_numbers_of_persons_with_an_image_of_each_eye_are_patients(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(40):
        name = f"{number // 2:03d}_{('left', 'right')[number % 2]}.png"
        write_picture(tmp_path / "images" / name, number)
        rows.append([name, ("glaucoma", "normal")[number // 2 % 2]])
    write_rows(tmp_path / "labels.csv", rows)
    proposal = propose(tmp_path, "Tell glaucoma from normal on fundus photographs")
    assert proposal.cases == 40
    assert not proposal.manifest.images.channels
    assert proposal.manifest.patient is not None
    assert proposal.manifest.patient.value == "{number1}"


def test_studies_within_persons_are_not_taken_as_persons(tmp_path: Path) -> None:
    number = 0
    for person in range(14):
        for study in range(1 + person % 2):
            for _ in range(2):
                folder = tmp_path / f"p{1000 + 37 * person}" / f"s{5000 + 11 * person + study}"
                label = ("normal", "pneumonia")[number % 2]
                write_picture(folder / f"{label}_{number:03d}.png", number)
                number += 1
    proposal = propose(tmp_path, CHEST)
    assert proposal.manifest.patient is not None
    assert proposal.manifest.patient.value in ("{number1}", "{folder0}")


def test_repeated_pictures_of_a_person_are_no_channels(tmp_path: Path) -> None:
    for number in range(36):
        label = ("benign", "malignant")[number // 3 % 2]
        write_picture(tmp_path / f"P{number // 3:03d}_{label}_{number % 3 + 1}.png", number)
    proposal = propose(tmp_path, "Tell benign from malignant lesions on ultrasound images")
    assert proposal.cases == 36


def test_two_views_at_two_times_are_no_slices(tmp_path: Path) -> None:
    for person in range(8):
        for view in ("2CH_ED", "2CH_ES", "4CH_ED", "4CH_ES"):
            name = f"patient{person:03d}_{view}"
            write_picture(tmp_path / f"patient{person:03d}" / f"{name}.png", person)
            write_mask(tmp_path / f"patient{person:03d}" / f"{name}_gt.png", person, (255,))
    proposal = propose(tmp_path, "Segment the left ventricle on echocardiography")
    assert proposal.cases == 32


def test_groups_of_one_kind_are_taken_together(tmp_path: Path) -> None:
    for number in range(20):
        label = ("good", "defective")[number % 2]
        write_picture(tmp_path / "test" / label / "img" / f"{number:03d}.png", number)
        write_picture(tmp_path / "train" / "good" / f"{number + 20:03d}.png", number + 20)
    assert propose(tmp_path, "Tell good from defective brain MRI slices").cases == 40


@pytest.mark.parametrize("step", [1, 2])
def test_a_table_of_persons_is_joined_by_way_of_a_table_of_images(tmp_path: Path, step: int) -> None:
    images: list[list[object]] = [["image", "patient"]]
    persons: list[list[object]] = [["patient", "label"]]
    for number in range(30):
        write_picture(tmp_path / "images" / f"im_{number:03d}.png", number)
        images.append([f"im_{number:03d}.png", f"PT{number // 2 * step:03d}"])
    persons += [[f"PT{person * step:03d}", ("benign", "malignant")[person % 2]] for person in range(15)]
    write_rows(tmp_path / "images.csv", images)
    write_rows(tmp_path / "labels.csv", persons)
    assert propose(tmp_path, "Tell benign from malignant lesions on mammograms").cases == 30


def test_a_form_of_answers_holds_no_labels(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / ("train" if number < 22 else "test") / f"{number:03d}.png", number)
    header: list[object] = ["id", "label"]
    write_rows(tmp_path / "train.csv", [header, *([f"{n:03d}", ("normal", "tumor")[n % 2]] for n in range(22))])
    write_rows(tmp_path / "sample_submission.csv", [header, *([f"{n:03d}", "tumor"] for n in range(22, 30))])
    assert propose(tmp_path, "Tell tumor from normal on histology tiles").cases == 22


def test_images_without_a_finding_are_kept_if_findings_are_looked_for(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "finding"]]
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", ("Atelectasis", "Effusion", "No Finding")[number % 3]])
    write_rows(tmp_path / "labels.csv", rows)
    assert propose(tmp_path, "Detect atelectasis and effusion on chest X-rays").cases == 30


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("Patientennummer", {"patient", "identifier"}),
        ("imageid", {"image", "identifier"}),
        ("Patientenalter", {"patient", "attribute"}),
        ("stethoscope", set()),
    ],
)
def test_compounds_have_the_roles_of_both_parts(name: str, roles: set[str]) -> None:
    assert roles_of(name) == roles


def test_the_plane_and_the_finding_that_the_request_names(tmp_path: Path) -> None:
    for number in range(26):
        part = "train" if number < 20 else "valid"
        for plane in ("axial", "coronal", "sagittal"):
            write_picture(tmp_path / part / plane / f"{number:04d}.png", number)
    for part, numbers in (("train", range(20)), ("valid", range(20, 26))):
        for place, finding in enumerate(("abnormal", "acl", "meniscus")):
            write_rows(tmp_path / f"{part}-{finding}.csv", [[f"{n:04d}", n >> place & 1] for n in numbers])
    proposal = propose(tmp_path, "Tell ACL tears on sagittal knee MRI")
    assert proposal.manifest.images.files == "*/sagittal/{number1:number}.png"
    assert proposal.classes == {"no acl": 14, "acl": 12}
    assert proposal.manifest.split.test == ("valid",)


def test_copies_of_images_are_left_out(tmp_path: Path) -> None:
    for number in range(30):
        label = ("cyst", "nodule")[number % 2]
        write_picture(tmp_path / label / f"{number:03d}.png", number)
        if number < 8:
            write_picture(tmp_path / "backup" / "old" / label / f"{number:03d}.png", number)
    proposal = propose(tmp_path, "Classify breast ultrasound images as cyst or nodule")
    assert proposal.cases == 30


def test_images_of_the_same_kind_and_target_are_not_left_out(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(60):
        name = f"scan_{number:03d}.png" if number < 40 else f"{number}-b.png"
        write_picture(tmp_path / ("first" if number < 40 else "second/more") / name, number)
        rows.append([name, ("cyst", "nodule")[number % 2]])
    write_rows(tmp_path / "labels.csv", rows)
    proposal = propose(tmp_path, "Classify breast ultrasound images as cyst or nodule")
    assert proposal.cases == 60


def test_the_main_sheet_of_a_workbook_comes_before_an_archive(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    main, archive = book.active, book.create_sheet("Archive")
    assert main is not None
    for sheet in (main, archive):
        sheet.append(["image", "bone density"])
    for number in range(60):
        write_picture(tmp_path / "images" / f"{number + 1:03d}.png", number)
        main.append([number + 1, 0.5 + number / 97])
        if number < 30:
            archive.append([number + 1, 0.7 + number / 83])
    book.save(tmp_path / "values.xlsx")
    proposal = propose(tmp_path, "Predict the bone density from X-rays")
    assert proposal.cases == 60
    assert not any(table.sheet for table in proposal.manifest.tables.values())


def test_patients_of_a_table_that_lacks_some_come_from_what_divides_the_images_alike(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label"]]
    overview: list[list[object]] = [["patient", "sex"]]
    for person in range(20):
        for view in range(2):
            name = f"MP{person * 37 + 100}_syn{person * 11 + view}.png"
            write_picture(tmp_path / "images" / name, 2 * person + view)
            rows.append([name, ("normal", "pneumonia")[person % 2]])
        if person % 7:
            overview.append([f"MP{person * 37 + 100}", "mf"[person % 3 == 0]])
    write_rows(tmp_path / "labels.csv", rows)
    write_rows(tmp_path / "overview.csv", overview)
    proposal = propose(tmp_path, CHEST)
    assert proposal.cases == 40
    assert proposal.manifest.patient is not None
    assert proposal.manifest.patient.value == "{number1}"


def _write_named_pictures(folder: Path, suffixes: dict[str, str]) -> list[list[object]]:
    """Write pictures with names of several styles, and return rows that name each."""
    rows: list[list[object]] = [["file", "finding"]]
    for number in range(40):
        name = ("Covid_site_A", "Regular-lung", "Pneu_north", "cov.atlas")[number % 4]
        path = folder / "clips" / f"{name}{'_x' * (number % 3)}_{number:02d}.png"
        write_picture(path, number)
        rows.append([path.name, ("covid", "healthy")[number // 2 % 2]])
    for number, (stem, suffix) in enumerate(suffixes.items(), 100):
        path = folder / "clips" / f"{stem}{suffix}"
        write_picture(path, number, size=(60, 60 + number))
        rows.append([path.name, ("covid", "healthy")[number % 2]])
    return rows


FURTHER_PICTURES = {"Cov-Atlas+(45)": ".gif", "alines mov": ".tif", "Butterfly 9 b": ".bmp"}


def test_pictures_of_several_formats_that_rows_name_belong_together(tmp_path: Path) -> None:
    rows = _write_named_pictures(tmp_path, FURTHER_PICTURES)
    write_rows(tmp_path / "table.csv", rows)
    outcome = decide_folder(tmp_path, "Tell covid from healthy lungs")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 43


def test_one_file_whose_number_is_in_another_column_does_not_join_the_table_of_all(tmp_path: Path) -> None:
    names = [*(f"clip_{number:02d}.png" for number in range(40)), "Atlas+(45).gif"]
    for number, name in enumerate(names):
        write_picture(tmp_path / "clips" / name, number)
    lengths = {7: "45", 9: "60"}
    rows = [[name, ("covid", "healthy")[at % 2], lengths.get(at, "")] for at, name in enumerate(names)]
    rows += [[f"elsewhere_{number}.png", "covid", ""] for number in range(300)]
    write_rows(tmp_path / "table.csv", [["file", "finding", "length"], *rows])
    inventory = walk(tmp_path)
    survey = survey_inventory(inventory, SurveyLimits())
    joins = tuple(join.model_copy(update={"chance": 0.0}) for join in survey.joins)
    image_sets = list_image_sets(survey.model_copy(update={"joins": joins}), inventory)
    keys = [item.tables["table"].key for item in image_sets if len(item.groups) > 1]
    assert keys == ["{file}"]


def test_pictures_in_other_folders_and_formats_are_no_further_cases(tmp_path: Path) -> None:
    rows = _write_named_pictures(tmp_path, FURTHER_PICTURES)
    for path in [path for path in (tmp_path / "clips").iterdir() if path.suffix != ".png"]:
        (tmp_path / "clips" / "uncertain").mkdir(exist_ok=True)
        path.rename(tmp_path / "clips" / "uncertain" / path.name)
    write_rows(tmp_path / "table.csv", rows)
    outcome = decide_folder(tmp_path, "Tell covid from healthy lungs")
    assert outcome.proposals[0].cases == 40


def test_pictures_of_other_formats_that_no_row_names_are_left_out(tmp_path: Path) -> None:
    rows = _write_named_pictures(tmp_path, FURTHER_PICTURES)
    write_rows(tmp_path / "table.csv", rows[:41])
    outcome = decide_folder(tmp_path, "Tell covid from healthy lungs")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 40
    assert len(outcome.proposals[0].manifest.images.patterns) == 1
