"""Answer formats of m3b's own tasks: from the JSON of predict.py to the fields of a `Prediction`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from m3b.errors import ModelError
from m3b.models.predictions import DetectedBox, ModelInfo
from m3b.plugins import Registry


class AnswerFormat(ABC):
    """The answer format of one task. Stateless; subclasses override what differs.

    Attributes:
        has_masks_option: whether predict.py takes `--masks DIR`, the folder for mask files.
        requires_output_folder: whether a prediction is useless without the files that predict.py writes.
        requires_classes: whether a model has to name its classes.
        separate_images: whether several paths are separate images, like the views of a study.
        usage: the model card's sentence on the form of a prediction, Markdown.
        baseline_description: the image-blind baseline, in the words of the model card.
        export_description: what the model does, for the metadata of an exported bundle.
        is_patch_based: whether the network sees parts of an image.
        supports_dicom: whether predictions can be written as masks, classes or numbers in DICOM objects.
    """

    has_masks_option: bool = False
    requires_output_folder: bool = False
    requires_classes: bool = True
    separate_images: bool = False
    usage: str = "Each prediction is a JSON object with the key `image`."
    baseline_description: str = "the best answer that is the same for every image"
    export_description: str = "Medical images"
    is_patch_based: bool = False
    supports_dicom: bool = True

    @abstractmethod
    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        """Return the fields of a `Prediction` from the JSON of predict.py; unknown values go into `extra`.

        Args:
            location: which prediction it is, for messages.
            folder: the folder of predict.py's output; files that it names have to lie there.

        Raises:
            ModelError: something is missing or invalid.
        """

    def has_mask_output(self, model_info: ModelInfo) -> bool:
        """Return whether a model predicts mask files, numbered as in `model_info.labels`."""
        return False


def is_finite_number(value: Any) -> TypeGuard[float]:
    """Return whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class RegressionAnswers(AnswerFormat):
    """Answers of a regression; see `AnswerFormat`."""

    usage = (
        'Each prediction is `{"image": ..., "value": number, "interval": [low, high]}`, in the unit of the quantity; '
        "`interval_level` says how often such intervals hold the true number, by cases that were held out of the training."
    )
    baseline_description = "the better of the training cases' median and mean for every image"
    export_description = "Estimation of a quantity from medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        value, interval, level = item.get("value"), item.get("interval"), item.get("interval_level")
        if not is_finite_number(value):
            raise ModelError(f"{location}: `value` must be a finite number, it is {value!r}")
        fields: dict[str, Any] = {"value": float(value)}
        if interval is not None:
            if not isinstance(interval, list) or len(interval) != 2 or not all(map(is_finite_number, interval)):
                raise ModelError(f"{location}: `interval` must be two finite numbers, it is {interval!r}")
            if interval[0] > interval[1]:
                raise ModelError(f"{location}: the upper end of the interval {interval} lies below the lower one")
            fields["interval"] = [float(end) for end in interval]
        if level is not None:
            if not is_finite_number(level) or not 0 < level < 1:
                raise ModelError(f"{location}: `interval_level` must lie between 0 and 1, it is {level!r}")
            fields["interval_level"] = float(level)
        return {"extra": fields}


MAX_REASON_CHARS = 500
"""Maximum length of an out-of-distribution reason."""
RELIABILITY_KEYS = ("out_of_distribution", "why", "prediction_set", "set_level", "abstains")


def parse_reliability(location: str, item: RawAnswer, model_info: ModelInfo) -> dict[str, Any]:
    """Return the reliability fields of a `Prediction` that are present.

    Raises:
        ModelError: a field is invalid; the message names it.
    """
    fields: dict[str, Any] = {}
    is_ood = item.get("out_of_distribution")
    if is_ood is not None:
        if not isinstance(is_ood, bool):
            raise ModelError(f"{location}: `out_of_distribution` must be true or false, it is {is_ood!r}")
        fields |= {
            "out_of_distribution": is_ood,
            "why": str(item.get("why") or "")[:MAX_REASON_CHARS] if is_ood else "",
        }
    if item.get("prediction_set") is not None:
        fields |= _parse_prediction_set(location, item, model_info)
    return fields


