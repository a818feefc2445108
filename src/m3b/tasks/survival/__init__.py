"""Survival: the time until an event."""

from m3b.tasks.survival.family import FAMILY
from m3b.tasks.survival.metrics import SurvivalCase, score_survival

__all__ = ["FAMILY", "SurvivalCase", "score_survival"]
