"""Detection: lesions in masks or boxes, and a score for the image as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.audit_kinds import of as audit_of
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.records import Record
from m3b.errors import DataError, ModelError
from m3b.metrics import Box, DetectionCase, LesionCounts, Scores, measure_channels, score_detection
from m3b.metrics.pixels import TOP, count_pixels, from_row
from m3b.metrics.vocabulary import DETECTION
from m3b.models import Prediction
from m3b.models.answers import of as answers_of

from .agreement import of_detections
from .base import Row, TaskFamily, named, spread
from .marks import (
    answered_channels,
    answered_mask,
    image_of,
    pack,
    spacing_of,
    true_channels,
    union,
    unit_of,
    unmarked,
    unpack,
    with_unit,
)
from .segmentation import MAX_FOR_ATLAS, mean_shape

CANDIDATES, AGAINST = 40, 120
"""So many training images' boxes are tried as the answer to everything, against so many training images."""


class Detection(TaskFamily):
    """See `TaskFamily`."""

    name = "detection"
    records = records_of("detection")
    audit = audit_of("detection")
    answers = answers_of("detection")
    metrics = DETECTION
    guide = (
        'with masks {"image_path": ..., "mask_path": path or null (nothing marked), "patient": ...} as in '
        'segmentation; or with boxes, in every record, "boxes": [{"label": "nodule", "box": [x0, y0, x1, y1]}] ([] is a '
        "healthy image; pixels, upper edge not included; volumes x0, y0, z0, x1, y1, z1), label_dict.json from 0."
    )
    asked = (
        r"bounding box|locali[sz]|locate|lokalisier|检测框|位置|定位"
        r"|\b(?:with|in|by|as|draw|put|set)(?: an?| the)? (?:box|boxes)\b|\bbox(?:es)? (?:around|on|of|for)\b"
        r"|^(?!.*\b(?:classif|type|kind|which)).*\banomal(?:y|ies|ie|ien)\b"
    )
    hinted = r"\b(?:detect|find|finds|finde|finden|erkenn|trouv|detecter|detectar|encontrar|spot)\w*"
    needs = ("masks", "boxes")
    box_metrics = ("map_50", "map", "map_10", "centre_ap", "froc", "image_auroc")
    state_metrics = ("image_auroc", "image_ap")
    usual_plan = (
        "Take what is marked from the masks or the file of boxes that the preview shows; name the classes after the list "
        "of labels or the card; take the patient from its field or the name; keep an own split."
    )
    aliases = ("detect", "object detection", "localization")
    built = "Detector of"
    shows_masks = True
    compares_answers = True
    compares_crops = False
    shows_texts = True
    valid_cases = 40

    def default_metric(self, index: Index) -> str:
        """Lesion F1 of masks, mean average precision of boxes, AUROC of images that are only known to be abnormal or not."""
        if index.stated:
            return "image_auroc"
        return "map_50" if index.boxed else self.metrics.default

    def outputs(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """States, and few-shot detectors: one. Masks: one channel a class, perhaps one of the background. Boxes: a heat
        map a class, and two sides an axis
        for each class (5 outputs a class in 2D, 7 in 3D), or sides that the classes share, perhaps with a centerness."""
        if plan.get("target") == "states" or plan.get("engine", "patches") != "patches":
            return (1,)
        if plan.get("target") != "boxes":
            return (classes, classes + 1)
        sides = 2 * (3 if plan.get("dims") == 3 else 2)
        return tuple(sorted({classes * (1 + sides), classes + sides, classes + sides + 1}))

    def measure(self, record: Record, answer: Prediction, index: Index, base: Path) -> Row:
        """Figures and lesions of the masks, or the boxes as they are; the image's score with either."""
        row = {**named(record), **self._marks(record, answer, index, base)}
        if answer.anomaly_score is not None:
            row |= {"anomaly_score": answer.anomaly_score}
        return row

    def _marks(self, record: Record, answer: Prediction, index: Index, base: Path) -> Row:
        if index.stated:
            if answer.anomaly_score is None:
                raise ModelError(
                    "predict.py gives no `anomaly_score`, by which alone images without marks are measured"
                )
            return {"abnormal": bool(record.extra["abnormal"])}
        if record.boxes is not None:
            if answer.boxes is None:
                raise ModelError("predict.py gives no `boxes`, and the index has boxes")
            predicted_boxes = [[list(box.box), box.label, box.score] for box in answer.boxes]
            true_boxes = [[list(box.box), box.label, 1.0] for box in record.boxes]
            return {"predicted": predicted_boxes, "truth": true_boxes, "abnormal": bool(true_boxes)}
        predicted_channels = answered_channels(answer, index.classes, record, base)
        truth = true_channels(record, index.values, base)
        figures, lesions = measure_channels(predicted_channels, truth, index.classes, spacing_of(record, base))
        counts = {name: lesion.row() for name, lesion in lesions.items()}
        row = {
            "figures": pack(figures),
            "lesions": counts,
            "abnormal": bool(truth.any()),
            "unit": unit_of(record, base),
        }
        if answer.anomaly_map is not None:
            row["pixels"] = mapped(answer.anomaly_map, record, truth, base)
        return row

    def trivial(self, training: Sequence[Record], records: Sequence[Record], index: Index, base: Path) -> Any:
        """For boxes, those of the training image that serve best as the answer to every image; for masks the mean shape."""
        if index.stated:
            return [{} for _ in records]
        if not index.boxed:
            return _measure_mean_shape(training, records, index, base)
        relative = [boxes for record in spread(training, AGAINST) if (boxes := _relative(record, base)) is not None]
        best_constants = best_boxes(relative, index.classes)
        return [_placed(best_constants, record, base) for record in records]

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, trivial: Any = None, seed: int = 0) -> Scores:
        """Whatever the rows hold; see `metrics.detection`."""
        all_scored = all("anomaly_score" in row for row in rows)
        all_mapped = all("pixels" in row for row in rows)
        cases = [_case(row, all_scored, all_mapped) for row in rows]
        baseline_cases = None
        if trivial is not None:
            baseline_cases = [_case(row, all_scored, all_mapped) for row in _replace_marks(rows, trivial)]
        return with_unit(
            score_detection(cases, index.classes, primary=primary, trivial=baseline_cases, seed=seed), rows
        )

    def distance(self, row: Row, other: Row) -> float:
        """Of boxes or masks, or of the image's score: the larger."""
        return of_detections(row, other)

    def blind(self, rows: Sequence[Row], index: Index, trivial: Any = None) -> Sequence[Sequence[Row]]:
        """Nothing marked, and the boxes or the mean shape that serve best for every image."""
        if index.stated:
            return [_replace_marks(rows, [{} for _ in rows])]
        no_marks = [{"predicted": []} if index.boxed else _mark_nothing(row) for row in rows]
        return [_replace_marks(rows, answers) for answers in (no_marks, trivial) if answers is not None]


