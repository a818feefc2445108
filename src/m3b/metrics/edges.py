"""Confidence limits at the edge of a metric, where resampling sees no spread.

A test set without a single error can only be resampled into sets without errors, so the bootstrap would claim
certainty. The limits here ask instead which populations would have given such a test set with a probability of at least
2.5 %:

- For one share over `n` patients this is the exact binomial limit `0.025 ** (1 / n)` (Clopper & Pearson, Biometrika 26,
  1934; the "rule of three", Hanley & Lippman-Hand, JAMA 249, 1983).
- For a mean over labels, and for any metric to which patients contribute unequally, it is the limit of Buehler (JASA
  52, 1957): the worst value over all chances of a right answer, one for each patient, whose product is at least 2.5 %.
  A patient fails as a whole, on all labels, so that errors may depend on each other in any way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .cases import ClassificationTable, Floats

LEVEL = 0.95
TOLERANCE = 1e-12
"""Values closer than this are equal."""


@dataclass(frozen=True)
class Edge:
    """An extreme value of a metric, and the other confidence limit of an answer that reaches it."""

    value: float
    limit: float


def largest_unseen_share(n_patients: int) -> float:
    """Return the largest population share that `n_patients` patients miss entirely with a probability of 2.5 %."""
    return float(1 - ((1 - LEVEL) / 2) ** (1 / n_patients)) if n_patients > 0 else 1.0


def largest_loss(stakes: Floats) -> float:
    """Return how much a perfect value may lose in the population (Buehler's limit).

    Minimises the sum of `stakes * chance` over the patients' chances of a right answer whose product is 2.5 %. The
    solution is `chance = level / stake`, at most 1, for the patients with the largest stakes.

    Args:
        stakes: (patients,) how much the value loses if the patient is answered wrongly.
    """
    ordered = np.sort(stakes[stakes > 0])[::-1]
    if not len(ordered):
        return 1.0
    logs = np.cumsum(np.log(ordered))
    count = np.arange(1, len(ordered) + 1)
    levels = np.exp((np.log((1 - LEVEL) / 2) + logs) / count)
    last = int(np.flatnonzero(levels <= ordered)[-1])
    return float((ordered[: last + 1] - levels[last]).sum())


def sum_by_patient(patient: NDArray[np.int64], case_stakes: Floats) -> Floats:
    """Return (patients,) sums of (cases,) stakes."""
    return np.bincount(patient, weights=case_stakes, minlength=int(patient.max()) + 1).astype(np.float64)


def share_edges(loss: float) -> tuple[Edge, ...]:
    """Return both edges of a metric from 0 to 1, whose perfect value may lose `loss`."""
    loss = min(max(loss, 0.0), 1.0)
    return Edge(1.0, 1.0 - loss), Edge(0.0, loss)


def edges_of(
    loss: float, best: float | None, baseline: float | None, *, share: bool, lower_is_better: bool
) -> tuple[Edge, ...]:
    """Return the extreme values of a metric and the confidence limits there.

    A metric that is no share has no worst value. For it, an unseen patient counts as answered without its image (the
    image-blind baseline) or, if more is better, without any skill (0), whichever is further away.

    Args:
        loss: share of the value that a perfect answer may lose in the population.
        best: value of a perfect answer, None if it is not known.
        baseline: value of the image-blind baseline.
        share: whether the metric runs from 0 to 1.
    """
    if share:
        return share_edges(loss)
    if best is None:
        return ()
    distances = [best] if baseline is None or not np.isfinite(baseline) else [best, abs(best - baseline)]
    reach = max(distances)
    if reach <= 0:
        return ()
    return (Edge(best, best + reach * loss if lower_is_better else best - reach * loss),)


def widen(low: float, high: float, edges: Sequence[Edge]) -> tuple[float, float]:
    """Widen an interval that touches an edge, so that it is no narrower than at the edge itself.

    If resampling cannot exclude a perfect value, the other limit must not be closer than that of a perfect answer to
    the same patients: percentiles of one or two errors are too narrow.
    """
    start, end = low, high
    for edge in edges:
        if abs(start - edge.value) <= TOLERANCE or abs(end - edge.value) <= TOLERANCE:
            low, high = min(low, edge.limit), max(high, edge.limit)
    return low, high


def _label_stakes(columns: NDArray[np.bool_], is_defined: NDArray[np.bool_]) -> Floats:
    """Return (cases,) stakes in the mean, over labels, of a share of cases; `columns` (cases, labels) selects them."""
    defined_columns = columns[:, is_defined]
    stakes: Floats = (defined_columns / np.maximum(defined_columns.sum(axis=0), 1)).sum(axis=1) / max(
        int(is_defined.sum()), 1
    )
    return stakes


def class_losses(table: ClassificationTable) -> Mapping[str, float]:
    """Return how much each classification metric may lose in the population if it is perfect on the test cases.

    Each class or finding has its own counts: positives for the sensitivity, negatives for the specificity, both for the
    AUROC, in which a positive that is ranked last loses `1 / positives` and a negative that is ranked first
    `1 / negatives`. For F1 and the average precision, a false positive is set against the number of positives.
    """
    positive, negative = table.truth, table.negative
    n_positive, n_negative = positive.sum(axis=0), negative.sum(axis=0)
    has_positive, has_both = n_positive > 0, (n_positive > 0) & (n_negative > 0)
    binary = len(table.classes) == 2 and not table.multi_label
    ranked = has_both & np.array([False, True]) if binary else has_both
    m = np.maximum(n_positive, 1)
    # The last false positives that may be unseen are about 3.7; at the head of the list they cost the average precision
    # about this much each (the mean of i / (i + 3.7) over i = 1 ... m).
    head = np.log1p(m / -np.log((1 - LEVEL) / 2)) / m
    sensitivity, specificity = _label_stakes(positive, has_positive), _label_stakes(negative, n_negative > 0)
    both_sides = _label_stakes(positive, ranked) + _label_stakes(negative, ranked)

    def with_false_positives(cost: Floats, is_defined: NDArray[np.bool_]) -> Floats:
        false_positives: Floats = (negative * cost)[:, is_defined].sum(axis=1) / max(int(is_defined.sum()), 1)
        return _label_stakes(positive, is_defined) + false_positives

    stakes = {
        "auroc": both_sides,
        "sensitivity": _label_stakes(positive, ranked) if binary else sensitivity,
        "specificity": _label_stakes(negative, ranked) if binary else specificity,
        "balanced_accuracy": (
            (_label_stakes(positive, has_both) + _label_stakes(negative, has_both)) / 2
            if table.multi_label
            else sensitivity
        ),
        "f1": with_false_positives(1 / np.maximum(2 * m, n_negative), has_positive),
        "auprc": with_false_positives(head, ranked if binary else has_positive),
        "sensitivity_at_90_specificity": both_sides,
        "sensitivity_at_95_specificity": both_sides,
    }
    losses = {name: largest_loss(sum_by_patient(table.patient, column)) for name, column in stakes.items()}
    by_case = largest_loss(sum_by_patient(table.patient, np.full(table.n_cases, 1 / table.n_cases)))
    losses |= dict.fromkeys(("accuracy", "ece", "brier"), by_case)
    if int(ranked.sum()) == 1:
        losses["auroc"] = auroc_loss(table.patient, table.truth[:, int(ranked.argmax())])
    return losses


def perfect_labels_loss(table: ClassificationTable, areas: Floats) -> float:
    """Return how much the mean AUROC may lose on the findings or classes that are perfect.

    Args:
        areas: (labels,) AUROC of each, NaN where it is undefined.
    """
    is_defined, perfect = ~np.isnan(areas), areas >= 1 - TOLERANCE
    if not perfect.any():
        return 0.0
    stakes = _label_stakes(table.truth, perfect) + _label_stakes(table.negative, perfect)
    return largest_loss(sum_by_patient(table.patient, stakes)) * float(perfect.sum() / is_defined.sum())


def with_perfect_labels(
    value: float, bounds: tuple[float | None, float | None], loss: float
) -> tuple[float | None, float | None]:
    """Widen the interval of a mean below the edge by what its perfect labels may lose, which resampling cannot see.

    The distances to the lower limit are combined as in the MOVER method (Zou & Donner, Statistics in Medicine 27,
    2008).
    """
    low, high = bounds
    if low is None or high is None or loss <= 0 or value >= 1 - TOLERANCE:
        return bounds
    return max(0.0, min(low, value - float(np.hypot(value - low, loss)))), high


def auroc_loss(patient: NDArray[np.int64], positive: NDArray[np.bool_]) -> float:
    """Return how much a perfect AUROC of one label may lose in the population.

    A perfect AUROC ranks as many disjoint pairs of a positive and a negative correctly as the rarer side has patients;
    the loss is the exact binomial limit for that number. It is attained if patients of that side fail at random.
    """
    return largest_unseen_share(min(len(np.unique(patient[positive])), len(np.unique(patient[~positive]))))