def _parse_prediction_set(location: str, item: RawAnswer, model_info: ModelInfo) -> dict[str, Any]:
    set_classes, level = item["prediction_set"], item.get("set_level")
    if (
        not isinstance(set_classes, list)
        or any(name not in model_info.classes for name in set_classes)
        or len(set(set_classes)) != len(set_classes)
    ):
        raise ModelError(f"{location}: `prediction_set` is {set_classes!r}; the classes are {list(model_info.classes)}")
    if not is_finite_number(level) or not 0 < level < 1:
        raise ModelError(f"{location}: `set_level` must be a share between 0 and 1, it is {level!r}")
    return {"prediction_set": tuple(set_classes), "set_level": float(level), "abstains": bool(item.get("abstains"))}


PROBABILITY_TOLERANCE = 1e-6


class SurvivalAnswers(AnswerFormat):
    """Answers of a survival model; see `AnswerFormat`."""

    usage = (
        'Each prediction is `{"image": ..., "risk": number, "survival": [[time, probability], ...], "median": time}`: the chance that '
        "the event has not come until a time, in the unit of the quantity; the risk, from 0 to 1, is the share of the time up to the "
        "last of them that is lost to the event on average, and ranks patients; `median` is null where it lies beyond."
    )
    baseline_description = "the better of no ranking at all and the survival curve of the training cases for everybody"
    export_description = "Survival prediction from medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        risk, curve, median = item.get("risk"), item.get("survival"), item.get("median")
        if not is_finite_number(risk):
            raise ModelError(f"{location}: `risk` must be a finite number, it is {risk!r}")
        is_nonempty_list = isinstance(curve, list) and bool(curve)
        if not is_nonempty_list or not all(
            isinstance(point, list) and len(point) == 2 and all(map(is_finite_number, point)) for point in curve or ()
        ):
            raise ModelError(f"{location}: `survival` must be a list of [time, probability], it is {str(curve)[:80]}")
        points = [(float(time), float(probability)) for time, probability in curve or ()]
        if any(b[0] <= a[0] or b[1] > a[1] + PROBABILITY_TOLERANCE for a, b in pairwise(points)):
            raise ModelError(f"{location}: times of `survival` must rise, and its probabilities must not")
        if not all(-PROBABILITY_TOLERANCE <= probability <= 1 + PROBABILITY_TOLERANCE for _, probability in points):
            raise ModelError(f"{location}: `survival` has probabilities outside [0, 1]")
        if median is not None and not is_finite_number(median):
            raise ModelError(f"{location}: `median` must be a time or null, it is {median!r}")
        clipped_curve = [[time, min(max(probability, 0.0), 1.0)] for time, probability in points]
        return {
            "extra": {
                "risk": float(risk),
                "survival": clipped_curve,
                "median": None if median is None else float(median),
            }
        }


RawAnswer = Mapping[str, Any]
"""One object of the JSON list that predict.py writes."""


MAX_MASK_BYTES = 4 * 2**30
MAX_BOXES = 10_000
MAX_TEXT_CHARS = 50_000
_PROBABILITY_SUM_TOLERANCE = 0.02


def _parse_diagnosis(location: str, item: RawAnswer, model_info: ModelInfo) -> dict[str, Any]:
    probabilities, classes = item.get("probabilities"), model_info.classes
    if not isinstance(probabilities, dict):
        raise ModelError(f"{location}: `probabilities` must be an object of class to number, it is {probabilities!r}")
    if set(probabilities) != set(classes):
        raise ModelError(
            f"{location}: probabilities for {sorted(probabilities)}, but the classes are {sorted(classes)}"
        )
    for name, value in probabilities.items():
        if not is_finite_number(value) or not -1e-6 <= value <= 1 + 1e-6:
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
    location: str, item: RawAnswer, probabilities: Mapping[str, float], multi_label: bool
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


