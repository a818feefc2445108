"""The family of detection: lesions as masks or boxes, and a score for the image as a whole."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.altering import NOISE
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.records import Record
from m3b.errors import DataError, ModelError
from m3b.metrics import Box, Scores
from m3b.metrics.masks import clear_ignored
from m3b.models import Prediction
from m3b.tasks.aligned_masks import (
    add_distance_unit,
    add_ignored_share,
    distance_unit_of,
    ignored_share_of,
    image_of,
    mask_distance,
    merge_channels,
    pack_figures,
    pack_unmarked_figures,
    read_ignored,
    read_predicted_channels,
    read_predicted_mask,
    read_true_channels,
    spacing_of,
    unpack_figures,
)
from m3b.tasks.base import Row, TaskFamily, make_base_row, sample_evenly
from m3b.tasks.detection.anomaly_maps import MAX_LEVEL, count_pixels, pixel_counts_from_row
from m3b.tasks.detection.answers import DetectionAnswers
from m3b.tasks.detection.lesions import LesionCounts, measure_channels
from m3b.tasks.detection.metrics import BOX_METRICS, DETECTION_METRICS, DetectionCase, score_detection
from m3b.tasks.detection.report_section import DetectionReportSection
from m3b.tasks.mean_shape_baseline import fit_mean_shape

MAX_CANDIDATE_IMAGES, MAX_COMPARED_IMAGES = 40, 120
"""Number of training images whose boxes are tried as a constant answer, and on how many images they are tried."""
_HINT_PATTERN = r"\b(?:detect|find|finds|finde|finden|erkenn|trouv|detecter|detectar|encontrar|spot)\w*"


class Detection(TaskFamily):
    """The detection family; see `TaskFamily`."""

    name = "detection"
    records = records_of("detection")
    answers = DetectionAnswers()
    metrics = DETECTION_METRICS
    report_section = DetectionReportSection()
    index_guide = (
        'with masks {"image_path": ..., "mask_path": path or null (nothing marked), "patient": ...} as in '
        'segmentation; or with boxes, in every record, "boxes": [{"label": "nodule", "box": [x0, y0, x1, y1]}] ([] is a '
        "healthy image; pixels, upper edge not included; volumes x0, y0, z0, x1, y1, z1), label_dict.json from 0."
    )
    request_pattern = (
        r"bounding box|locali[sz]|locate|lokalisier|检测框|位置|定位"
        r"|\b(?:with|in|by|as|draw|put|set)(?: an?| the)? (?:box|boxes)\b|\bbox(?:es)? (?:around|on|of|for)\b"
        r"|^(?!.*\b(?:classif|type|kind|which)).*\banomal(?:y|ies|ie|ien)\b"
    )
    required_targets = ("masks", "boxes")
    default_plan = (
        "Take what is marked from the masks or the file of boxes that the preview shows; name the classes after the list "
        "of labels or the card; take the patient from its field or the name; keep an own split."
    )
    aliases = ("detect", "object detection", "localization")
    model_title = "Detector"
    max_validation_cases = 40

    def is_hinted_at(self, text: str) -> bool:
        """Return whether something is to be found: "detect pneumonia" may also mean a classifier."""
        return bool(re.search(_HINT_PATTERN, text))

    def list_metrics_of(self, target: str) -> tuple[str, ...]:
        """Return the metrics of boxes, or of images that are only known to be abnormal or not."""
        metrics = {"boxes": (*BOX_METRICS, "image_auroc"), "states": ("image_auroc", "image_ap")}
        return metrics.get(target, ())

    def get_default_metric(self, index: Index) -> str:
        """Return lesion F1 for masks, mean average precision for boxes, else AUROC of images (abnormal or not)."""
        if index.stated:
            return "image_auroc"
        return "map_50" if index.boxed else self.metrics.default_metric

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the allowed numbers of outputs.

        Image states and few-shot detectors have one. Masks have one channel a class, plus an optional background. Boxes
        have a heat map a class, plus two sides an axis: either for each class (5 outputs a class in 2D, 7 in 3D) or
        shared by all classes, the latter with an optional centerness.
        """
        if plan.get("target") == "states" or plan.get("engine", "patches") != "patches":
            return (1,)
        if plan.get("target") != "boxes":
            return (classes, classes + 1)
        sides = 2 * (3 if plan.get("dims") == 3 else 2)
        return tuple(sorted({classes * (1 + sides), classes + sides, classes + sides + 1}))

    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """Measure the masks (figures and lesions), or keep the boxes as they are; add the image score if any."""
        row = {**make_base_row(record), **self._measure_marks(record, prediction, index, root)}
        if prediction.anomaly_score is not None:
            row |= {"anomaly_score": prediction.anomaly_score}
        return row

    def _measure_marks(self, record: Record, answer: Prediction, index: Index, root: Path) -> Row:
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
        predicted_channels = read_predicted_channels(answer, index.classes, record, root)
        ignored = read_ignored(record, root)
        (truth,) = clear_ignored(ignored, read_true_channels(record, index.values, root))
        figures, lesions = measure_channels(
            predicted_channels, truth, index.classes, spacing_of(record, root), ignored=ignored
        )
        counts = {name: lesion.to_list() for name, lesion in lesions.items()}
        row = {
            "figures": pack_figures(figures),
            "lesions": counts,
            "abnormal": bool(truth.any()),
            "unit": distance_unit_of(record, root),
            **ignored_share_of(ignored),
        }
        if answer.anomaly_map is not None:
            row["pixels"] = count_map_pixels(answer.anomaly_map, record, truth, root, ignored)
        return row

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return the best constant boxes of a training image; for masks, the mean shape."""
        if index.stated:
            return [{} for _ in records]
        if not index.boxed:
            return _measure_mean_shape(training, records, index, root)
        relative = [
            boxes
            for record in sample_evenly(training, MAX_COMPARED_IMAGES)
            if (boxes := _to_relative_boxes(record, root)) is not None
        ]
        best_constants = find_best_boxes(relative, index.classes)
        return [_to_absolute_boxes(best_constants, record, root) for record in records]

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Score whatever the rows hold; see `metrics.detection`."""
        all_scored = all("anomaly_score" in row for row in rows)
        all_mapped = all("pixels" in row for row in rows)
        cases = [_make_case(row, all_scored, all_mapped) for row in rows]
        baseline_cases = None
        if baseline is not None:
            baseline_cases = [_make_case(row, all_scored, all_mapped) for row in _replace_marks(rows, baseline)]
        scores = score_detection(cases, index.classes, primary=primary, baseline_cases=baseline_cases, seed=seed)
        return add_ignored_share(add_distance_unit(scores, rows), rows)

    def list_alterations(self) -> tuple[str, ...]:
        """Return noise only: boxes and masks move with the framing."""
        return (NOISE,)

    def answer_distance(self, row: Row, other_row: Row) -> float:
        """Return the distance of the marks (boxes or masks), or of the image scores if it is larger or all there is."""
        score_difference: float = abs(row.get("anomaly_score", 0.0) - other_row.get("anomaly_score", 0.0))
        if "predicted" in row:
            return max(score_difference, box_distance(row["predicted"], other_row["predicted"]))
        if "figures" not in row:
            return score_difference  # the image is only known to be abnormal or not
        return max(score_difference, mask_distance(row["figures"], other_row["figures"]))

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """Return rows with nothing marked, and rows with the best constant boxes or the mean shape."""
        if index.stated:
            return [_replace_marks(rows, [{} for _ in rows])]
        no_marks = [{"predicted": []} if index.boxed else _mark_nothing(row) for row in rows]
        return [_replace_marks(rows, answers) for answers in (no_marks, baseline) if answers is not None]


