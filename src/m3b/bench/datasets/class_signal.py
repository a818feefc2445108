"""Planted class signals with a known best possible score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassSizeModel:
    """A measurable size, normally distributed around the mean of each class; neighbouring classes overlap."""

    means: tuple[float, ...]
    sd: float

    def draw(self, random: np.random.Generator, class_index: int) -> float:
        """Return a random size for a case of a class, at most 2.5 standard deviations from its mean."""
        return self.means[class_index] + self.sd * float(np.clip(random.standard_normal(), -2.5, 2.5))

    def posterior(self, sizes: Sequence[float]) -> Floats:
        """Return the class probabilities (cases, classes) of an observer who measures the size exactly.

        All classes are equally frequent.
        """
        distances = (np.asarray(sizes)[:, None] - np.asarray(self.means)[None]) / self.sd
        weights = np.exp(-0.5 * (distances**2 - (distances**2).min(axis=1, keepdims=True)))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def ceiling(self, class_indices: Sequence[int], sizes: Sequence[float]) -> float:
        """Return the macro AUROC of that observer on these cases."""
        return macro_auroc(class_indices, self.posterior(sizes))


def swap_some_classes(
    random: np.random.Generator, class_indices: Sequence[int], share: float, classes: int
) -> list[int]:
    """Return the class that the images of each patient show: for about `share` of the patients, not the true one."""
    shown_classes = list(class_indices)
    for index in random.choice(len(shown_classes), size=round(share * len(shown_classes)), replace=False):
        shown_classes[index] = int((shown_classes[index] + random.integers(1, classes)) % classes)
    return shown_classes


def compute_swap_ceiling(truth: Sequence[int], shown_classes: Sequence[int], classes: int, share: float) -> float:
    """Return the macro AUROC of an observer who sees the shown class; for many cases `1 - share * K / (2 (K - 1))`."""
    posteriors = np.full((classes, classes), share / (classes - 1)) + np.eye(classes) * (
        1 - share - share / (classes - 1)
    )
    return macro_auroc(truth, posteriors[np.asarray(shown_classes)])


def macro_auroc(truth: Sequence[int], belief: Floats) -> float:
    """Return the mean one-vs-rest AUROC over the classes that occur; ties count half (Mann-Whitney)."""
    target = np.asarray(truth)
    areas = []
    for number in range(belief.shape[1]):
        positives, negatives = belief[target == number, number], belief[target != number, number]
        if len(positives) and len(negatives):
            area = (positives[:, None] > negatives[None]).mean() + 0.5 * (positives[:, None] == negatives[None]).mean()
            areas.append(float(area))
    return float(np.mean(areas))