def _parse_segmentation(location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
    volumes = item.get("volumes_ml")
    fields: dict[str, Any] = {"volumes_ml": dict(volumes) if isinstance(volumes, dict) else {}}
    if "masks" in item:
        return fields | {"masks": _parse_masks(location, item, model_info, folder)}
    return fields | {"mask": _resolve_output_file(location, item.get("mask"), folder)}


def _parse_masks(location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Path]:
    masks = item["masks"]
    if not isinstance(masks, dict) or set(masks) != set(model_info.classes):
        mask_names = sorted(masks) if isinstance(masks, dict) else masks
        raise ModelError(
            f"{location}: `masks` must name one file for each of {sorted(model_info.classes)}; found {mask_names!r}"
        )
    return {name: _resolve_output_file(location, masks[name], folder) for name in model_info.classes}


def _resolve_output_file(location: str, name: Any, folder: Path | None) -> Path:
    """Return the path of a file that predict.py wrote; it must lie below the output folder and be no link."""
    if not isinstance(name, str) or not name:
        raise ModelError(f"{location}: must name the mask file it wrote, in `mask` (or `masks`); found {name!r}")
    if folder is None:
        return Path(name)
    file = folder / name
    is_below_folder = file.resolve().is_relative_to(folder.resolve())
    if not is_below_folder or file.is_symlink() or not file.is_file():
        raise ModelError(f"{location}: the mask {name!r} is not a file below the folder of the output")
    if file.stat().st_size > MAX_MASK_BYTES:
        raise ModelError(f"{location}: the mask {name!r} has {file.stat().st_size} bytes, more than {MAX_MASK_BYTES}")
    return file


def _parse_detection(location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "masks" in item:
        fields["masks"] = _parse_masks(location, item, model_info, folder)
    boxes = item.get("boxes")
    if boxes is not None:
        if not isinstance(boxes, list) or len(boxes) > MAX_BOXES:
            raise ModelError(f"{location}: `boxes` must be a list of at most {MAX_BOXES}")
        fields["boxes"] = tuple(_parse_box(f"{location}, box {n}", box, model_info) for n, box in enumerate(boxes))
    if "anomaly_map" in item:
        fields["anomaly_map"] = _resolve_output_file(location, item["anomaly_map"], folder)
    score = item.get("anomaly_score")
    if not fields and score is None:
        raise ModelError(f"{location}: neither `masks` nor `boxes` nor `anomaly_score`")
    if score is None:
        return fields
    if not is_finite_number(score) or not -1e-6 <= score <= 1 + 1e-6:
        raise ModelError(f"{location}: `anomaly_score` is {score!r}, not a number from 0 to 1")
    return fields | {"anomaly_score": float(score)}


def _parse_box(location: str, box: Any, model_info: ModelInfo) -> DetectedBox:
    if not isinstance(box, dict) or box.get("label") not in model_info.classes:
        raise ModelError(f"{location}: must have a `label` of {list(model_info.classes)}; found {box!r}")
    corners, score = box.get("box"), box.get("score")
    if not isinstance(corners, list) or len(corners) not in (4, 6) or not all(map(is_finite_number, corners)):
        raise ModelError(f"{location}: `box` must be 4 or 6 numbers, lower corner then upper; found {corners!r}")
    dims = len(corners) // 2
    if any(high < low for low, high in zip(corners[:dims], corners[dims:], strict=True)):
        raise ModelError(f"{location}: the upper corner of {corners} lies below the lower one")
    if not is_finite_number(score):
        raise ModelError(f"{location}: `score` is {score!r}, not a number")
    return DetectedBox(box["label"], tuple(map(float, corners)), float(score))


def _parse_report(location: str, item: RawAnswer) -> dict[str, Any]:
    texts = {key: item.get(key, "") for key in ("findings", "impression")}
    for key, text in texts.items():
        if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
            raise ModelError(f"{location}: `{key}` must be a text of at most {MAX_TEXT_CHARS} characters")
    if "findings" not in item and "impression" not in item:
        raise ModelError(f"{location}: neither `findings` nor `impression`")
    return texts


class DiagnosisAnswers(AnswerFormat):
    """Answers of a diagnosis; see `AnswerFormat`."""

    usage = 'Each prediction is `{"image": ..., "probabilities": {class: p}, "prediction": ...}`.'
    export_description = "Classification of medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        return _parse_diagnosis(location, item, model_info)


class GradingAnswers(AnswerFormat):
    """Answers of a grading, the same as those of a diagnosis with one label a case; see `AnswerFormat`."""

    usage = (
        'Each prediction is `{"image": ..., "probabilities": {grade: p}, "prediction": grade}`; grades are ordered from low to '
        "high."
    )
    baseline_description = "the better of the training cases' median and commonest grade for every image"
    export_description = "Grading of medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        return _parse_diagnosis(location, item, model_info)


class SegmentationAnswers(AnswerFormat):
    """Answers of a segmentation; see `AnswerFormat`."""

    has_masks_option = True
    requires_output_folder = True
    usage = (
        'Each prediction is `{"image": ..., "mask": file, "volumes_ml": {class: v}}` (`"masks": {class: file}` where '
        "classes overlap); mask files lie in `masks/` beside predictions.json, in the image's own geometry."
    )
    baseline_description = (
        "the better of marking nothing and of marking the mean shape of the training cases, where it was made"
    )
    export_description = "Segmentation of medical images"
    is_patch_based = True

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        return _parse_segmentation(location, item, model_info, folder)

    def has_mask_output(self, model_info: ModelInfo) -> bool:
        return True


class DetectionAnswers(AnswerFormat):
    """Answers of a detection; see `AnswerFormat`."""

    has_masks_option = True
    usage = (
        'Each prediction is `{"image": ..., "boxes": [{"label", "box", "score"}], "anomaly_score": p}`, with '
        '`"masks": {class: file}` where the model marks voxels, and `"anomaly_map": file` (0 to 1000 a pixel) where it '
        "rates each pixel. Boxes are in the coordinates of the image file."
    )
    baseline_description = "the better of finding nothing and of finding the same in every image"
    export_description = "Detection of anomalies in medical images"
    is_patch_based = True

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        return _parse_detection(location, item, model_info, folder)

    def has_mask_output(self, model_info: ModelInfo) -> bool:
        return bool(model_info.labels)


class ReportAnswers(AnswerFormat):
    """Answers of a report generator; see `AnswerFormat`."""

    requires_classes = False
    separate_images = True
    supports_dicom = False
    usage = 'Each prediction is `{"image": ..., "findings": "...", "impression": "..."}`.'
    baseline_description = "the best report that is the same for every image"
    export_description = "Report generation from medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        return _parse_report(location, item)


_ANSWER_FORMATS: Registry[AnswerFormat] = Registry("kind of answers for")


def register_answer_format(task: str, answer_format: AnswerFormat) -> None:
    """Register the answer format of a task.

    Raises:
        ValueError: the task has another one.
    """
    _ANSWER_FORMATS.add(task, answer_format)


register_answer_format("diagnosis", DiagnosisAnswers())
register_answer_format("segmentation", SegmentationAnswers())
register_answer_format("detection", DetectionAnswers())
register_answer_format("report", ReportAnswers())
register_answer_format("grading", GradingAnswers())
register_answer_format("regression", RegressionAnswers())
register_answer_format("survival", SurvivalAnswers())


def answer_tasks() -> tuple[str, ...]:
    """Return the tasks with a known answer format."""
    return _ANSWER_FORMATS.names()


def answer_format_of(task: str) -> AnswerFormat:
    """Return the answer format of a task.

    Raises:
        ModelError: there is no such task.
    """
    answer_format = _ANSWER_FORMATS.get(task)
    if answer_format is None:
        raise ModelError(f"there is no task {task!r}; known are {', '.join(answer_tasks())}")
    return answer_format
