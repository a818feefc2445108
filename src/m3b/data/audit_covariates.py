"""The audit of what a model is given beside the image: that it differs, is known, and does not tell the answer alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from m3b.data.audit_common import Finding, listed
from m3b.data.index import Index
from m3b.data.kinds.covariates import numeric
from m3b.data.kinds.survival import EVENT
from m3b.data.records import Record

TELLS = 0.95
"""Area under the curve, balanced accuracy or rank correlation of one covariate from which on it tells the answer alone."""
FEWEST = 5
"""Cases that a class, and a side, must have for that to be said."""
OFTEN_UNKNOWN = 0.5
UNKNOWN_TELLS = 0.5
"""Shares of cases of which a covariate is not known; and by how much such shares may differ between classes."""


def covariates(index: Index) -> list[Finding]:
    """Everything about the covariates of an index; nothing where it has none."""
    return [finding for name in index.covariates for finding in _of_one(name, index)]


def _of_one(name: str, index: Index) -> Iterator[Finding]:
    values = [record.covariates[name] for record in index.train]
    known = [value for value in values if value is not None]
    if len(set(known)) < 2:
        text = f"The covariate {name!r} is the same, or unknown, in every training case: a model learns nothing from it. Leave it out."
        yield Finding("covariate_constant", "warn", text)
        return
    missing = len(values) - len(known)
    if missing > OFTEN_UNKNOWN * len(values):
        text = f"The covariate {name!r} is unknown of {missing} of {len(values)} training cases; the model will seldom see it."
        yield Finding("covariate_unknown", "warn", text)
    if not numeric(name, index.train):
        new = {str(record.covariates[name]) for record in index.test if record.covariates[name] is not None} - set(
            known
        )
        if new:
            shown = listed(sorted(map(str, new)))
            text = f"The covariate {name!r} has values in testing that no training case has ({shown}); they count as unknown."
            yield Finding("covariate_new", "warn", text)
    if told := _unknown_tells(name, index) or _tells(name, index):
        text = (
            f"The covariate {name!r} alone tells the answer ({told}): it may have been written down after the diagnosis, or stand for "
            "where a case comes from. Leave it out unless it is known before the image is read; the model is compared with what "
            "the covariates give without the image."
        )
        yield Finding("covariate_tells", "warn", text)


def _tells(name: str, index: Index) -> str:
    """How well a covariate alone tells the target of training cases, in words; empty where it does not."""
    pairs = [(record.covariates[name], record) for record in index.train if record.covariates[name] is not None]
    target = [record for _, record in pairs]
    values = [value for value, _ in pairs]
    if any(EVENT in record.extra for record in target):
        return ""  # of times that are censored, how good the covariates are is for the measure to say
    numbers = [record.extra["value"] for record in target if "value" in record.extra]
    if numbers:
        strength = _correlation(values, numbers)
        return f"rank correlation {strength:.2f}" if strength >= TELLS else ""
    if numeric(name, index.train):
        best = max((_area(values, target, one) for one in index.classes), default=0.0)
        return f"AUROC {best:.2f}" if best >= TELLS else ""
    accuracy = _balanced(values, target, index.classes)
    return f"balanced accuracy {accuracy:.2f}" if accuracy >= TELLS else ""


def _unknown_tells(name: str, index: Index) -> str:
    """Whether it is unknown in one class and known in another, as values that are taken of the ill alone."""
    shares = {}
    for one in index.classes:
        mine = [record.covariates[name] is None for record in index.train if one in record.labels]
        if len(mine) >= FEWEST:
            shares[one] = sum(mine) / len(mine)
    if len(shares) < 2:
        return ""
    low, high = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    if shares[high] - shares[low] <= UNKNOWN_TELLS:
        return ""
    return f"it is unknown of {shares[high]:.0%} of {high} and {shares[low]:.0%} of {low}"


def _area(values: Sequence[Any], records: Sequence[Record], name: str) -> float:
    """Of a class against the rest, in the better direction (Mann and Whitney)."""
    import numpy as np
    from scipy.stats import rankdata

    truth = np.array([name in record.labels for record in records])
    inside, outside = int(truth.sum()), int((~truth).sum())
    if min(inside, outside) < FEWEST:
        return 0.0
    area = (float(rankdata(values)[truth].sum()) - inside * (inside + 1) / 2) / (inside * outside)
    return max(area, 1 - area)


def _balanced(values: Sequence[Any], records: Sequence[Record], classes: Sequence[str]) -> float:
    """Balanced accuracy of the commonest class of each value, cases of one class each; every value as the others of it say."""
    counts: dict[Any, Counter[str]] = defaultdict(Counter)
    cases = [
        (value, record.labels[0]) for value, record in zip(values, records, strict=True) if len(record.labels) == 1
    ]
    for value, label in cases:
        counts[value][label] += 1
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for value, label in cases:
        others = counts[value] - Counter({label: 1})
        total[label] += 1
        right[label] += bool(others) and others.most_common(1)[0][0] == label
    known = [one for one in classes if total[one] >= FEWEST]
    return sum(right[one] / total[one] for one in known) / len(known) if len(known) > 1 else 0.0


def _correlation(values: Sequence[Any], numbers: Sequence[float]) -> float:
    """Spearman's, without its sign; of categories the correlation with their mean number."""
    import numpy as np
    from scipy.stats import rankdata

    if any(isinstance(value, str) for value in values):
        means = {
            one: float(np.mean([n for v, n in zip(values, numbers, strict=True) if v == one])) for one in set(values)
        }
        if len(means) > len(values) / 3:
            return 0.0  # nearly a value a case: their means say nothing
        values = [means[value] for value in values]
    if len(values) < 2 * FEWEST or len(set(values)) < 2 or len(set(numbers)) < 2:
        return 0.0
    return abs(float(np.corrcoef(rankdata(values), rankdata(numbers))[0, 1]))
