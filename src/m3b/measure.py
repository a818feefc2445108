"""One figure with its interval and what it is compared with. Light, so that a result can hold it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def finite_or_none(value: float | None) -> float | None:
    """A number as JSON can hold it: NaN and infinity become None."""
    return None if value is None or not math.isfinite(value) else float(value)


UNKNOWN_PATIENTS_NOTE = "patients unknown, so images of one person may be on both sides of the split"


def describe_unknown_patients(grouped_by: str = "") -> str:
    """What is said in place of a number of patients where nobody knows them.

    Args:
        grouped_by: what keeps images together all the same.
    """
    return f"{UNKNOWN_PATIENTS_NOTE} (kept together by {grouped_by})" if grouped_by else UNKNOWN_PATIENTS_NOTE


def to_number(value: object) -> float | None:
    """The value where it is a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def format_measure(measure: Mapping[str, Any] | None, *, with_baseline: bool = False) -> str:
    """`auroc 0.962 (95 % CI 0.946-0.976, n = 62)` of a measure as JSON has it; empty where there is none.

    Args:
        with_baseline: say what the image-blind baseline gets, too: `(..., n = 62; image-blind baseline 0.500)`.
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
    """One metric.

    Args:
        name: canonical name.
        value: the figure on all test cases; NaN where it is undefined.
        low: lower end of the 95 % interval, None where there is no honest one.
        high: upper end, likewise.
        n: number of test cases.
        baseline: what the best answer gets that never looks at an image; None where that says nothing.
        gain: 95 % interval of how much better than that the model is on the same cases, positive for better; None
            where the baseline is the same number for any cases (0.5 for AUROC), so that low and high say it all.
        patients: independent observations behind the figure: patients, of the rarest class where classes count alike.
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

    def to_dict(self) -> dict[str, Any]:
        """JSON values; an undefined figure is null."""
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
        """Undoes `to_dict`; keys of other versions are left out."""
        values = {key: value for key, value in raw.items() if key in cls.__dataclass_fields__}
        values["value"] = math.nan if values.get("value") is None else float(values["value"])
        gain = values.get("gain")
        values["gain"] = (float(gain[0]), float(gain[1])) if gain and None not in gain else None
        return cls(**{"low": None, "high": None, "n": 0, **values})
