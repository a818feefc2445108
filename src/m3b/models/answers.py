"""The answers of m3b's own tasks, from the JSON of predict.py to the fields of a `Prediction`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.plugins import Registry

from .kinds import AnswerKind, Item
from .number_answers import RegressionAnswers
from .number_answers import finite as _number
from .predictions import BoxAnswer, Promise
from .survival_answers import SurvivalAnswers

MAX_MASK_BYTES = 4 * 2**30
MAX_BOXES = 10_000
MAX_TEXT = 50_000
_PROBABILITY_SUM_TOLERANCE = 0.02


def _parse_diagnosis(location: str, item: Item, model_info: Promise) -> dict[str, Any]:
    probabilities, classes = item.get("probabilities"), model_info.classes
    if not isinstance(probabilities, dict):
        raise ModelError(f"{location}: `probabilities` must be an object of class to number, it is {probabilities!r}")
    if set(probabilities) != set(classes):
        raise ModelError(
            f"{location}: probabilities for {sorted(probabilities)}, but the classes are {sorted(classes)}"
        )
    for name, value in probabilities.items():
        if not _number(value) or not -1e-6 <= value <= 1 + 1e-6:
            raise ModelError(f"{location}: the probability of {name!r} is {value!r}, not a number from 0 to 1")
    total = math.fsum(probabilities.values())
    if not model_info.multi_label and abs(total - 1) > _PROBABILITY_SUM_TOLERANCE:
        raise ModelError(f"{location}: the probabilities sum to {total:.4g}, not 1")
    ordered_probabilities = {name: float(probabilities[name]) for name in classes}
    return {
        "probabilities": ordered_probabilities,
        "prediction": _parse_decision(location, item, ordered_probabilities, model_info.multi_label),
    }


def _parse_decision(
    location: str, item: Item, probabilities: Mapping[str, float], multi_label: bool
) -> tuple[str, ...]:
    decision = item.get("prediction")
    if decision is None:
        if multi_label:
            return tuple(name for name, value in probabilities.items() if value >= 0.5)
        return (max(probabilities, key=lambda name: probabilities[name]),)
    decided_classes = [decision] if isinstance(decision, str) else decision
    if not isinstance(decided_classes, list) or any(name not in probabilities for name in decided_classes):
        raise ModelError(f"{location}: `prediction` is {decision!r}; the classes are {list(probabilities)}")
    if not multi_label and len(decided_classes) != 1:
        raise ModelError(f"{location}: `prediction` names {len(decided_classes)} classes where exactly one is possible")
    return tuple(decided_classes)


def _segmentation(where: str, item: Item, promise: Promise, folder: Path | None) -> dict[str, Any]:
    volumes = item.get("volumes_ml")
    fields: dict[str, Any] = {"volumes_ml": dict(volumes) if isinstance(volumes, dict) else {}}
    if "masks" in item:
        return fields | {"masks": _masks(where, item, promise, folder)}
    return fields | {"mask": _file(where, item.get("mask"), folder)}


def _masks(where: str, item: Item, promise: Promise, folder: Path | None) -> dict[str, Path]:
    masks = item["masks"]
    if not isinstance(masks, dict) or set(masks) != set(promise.classes):
        mask_names = sorted(masks) if isinstance(masks, dict) else masks
        raise ModelError(
            f"{where}: `masks` must name one file for each of {sorted(promise.classes)}; found {mask_names!r}"
        )
    return {name: _file(where, masks[name], folder) for name in promise.classes}


def _file(where: str, name: Any, folder: Path | None) -> Path:
    """A file that predict.py wrote: below its output folder, no link."""
    if not isinstance(name, str) or not name:
        raise ModelError(f"{where}: must name the mask file it wrote, in `mask` (or `masks`); found {name!r}")
    if folder is None:
        return Path(name)
    file = folder / name
    is_below_folder = file.resolve().is_relative_to(folder.resolve())
    if not is_below_folder or file.is_symlink() or not file.is_file():
        raise ModelError(f"{where}: the mask {name!r} is not a file below the folder of the output")
    if file.stat().st_size > MAX_MASK_BYTES:
        raise ModelError(f"{where}: the mask {name!r} has {file.stat().st_size} bytes, more than {MAX_MASK_BYTES}")
    return file


def _parse_detection(location: str, item: Item, model_info: Promise, folder: Path | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "masks" in item:
        fields["masks"] = _masks(location, item, model_info, folder)
    boxes = item.get("boxes")
    if boxes is not None:
        if not isinstance(boxes, list) or len(boxes) > MAX_BOXES:
            raise ModelError(f"{location}: `boxes` must be a list of at most {MAX_BOXES}")
        fields["boxes"] = tuple(_box(f"{location}, box {n}", box, model_info) for n, box in enumerate(boxes))
    if "anomaly_map" in item:
        fields["anomaly_map"] = _file(location, item["anomaly_map"], folder)
    score = item.get("anomaly_score")
    if not fields and score is None:
        raise ModelError(f"{location}: neither `masks` nor `boxes` nor `anomaly_score`")
    if score is None:
        return fields
    if not _number(score) or not -1e-6 <= score <= 1 + 1e-6:
        raise ModelError(f"{location}: `anomaly_score` is {score!r}, not a number from 0 to 1")
    return fields | {"anomaly_score": float(score)}


def _box(where: str, box: Any, promise: Promise) -> BoxAnswer:
    if not isinstance(box, dict) or box.get("label") not in promise.classes:
        raise ModelError(f"{where}: must have a `label` of {list(promise.classes)}; found {box!r}")
    corners, score = box.get("box"), box.get("score")
    if not isinstance(corners, list) or len(corners) not in (4, 6) or not all(map(_number, corners)):
        raise ModelError(f"{where}: `box` must be 4 or 6 numbers, lower corner then upper; found {corners!r}")
    dims = len(corners) // 2
    if any(high < low for low, high in zip(corners[:dims], corners[dims:], strict=True)):
        raise ModelError(f"{where}: the upper corner of {corners} lies below the lower one")
    if not _number(score):
        raise ModelError(f"{where}: `score` is {score!r}, not a number")
    return BoxAnswer(box["label"], tuple(map(float, corners)), float(score))


def _report(where: str, item: Item) -> dict[str, Any]:
    texts = {key: item.get(key, "") for key in ("findings", "impression")}
    for key, text in texts.items():
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            raise ModelError(f"{where}: `{key}` must be a text of at most {MAX_TEXT} characters")
    if "findings" not in item and "impression" not in item:
        raise ModelError(f"{where}: neither `findings` nor `impression`")
    return texts


class DiagnosisAnswers(AnswerKind):
    """See `AnswerKind`."""

    use = 'Each prediction is `{"image": ..., "probabilities": {class: p}, "prediction": ...}`.'
    exported = "Classification of medical images"

    def parse(self, location: str, item: Item, model_info: Promise, folder: Path | None) -> dict[str, Any]:
        return _parse_diagnosis(location, item, model_info)


class GradingAnswers(AnswerKind):
    """See `AnswerKind`. Those of a diagnosis with one label a case."""

    use = (
        'Each prediction is `{"image": ..., "probabilities": {grade: p}, "prediction": grade}`; grades are ordered from low to '
        "high."
    )
    blind = "the better of the training cases' median and commonest grade for every image"
    exported = "Grading of medical images"

    def parse(self, location: str, item: Item, model_info: Promise, folder: Path | None) -> dict[str, Any]:
        return _parse_diagnosis(location, item, model_info)


class SegmentationAnswers(AnswerKind):
    """See `AnswerKind`."""

    takes_masks = True
    needs_folder = True
    use = (
        'Each prediction is `{"image": ..., "mask": file, "volumes_ml": {class: v}}` (`"masks": {class: file}` where '
        "classes overlap); mask files lie in `masks/` beside predictions.json, in the image's own geometry."
    )
    blind = "the better of marking nothing and of marking the mean shape of the training cases, where it was made"
    exported = "Segmentation of medical images"
    patches = True

    def parse(self, location: str, item: Item, model_info: Promise, folder: Path | None) -> dict[str, Any]:
        return _segmentation(location, item, model_info, folder)

    def writes_masks(self, model_info: Promise) -> bool:
        return True


class DetectionAnswers(AnswerKind):
    """See `AnswerKind`."""

    takes_masks = True
    use = (
        'Each prediction is `{"image": ..., "boxes": [{"label", "box", "score"}], "anomaly_score": p}`, with '
        '`"masks": {class: file}` where the model marks voxels, and `"anomaly_map": file` (0 to 1000 a pixel) where it '
        "rates each pixel. Boxes are in the coordinates of the image file."
    )
    blind = "the better of finding nothing and of finding the same in every image"
    exported = "Detection of anomalies in medical images"
    patches = True

    def parse(self, where: str, item: Item, promise: Promise, folder: Path | None) -> dict[str, Any]:
        return _parse_detection(where, item, promise, folder)

    def writes_masks(self, promise: Promise) -> bool:
        return bool(promise.labels)


class ReportAnswers(AnswerKind):
    """See `AnswerKind`."""

    needs_classes = False
    separate_images = True
    as_dicom = False
    use = 'Each prediction is `{"image": ..., "findings": "...", "impression": "..."}`.'
    blind = "the best report that is the same for every image"
    exported = "Report generation from medical images"

    def parse(self, where: str, item: Item, promise: Promise, folder: Path | None) -> dict[str, Any]:
        return _report(where, item)


_ANSWER_FORMATS: Registry[AnswerKind] = Registry("kind of answers for")


def add(task: str, kind: AnswerKind) -> None:
    """Register the answers of a task.

    Raises:
        ValueError: the task has others.
    """
    _ANSWER_FORMATS.add(task, kind)


add("diagnosis", DiagnosisAnswers())
add("segmentation", SegmentationAnswers())
add("detection", DetectionAnswers())
add("report", ReportAnswers())
add("grading", GradingAnswers())
add("regression", RegressionAnswers())
add("survival", SurvivalAnswers())


def names() -> tuple[str, ...]:
    """The tasks whose answers are known."""
    return _ANSWER_FORMATS.names()


def of(task: str) -> AnswerKind:
    """The answers of a task.

    Raises:
        ModelError: there is no such task.
    """
    answer_format = _ANSWER_FORMATS.get(task)
    if answer_format is None:
        raise ModelError(f"there is no task {task!r}; known are {', '.join(names())}")
    return answer_format
