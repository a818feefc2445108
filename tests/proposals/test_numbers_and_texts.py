"""Numbers to estimate and reports to write: which columns come into question."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from proposals_kit import decide_folder, list_targets, write_dicom, write_picture, write_rows

from m3b.dataset.manifest.resolve import resolve
from m3b.dataset.survey.walk import walk


def test_a_number_that_differs_in_nearly_every_image(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "bone density (g/cm2)"]]
    for number in range(120):
        write_picture(tmp_path / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", f"{0.5 + number * 0.0071:.3f}"])
    write_rows(tmp_path / "values.csv", rows)
    titles = list_targets(tmp_path, "Predict the bone density from forearm X-rays", "regression")
    assert "numbers by {values.bone density (g/cm2)}" in titles


@pytest.mark.parametrize("stem", ["pat{0}_{1}", "img{0}{1:03d}", "scan-{0}-{1}"])
def test_a_number_in_a_file_beside_each_image_is_not_taken_for_what_the_images_are_called(
    tmp_path: Path, stem: str
) -> None:
    for number in range(60):
        name = stem.format(number // 3 + 1, number + 1)
        write_picture(tmp_path / "images" / f"{name}.png", number)
        (tmp_path / "images" / f"{name}.txt").write_text(f"{40 + number * 7.3 % 50:.1f}\n", encoding="utf-8")
    outcome = decide_folder(tmp_path, "Predict the volume (ml) from cardiac MRI")
    assert (outcome.kind, outcome.task) == ("proposed", "regression")
    assert outcome.proposals[0].manifest.value.value.value.endswith(".text}")


def test_a_number_in_names_beside_ids_of_letters_and_digits(tmp_path: Path) -> None:
    for number in range(60):
        part = "training" if number % 4 else "testing"
        name = hashlib.sha1(bytes([number])).hexdigest()[:10]
        write_picture(tmp_path / f"{name}_age{20 + number * 7 % 50}_{part}.png", number)
    outcome = decide_folder(tmp_path, "Predecir: edad, a partir de imágenes de radiografía (mano)")
    assert (outcome.kind, outcome.task) == ("proposed", "regression")
    proposal = outcome.proposals[0]
    assert proposal.manifest.value.value.value == "{number1}"
    assert "groups_cross_split" not in {doubt.code for doubt in proposal.doubts}


def test_a_number_in_names_that_the_request_calls_by_its_name(tmp_path: Path) -> None:
    for number in range(60):
        write_picture(tmp_path / f"P{number:03d}_im{number + 7}_score{number * 7 % 23}.png", number)
    outcome = decide_folder(tmp_path, "Prédire : score (points), à partir des images de radiographie (dents)")
    assert outcome.proposals[0].manifest.value is not None
    assert outcome.proposals[0].manifest.value.value.value == "{number3}"
    assert outcome.proposals[0].manifest.value.title == "score"


def test_a_number_to_estimate_in_names_does_not_hide_the_persons(tmp_path: Path) -> None:
    for image in range(115):
        person, place = divmod(image, 3)
        write_picture(tmp_path / f"S{person:02d}x_{place + 1}_age{20 + image * 37 % 67}.png", image)
    manifest = decide_folder(tmp_path, "Predict the age (years) from dermoscopy images").proposals[0].manifest
    assert manifest.value is not None
    assert manifest.value.value.value == "{number3}"
    assert manifest.patient is not None
    assert manifest.patient.value == "{number1}"


def test_images_of_a_study_have_its_report(tmp_path: Path) -> None:
    rows: list[list[object]] = [["study", "history", "findings"]]
    for study in range(24):
        for view in range(3):
            write_picture(tmp_path / "images" / f"S{study:03d}_v{study * 3 + view}.png", study * 3 + view)
        history = f"cough and fever for {study} days now"
        rows.append([f"S{study:03d}", history, f"The lungs show {study} small nodules on the left side."])
    write_rows(tmp_path / "reports.csv", rows)
    best = decide_folder(tmp_path, "Write the findings of chest X-ray images").proposals[0]
    assert best.manifest.report is not None
    assert best.manifest.report.findings is not None
    assert best.manifest.report.findings.value == "{reports.findings}"
    assert best.manifest.images.several == "views"
    assert best.cases == 24


def test_times_and_events_are_what_survival_asks_for(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "survival_months", "death"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:02d}.png", number)
        rows.append([f"{number:02d}.png", 3 + number * 7 % 50, number % 2])
    write_rows(tmp_path / "follow_up.csv", rows)
    outcome = decide_folder(tmp_path, "根据腹部CT扫描预测总生存期")
    assert [doubt.code for doubt in outcome.proposals[0].doubts] == ["patients_unknown"]


@pytest.mark.parametrize(
    ("request_text", "sections"),
    [
        ("Write reports for chest X-rays", ("findings", "impression")),
        ("Write the findings and impression of chest X-rays", ("findings", "impression")),
        ("Write the impression of chest X-rays", ("impression",)),
    ],
)
def test_the_sections_of_a_report_that_are_asked_for(
    tmp_path: Path, request_text: str, sections: tuple[str, ...]
) -> None:
    rows: list[list[object]] = [["image", "findings", "impression"]]
    for number in range(14):
        write_picture(tmp_path / f"film_{number:02d}.png", number)
        text = f"The heart is of size {number} and the lungs are clear on both sides, without any effusion at all."
        rows.append([f"film_{number:02d}.png", text, f"Nothing acute in study number {number}, follow up if needed."])
    write_rows(tmp_path / "reports.csv", rows)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    report = outcome.proposals[0].manifest.report
    assert report is not None
    sources = {source.value for source in (report.findings, report.impression) if source is not None}
    assert sources == {f"{{reports.{section}}}" for section in sections}


def test_numbers_that_count_the_images_of_each_part_are_no_patients(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "age"]]
    for part, count in (("train", 18), ("test", 8)):
        for number in range(count):
            write_picture(tmp_path / f"{part}_{number:02d}.png", number)
            rows.append([f"{part}_{number:02d}.png", 40 + number * 7 % 31])
    write_rows(tmp_path / "ages.csv", rows)
    outcome = decide_folder(tmp_path, "Estimate the age from chest X-rays")
    assert outcome.proposals[0].manifest.patient is None
    assert outcome.proposals[0].cases == 26


def test_of_two_columns_of_one_name_the_one_for_all_images_is_taken(tmp_path: Path) -> None:
    rows: dict[str, list[list[object]]] = {
        "first": [["Bild-Nr.", "Dichte", "Alter"]],
        "second": [["Bild-Nr.", "Dichte", "Hersteller"]],
    }
    for number in range(1, 41):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        rows["first"].append([number, f"{0.4 + number * 0.013 % 0.9:.3f}", 40 + number % 17])
        if number % 2:
            rows["second"].append([number, f"{0.8 + number * 0.021 % 0.5:.3f}", "Osteo"])
    for name, lines in rows.items():
        write_rows(tmp_path / f"{name}.csv", lines)
    outcome = decide_folder(tmp_path, "Predict the density (Dichte) from forearm X-rays")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 40
    assert outcome.proposals[0].manifest.value is not None
    assert outcome.proposals[0].manifest.value.value.value == "{first.Dichte}"


def test_a_number_in_the_comments_of_a_header(tmp_path: Path) -> None:
    for number in range(30):
        write_dicom(tmp_path / f"{number:02d}.dcm", number, {"ImageComments": f"{0.4 + number * 7 % 30 / 20:.2f}"})
    outcome = decide_folder(tmp_path, "Predict the bone density on wrist CT")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].manifest.value.value.value == "{tag.ImageComments}"


def test_initials_of_the_request_name_a_column(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "ESV", "EDV", "EF"]]
    for number in range(90):
        write_picture(tmp_path / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", 30 + number % 31, 90 + number % 37, 40 + number % 29])
    write_rows(tmp_path / "values.csv", rows)
    outcome = decide_folder(tmp_path, "Estimate the ejection fraction from an apical four-chamber echo still.")
    assert outcome.kind == "proposed"
    manifest = outcome.proposals[0].manifest
    assert manifest.value is not None
    assert manifest.value.value.value == "{values.EF}"


def test_numbers_in_another_unit_than_requested_are_no_target(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "Height (cm)", "Weight (kg)"]]
    for number in range(40):
        write_picture(tmp_path / f"hands/{number:03d}.png", number)
        rows.append([f"{number:03d}.png", 90 + number * 2, 12 + number])
    write_rows(tmp_path / "children.csv", rows)
    outcome = decide_folder(tmp_path, "Predict the bone age in months from X-rays of the hand")
    assert outcome.kind != "proposed"
    assert not any("Height" in str(item.manifest.value) for item in outcome.proposals)


@pytest.mark.parametrize(("column", "kind"), [("smoker", "ask"), ("silicosis", "proposed"), ("finding", "proposed")])
def test_yes_and_no_of_a_persons_habits_is_no_finding(tmp_path: Path, column: str, kind: str) -> None:
    rows: list[list[object]] = [["image", "age", column]]
    for number in range(40):
        write_picture(tmp_path / f"films/{number:03d}.png", number)
        rows.append([f"{number:03d}.png", 40 + number % 17, ("yes", "no")[number % 3 == 0]])
    write_rows(tmp_path / "miners.csv", rows)
    assert decide_folder(tmp_path, "Detect silicosis on chest X-rays").kind == kind


@pytest.mark.parametrize(
    ("text", "kind"), [("NA", "proposed"), ("n/a", "proposed"), ("?", "proposed"), ("tba soon", "ask")]
)
def test_texts_for_unknown_numbers_are_blank_cells(tmp_path: Path, text: str, kind: str) -> None:
    rows: list[list[object]] = [["scan", "OS_months", "OS_event", "PFS_months", "HPV"]]
    for number in range(40):
        write_picture(tmp_path / f"scans/{number:03d}.png", number)
        rows.append([f"{number:03d}.png", text if number % 20 == 3 else 3 + number * 7 % 60])
        rows[-1] += [text if number % 20 == 3 else number % 2, 2 + number * 5 % 40, ("pos", "neg")[number // 2 % 2]]
    write_rows(tmp_path / "clinical.csv", rows)
    outcome = decide_folder(tmp_path, "Predict overall survival of head and neck cancer patients from the planning CT")
    assert (outcome.task, outcome.kind) == ("survival", kind)
    survival = outcome.proposals[0].manifest.survival
    assert survival is not None
    assert kind == "ask" or (survival.time.value.value, survival.time.unit, survival.event.value) == (
        "{clinical.OS_months}",
        "months",
        "{clinical.OS_event}",
    )


def test_ages_in_years_and_months_are_numbers_of_the_requested_unit(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "age", "bone age"]]
    for number in range(50):
        write_picture(tmp_path / f"hand{number:02d}.png", number)
        years, months = 4 + number % 13, number % 12
        text = f"{years} y {months} mo" if months else f"{years} y"
        rows.append([f"hand{number:02d}", f"{5 + number % 11} y 1 mo", "not assessable" if number == 7 else text])
    write_rows(tmp_path / "ages.csv", rows)
    outcome = decide_folder(tmp_path, "Estimate the bone age in months on hand radiographs")
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.manifest.value is not None
    assert (best.manifest.value.value.value, best.manifest.value.unit) == ("{ages.bone age}", "months")
    assert best.cases == 49
    frame = resolve(best.manifest, walk(tmp_path)).frame
    assert frame["number"].to_list()[:2] == [48, 61]


@pytest.mark.parametrize(("n_bounds", "kind"), [(2, "proposed"), (30, "ask")])
def test_cells_that_state_a_bound_are_no_numbers(tmp_path: Path, n_bounds: int, kind: str) -> None:
    rows: list[list[object]] = [["image", "age"]]
    for number in range(40):
        write_picture(tmp_path / f"scan{number:02d}.png", number)
        rows.append([f"scan{number:02d}", "89+" if number < n_bounds else f"{20 + number * 1.3:.1f}"])
    write_rows(tmp_path / "ages.csv", rows)
    outcome = decide_folder(tmp_path, "Predict the age from the picture of the retina")
    assert outcome.kind == kind
    assert kind == "ask" or outcome.proposals[0].cases == 38


@pytest.mark.parametrize(
    ("request_text", "column", "values", "task"),
    [
        ("Grade diabetic retinopathy on fundus photographs", "grade", [0, 1, 2, 3, 4], "grading"),
        ("Grade diabetic retinopathy on fundus photographs", "level", [0, 1, 2, 3, 4], "grading"),
        ("Grade diabetic retinopathy on fundus photographs", "diagnosis", [0, 1, 2, 3, 4], "grading"),
        ("Grade knee osteoarthritis (Kellgren-Lawrence)", "KL", [0, 1, 2, 3, 4], "grading"),
        ("Score the severity of psoriasis", "severity", list(range(11)), "grading"),
        ("Score the severity of psoriasis", "severity", list(range(0, 69, 4)), "regression"),
        ("Grade the severity of psoriasis as a number", "severity", list(range(5)), "regression"),
        ("Estimate the ejection fraction", "ejection_fraction", [value + 0.5 for value in range(20, 75)], "regression"),
        ("Predict bone age in months", "boneage", list(range(10, 220, 3)), "regression"),
        ("Count the lesions", "lesions", list(range(6)), "regression"),
    ],
)
def test_levels_of_a_grade_are_classes_and_measured_values_numbers(
    tmp_path: Path, request_text: str, column: str, values: list[float], task: str
) -> None:
    rows: list[list[object]] = [["image", column]]
    for number in range(140):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", values[number * 7 % len(values)]])
    write_rows(tmp_path / "table.csv", rows)
    outcome = decide_folder(tmp_path, request_text)
    assert (outcome.kind, outcome.task) == ("proposed", task)


@pytest.mark.parametrize(
    ("column", "request_text", "title", "unit", "n_assumed"),
    [
        ("bone_age_months", "Predict the bone age of hand radiographs", "bone age", "months", 0),
        ("bone_age_months", "Predict the bone age in years of hand radiographs", "bone age", "months", 1),
        ("bone_age", "Predict the bone age (months) of hand radiographs", "bone age", "months", 0),
        ("BMD (g/cm2)", "Predict the BMD of hand radiographs", "BMD", "g/cm2", 0),
        ("density", "Predict the density of hand radiographs", "density", "", 0),
    ],
)
def test_a_number_is_called_by_the_words_of_its_column_and_has_its_unit(
    tmp_path: Path, column: str, request_text: str, title: str, unit: str, n_assumed: int
) -> None:
    rows: list[list[object]] = [["image", column]]
    for number in range(60):
        write_picture(tmp_path / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", 20 + number * 7 % 97])
    write_rows(tmp_path / "values.csv", rows)
    outcome = decide_folder(tmp_path, request_text)
    proposal = outcome.proposals[0]
    assert proposal.manifest.value is not None
    assert (proposal.manifest.value.title, proposal.manifest.value.unit) == (title, unit)
    assert len([item for item in outcome.assumptions if "not converted" in item.message]) == n_assumed


def test_a_survival_is_called_as_the_request_calls_it(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "os_months", "event"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:02d}.png", number)
        rows.append([f"{number:02d}.png", 3 + number * 7 % 50, number % 2])
    write_rows(tmp_path / "follow_up.csv", rows)
    survival = decide_folder(tmp_path, "Predict the overall survival on chest CT").proposals[0].manifest.survival
    assert survival is not None
    assert (survival.time.title, survival.time.unit) == ("overall survival", "months")


def test_patches_of_a_slide_stay_together(tmp_path: Path) -> None:
    rows: list[list[object]] = [["patch", "wsi", "label"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", f"slide_{number // 4}", ("normal", "tumour")[number % 2]])
    write_rows(tmp_path / "patches.csv", rows)
    patient = decide_folder(tmp_path, "Tell tumour from normal tissue").proposals[0].manifest.patient
    assert patient is not None
    assert patient.value == "{patches.wsi}"
