"""The verdict: whether a model is good enough to be delivered as a success."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from m3b.metrics.metric_tables import lower_is_better, metric_table

from .scores import Measure, Scores

MIN_VERDICT_PATIENTS = 5
"""Minimum number of test patients for a verdict.

With two classes, those of the rarer one count if the metric weighs both alike.

An interval of fewer patients depends on what is assumed, not on what is seen.
"""


MAX_NOISE_CHANGE, MAX_CROP_CHANGE = 0.15, 0.2
"""Mean change of a prediction, 0 to 1, above which it depends on the exact pixels of an image, or on its framing."""
MAX_SHUFFLE_P_VALUE = 0.05
"""Share of shuffles that may reach a report's value; above it, the gain from the report's own image is not certain."""
MIN_NOTED_NOISE_CHANGE = 0.05
"""Mean change under noise from which the verdict mentions it: a good model may contain a look-up table."""


@dataclass(frozen=True)
class ModelVerdict:
    """Whether the model is accepted (`ok`), and the reason in a sentence either way.

    Args:
        is_open: whether there are too few patients for a verdict.
    """

    ok: bool
    reason: str
    is_open: bool = False


def judge(scores: Scores, acceptable: tuple[float, float | None] | None, split_name: str = "test") -> ModelVerdict:
    """Accept a model whose primary metric is in range and whose predictions beat every image-blind baseline.

    All must hold:

    - There are enough test patients.
    - The value lies in the acceptable range, if one is known.
    - The 95 % interval lies on the good side of the image-blind baseline; the interval of the paired difference counts
      if the baseline depends on the cases. A classifier's decisions (balanced accuracy) have to pass this too.
    - No other main metric of the task is worse than its baseline with its whole interval.
    - A report is better with its own image than with that of another patient.
    - Predictions do not change much if invisible noise is added to test images.

    A metric that a model without skill can win (sensitivity, specificity, calibration error, lesion precision and
    recall) is judged by its range, and its companion (balanced accuracy, AUROC, lesion F1) by the baseline.

    If a metric is worse than its baseline, but not with its whole interval, the reason of an accepted model mentions
    it.

    Args:
        split_name: what the cases are called: `test` or `validation`.
    """
    main = scores.primary
    if not math.isfinite(main.value):
        return ModelVerdict(
            False, f"{main.name} is undefined on this test set; it needs cases of every class it compares"
        )
    companion = metric_table(scores.task).companions.get(main.name)
    compared = scores.metrics[companion] if companion else main
    problems = (
        _check_patient_count(scores, compared, split_name),
        _check_range(main, acceptable),
        *_check_baselines(scores, compared, split_name),
    )
    for problem in problems:
        if problem:
            return ModelVerdict(False, problem, is_open=problem is problems[0])
    range_note = "" if acceptable is None else f", inside the acceptable range {_format_range(acceptable)}"
    name = "" if compared is main else f"{compared.name}'s "
    reason = f"{main}{range_note}: {name}{_describe_gain(compared)}"
    return ModelVerdict(True, "; but ".join([reason, *_caveats(scores)]))


def _format_range(acceptable: tuple[float, float | None]) -> str:
    low, high = acceptable
    return f"from {low:g}" if high is None else f"{low:g} to {high:g}"


def _check_patient_count(scores: Scores, compared: Measure, split_name: str) -> str:
    count, class_note = scores.n_patients, ""
    uses_rarer_class = (
        metric_table(scores.task).uses_rarer_class and len(scores.classes) == 2 and not scores.multi_label
    )
    if (
        count >= MIN_VERDICT_PATIENTS
        and uses_rarer_class
        and compared.patients is not None
        and compared.patients < count
    ):
        count, class_note = compared.patients, " of the rarer class"
    if count >= MIN_VERDICT_PATIENTS:
        return ""
    unit = f"{split_name} patient" if scores.patients_known else f"{split_name} case"
    patients = f"1 {unit}" if count == 1 else f"{count} {unit}s"
    return f"{scores.primary}: only {patients}{class_note}; at least {MIN_VERDICT_PATIENTS} are needed for a verdict"


def _check_range(main: Measure, acceptable: tuple[float, float | None] | None) -> str:
    if acceptable is None:
        return ""
    low, high = acceptable
    if main.value < low - 1e-9:
        return f"{main} is below the acceptable range {_format_range(acceptable)}"
    if high is not None and main.value > high + 1e-9:
        hint = "" if lower_is_better(main.name) else "; look for test cases that leaked into training"
        return f"{main} is above the acceptable range {_format_range(acceptable)}{hint}"
    return ""


def _check_baselines(scores: Scores, compared: Measure, split_name: str) -> Iterator[str]:
    """Yield the problems other than the range, the most important first; empty texts if there are none."""
    yield _check_gain(compared, split_name)
    task_metrics = metric_table(scores.task)
    if task_metrics.decision_metric and compared.name != task_metrics.decision_metric:
        problem = _check_gain(scores.metrics[task_metrics.decision_metric], split_name)
        yield problem and f"{scores.primary}, but its decisions are no better than a constant one: {problem}"
    # A classifier tuned to be sensitive to a rare disease is rightly less accurate than answering "healthy" for
    # everybody.
    for measure in _measures_with_baseline(scores, task_metrics.guarded_metrics):
        if _gain_interval(measure)[1] < 0:
            yield f"{scores.primary}, but {measure} is worse than the image-blind baseline ({measure.baseline:.3f})"
    yield _check_image_use(scores)
    yield _check_memorisation(scores)


def _check_gain(compared: Measure, split_name: str) -> str:
    if compared.low is None or compared.high is None:
        return f"{compared}: it has no interval, so it may be chance; more {split_name} cases are needed"
    if compared.baseline is None:
        return f"{compared}: there is no image-blind baseline to compare with"
    min_gain, max_gain = _gain_interval(compared)
    if min_gain > 0:
        return ""
    side = "below" if lower_is_better(compared.name) else "above"
    baseline_text = f"the image-blind baseline ({compared.baseline:.3f})"
    if compared.gain is None:
        return f"{compared}: its 95 % CI is not {side} {baseline_text}"
    return f"{compared}: the paired gain on {baseline_text} may be nothing (95 % CI {min_gain:.3f} to {max_gain:.3f})"


def _gain_interval(measure: Measure) -> tuple[float, float]:
    """Return the least and the largest gain over the baseline; NaN if it is unknown."""
    if measure.gain is not None:
        return measure.gain
    if measure.low is None or measure.high is None or measure.baseline is None:
        return math.nan, math.nan
    if lower_is_better(measure.name):
        return measure.baseline - measure.high, measure.baseline - measure.low
    return measure.low - measure.baseline, measure.high - measure.baseline


def _describe_gain(compared: Measure) -> str:
    """Describe the position of the interval relative to the baseline, for a metric that is better."""
    lower, baseline = lower_is_better(compared.name), compared.baseline or 0.0
    side, bound = ("below", compared.high) if lower else ("above", compared.low)
    if bound is not None and (bound < baseline if lower else bound > baseline):
        return f"95 % CI {side} the image-blind baseline ({baseline:.3f})"
    min_gain, max_gain = _gain_interval(compared)
    return f"paired gain on the image-blind baseline ({baseline:.3f}) {min_gain:.3f} to {max_gain:.3f} (95 % CI)"


def _measures_with_baseline(scores: Scores, metric_names: Sequence[str]) -> list[Measure]:
    names = [name for name in metric_names if name in scores.metrics and name != scores.primary.name]
    return [scores.metrics[name] for name in names if scores.metrics[name].baseline is not None]


def _caveats(scores: Scores) -> Iterator[str]:
    """Yield metrics that are worse than their baseline, perhaps by chance, and dependence on the framing."""
    change = _control_change(scores, "noise")
    if MIN_NOTED_NOISE_CHANGE < change <= MAX_NOISE_CHANGE:
        yield f"predictions change by {change:.2f} on average if invisible noise is added to test images"
    change = _control_change(scores, "crop")
    if change > MAX_CROP_CHANGE:
        yield (
            f"predictions change by {change:.2f} on average if a test image is cropped slightly; a look-up table of "
            "images behaves like this, and so does a model that was never trained on such crops"
        )
    task_metrics = metric_table(scores.task)
    for measure in _measures_with_baseline(scores, (*task_metrics.guarded_metrics, *task_metrics.noted_metrics)):
        baseline = measure.baseline or 0.0
        worse = measure.value > baseline if lower_is_better(measure.name) else measure.value < baseline
        if worse:
            yield f"{measure.name} {measure.value:.3f} is worse than the image-blind baseline ({baseline:.3f})"


def _control_change(scores: Scores, control: str) -> float:
    """Return the mean change of predictions on altered copies of test images; 0 if none were predicted."""
    control_result = (scores.details.get("control") or {}).get(control) or {}
    return float(control_result.get("change", 0.0))


def _check_memorisation(scores: Scores) -> str:
    """Return the problem if predictions depend on the exact pixels; empty if not, or if that was not measured."""
    change = _control_change(scores, "noise")
    if change <= MAX_NOISE_CHANGE:
        return ""
    return (
        f"{scores.primary}, but the predictions change by {change:.2f} on average if invisible noise is added to test "
        "images; a look-up table of images behaves like this, and its metrics say nothing about new images"
    )


def _check_image_use(scores: Scores) -> str:
    """Return the problem if a report is no better with its own image than with another patient's.

    Empty if it is better, or if that was not measured.

    This is a permutation test, not an interval of the difference: with few patients, few of whom have a finding,
    bootstrap samples spread so far that even texts that none of 200 shuffles comes near would not be distinguished from
    blind ones.
    """
    use = scores.details.get("image_use")
    if not use or (use["own_image"] > use["other_image"] and use["chance"] <= MAX_SHUFFLE_P_VALUE):
        return ""
    return (
        f"{scores.primary}, but the reports do not depend on the image: {use['metric']} {use['own_image']:.3f} with its own "
        f"image, {use['other_image']:.3f} with that of another patient (as good by chance in {use['chance']:.0%} of shuffles)"
    )
