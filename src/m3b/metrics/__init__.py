"""Trusted metrics: what m3b itself measures on predictions, never what a script says about itself.

Diagnosis needs NumPy only; what measures masks imports SciPy, and is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .cases import Case
from .diagnosis import score_diagnosis
from .scores import ClassScore, LabelScore, Measure, Scores
from .table import MetricTable
from .verdict import ModelVerdict, judge
from .vocabulary import canonical_metric, metric_names

if TYPE_CHECKING:
    from .atlas import Atlas, build_atlas
    from .boxes import Box, box_iou
    from .constants import ImageUse, best_constants, image_use, random_reports, shuffled
    from .detection import score_detection
    from .detection_cases import DetectionCase
    from .findings import Findings, stated
    from .grading import score_grading
    from .lesions import LesionCounts, match_lesions, measure_channels
    from .masks import LabelFigures, measure_mask, measure_masks
    from .per_case import score_means
    from .regression import NumberCase, score_regression
    from .segmentation import SegmentationCase, score_segmentation
    from .survival import SurvivalCase, score_survival
    from .text import ReportCase, distinct_texts, score_reports

_LAZY_NAMES = {
    "atlas": ("Atlas", "build_atlas"),
    "boxes": ("Box", "box_iou"),
    "constants": ("ImageUse", "best_constants", "image_use", "random_reports", "shuffled"),
    "detection": ("score_detection",),
    "detection_cases": ("DetectionCase",),
    "findings": ("Findings", "stated"),
    "grading": ("score_grading",),
    "lesions": ("LesionCounts", "match_lesions", "measure_channels"),
    "masks": ("LabelFigures", "measure_mask", "measure_masks"),
    "per_case": ("score_means",),
    "regression": ("NumberCase", "score_regression"),
    "segmentation": ("SegmentationCase", "score_segmentation"),
    "survival": ("SurvivalCase", "score_survival"),
    "text": ("ReportCase", "distinct_texts", "score_reports"),
}
_HOMES = {name: module for module, names in _LAZY_NAMES.items() for name in names}

__all__ = [
    "Atlas",
    "Box",
    "Case",
    "ClassScore",
    "DetectionCase",
    "Findings",
    "ImageUse",
    "LabelFigures",
    "LabelScore",
    "LesionCounts",
    "Measure",
    "MetricTable",
    "NumberCase",
    "ReportCase",
    "Scores",
    "SegmentationCase",
    "SurvivalCase",
    "ModelVerdict",
    "best_constants",
    "box_iou",
    "build_atlas",
    "canonical_metric",
    "distinct_texts",
    "image_use",
    "judge",
    "match_lesions",
    "measure_channels",
    "measure_mask",
    "measure_masks",
    "metric_names",
    "random_reports",
    "score_detection",
    "score_diagnosis",
    "score_grading",
    "score_means",
    "score_regression",
    "score_reports",
    "score_segmentation",
    "score_survival",
    "shuffled",
    "stated",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
