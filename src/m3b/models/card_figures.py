"""The figures of a model card: tables of what was measured, and what so many patients are worth."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from m3b.data.kinds import DEFAULT
from m3b.measure import UNKNOWN_PATIENTS
from m3b.writing import one_line

from .answers import names, of
from .kinds import AnswerKind

FEW_PATIENTS = 10
_UNITS = {
    "mm": "mm",
    "px": "pixels, as the images name no spacing",
    "mixed": "mm, or pixels where an image names no spacing",
}


_OR_ALONE = ", or what the covariates alone give (a regression on the training cases), whichever is better"


def answers_of(task: Any) -> AnswerKind:
    """The answers of a task as a card names it; of none those of a diagnosis."""
    return of(str(task) if task in names() else DEFAULT)


def escaped(value: Any) -> str:
    """Any value as one line that Markdown shows as it stands."""
    text = one_line(re.sub(r"\s+", " ", str(value)).strip())
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def number(value: Any) -> str:
    """Three decimals, or a dash."""
    return f"{value:.3f}" if isinstance(value, int | float) and not isinstance(value, bool) else "-"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a Markdown table and an empty one; `head` is Markdown already."""
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(escaped(cell) for cell in row) for row in rows]
    return [f"| {line} |" for line in lines] + [""]


def _span(measure: Mapping[str, Any]) -> str:
    low, high = measure.get("low"), measure.get("high")
    return "-" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def measured(scores: Mapping[str, Any], less_is_better: Collection[str] = ()) -> list[str]:
    """The section of figures: every metric with interval and baseline, then label by label, then counts.

    Args:
        less_is_better: metrics of which that has to be said.
    """
    metrics = scores.get("metrics") or {}
    if not metrics:
        return []
    rows = [
        (name, number(one.get("value")), _span(one), number(one.get("baseline")))
        for name, one in metrics.items()
        if one.get("value") is not None or one.get("baseline") is not None
    ]
    known = scores.get("patients_known", True)
    about = (
        f"{scores.get('n_cases', '?')} test cases{_of_whom(scores) if known else ''} that training never saw, measured by "
        f"m3b on the predictions of this folder{'' if known else f'; {UNKNOWN_PATIENTS}'}. Intervals: 95 %, bootstrap over "
        f"{'patients' if known else 'cases'}. Image-blind baseline: {answers_of(scores.get('task')).blind}"
        f"{_OR_ALONE if (scores.get('details') or {}).get('covariates_alone') else ''}."
    )
    lower = [name for name in metrics if name in less_is_better]
    notes = [f"Of {', '.join(map(escaped, lower))} less is better."] if lower else []
    unit = str((scores.get("details") or {}).get("distance_unit", "mixed"))
    notes += [f"hd95 is in {_UNITS.get(unit, unit)}."] if "hd95" in metrics else []
    lines = ["## Measured", "", about, "", *table(("metric", "value", "95 % interval", "image-blind baseline"), rows)]
    return [
        *lines,
        *([" ".join(notes), ""] if notes else []),
        *_each(scores),
        *_subgroups(scores),
        *_counted(scores.get("details") or {}),
    ]


def _of_whom(scores: Mapping[str, Any]) -> str:
    return f" of {scores.get('n_patients', '?')} patients"


def _each(scores: Mapping[str, Any]) -> list[str]:
    """One row a label (or class), one column a metric; diagnosis has AUROC alone."""
    labels = [(one.get("name"), one.get("n"), one.get("metrics") or {}) for one in scores.get("per_label") or ()]
    if not labels:
        classes = scores.get("per_class") or ()
        if len(classes) < 3 and not scores.get("multi_label"):
            return []
        labels = [(one.get("name"), one.get("n"), {"auroc": one.get("auroc") or {}}) for one in classes]
    names = list(dict.fromkeys(name for _, _, metrics in labels for name in metrics))
    rows = [(name, n, *(_cell(metrics.get(one) or {}) for one in names)) for name, n, metrics in labels]
    return ["### Each label", "", *table(("label", "cases", *map(escaped, names)), rows)] if names else []


def _subgroups(scores: Mapping[str, Any]) -> list[str]:
    """The primary metric by sex, age and what else the data says of its cases."""
    groups, name = (scores.get("details") or {}).get("subgroups") or {}, (scores.get("primary") or {}).get("name", "")
    rows = [
        (attribute, one["group"], one["n"], _cell(one["measure"]) if one["measure"] else "too few, or not defined")
        for attribute, some in groups.items()
        for one in some
    ]
    return ["### Subgroups", "", *table(("attribute", "group", "cases", escaped(name)), rows)] if rows else []


