"""Classification cases: a test image with its true labels and the model's probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


def divide(numerator: Floats, denominator: Floats) -> Floats:
    """Return `numerator / denominator`, NaN where `denominator` is zero."""
    result = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def mean_defined(values: Floats) -> Floats:
    """Return the mean over the last axis of values that are not NaN; NaN if there are none."""
    is_defined = ~np.isnan(values)
    total = np.where(is_defined, values, 0.0).sum(axis=-1)
    return divide(total, is_defined.sum(axis=-1).astype(np.float64))


Floats = NDArray[np.float64]

PROBABILITY_SUM_TOLERANCE = 0.02
"""Allowed distance of the sum of exclusive class probabilities from 1; half-precision models round by about 0.005."""

_PROBABILITY_EDGE = 1e-6


@dataclass(frozen=True)
class ClassificationCase:
    """One test case.

    Args:
        image: name of the case in messages, usually its path.
        patient: cases of one patient are resampled together; empty means a patient of its own.
        labels: the true classes: exactly one if classes are exclusive, any number in a multi-label task.
        probabilities: class -> probability in [0, 1], every class exactly once.
        decision: the classes that the model decides for, by thresholds of its own; None for the most probable class, or
            every finding at 0.5 and above.
        unknown: classes of a multi-label task of which nobody knows whether they apply; no metric of them counts the case.
    """

    image: str
    patient: str
    labels: tuple[str, ...]
    probabilities: Mapping[str, float]
    decision: tuple[str, ...] | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClassificationTable:
    """Validated cases as arrays.

    `truth`, `decision`, `probability` and `known` (whether the truth is) are (cases, classes), `patient` is (cases,) numbers from 0.
    """

    classes: tuple[str, ...]
    multi_label: bool
    truth: NDArray[np.bool_]
    probability: Floats
    patient: NDArray[np.int64]
    decision: NDArray[np.bool_]
    known: NDArray[np.bool_]

    @property
    def negative(self) -> NDArray[np.bool_]:
        """(cases, classes) whether a class is known not to apply."""
        return self.known & ~self.truth

    @property
    def n_cases(self) -> int:
        """Number of cases."""
        return int(self.truth.shape[0])

    @property
    def n_patients(self) -> int:
        """Number of different patients."""
        return int(self.patient.max()) + 1

    @property
    def target(self) -> NDArray[np.int64]:
        """(cases,) number of the true class; only for exclusive classes."""
        return np.asarray(self.truth.argmax(axis=1), dtype=np.int64)


def tabulate(cases: Sequence[ClassificationCase], classes: Sequence[str], multi_label: bool) -> ClassificationTable:
    """Validate every case and convert the cases to arrays.

    Raises:
        ValueError: no cases, doubled or too few classes, or a case whose labels or probabilities cannot be scored;
            the message names the case by position and image.
    """
    names = tuple(classes)
    if len(set(names)) != len(names):
        raise ValueError(f"classes must differ from each other, got {list(names)}")
    if len(names) < (1 if multi_label else 2):
        raise ValueError(f"too few classes to tell apart: {list(names)}")
    if not cases:
        raise ValueError("no cases to score: the list of predictions is empty")
    for number, case in enumerate(cases):
        problem = _labels_problem(case, names, multi_label) or _probabilities_problem(case, names, multi_label)
        problem = problem or _decision_problem(case, names, multi_label)
        if problem:
            raise ValueError(f"case {number} ({case.image}): {problem}")
    truth = np.array([[name in case.labels for name in names] for case in cases], dtype=np.bool_)
    known = np.array([[name not in case.unknown for name in names] for case in cases], dtype=np.bool_)
    probability = np.array([[case.probabilities[name] for name in names] for case in cases], dtype=np.float64)
    probability = np.clip(probability, 0.0, 1.0)
    return ClassificationTable(
        names,
        multi_label,
        truth,
        probability,
        patient_numbers(cases),
        _decisions(cases, probability, names, multi_label),
        known,
    )


def _decisions(
    cases: Sequence[ClassificationCase], probability: Floats, classes: tuple[str, ...], multi_label: bool
) -> NDArray[np.bool_]:
    """Return (cases, classes) decisions.

    They are the model's own, else the most probable class (the first of equals) or all findings at 0.5 and above.
    """
    decision = probability >= 0.5
    if not multi_label:
        decision = probability.argmax(axis=1)[:, None] == np.arange(len(classes))
    for row, case in zip(decision, cases, strict=True):
        if case.decision is not None:
            row[:] = [name in case.decision for name in classes]
    return decision


class HasPatient(Protocol):
    """Anything that belongs to a patient; an empty name means a patient of its own."""

    @property
    def patient(self) -> str: ...


def patient_numbers(cases: Sequence[HasPatient]) -> NDArray[np.int64]:
    """Return (cases,) the number of each case's patient, from 0 in the order of their first cases."""
    numbers: dict[tuple[str, int], int] = {}
    keys = [(case.patient, -1) if case.patient else ("", index) for index, case in enumerate(cases)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _labels_problem(case: ClassificationCase, classes: tuple[str, ...], multi_label: bool) -> str:
    unknown = [label for label in case.labels if label not in classes]
    if unknown:
        return f"unknown label {unknown[0]!r}; the classes are {list(classes)}"
    if not multi_label and len(case.labels) != 1:
        return f"exactly one label is needed where classes are exclusive, got {list(case.labels)}"
    if case.unknown and (not multi_label or set(case.unknown) & set(case.labels)):
        return f"{list(case.unknown)} cannot be unknown: classes are exclusive, or the case has these labels"
    return ""


def _decision_problem(case: ClassificationCase, classes: tuple[str, ...], multi_label: bool) -> str:
    decision = case.decision
    if decision is None:
        return ""
    unknown = [label for label in decision if label not in classes]
    if unknown:
        return f"decided for {unknown[0]!r}; the classes are {list(classes)}"
    if not multi_label and len(decision) != 1:
        return f"exactly one class is decided for where classes are exclusive, got {list(decision)}"
    return ""


def _probabilities_problem(case: ClassificationCase, classes: tuple[str, ...], multi_label: bool) -> str:
    probabilities = case.probabilities
    missing = [name for name in classes if name not in probabilities]
    if missing:
        return f"no probability for class {missing[0]!r}"
    extra = [name for name in probabilities if name not in classes]
    if extra:
        return f"a probability for {extra[0]!r}, which is not one of the classes {list(classes)}"
    for name in classes:
        value = probabilities[name]
        if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)):
            return f"the probability of {name!r} is not a number: {value!r}"
        if not math.isfinite(value) or not -_PROBABILITY_EDGE <= value <= 1 + _PROBABILITY_EDGE:
            return f"the probability of {name!r} is {value}, outside [0, 1]"
    total = math.fsum(probabilities[name] for name in classes)
    if not multi_label and abs(total - 1) > PROBABILITY_SUM_TOLERANCE:
        return f"the probabilities of exclusive classes sum to {total:.4g}, not 1"
    return ""
