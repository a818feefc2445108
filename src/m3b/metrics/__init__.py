"""Trusted metrics: m3b computes them itself from predictions, and never takes a script's own word for them.

Diagnosis needs NumPy only. Mask metrics import SciPy and are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from m3b.metrics.metric_tables import MetricTable, canonical_metric, metric_names

from .cases import ClassificationCase
from .diagnosis import score_diagnosis
from .scores import ClassScore, LabelScore, Measure, Scores
from .verdict import ModelVerdict, judge

if TYPE_CHECKING:
    from m3b.metrics.bootstrap import score_means
    from m3b.metrics.detection import DetectionCase
    from m3b.metrics.mean_shape import Atlas, build_atlas
    from m3b.metrics.report_baselines import (
        ImageUse,
        best_constant_reports,
        draw_random_reports,
        measure_image_use,
        shuffle_between_patients,
    )
    from m3b.metrics.reports import ReportCase, count_distinct_texts, score_reports

    from .boxes import Box, box_iou
    from .detection import score_detection
    from .findings import Findings, extract_findings
    from .grading import score_grading
    from .lesions import LesionCounts, match_lesions, measure_channels
    from .masks import LabelMetrics, measure_mask, measure_masks
    from .regression import RegressionCase, score_regression
    from .segmentation import SegmentationCase, score_segmentation
    from .survival import SurvivalCase, score_survival

_LAZY_NAMES = {
    "boxes": ("Box", "box_iou"),
    "bootstrap": ("score_means",),
    "detection": ("DetectionCase", "score_detection"),
    "findings": ("Findings", "extract_findings"),
    "grading": ("score_grading",),
    "lesions": ("LesionCounts", "match_lesions", "measure_channels"),
    "masks": ("LabelMetrics", "measure_mask", "measure_masks"),
    "mean_shape": ("Atlas", "build_atlas"),
    "regression": ("RegressionCase", "score_regression"),
    "report_baselines": (
        "ImageUse",
        "best_constant_reports",
        "draw_random_reports",
        "measure_image_use",
        "shuffle_between_patients",
    ),
    "reports": ("ReportCase", "count_distinct_texts", "score_reports"),
    "segmentation": ("SegmentationCase", "score_segmentation"),
    "survival": ("SurvivalCase", "score_survival"),
}
_MODULE_OF_NAME = {name: module for module, names in _LAZY_NAMES.items() for name in names}

__all__ = [
    "Atlas",
    "Box",
    "ClassificationCase",
    "ClassScore",
    "DetectionCase",
    "Findings",
    "ImageUse",
    "LabelMetrics",
    "LabelScore",
    "LesionCounts",
    "Measure",
    "MetricTable",
    "RegressionCase",
    "ReportCase",
    "Scores",
    "SegmentationCase",
    "SurvivalCase",
    "ModelVerdict",
    "best_constant_reports",
    "box_iou",
    "build_atlas",
    "canonical_metric",
    "count_distinct_texts",
    "measure_image_use",
    "judge",
    "match_lesions",
    "measure_channels",
    "measure_mask",
    "measure_masks",
    "metric_names",
    "draw_random_reports",
    "score_detection",
    "score_diagnosis",
    "score_grading",
    "score_means",
    "score_regression",
    "score_reports",
    "score_segmentation",
    "score_survival",
    "shuffle_between_patients",
    "extract_findings",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF_NAME[name]}", __name__), name)