def external_sets(sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """The section of figures on data of other places: the run's metric on each set, then what was noted of it.

    Args:
        sets: as `m3b.run.result.ExternalSet.to_dict` gives them.
    """
    if not sets:
        return []
    rows = [
        (one["name"], one["cases"] or "-", "unknown" if one["patients"] is None else one["patients"],
         (one.get("primary") or {}).get("name", "-"), _cell(one.get("primary") or {}),
         number((one.get("primary") or {}).get("baseline")))
        for one in sets
    ]  # fmt: skip
    notes = [f"- {escaped(one['name'])}: {escaped(' '.join(told))}" for one in sets
             if (told := [text for text in (one["reason"] and f"not measured: {one['reason']}", *one["notes"]) if text])]  # fmt: skip
    about = "Test sets of other places, which no agent and no training saw; measured by m3b like the test cases."
    head = ("set", "cases", "patients", "metric", "value (95 % interval)", "image-blind baseline")
    return ["### External test sets", "", about, "", *table(head, rows), *([*notes, ""] if notes else [])]


def _cell(measure: Mapping[str, Any]) -> str:
    span = _span(measure)
    return number(measure.get("value")) + (f" ({span})" if span != "-" else "")


def _counted(details: Mapping[str, Any]) -> list[str]:
    """Lesions found and missed, labels missed and invented, different texts: plain sentences."""
    found = []
    for name, counts in (details.get("lesions") or {}).items():
        if isinstance(counts, Mapping):
            found.append(f"{name}: " + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in counts.items()))
    words = {"missed": "missed altogether in", "invented": "marked where there is none in"}
    for key, text in words.items():
        for name, count in (details.get(key) or {}).items():
            if count:
                found.append(f"{name}: {text} {count} of the test cases")
    found += [*_agreement(details), *_doubts(details)]
    if isinstance(details.get("distinct"), int):
        found.append(f"{details['distinct']} different texts")
    if isinstance(details.get("baseline"), str):
        found.append(f"image-blind baseline of masks: {details['baseline']}")
    return [*(f"- {escaped(line)}" for line in found), ""] if found else []


def _agreement(details: Mapping[str, Any]) -> list[str]:
    """Bias, limits of agreement and how often intervals hold, of predicted numbers."""
    told, limits, spans = [], details.get("limits_of_agreement"), details.get("intervals")
    if isinstance(limits, list) and len(limits) == 2:
        ends = f"{number(limits[0])} to {number(limits[1])}"
        told.append(f"bias (mean of predicted minus true) {number(details.get('bias'))}, limits of agreement {ends}")
    if isinstance(spans, Mapping):
        told.append(
            f"{spans['promised']:.0%} intervals hold the true number in {spans['held']:.0%} of the test cases, "
            f"{number(spans.get('mean_width'))} wide on average"
        )
    return told


def _doubts(details: Mapping[str, Any]) -> list[str]:
    """How many test images were flagged as unlike the training ones, and how often prediction sets hold the truth."""
    told, unlike, sets = [], details.get("out_of_distribution"), details.get("prediction_sets")
    if isinstance(unlike, Mapping):
        told.append(f"{unlike['flagged']} of {unlike['n']} test images are flagged as unlike the training images")
    if isinstance(sets, Mapping) and sets.get("held") is not None:
        told.append(
            f"{sets['promised']:.0%} prediction sets hold {sets['held']:.0%} of the true labels of the test cases, with "
            f"{sets['mean_size']:.2f} classes on average; the model abstains from {sets['abstained']} of {sets['n']}"
        )
    return told


def worth(scores: Mapping[str, Any], train_patients: int | None = None) -> list[str]:
    """What few patients are worth, in plain words; nothing where there are enough.

    The bound is the exact (Clopper-Pearson) one for a failure that was never seen: 1 - 0.05^(1/n).
    """
    found = []
    known = scores.get("patients_known", True)
    tested, word = (scores.get("n_patients"), "patient") if known else (scores.get("n_groups"), "case")
    if isinstance(tested, int) and 0 < tested < FEW_PATIENTS:
        unseen = 1 - 0.05 ** (1 / tested)
        noun = f"1 test {word}" if tested == 1 else f"{tested} test {word}s"
        found.append(
            f"{noun} cannot show how well the model works: a failure that happens in {unseen:.0%} of all {word}s may "
            f"well not have happened in any of {'one' if tested == 1 else tested}. Read the figures as a sign that the "
            "model runs, not as its quality."
        )
    if isinstance(train_patients, int) and 0 < train_patients < FEW_PATIENTS:
        noun = "1 patient" if train_patients == 1 else f"{train_patients} patients"
        found.append(
            f"Trained on {noun}: what differs from patient to patient was hardly seen, so expect it to be worse on the "
            "next one."
        )
    return found
