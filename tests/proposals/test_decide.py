"""The decision about a folder and a request: what is proposed, asked and refused, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from proposals_kit import decide_folder, write_mask, write_picture, write_rows

from m3b.dataset.proposals import decide as decide_module
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.proposals.request import parse
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk


def test_class_folders_are_proposed(tmp_path: Path) -> None:
    for number in range(40):
        write_picture(tmp_path / ("pneumonia" if number % 2 else "normal") / f"img{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Classify pneumonia and normal chest X-rays")
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.classes == {"normal": 20, "pneumonia": 20}
    assert best.manifest.patient is None
    assert [doubt.code for doubt in best.doubts] == ["patients_unknown"]


def test_table_with_patients_and_split_is_proposed(tmp_path: Path) -> None:
    rows: list[list[object]] = [["file", "patient_id", "split", "diagnosis"]]
    for number in range(60):
        write_picture(tmp_path / "images" / f"scan_{number:03d}.png", number)
        patient = number // 3
        rows.append(
            [
                f"scan_{number:03d}.png",
                f"P{patient:02d}",
                "test" if patient % 4 == 0 else "train",
                "melanoma" if patient % 2 else "nevus",
            ]
        )
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify melanoma and nevus on dermoscopy")
    assert outcome.kind == "proposed"
    manifest = outcome.proposals[0].manifest
    assert manifest.labels is not None
    assert manifest.labels.value is not None
    assert manifest.labels.value.value == "{labels.diagnosis}"
    assert manifest.patient is not None
    assert manifest.patient.value == "{labels.patient_id}"
    assert manifest.split.value is not None
    assert manifest.split.value.value == "{labels.split}"
    assert manifest.split.test == ("test",)


def test_masks_are_paired_by_name(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"case{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"case{number:02d}_mask.png", number)
    outcome = decide_folder(tmp_path, "Segment polyps on endoscopy images")
    assert outcome.kind == "proposed"
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    assert len(masks.classes) == 1
    assert outcome.proposals[0].cases == 30


def test_two_readers_of_equal_standing_are_asked_about(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label_reader1", "label_reader2"]]
    for number in range(60):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", ("cyst", "nodule")[number % 2], ("cyst", "nodule")[(number // 3) % 2]])
    write_rows(tmp_path / "readers.csv", rows)
    outcome = decide_folder(tmp_path, "Classify breast ultrasound images as cyst or nodule")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "rival"
    assert len(outcome.question.options) >= 2


def test_columns_that_say_the_same_are_no_rivals(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label", "diagnosis"]]
    for number in range(60):
        name = ("benign", "malignant")[number % 2]
        write_picture(tmp_path / name / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", name, name])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify breast ultrasound images as benign or malignant")
    assert outcome.kind == "proposed"


def test_images_without_targets_are_refused(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Segment the liver on CT")
    assert outcome.kind == "refuse"
    assert outcome.refusal is not None
    assert outcome.refusal.code == "no_targets"


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "labels.csv", [["image", "label"], ["a.png", "x"]])
    outcome = decide_folder(tmp_path, "Classify nodules on chest CT")
    assert outcome.kind == "refuse"
    assert outcome.refusal is not None
    assert outcome.refusal.code == "no_images"


def test_classes_that_the_folder_lacks_are_no_proposal(tmp_path: Path) -> None:
    for number in range(40):
        write_picture(tmp_path / ("melanoma", "nevus")[number % 2] / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Classify pneumonia, tuberculosis and normal on chest X-rays")
    assert outcome.kind in ("ask", "refuse")


def test_a_test_part_without_labels_is_left_out(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(60):
        part = "test" if number % 4 == 0 else "train"
        write_picture(tmp_path / part / f"{number:03d}.png", number)
        if part == "train":
            rows.append([f"{number:03d}.png", ("cyst", "nodule")[(number // 5) % 2]])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    best = outcome.proposals[0]
    assert "test_part_without_targets" not in [doubt.code for doubt in best.doubts]
    assert "unexplained_exclusions" not in [doubt.code for doubt in best.doubts]
    assert best.manifest.split.value is None
    assert best.cases == 45
    assert "hidden_test" in [evidence.code for evidence in best.evidence]


def test_a_wish_for_that_test_part_is_asked_about(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(60):
        part = "test" if number % 4 == 0 else "train"
        write_picture(tmp_path / part / f"{number:03d}.png", number)
        if part == "train":
            rows.append([f"{number:03d}.png", ("cyst", "nodule")[(number // 5) % 2]])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(
        tmp_path, "Classify ultrasound images as cyst or nodule. Test it on the test part that the folder has."
    )
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert "test_part_without_targets" in [doubt.code for doubt in outcome.proposals[0].doubts]


def test_mask_values_take_the_names_of_a_legend(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"{number:02d}.png", number, (1, 2))
    (tmp_path / "classes.json").write_text(json.dumps({"1": "spleen", "2": "liver"}))
    outcome = decide_folder(tmp_path, "Segment liver and spleen on CT slices")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].manifest.masks is not None
    assert outcome.proposals[0].manifest.masks.classes == {"spleen": (1,), "liver": (2,)}
    assert "classes" not in [assumption.kind for assumption in outcome.assumptions]


def test_the_order_of_the_request_is_an_assumption(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"{number:02d}.png", number, (1, 2))
    outcome = decide_folder(tmp_path, "Segment liver and spleen on CT slices")
    assert outcome.kind == "proposed"
    assert outcome.assumptions[0].kind == "classes"


def test_values_that_nothing_names_are_asked_about(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"{number:02d}.png", number, (1, 4))
    outcome = decide_folder(tmp_path, "Segment liver and spleen on CT slices")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "legend_not_applied"


def test_two_masks_of_different_observers_are_rivals(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:02d}.png", number)
        write_mask(tmp_path / "reader_a" / f"{number:02d}.png", number)
        write_mask(tmp_path / "reader_b" / f"{number:02d}.png", number, shift=1)
    outcome = decide_folder(tmp_path, "Segment vessels on fundus photographs")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "rival"
    titles = [proposal.title for proposal in outcome.proposals]
    assert any("reader_a" in title for title in titles)
    assert any("reader_b" in title for title in titles)


def test_detect_means_labels_if_the_folder_has_nothing_else(tmp_path: Path) -> None:
    """A request for detection may be for places or for labels: tasks without any target in the folder do not count."""
    rows = ["image,patient,finding"]
    for at in range(40):
        write_picture(tmp_path / f"images/c{at:03d}.png", at)
        rows.append(f"c{at:03d}.png,P{at // 2},{('clear', 'opacity')[at % 3 == 0]}")
    (tmp_path / "cases.csv").write_text("\n".join(rows))
    outcome = decide_folder(tmp_path, "Build a model that detects lung opacities on chest X-rays")
    assert (outcome.kind, outcome.task) == ("proposed", "diagnosis")


def test_folders_are_no_volumes_if_each_class_had_one_case(tmp_path: Path) -> None:
    for letter in "abcdefghijklmno":
        for at in range(20):
            write_picture(tmp_path / f"type_{letter}/p{at:04d}.png", at, size=(24, 24))
    outcome = decide_folder(tmp_path, "Classify the tissue into its 15 types")
    assert outcome.proposals[0].cases == 300


def test_images_that_do_not_open_are_no_missing_images(tmp_path: Path) -> None:
    for at in range(12):
        (tmp_path / "scans").mkdir(exist_ok=True)
        (tmp_path / f"scans/s{at:02d}.png").write_bytes(b"\x89PNG\r\n\x1a\nno picture")
    refusal = decide_folder(tmp_path, "Tell ill from well on chest X-rays").refusal
    assert refusal is not None
    assert refusal.code == "no_image_opens"
    assert "scans/s" in refusal.message


def test_copies_in_two_formats_are_one_reading(tmp_path: Path) -> None:
    for at in range(20):
        write_picture(tmp_path / f"PNG/Original/{at}.png", at)
        write_mask(tmp_path / f"PNG/Ground Truth/{at}.png", at)
        for folder in ("Original", "Ground Truth"):
            (tmp_path / "TIF" / folder).mkdir(parents=True, exist_ok=True)
            with Image.open(tmp_path / f"PNG/{folder}/{at}.png") as picture:
                picture.save(tmp_path / f"TIF/{folder}/{at}.tif")
    outcome = decide_folder(tmp_path, "Segment polyps in colonoscopy images")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 20)


def test_pictures_of_equal_names_that_differ_are_rivals_and_say_how(tmp_path: Path) -> None:
    for at in range(20):
        write_picture(tmp_path / f"scanner_a/{at}.png", at)
        write_picture(tmp_path / f"scanner_b/{at}.tif", at + 100)
        write_mask(tmp_path / f"masks/{at}.png", at)
    outcome = decide_folder(tmp_path, "Segment polyps in colonoscopy images")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert len(set(outcome.question.options)) == len(outcome.question.options) >= 2
    assert {name for name in ("scanner_a", "scanner_b") if name in outcome.question.options[0]}


def test_the_part_for_validation_is_the_test_if_there_is_no_other(tmp_path: Path) -> None:
    for part, count in (("train", 24), ("valid", 12)):
        for at in range(count):
            side = ("negative", "positive")[at % 2]
            write_picture(tmp_path / f"{part}/p{part[0]}{at:03d}/study1_{side}/image1.png", at)
    outcome = decide_folder(tmp_path, "Detect abnormal wrists: tell positive from negative studies on X-rays")
    assert outcome.kind == "proposed"
    manifest = outcome.proposals[0].manifest
    assert (manifest.split.train, manifest.split.test) == (("train",), ("valid",))
    assert outcome.proposals[0].classes == {"negative": 18, "positive": 18}


def test_lists_of_a_split_beside_a_document(tmp_path: Path) -> None:
    rows: list[list[object]] = [["Image Index", "Finding"]]
    names = [f"{number // 2:08d}_{number % 2:03d}.png" for number in range(40)]
    for number, name in enumerate(names):
        write_picture(tmp_path / f"images/{name}", number)
        rows.append([name, ("Effusion", "Nodule")[number // 2 % 2]])
    write_rows(tmp_path / "Data_Entry.csv", rows)
    (tmp_path / "README_SET.txt").write_text("A set of chest films.\n\nThe labels were read by two persons.\n")
    (tmp_path / "train_val_list.txt").write_text("\n".join(names[:30]))
    (tmp_path / "test_list.txt").write_text("\n".join(names[30:]))
    best = decide_folder(tmp_path, "Tell effusion from nodule on chest X-rays").proposals[0]
    assert best.manifest.split.value is not None
    assert best.manifest.split.test == ("test_list.txt",)


@pytest.mark.parametrize(
    ("request_text", "task"),
    [
        ("Bestimme den Schweregrad auf CT-Aufnahmen (Abdomen)", "grading"),
        ("Determinar la gravedad en imágenes de TC", "grading"),
        ("Bestimme das Volumen auf CT-Aufnahmen (Abdomen)", "regression"),
        ("Predict the survival of high-grade gliomas", "survival"),
        ("Predict how long patients with glioma live", "survival"),
    ],
)
def test_the_task_that_words_of_grades_and_numbers_mean(request_text: str, task: str) -> None:
    assert next(iter(parse(request_text).tasks)) == task


def test_a_stone_is_no_order_to_calculate() -> None:
    request = parse("Détecter kyste et calcul avec des boîtes englobantes sur les images de scanner CT (abdomen)")
    assert request.claims.targets == ("kyste", "calcul")
    assert not request.claims.second_half


def _fail_for(name: str, error: type[Exception]) -> Callable[..., Any]:
    """Return `measure`, which raises an error for targets whose title has a name."""
    measure = decide_module.measure

    def fail(candidate: Any, *arguments: Any) -> Any:
        if name in candidate.target.title:
            raise error("no such thing")
        return measure(candidate, *arguments)

    return fail


def _decide_two_columns(folder: Path) -> Outcome:
    rows: list[list[object]] = [["image", "label", "colour"]]
    for number in range(40):
        write_picture(folder / "images" / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", ("cyst", "nodule")[number % 2], ("red", "blue")[number // 3 % 2]])
    write_rows(folder / "labels.csv", rows)
    inventory = walk(folder)
    request = parse("Classify ultrasound images as cyst or nodule")
    return decide_module.decide(survey_inventory(inventory, SurveyLimits()), inventory, request)


def test_a_candidate_that_cannot_be_executed_is_discarded_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide_module, "measure", _fail_for("colour", ZeroDivisionError))
    outcome = _decide_two_columns(tmp_path)
    assert outcome.kind == "proposed"
    failures = [fact for fact in outcome.proposals[0].evidence if fact.code == "candidate_failed"]
    assert ["ZeroDivisionError" in failure.message for failure in failures] == [True]


def test_a_folder_of_which_no_candidate_can_be_executed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide_module, "measure", _fail_for("", ZeroDivisionError))
    outcome = _decide_two_columns(tmp_path)
    assert outcome.kind == "refuse"
    assert outcome.refusal is not None
    assert "ZeroDivisionError" in outcome.refusal.message


def test_targets_that_cannot_be_listed_do_not_end_the_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise KeyError("column")

    monkeypatch.setitem(decide_module.TARGET_LISTS, "grading", (fail,))
    monkeypatch.setitem(decide_module.TARGET_LISTS, "diagnosis", (fail, *decide_module.TARGET_LISTS["diagnosis"]))
    outcome = _decide_two_columns(tmp_path)
    assert outcome.kind == "proposed"
    assert "candidate_failed" in [fact.code for fact in outcome.proposals[0].evidence]


def test_want_of_memory_ends_the_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide_module, "measure", _fail_for("", MemoryError))
    with pytest.raises(MemoryError):
        _decide_two_columns(tmp_path)


@pytest.mark.parametrize(
    ("files", "expected_text"), [((), "no files"), (("README.md",), "README.md"), (("a.md", "b.md"), "2")]
)
def test_a_folder_without_images_is_refused_with_what_is_there(
    tmp_path: Path, files: tuple[str, ...], expected_text: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("Notes of a study.")
    refusal = decide_folder(tmp_path, "Grade retinopathy").refusal
    assert refusal is not None
    assert refusal.code == "no_images"
    assert expected_text in refusal.message


def test_a_refusal_names_the_column_that_comes_nearest(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "grade"]]
    for number in range(60):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", number * 7 % 5])
    write_rows(tmp_path / "table.csv", rows)
    outcome = decide_folder(tmp_path, "Klassifiziere Retinopathie")
    assert outcome.refusal is not None
    assert outcome.refusal.code == "no_targets"
    assert "{table.grade}" in outcome.refusal.message