def _replace_marks(rows: Sequence[Row], answers: Sequence[Any]) -> list[Row]:
    """The rows with other marks, as `trivial` gives them, and no opinion on the image."""
    marks = [answer if isinstance(answer, Mapping) else {"predicted": answer} for answer in answers]
    return [{**row, **answer, "anomaly_score": 0.5} for row, answer in zip(rows, marks, strict=True)]


def _mark_nothing(row: Row) -> Row:
    """Every lesion missed, nothing said."""
    lesions = {name: [0, detected + missed, 0, 0] for name, (detected, missed, *_) in row["lesions"].items()}
    return {"figures": unmarked(row["figures"]), "lesions": lesions}


def _measure_mean_shape(
    training: Sequence[Record], records: Sequence[Record], index: Index, root: Path
) -> list[dict[str, Any]] | None:
    """The mean shape's figures on every record: organs that are outlined beside lesions lie at much the same place in
    everybody, so that a model has to do better than that. None where there is no common shape."""
    try:
        predict_mean_shape = mean_shape(spread(training, MAX_FOR_ATLAS), index, root)
        rows = []
        for record in records:
            truth = true_channels(record, index.values, root)
            predicted_channels = predict_mean_shape(truth.shape[1:])
            figures, lesions = measure_channels(predicted_channels, truth, index.classes, spacing_of(record, root))
            rows.append(
                {
                    "figures": pack(figures),
                    "lesions": {name: lesion_counts.row() for name, lesion_counts in lesions.items()},
                    "pixels": count_pixels(TOP * union(predicted_channels).astype(int), union(truth)).row(),
                }
            )
    except (ValueError, DataError, ModelError):
        return None  # 2D and 3D together, or masks that the audit already named: nothing marked is the baseline
    return rows


def mapped(file: Path, record: Record, truth: Any, base: Path) -> Row:
    """Pixels of an anomaly map by level, inside and outside of what is marked in any class.

    Raises:
        ModelError: the map has not the image's shape and place, or levels out of range.
    """
    levels = answered_mask(file, record, base)
    try:
        return dict(count_pixels(levels.astype(int), union(truth)).row())
    except ValueError as error:
        raise ModelError(f"predict.py wrote an anomaly map of {record.key} that cannot be used: {error}") from error


def _case(row: Mapping[str, Any], scored: bool, mapped_all: bool = False) -> DetectionCase:
    has_boxes = "truth" in row
    return DetectionCase(
        row["image"],
        row["patient"],
        figures=unpack(row.get("figures", {})),
        lesions={name: LesionCounts(*counts) for name, counts in row.get("lesions", {}).items()},
        predicted=_boxes(row["predicted"]) if has_boxes else None,
        truth=_boxes(row["truth"]) if has_boxes else None,
        anomaly_score=row["anomaly_score"] if scored else None,
        abnormal=row["abnormal"] if scored else None,
        pixels=from_row(row["pixels"]) if mapped_all else None,
    )


def _boxes(raw: Sequence[Any]) -> tuple[Box, ...]:
    return tuple(Box(tuple(corners), label, score) for corners, label, score in raw)


def best_boxes(images: Sequence[tuple[Box, ...]], classes: Sequence[str]) -> tuple[Box, ...]:
    """The boxes of one training image that have the highest average precision as the answer to all of them.

    Args:
        images: the boxes of each image, as shares of its size (0 to 1).
    """
    best: tuple[float, tuple[Box, ...]] = (-1.0, ())
    for boxes in [image for image in images if image][:CANDIDATES]:
        cases = [DetectionCase(str(n), "", predicted=boxes, truth=truth) for n, truth in enumerate(images)]
        value = score_detection(cases, classes, primary="map_50", draws=0).primary.value
        if value > best[0]:
            best = (value, boxes)
    return best[1]


def _relative(record: Record, base: Path) -> tuple[Box, ...] | None:
    sizes = _sizes(record, base)
    return tuple(
        Box(tuple(v / s for v, s in zip(box.box, sizes * 2, strict=True)), box.label)
        for box in record.boxes or ()
        if len(box.box) == 2 * len(sizes)
    )


def _placed(boxes: Sequence[Box], record: Record, base: Path) -> list[Any]:
    sizes = _sizes(record, base)
    return [[[v * s for v, s in zip(box.corners, sizes * 2, strict=True)], box.label, 1.0] for box in boxes]


def _sizes(record: Record, base: Path) -> tuple[float, ...]:
    """The image's extent along the axes in which its boxes are given."""
    from m3b.data.reading import box_extent

    return box_extent(image_of(record), str(base))


FAMILY = Detection()
