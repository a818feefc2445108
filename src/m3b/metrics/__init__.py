"""Trusted metrics: what m3b itself measures on predictions, never what a script says about itself."""

from .cases import Case
from .diagnosis import score_diagnosis
from .scores import ClassScore, Measure, Scores
from .verdict import Verdict, judge
from .vocabulary import CANONICAL, LOWER_IS_BETTER, canonical_metric, metric_names

__all__ = [
    "CANONICAL",
    "LOWER_IS_BETTER",
    "Case",
    "ClassScore",
    "Measure",
    "Scores",
    "Verdict",
    "canonical_metric",
    "judge",
    "metric_names",
    "score_diagnosis",
]
