"""Diagnosis: classes of an image, with probabilities."""

from m3b.tasks.diagnosis.family import FAMILY
from m3b.tasks.diagnosis.metrics import score_diagnosis

__all__ = ["FAMILY", "score_diagnosis"]
