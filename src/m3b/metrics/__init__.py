"""Estimators that several tasks share, and the verdict; each task has its own metrics in its package (`m3b.tasks`).

m3b computes metrics itself from predictions, and never takes a script's own word for them. SciPy is imported when masks
are measured.
"""

from m3b.metrics.bootstrap import score_means
from m3b.metrics.boxes import Box, box_iou
from m3b.metrics.cases import ClassificationCase
from m3b.metrics.masks import LabelMetrics, measure_mask, measure_masks
from m3b.metrics.mean_shape import Atlas, build_atlas
from m3b.metrics.metric_tables import MetricTable, canonical_metric, metric_names
from m3b.metrics.scores import ClassScore, LabelScore, Measure, Scores
from m3b.metrics.verdict import ModelVerdict, judge

__all__ = [
    "Atlas",
    "Box",
    "ClassScore",
    "ClassificationCase",
    "LabelMetrics",
    "LabelScore",
    "Measure",
    "MetricTable",
    "ModelVerdict",
    "Scores",
    "box_iou",
    "build_atlas",
    "canonical_metric",
    "judge",
    "measure_mask",
    "measure_masks",
    "metric_names",
    "score_means",
]
