"""Regression: a number in a unit for each image."""

from m3b.tasks.regression.family import FAMILY
from m3b.tasks.regression.metrics import RegressionCase, score_regression

__all__ = ["FAMILY", "RegressionCase", "score_regression"]
