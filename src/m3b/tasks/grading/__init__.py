"""Grading: one of several ordered grades of an image."""

from m3b.tasks.grading.family import FAMILY
from m3b.tasks.grading.metrics import score_grading

__all__ = ["FAMILY", "score_grading"]
