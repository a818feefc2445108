"""The task families: one answer measured, the trivial answer, the score."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from m3b.data.index import Index
from m3b.data.records import BoxLabel, Record, Report
from m3b.errors import ModelError
from m3b.metrics import judge
from m3b.models import DetectedBox, Prediction
from m3b.tasks import get_default_metric, get_family, list_families
from m3b.tasks.detection.family import find_best_boxes

AFFINE = np.diag([-1.0, 2.0, 3.0, 1.0])
VALUES = {"core": 2, "rim": 5}


def ball(at: tuple[int, int, int], size: int = 3) -> np.ndarray:
    """A labelled volume in the file's own axes: a core of 2 in a rim of 5."""
    place = np.indices((12, 14, 10)) - np.array(at)[:, None, None, None]
    far = np.abs(place).max(axis=0)
    return np.where(far < size - 1, 2, np.where(far < size, 5, 0)).astype(np.uint8)


def write(file: Path, array: np.ndarray, affine: np.ndarray = AFFINE) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, affine), file)
    return str(file)


@pytest.fixture
def organs(tmp_path: Path) -> Index:
    """Eight volumes whose structures lie at different places, by another number for each patient."""
    records = []
    for number in range(8):
        array = ball((3 + number % 5, 5 + number % 4, 4))
        write(tmp_path / f"data/o/i{number}.nii.gz", array.astype(np.int16) * 10)
        write(tmp_path / f"data/o/m{number}.nii.gz", array)
        records.append(Record(f"data/o/i{number}.nii.gz", patient=f"p{number}", mask=f"data/o/m{number}.nii.gz"))
    return Index(tuple(records[:5]), tuple(records[5:]), ("core", "rim"), "segmentation", VALUES)


def test_a_perfect_segmentation_beats_the_mean_shape(organs: Index, tmp_path: Path) -> None:
    of_task = get_family("segmentation")
    answers = [Prediction(r.image, mask=tmp_path / str(r.mask)) for r in organs.test]
    rows = [of_task.measure(r, a, organs, tmp_path) for r, a in zip(organs.test, answers, strict=True)]
    trivial = of_task.predict_baseline(organs.train, organs.test, organs, tmp_path)
    scores = of_task.score(
        json.loads(json.dumps(rows)), organs, primary="dice", baseline=json.loads(json.dumps(trivial))
    )
    assert scores.primary.value == 1.0
    assert 0.0 < scores.primary.baseline < 0.9
    assert scores.metrics["hd95"].value == 0.0
    assert [label.name for label in scores.per_label] == ["core", "rim"]
    assert scores.details["baseline"] == "mean shape"
    assert scores.details["distance_unit"] == "mm"


def test_distances_of_pictures_are_in_pixels(tmp_path: Path) -> None:
    records = []
    for number in range(3):
        for name, array in (("i", np.full((20, 20), 90, np.uint8)), ("m", np.eye(20, dtype=np.uint8))):
            Image.fromarray(array).save(tmp_path / f"{name}{number}.png")
        records.append(Record(f"i{number}.png", patient=f"p{number}", mask=f"m{number}.png"))
    index = Index(tuple(records[:1]), tuple(records[1:]), ("line",), "segmentation", {"line": 1})
    of_task = get_family("segmentation")
    rows = [of_task.measure(r, Prediction(r.image, mask=tmp_path / str(r.mask)), index, tmp_path) for r in index.test]
    assert of_task.score(rows, index, primary="dice").details["distance_unit"] == "px"
    rows[0]["unit"] = "mm"
    assert of_task.score(rows, index, primary="dice").details["distance_unit"] == "mixed"
    for row in rows:  # as a run of an earlier version kept them
        del row["unit"]
    assert "distance_unit" not in of_task.score(rows, index, primary="dice").details


def test_a_worse_segmentation_is_measured_in_millimetres(organs: Index, tmp_path: Path) -> None:
    record = organs.test[0]
    stored = np.asarray(nib.load(tmp_path / str(record.mask)).dataobj)
    moved = write(tmp_path / "answers/0.nii.gz", np.roll(stored, 1, axis=2))
    row = get_family("segmentation").measure(record, Prediction(record.image, mask=Path(moved)), organs, tmp_path)
    assert row["figures"]["core"][2] == pytest.approx(3.0)  # one voxel along the axis with 3 mm
    assert 0 < row["figures"]["core"][0] < 1


def test_masks_of_another_shape_or_place_are_refused(organs: Index, tmp_path: Path) -> None:
    record, of_task = organs.test[0], get_family("segmentation")
    small = write(tmp_path / "answers/small.nii.gz", np.zeros((3, 3, 3), np.uint8))
    with pytest.raises(ModelError, match=r"shape \(3, 3, 3\) for the image data/o/i5.nii.gz of shape \(14, 12, 10\)"):
        of_task.measure(record, Prediction(record.image, mask=Path(small)), organs, tmp_path)
    away = AFFINE.copy()
    away[:3, 3] = 30
    off = write(tmp_path / "answers/off.nii.gz", ball((4, 5, 4)), away)
    with pytest.raises(ModelError, match="mm off its image"):
        of_task.measure(record, Prediction(record.image, mask=Path(off)), organs, tmp_path)
    with pytest.raises(ModelError, match="gives no `mask`"):
        of_task.measure(record, Prediction(record.image), organs, tmp_path)


