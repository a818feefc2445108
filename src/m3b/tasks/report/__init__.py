"""Report generation: a text about an image."""

from m3b.tasks.report.baselines import (
    ImageUse,
    best_constant_reports,
    draw_random_reports,
    measure_image_use,
    shuffle_between_patients,
)
from m3b.tasks.report.family import FAMILY
from m3b.tasks.report.findings import Findings, extract_findings
from m3b.tasks.report.metrics import ReportCase, count_distinct_texts, score_reports

__all__ = [
    "FAMILY",
    "Findings",
    "ImageUse",
    "ReportCase",
    "best_constant_reports",
    "count_distinct_texts",
    "draw_random_reports",
    "extract_findings",
    "measure_image_use",
    "score_reports",
    "shuffle_between_patients",
]
