"""Is the model good enough to be delivered as a success?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .scores import Measure, Scores
from .vocabulary import COMPANION, LOWER_IS_BETTER

_BLIND = "an answer that ignores the image"


@dataclass(frozen=True)
class Verdict:
    """`ok`, and the reason in a sentence either way."""

    ok: bool
    reason: str


def judge(scores: Scores, acceptable: tuple[float, float | None] | None) -> Verdict:
    """Accept a model whose primary metric is in range and certainly better than an answer that ignores the image.

    Both must hold: the value lies in the acceptable range (where one is known), and the whole 95 % interval lies on
    the good side of the trivial baseline. A metric that a model without skill can win (sensitivity, specificity,
    calibration error, lesion precision and recall) is judged by its range, and its companion (balanced accuracy, AUROC,
    lesion F1) by the baseline.
    """
    main = scores.primary
    if not math.isfinite(main.value):
        return Verdict(False, f"{main.name} is undefined on this test set; it needs cases of every class it compares")
    problem = _out_of_range(main, acceptable)
    if problem:
        return Verdict(False, problem)
    compared = scores.metrics[COMPANION[main.name]] if main.name in COMPANION else main
    problem = _not_above_trivial(compared, "a constant prediction" if scores.task == "diagnosis" else _BLIND)
    if problem:
        return Verdict(False, problem)
    inside = "" if acceptable is None else f", inside the acceptable range {_span(acceptable)}"
    return Verdict(
        True, f"{main}{inside}, and {compared.name} is above the trivial {compared.baseline:.3f} for certain"
    )


def _span(acceptable: tuple[float, float | None]) -> str:
    low, high = acceptable
    return f"from {low:g}" if high is None else f"{low:g} to {high:g}"


def _out_of_range(main: Measure, acceptable: tuple[float, float | None] | None) -> str:
    if acceptable is None:
        return ""
    low, high = acceptable
    if main.value < low - 1e-9:
        return f"{main} is below the acceptable range {_span(acceptable)}"
    if high is not None and main.value > high + 1e-9:
        hint = "" if main.name in LOWER_IS_BETTER else "; look for test cases that leaked into training"
        return f"{main} is above the acceptable range {_span(acceptable)}{hint}"
    return ""


def _not_above_trivial(compared: Measure, rival: str) -> str:
    low, high, trivial = compared.low, compared.high, compared.baseline
    if low is None or high is None:
        return f"{compared}: without an interval nobody can say that it beats chance; more test patients are needed"
    if trivial is None:
        return f"{compared}: there is no trivial baseline to compare with"
    if compared.name in LOWER_IS_BETTER:
        if high >= trivial:
            return f"{compared} is not certainly below the {trivial:.3f} of {rival}"
        return ""
    if low <= trivial:
        return f"{compared} is not certainly above the {trivial:.3f} of {rival}"
    return ""