def _replace_marks(rows: Sequence[Row], answers: Sequence[Any]) -> list[Row]:
    """Return the rows with the marks of a baseline, and with an undecided image score (0.5)."""
    marks = [answer if isinstance(answer, Mapping) else {"predicted": answer} for answer in answers]
    return [{**row, **answer, "anomaly_score": 0.5} for row, answer in zip(rows, marks, strict=True)]


def _mark_nothing(row: Row) -> Row:
    """Return the marks of a prediction that misses every lesion."""
    lesions = {name: [0, detected + missed, 0, 0] for name, (detected, missed, *_) in row["lesions"].items()}
    return {"figures": pack_unmarked_figures(row["figures"]), "lesions": lesions}


def _measure_mean_shape(
    training: Sequence[Record], records: Sequence[Record], index: Index, root: Path
) -> list[dict[str, Any]] | None:
    """Measure the mean shape on every record; None if there is no common shape.

    Organs that are outlined next to lesions lie at much the same place in everybody, so a model has to do better.
    """
    import numpy as np

    try:
        predict_mean_shape = fit_mean_shape(training, index, root)
        rows = []
        for record in records:
            ignored = read_ignored(record, root)
            (truth,) = clear_ignored(ignored, read_true_channels(record, index.values, root))
            predicted_channels = np.stack(list(predict_mean_shape(truth.shape[1:])))
            figures, lesions = measure_channels(
                predicted_channels, truth, index.classes, spacing_of(record, root), ignored=ignored
            )
            rows.append(
                {
                    "figures": pack_figures(figures),
                    "lesions": {name: lesion_counts.to_list() for name, lesion_counts in lesions.items()},
                    "pixels": count_pixels(
                        MAX_LEVEL * merge_channels(predicted_channels).astype(int), merge_channels(truth), ignored
                    ).to_row(),
                }
            )
    except (ValueError, DataError, ModelError):
        return None  # 2D and 3D together, or masks that the audit already reported: the baseline marks nothing
    return rows


