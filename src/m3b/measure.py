"""A measured metric with its interval and baseline. This module is light, so that a result can use it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from m3b.display import make_html_interval, make_html_table


def finite_or_none(value: float | None) -> float | None:
    """Return a number for JSON: NaN and infinity become None."""
    return None if value is None or not math.isfinite(value) else float(value)


UNKNOWN_PATIENTS_NOTE = "patients unknown, so images of one person may be on both sides of the split"


def describe_unknown_patients(grouped_by: str = "") -> str:
    """Return the text in place of a number of patients if they are unknown.

    Args:
        grouped_by: what keeps images together instead.
    """
    return f"{UNKNOWN_PATIENTS_NOTE} (kept together by {grouped_by})" if grouped_by else UNKNOWN_PATIENTS_NOTE


def to_number(value: object) -> float | None:
    """Return the value as a float; None if it is no number, or too large for one."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def format_measure(measure: Mapping[str, Any] | None, *, with_baseline: bool = False) -> str:
    """Return text such as `auroc 0.962 (95 % CI 0.946-0.976, n = 62)` for a measure from JSON; '' if there is none.

    Args:
        with_baseline: add the image-blind baseline: `(..., n = 62; image-blind baseline 0.500)`.
    """
    value = to_number((measure or {}).get("value"))
    if measure is None or value is None:
        return ""
    low, high, baseline_value = (to_number(measure.get(key)) for key in ("low", "high", "baseline"))
    interval_text = "no interval" if low is None or high is None else f"95 % CI {low:.3f}-{high:.3f}"
    baseline_text = (
        f"; image-blind baseline {baseline_value:.3f}" if with_baseline and baseline_value is not None else ""
    )
    return f"{measure.get('name', '')} {value:.3f} ({interval_text}, n = {measure.get('n', '?')}{baseline_text})"


@dataclass(frozen=True)
class Measure:
    """One measured metric.

    Args:
        name: canonical name of the metric.
        value: the metric on all test cases; NaN if undefined.
        low: lower end of the 95 % interval; None if there is no valid one.
        high: upper end, likewise.
        n: number of test cases.
        baseline: the metric of the image-blind baseline; None if it is not informative.
        gain: 95 % interval of the model's advantage over the baseline on the same cases, positive if the model is
            better. None if the baseline is a constant (0.5 for AUROC), since low and high then suffice.
        patients: number of independent observations: patients, of the rarest class if classes are weighted equally.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    n: int
    baseline: float | None = None
    gain: tuple[float, float] | None = None
    patients: int | None = None

    def __str__(self) -> str:
        return format_measure(self.to_dict()) or f"{self.name} undefined"

    def _repr_html_(self) -> str:
        interval = "" if self.low is None or self.high is None else f"{self.low:.3f} to {self.high:.3f}"
        gain = "" if self.gain is None else f"{self.gain[0]:+.3f} to {self.gain[1]:+.3f}"
        rows = [
            ("value", f"{self.value:.3f}" if math.isfinite(self.value) else "undefined on these cases"),
            ("95 % interval", interval), ("test cases", self.n), ("patients", self.patients),
            ("image-blind baseline", "" if self.baseline is None else f"{self.baseline:.3f}"),
            ("advantage over it, 95 % interval", gain),
        ]  # fmt: skip
        bounds = [finite_or_none(number) for number in (self.low, self.high, self.baseline)]
        drawing = make_html_interval(self.value, *bounds) if math.isfinite(self.value) else ""
        return make_html_table(self.name, rows, drawing)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; an undefined metric is null."""
        return {
            "name": self.name,
            "value": finite_or_none(self.value),
            "low": finite_or_none(self.low),
            "high": finite_or_none(self.high),
            "n": self.n,
            "baseline": finite_or_none(self.baseline),
            "gain": None if self.gain is None else [finite_or_none(bound) for bound in self.gain],
            "patients": self.patients,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Measure:
        """Return the result of `to_dict`; keys of other versions are ignored."""
        values = {key: value for key, value in raw.items() if key in cls.__dataclass_fields__}
        values["value"] = math.nan if values.get("value") is None else float(values["value"])
        gain = values.get("gain")
        values["gain"] = (float(gain[0]), float(gain[1])) if gain and None not in gain else None
        return cls(**{"low": None, "high": None, "n": 0, **values})


def describe_test_looks(count: int) -> str:
    """Return how often the locked test cases were looked at, and what that means; '' for at most one look."""
    if count < 2:
        return ""
    return (
        f"look {count} at the locked test cases: they scored {count - 1} earlier model{'s' if count > 2 else ''} of this run, "
        "so the figure is less independent than that of a first look"
    )


def describe_test_sample(counts: Any) -> str:
    """Return that only a sample of the test part was measured; '' if all was.

    Args:
        counts: `cases`, `all_cases`, `patients` and `all_patients`.
    """
    if not isinstance(counts, Mapping) or not counts.get("all_cases"):
        return ""
    return (
        f"a random sample by patients of the {counts['all_cases']} test cases ({counts['patients']} of {counts['all_patients']} "
        "patients), since predicting all takes longer than the training"
    )