def test_overlapping_classes_have_a_mask_each(organs: Index, tmp_path: Path) -> None:
    records = []
    for number, record in enumerate(organs.records):
        label_map = np.asarray(nib.load(tmp_path / str(record.mask)).dataobj)
        paths = {
            "core": write(tmp_path / f"data/o/core{number}.nii.gz", (label_map == 2).astype(np.uint8)),
            "all": write(tmp_path / f"data/o/all{number}.nii.gz", (label_map > 0).astype(np.uint8) * 255),
        }
        records.append(Record(record.image, patient=record.patient, mask=paths))
    index = Index(tuple(records[:5]), tuple(records[5:]), ("core", "all"), "segmentation")
    assert index.overlapping
    of_task = get_family("segmentation")
    answers = [Prediction(r.image, masks={k: Path(v) for k, v in r.mask.items()}) for r in index.test]
    rows = [of_task.measure(r, a, index, tmp_path) for r, a in zip(index.test, answers, strict=True)]
    trivial = of_task.predict_baseline(index.train, index.test, index, tmp_path)
    scores = of_task.score(rows, index, primary="dice", baseline=trivial)
    assert scores.primary.value == 1.0
    assert scores.primary.baseline < 0.9


def test_lesions_are_counted_and_healthy_images_kept(tmp_path: Path) -> None:
    records = []
    for number in range(6):
        array = ball((3 + number, 5, 4)) if number % 2 else np.zeros((12, 14, 10), np.uint8)
        write(tmp_path / f"i{number}.nii.gz", array.astype(np.int16))
        mask = write(tmp_path / f"m{number}.nii.gz", (array > 0).astype(np.uint8)) if number % 2 else None
        records.append(Record(f"i{number}.nii.gz", patient=f"p{number}", mask=mask))
    index = Index((), tuple(records), ("lesion",), "detection", {"lesion": 1})
    of_task, empty = get_family("detection"), write(tmp_path / "none.nii.gz", np.zeros((12, 14, 10), np.uint8))
    rows = [
        of_task.measure(
            r,
            Prediction(r.image, masks={"lesion": Path(r.mask or empty)}, anomaly_score=0.9 if r.mask else 0.1),
            index,
            tmp_path,
        )
        for r in records
    ]
    scores = of_task.score(json.loads(json.dumps(rows)), index, primary="lesion_f1")
    assert (scores.primary.value, scores.metrics["image_auroc"].value) == (1.0, 1.0)
    assert scores.metrics["dice"].value == 1.0
    missed = [{**row, "lesions": {"lesion": [0, sum(row["lesions"]["lesion"][:2]), 0, 0]}} for row in rows]
    assert of_task.score(missed, index, primary="lesion_f1").primary.value == 0.0
    with pytest.raises(ModelError, match=r"masks of \[\]"):
        of_task.measure(records[0], Prediction("i0.nii.gz", anomaly_score=0.5), index, tmp_path)


def test_boxes_at_the_usual_place_are_the_baseline(tmp_path: Path) -> None:
    records = []
    for number in range(12):
        Image.fromarray(np.zeros((40, 80), np.uint8)).save(tmp_path / f"{number}.png")
        shift = 3 * (number % 4)
        box = BoxLabel("heart", (20.0 + shift, 10.0, 50.0 + shift, 30.0))
        records.append(Record(f"{number}.png", patient=str(number), boxes=(box,)))
    index = Index(tuple(records[:8]), tuple(records[8:]), ("heart",), "detection")
    assert get_default_metric(index) == "map_50"
    of_task = get_family("detection")
    rows = []
    for record in index.test:
        detections = tuple(DetectedBox(box.label, box.box, 0.8) for box in record.boxes)
        rows.append(
            of_task.measure(record, Prediction(record.image, boxes=detections, anomaly_score=0.9), index, tmp_path)
        )
    trivial = of_task.predict_baseline(index.train, index.test, index, tmp_path)
    scores = of_task.score(rows, index, primary="map", baseline=json.loads(json.dumps(trivial)))
    assert scores.primary.value == 1.0
    assert 0.2 < scores.primary.baseline < 1.0, "a constant box does fairly well, and the verdict has to know it"
    with pytest.raises(ModelError, match="no `boxes`"):
        of_task.measure(index.test[0], Prediction("8.png"), index, tmp_path)
    assert find_best_boxes([], ("heart",)) == ()


def test_reports_say_whether_the_image_was_used(tmp_path: Path) -> None:
    texts = ["The heart is enlarged.", "There is a pleural effusion on the left.", "No acute finding in the chest."]
    records = [Record(f"{n}.png", patient=str(n), report=Report(texts[n % 3], "Stable.")) for n in range(24)]
    index = Index(tuple(records[:12]), tuple(records[12:]), ("Effusion/Pleural_Effusion", "Enlarged"), "report")
    of_task = get_family("report")
    trivial = of_task.predict_baseline(index.train, index.test, index, tmp_path)
    seeing = [
        of_task.measure(r, Prediction(r.image, findings=r.report.findings, impression="Stable."), index, tmp_path)
        for r in index.test
    ]
    scores = of_task.score(seeing, index, primary="bleu_4", baseline=trivial)
    assert scores.primary.value == pytest.approx(1.0)
    assert scores.metrics["label_f1"].value == 1.0
    assert scores.details["image_use"]["other_image"] < 0.7
    assert judge(scores, None).ok
    blind = [of_task.measure(r, Prediction(r.image, findings=texts[0]), index, tmp_path) for r in index.test]
    scores = of_task.score(blind, index, primary="bleu_4", baseline=trivial)
    assert scores.details["image_use"]["own_image"] == scores.details["image_use"]["other_image"]
    assert not judge(scores, None).ok


def test_every_task_has_a_family() -> None:
    assert [family.name for family in list_families()] == [
        "diagnosis",
        "segmentation",
        "detection",
        "report",
        "grading",
        "regression",
        "survival",
    ]
    with pytest.raises(ValueError, match="the tasks are diagnosis, segmentation"):
        get_family("triage")