def count_map_pixels(file: Path, record: Record, truth: Any, root: Path, ignored: Any = None) -> Row:
    """Count the pixels of an anomaly map that are not ignored by level, inside and outside of the marks of any class.

    Raises:
        ModelError: the map differs from the image in shape or position, or has levels out of range.
    """
    levels = read_predicted_mask(file, record, root)
    try:
        return dict(count_pixels(levels.astype(int), merge_channels(truth), ignored).to_row())
    except ValueError as error:
        raise ModelError(f"predict.py wrote an anomaly map of {record.key} that cannot be used: {error}") from error


def _make_case(row: Mapping[str, Any], with_scores: bool, with_maps: bool = False) -> DetectionCase:
    has_boxes = "truth" in row
    return DetectionCase(
        row["image"],
        row["patient"],
        figures=unpack_figures(row.get("figures", {})),
        lesions={name: LesionCounts(*counts) for name, counts in row.get("lesions", {}).items()},
        predicted=_parse_boxes(row["predicted"]) if has_boxes else None,
        truth=_parse_boxes(row["truth"]) if has_boxes else None,
        anomaly_score=row["anomaly_score"] if with_scores else None,
        abnormal=row["abnormal"] if with_scores else None,
        pixels=pixel_counts_from_row(row["pixels"]) if with_maps else None,
    )


def _parse_boxes(raw: Sequence[Any]) -> tuple[Box, ...]:
    return tuple(Box(tuple(corners), label, score) for corners, label, score in raw)


def find_best_boxes(images: Sequence[tuple[Box, ...]], classes: Sequence[str]) -> tuple[Box, ...]:
    """Return the boxes of the training image that have the highest average precision as the answer to all images.

    Args:
        images: the boxes of each image, relative to its size (0 to 1).
    """
    best: tuple[float, tuple[Box, ...]] = (-1.0, ())
    for boxes in [image for image in images if image][:MAX_CANDIDATE_IMAGES]:
        cases = [DetectionCase(str(n), "", predicted=boxes, truth=truth) for n, truth in enumerate(images)]
        value = score_detection(cases, classes, primary="map_50", draws=0).primary.value
        if value > best[0]:
            best = (value, boxes)
    return best[1]


def _to_relative_boxes(record: Record, root: Path) -> tuple[Box, ...] | None:
    sizes = _image_extent(record, root)
    return tuple(
        Box(tuple(v / s for v, s in zip(box.box, sizes * 2, strict=True)), box.label)
        for box in record.boxes or ()
        if len(box.box) == 2 * len(sizes)
    )


def _to_absolute_boxes(boxes: Sequence[Box], record: Record, root: Path) -> list[Any]:
    sizes = _image_extent(record, root)
    return [[[v * s for v, s in zip(box.corners, sizes * 2, strict=True)], box.label, 1.0] for box in boxes]


def _image_extent(record: Record, root: Path) -> tuple[float, ...]:
    """Return the extent of the image along the axes of its boxes."""
    from m3b.dataset.reading import box_extent

    return box_extent(image_of(record), str(root))


def box_distance(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Return one minus the score-weighted overlap of two sets of boxes; 0 if both sets are empty.

    Boxes of one label are paired greedily by IoU. A pair contributes its IoU times the lower of its two scores, counted
    for both boxes; the sum is divided by the total score of all boxes.
    """
    total_score = sum(max(score, 0.0) for _, _, score in (*first, *second))
    if not total_score:
        return 0.0
    pairs = sorted(
        ((_box_iou(a[0], b[0]), n, m) for n, a in enumerate(first) for m, b in enumerate(second) if a[1] == b[1]),
        reverse=True,
    )
    matched: tuple[set[int], set[int]] = (set(), set())
    shared = 0.0
    for overlap, n, m in pairs:
        if n not in matched[0] and m not in matched[1]:
            matched[0].add(n)
            matched[1].add(m)
            shared += 2 * overlap * min(max(first[n][2], 0.0), max(second[m][2], 0.0))
    return float(1.0 - min(shared / total_score, 1.0))


def _box_iou(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the IoU of two boxes (lower corner, then upper corner); 0 for boxes of different dimensions."""
    if len(first) != len(second):
        return 0.0
    half = len(first) // 2

    def box_volume(box: Sequence[float]) -> float:
        edge_lengths = [max(high - low, 0.0) for low, high in zip(box[:half], box[half:], strict=True)]
        return float(math.prod(edge_lengths))

    intersection = box_volume([*map(max, first[:half], second[:half]), *map(min, first[half:], second[half:])])
    union = box_volume(first) + box_volume(second) - intersection
    return intersection / union if union > 0 else 0.0


FAMILY = Detection()
