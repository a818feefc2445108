"""Checks of what a model gets in addition to the image: it differs, is known, and does not tell the answer alone."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from m3b.data.index import Index
from m3b.data.kinds.covariates import numeric
from m3b.data.kinds.survival import EVENT
from m3b.data.records import Record
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding, join_names

MIN_TELLING = 0.95
"""Area under the curve, balanced accuracy or rank correlation of a covariate from which on it tells the answer alone."""
MIN_SIDE_CASES = 5
"""Cases that a class, and the others, must have for that to be said."""
MAX_UNKNOWN_SHARE = 0.5
MIN_UNKNOWN_DIFFERENCE = 0.5
"""By how much the share of unknown values may differ between classes."""


class CovariateCheck(AuditCheck):
    """A check of each covariate that differs among training cases."""

    def find(self, data: AuditData) -> Iterator[Finding]:
        for name in data.index.covariates:
            values = [record.covariates[name] for record in data.index.train]
            distinct = {value for value in values if value is not None}
            if (len(distinct) < 2) == (self.code == "covariate_constant") and (
                text := self.describe(name, values, data.index)
            ):
                yield self.make_finding(f"The covariate {name!r} {text}")

    @abstractmethod
    def describe(self, name: str, values: Sequence[Any], index: Index) -> str:
        """Return what is wrong, or an empty text."""


class CovariateConstant(CovariateCheck):
    """A covariate that is the same, or unknown, in every training case."""

    code = "covariate_constant"
    remedy = "Leave it out."

    def describe(self, name: str, values: Sequence[Any], index: Index) -> str:
        return "is the same, or unknown, in every training case: a model learns nothing from it."


class CovariateUnknown(CovariateCheck):
    """A covariate that is unknown for most training cases."""

    code = "covariate_unknown"

    def describe(self, name: str, values: Sequence[Any], index: Index) -> str:
        missing = values.count(None)
        if missing <= MAX_UNKNOWN_SHARE * len(values):
            return ""
        return f"is unknown of {missing} of {len(values)} training cases; the model will seldom see it."


class CovariateNew(CovariateCheck):
    """A category that only test cases have."""

    code = "covariate_new"

    def describe(self, name: str, values: Sequence[Any], index: Index) -> str:
        if numeric(name, index.train):
            return ""
        new = {str(value) for record in index.test if (value := record.covariates[name]) is not None} - set(values)
        if not new:
            return ""
        return f"has values in testing that no training case has ({join_names(sorted(new))}); they count as unknown."


class CovariateTells(CovariateCheck):
    """A covariate that tells the answer without the image."""

    code = "covariate_tells"

    def describe(self, name: str, values: Sequence[Any], index: Index) -> str:
        strength = _compare_unknown_shares(name, index) or _measure_strength(name, index)
        if not strength:
            return ""
        return (
            f"alone tells the answer ({strength}): it may have been written down after the diagnosis, or stand for where a case "
            "comes from. Leave it out unless it is known before the image is read; the model is compared with what the "
            "covariates give without the image."
        )


def _measure_strength(name: str, index: Index) -> str:
    """How well a covariate alone tells the target of training cases, in words; empty if it does not."""
    records = [record for record in index.train if record.covariates[name] is not None]
    values = [record.covariates[name] for record in records]
    if any(EVENT in record.extra for record in records):
        return ""  # the concordance of the covariates alone is measured with the model
    numbers = [record.extra["value"] for record in records if "value" in record.extra]
    if numbers:
        measure, strength = "rank correlation", _correlate_ranks(values, numbers)
    elif numeric(name, index.train):
        measure = "AUROC"
        strength = max((_compute_auroc(values, records, class_name) for class_name in index.classes), default=0.0)
    else:
        measure, strength = "balanced accuracy", _compute_balanced_accuracy(values, records, index.classes)
    return f"{measure} {strength:.2f}" if strength >= MIN_TELLING else ""


def _compare_unknown_shares(name: str, index: Index) -> str:
    """Whether it is unknown in one class and known in another, as values that are measured in the ill alone."""
    shares = {}
    for class_name in index.classes:
        unknown = [record.covariates[name] is None for record in index.train if class_name in record.labels]
        if len(unknown) >= MIN_SIDE_CASES:
            shares[class_name] = sum(unknown) / len(unknown)
    if len(shares) < 2:
        return ""
    low, high = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    if shares[high] - shares[low] <= MIN_UNKNOWN_DIFFERENCE:
        return ""
    return f"it is unknown of {shares[high]:.0%} of {high} and {shares[low]:.0%} of {low}"


def _compute_auroc(values: Sequence[Any], records: Sequence[Record], class_name: str) -> float:
    """Of a class against the others, in the better direction (Mann and Whitney)."""
    import numpy as np
    from scipy.stats import rankdata

    truth = np.array([class_name in record.labels for record in records])
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if min(positives, negatives) < MIN_SIDE_CASES:
        return 0.0
    area = (float(rankdata(values)[truth].sum()) - positives * (positives + 1) / 2) / (positives * negatives)
    return max(area, 1 - area)


def _compute_balanced_accuracy(values: Sequence[Any], records: Sequence[Record], classes: Sequence[str]) -> float:
    """Of the commonest class of each value, leaving out the case itself; only cases of a single class count."""
    cases = [
        (value, record.labels[0]) for value, record in zip(values, records, strict=True) if len(record.labels) == 1
    ]
    table: dict[Any, Counter[str]] = defaultdict(Counter)
    for value, label in cases:
        table[value][label] += 1
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for value, label in cases:
        remaining = table[value] - Counter({label: 1})
        total[label] += 1
        right[label] += bool(remaining) and remaining.most_common(1)[0][0] == label
    frequent = [name for name in classes if total[name] >= MIN_SIDE_CASES]
    return sum(right[name] / total[name] for name in frequent) / len(frequent) if len(frequent) > 1 else 0.0


def _correlate_ranks(values: Sequence[Any], numbers: Sequence[float]) -> float:
    """Spearman's, without its sign; of categories the correlation with their mean number."""
    import numpy as np
    from scipy.stats import rankdata

    if any(isinstance(value, str) for value in values):
        means = {
            category: float(np.mean([n for value, n in zip(values, numbers, strict=True) if value == category]))
            for category in set(values)
        }
        if len(means) > len(values) / 3:
            return 0.0  # nearly a value a case: their means say nothing
        values = [means[value] for value in values]
    if len(values) < 2 * MIN_SIDE_CASES or len(set(values)) < 2 or len(set(numbers)) < 2:
        return 0.0
    return abs(float(np.corrcoef(rankdata(values), rankdata(numbers))[0, 1]))


CHECKS = (CovariateConstant(), CovariateUnknown(), CovariateNew(), CovariateTells())
