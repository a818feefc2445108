"""The files that m3b writes next to a delivered model: model card, metrics and provenance."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from m3b.data.kinds import DEFAULT
from m3b.measure import UNKNOWN_PATIENTS_NOTE
from m3b.models.answers import AnswerFormat, answer_format_of, answer_tasks
from m3b.models.checksums import PROVENANCE_FILE, hash_files
from m3b.writing import to_one_line, write_text_atomically

MIN_RELIABLE_PATIENTS = 10
_DISTANCE_UNIT_TEXTS = {
    "mm": "mm",
    "px": "pixels, as the images name no spacing",
    "mixed": "mm, or pixels where an image names no spacing",
}


_COVARIATES_BASELINE_NOTE = (
    ", or what the covariates alone give (a regression on the training cases), whichever is better"
)


def answer_format_for(task: Any) -> AnswerFormat:
    """Return the answer format of a task as a card names it; that of a diagnosis if the task is unknown."""
    return answer_format_of(str(task) if task in answer_tasks() else DEFAULT)


def escape_markdown(value: Any) -> str:
    """Return any value as one line that Markdown shows literally."""
    text = to_one_line(re.sub(r"\s+", " ", str(value)).strip())
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def remove_file_names(note: str) -> str:
    """Return a note without the files that it gives as examples, since file names may identify patients."""
    shortened = re.sub(r",?\s*e\.g\. .*?(?=;|\.\s|\.?$)", "", note)
    return re.sub(r"\bdata/\S+?(?=[,;)]|\.?(?:\s|$))", "a file", shortened)


def format_number(value: Any) -> str:
    """Return a number with three decimals, or a dash."""
    return f"{value:.3f}" if isinstance(value, int | float) and not isinstance(value, bool) else "-"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a Markdown table and an empty line; `head` is Markdown already."""
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(escape_markdown(cell) for cell in row) for row in rows]
    return [f"| {line} |" for line in lines] + [""]


def _format_interval(measure: Mapping[str, Any]) -> str:
    low, high = measure.get("low"), measure.get("high")
    return "-" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def format_metrics_section(scores: Mapping[str, Any], lower_is_better_metrics: Collection[str] = ()) -> list[str]:
    """Return the section of metrics: every metric with interval and baseline, then each label, then counts.

    Args:
        lower_is_better_metrics: metrics for which the card says that lower is better.
    """
    metrics = scores.get("metrics") or {}
    if not metrics:
        return []
    rows = [
        (name, format_number(measure.get("value")), _format_interval(measure), format_number(measure.get("baseline")))
        for name, measure in metrics.items()
        if measure.get("value") is not None or measure.get("baseline") is not None
    ]
    patients_known = scores.get("patients_known", True)
    patient_count = f" of {scores.get('n_patients', '?')} patients" if patients_known else ""
    introduction = (
        f"{scores.get('n_cases', '?')} test cases{patient_count} that training never saw, measured by "
        f"m3b on the predictions of this folder{'' if patients_known else f'; {UNKNOWN_PATIENTS_NOTE}'}. Intervals: "
        f"95 %, bootstrap over "
        f"{'patients' if patients_known else 'cases'}. Image-blind baseline: "
        f"{answer_format_for(scores.get('task')).baseline_description}"
        f"{_COVARIATES_BASELINE_NOTE if (scores.get('details') or {}).get('covariates_alone') else ''}."
    )
    lower_is_better = [name for name in metrics if name in lower_is_better_metrics]
    notes = [f"Lower is better for {', '.join(map(escape_markdown, lower_is_better))}."] if lower_is_better else []
    unit = str((scores.get("details") or {}).get("distance_unit", "mixed"))
    notes += [f"hd95 is in {_DISTANCE_UNIT_TEXTS.get(unit, unit)}."] if "hd95" in metrics else []
    lines = [
        "## Measured",
        "",
        introduction,
        "",
        *markdown_table(("metric", "value", "95 % interval", "image-blind baseline"), rows),
    ]
    return [
        *lines,
        *([" ".join(notes), ""] if notes else []),
        *_format_per_label(scores),
        *_format_subgroups(scores),
        *_format_counts(scores),
    ]


def _format_per_label(scores: Mapping[str, Any]) -> list[str]:
    """Return a table with one row a label (or class) and one column a metric; diagnosis only has AUROC."""
    labels = [
        (entry.get("name"), entry.get("n"), entry.get("metrics") or {}) for entry in scores.get("per_label") or ()
    ]
    if not labels:
        classes = scores.get("per_class") or ()
        if len(classes) < 3 and not scores.get("multi_label"):
            return []
        labels = [(entry.get("name"), entry.get("n"), {"auroc": entry.get("auroc") or {}}) for entry in classes]
    names = list(dict.fromkeys(name for _, _, metrics in labels for name in metrics))
    rows = [(name, n, *(_format_measure(metrics.get(entry) or {}) for entry in names)) for name, n, metrics in labels]
    return (
        ["### Each label", "", *markdown_table(("label", "cases", *map(escape_markdown, names)), rows)] if names else []
    )


def _format_subgroups(scores: Mapping[str, Any]) -> list[str]:
    """Return a table of the primary metric by sex, age and other attributes of the cases."""
    groups, name = (scores.get("details") or {}).get("subgroups") or {}, (scores.get("primary") or {}).get("name", "")
    rows = [
        (
            attribute,
            subgroup["group"],
            subgroup["n"],
            _format_measure(subgroup["measure"]) if subgroup["measure"] else "too few, or not defined",
        )
        for attribute, subgroups in groups.items()
        for subgroup in subgroups
    ]
    return (
        ["### Subgroups", "", *markdown_table(("attribute", "group", "cases", escape_markdown(name)), rows)]
        if rows
        else []
    )


def format_external_sets(test_sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the section of external test sets: the run's metric on each set, then the notes on it.

    Args:
        test_sets: as `m3b.run.result.ExternalResult.to_dict` gives them.
    """
    if not test_sets:
        return []
    rows = [
        (test_set["name"], test_set["cases"] or "-", "unknown" if test_set["patients"] is None else test_set["patients"],
         (test_set.get("primary") or {}).get("name", "-"), _format_measure(test_set.get("primary") or {}),
         format_number((test_set.get("primary") or {}).get("baseline")))
        for test_set in test_sets
    ]  # fmt: skip
    notes = []
    for test_set in test_sets:
        failure = f"not measured: {test_set['reason']}" if test_set["reason"] else ""
        if remarks := [text for text in (failure, *test_set["notes"]) if text]:
            notes.append(f"- {escape_markdown(test_set['name'])}: {escape_markdown(' '.join(remarks))}")
    introduction = (
        "Test sets from other sites, which no agent and no training saw; measured by m3b like the test cases."
    )
    head = ("set", "cases", "patients", "metric", "value (95 % interval)", "image-blind baseline")
    return [
        "### External test sets",
        "",
        introduction,
        "",
        *markdown_table(head, rows),
        *([*notes, ""] if notes else []),
    ]


def _format_measure(measure: Mapping[str, Any]) -> str:
    span = _format_interval(measure)
    return format_number(measure.get("value")) + (f" ({span})" if span != "-" else "")


def _format_counts(scores: Mapping[str, Any]) -> list[str]:
    """Return sentences on what the details of the scores count, and on reliability."""
    details = scores.get("details") or {}
    lines = [*answer_format_for(scores.get("task")).describe_details(details), *_format_reliability(details)]
    return [*(f"- {escape_markdown(line)}" for line in lines), ""] if lines else []


def _format_reliability(details: Mapping[str, Any]) -> list[str]:
    """Return how many test images were flagged as out of distribution, and the coverage of prediction sets."""
    lines, ood, prediction_sets = [], details.get("out_of_distribution"), details.get("prediction_sets")
    if isinstance(ood, Mapping):
        lines.append(f"{ood['flagged']} of {ood['n']} test images are flagged as unlike the training images")
    if verbatim := details.get("verbatim"):
        lines.append(
            f"control not possible for {verbatim} test cases: their files could not be reduced to pixels and geometry, so "
            "predict.py could have read answers from texts in them"
        )
    if isinstance(prediction_sets, Mapping) and prediction_sets.get("held") is not None:
        lines.append(
            f"{prediction_sets['promised']:.0%} prediction sets hold {prediction_sets['held']:.0%} of the true "
            f"labels of the test cases, with "
            f"{prediction_sets['mean_size']:.2f} classes on average; the model abstains from "
            f"{prediction_sets['abstained']} of {prediction_sets['n']}"
        )
    return lines


def sample_size_caveats(scores: Mapping[str, Any], train_patients: int | None = None) -> list[str]:
    """Return what few patients mean, in plain words; empty if there are enough.

    The bound is the exact (Clopper-Pearson) one for a failure that was never seen: 1 - 0.05^(1/n).
    """
    caveats = []
    patients_known = scores.get("patients_known", True)
    n_tested, unit = (scores.get("n_patients"), "patient") if patients_known else (scores.get("n_groups"), "case")
    if isinstance(n_tested, int) and 0 < n_tested < MIN_RELIABLE_PATIENTS:
        undetected_rate = 1 - 0.05 ** (1 / n_tested)
        noun = f"1 test {unit}" if n_tested == 1 else f"{n_tested} test {unit}s"
        caveats.append(
            f"{noun} cannot show how well the model works: a failure that happens in {undetected_rate:.0%} of all {unit}s may "
            f"well not have happened in any of {'one' if n_tested == 1 else n_tested}. Read the figures as a sign that the "
            "model runs, not as its quality."
        )
    if isinstance(train_patients, int) and 0 < train_patients < MIN_RELIABLE_PATIENTS:
        noun = "1 patient" if train_patients == 1 else f"{train_patients} patients"
        caveats.append(
            f"Trained on {noun}: what differs from patient to patient was hardly seen, so expect it to be worse on the "
            "next one."
        )
    return caveats


_STANDARD_LIMITS = (
    "A research model, not a medical device: no decision about a patient may rest on it.",
    "Measured on one test split of the data named above; other scanners, hospitals and populations may differ.",
)


class SupportsToDict(Protocol):
    """The interface of `m3b.metrics.Scores` that this module needs."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""


def _format_facts(info: Mapping[str, Any]) -> list[str]:
    keys = (
        "request",
        "task",
        "data",
        "patients",
        "grouped by",
        "classes",
        "channels",
        "given beside the image",
        "network",
        "set by the user",
        "training",
        "integrity",
        "seed",
        "made",
    )
    rows = []
    for key in keys:
        value = info.get(key)
        if value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{name}: {item}" for name, item in value.items())
        elif isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        rows.append((key.capitalize(), value))
    return ["## What it is", "", *markdown_table(("", ""), rows)] if rows else []


def _format_split(info: Mapping[str, Any]) -> list[str]:
    split = info.get("split")
    if not isinstance(split, Mapping) or not split:
        return []
    names = sorted({name for counts in split.values() if isinstance(counts, Mapping) for name in counts})
    if not names:
        return []
    rows = [
        (part, *(counts.get(name, 0) for name in names))
        for part, counts in split.items()
        if isinstance(counts, Mapping)
    ]
    return ["## Cases", "", *markdown_table(("split", *map(escape_markdown, names)), rows)]


_USAGE_TEMPLATE = """## Use

    pip install -r requirements.txt
    python predict.py {images} -o predictions.json

{answer} The folder needs nothing outside itself; weights are safetensors.
"""


_CHANNELS_NOTE = (
    "A case is {number} images by name; those after the first are put on the grid of {first}, "
    "and a missing one is an error. "
)


_COVARIATES_NOTE = (
    "The model is given {names} beside the image; `NAME=` stands for one that is not known, and a missing one is an error. "
    'In a `--list` a case is `{{"image": ..., "NAME": value or null}}`. '
)


def _format_usage(info: Mapping[str, Any]) -> str:
    names = [str(name) for name in info.get("channels") or ()]
    images = " ".join(f"{escape_markdown(name)}=IMAGE" for name in names) if names else "IMAGE..."
    covariate_names = [str(name).split(" (")[0] for name in info.get("given beside the image") or ()]
    images += (
        " --with " + " ".join(f"{escape_markdown(name)}=VALUE" for name in covariate_names) if covariate_names else ""
    )
    input_notes = _CHANNELS_NOTE.format(number=len(names), first=escape_markdown(names[0])) if names else ""
    input_notes += _COVARIATES_NOTE.format(names=escape_markdown(", ".join(covariate_names))) if covariate_names else ""
    return _USAGE_TEMPLATE.replace("{images}", images).replace(
        "{answer}", input_notes + answer_format_for(info.get("task")).usage
    )


def _count_patients(info: Mapping[str, Any], split: str) -> int | None:
    """Return the number of patients of a split, if `patients` lists it by split."""
    patients = info.get("patients")
    count = patients.get(split) if isinstance(patients, Mapping) else None
    return count if isinstance(count, int) else None


def write_model_card(folder: Path, info: Mapping[str, Any]) -> Path:
    """Write README.md.

    Args:
        info: any of `assumptions` (list of text), `title`, `summary`,
            `request`, `task`, `data`, `patients`, `classes`, `channels`, `network`,
            `training`, `integrity`, `seed`, `made` (text, list or mapping), `split` ({split: {class: cases}}), `scores`
            (`Scores.to_dict()`), `acceptable` ([low, high or None]), `verdict` (text), `limits` (list of text),
            `less_is_better` (names of metrics), `external` (list of `ExternalResult.to_dict()`).
    """
    lines = [f"# {escape_markdown(info.get('title') or 'A model made by m3b')}", ""]
    if info.get("summary"):
        lines += [escape_markdown(info["summary"]), ""]
    if info.get("assumptions"):
        lines += [*(f"- Assumption: {escape_markdown(text)}" for text in info["assumptions"]), ""]
    lines += (
        _format_facts(info)
        + _format_split(info)
        + format_metrics_section(info.get("scores") or {}, info.get("less_is_better") or ())
    )
    lines += format_external_sets(info.get("external") or ())
    if info.get("acceptable"):
        low, high = info["acceptable"]
        lines += [f"Acceptable range: {low:g} to {high:g}." if high is not None else f"Acceptable from {low:g}.", ""]
    if info.get("verdict"):
        lines += [f"Verdict: {escape_markdown(info['verdict'])}", ""]
    caveats = sample_size_caveats(info.get("scores") or {}, _count_patients(info, "train"))
    limits = [*caveats, *(info.get("limits") or ()), *_STANDARD_LIMITS]
    lines += [_format_usage(info), "## Limits", "", *(f"- {escape_markdown(limit)}" for limit in limits), ""]
    write_text_atomically(folder / "README.md", "\n".join(lines))
    return folder / "README.md"


def write_metrics(folder: Path, scores: SupportsToDict | Mapping[str, Any]) -> Path:
    """Write metrics.json: `Scores.to_dict()`, from the scores or as a mapping."""
    content = dict(scores) if isinstance(scores, Mapping) else scores.to_dict()
    write_text_atomically(
        folder / "metrics.json", json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )
    return folder / "metrics.json"


def write_provenance(folder: Path, info: Mapping[str, Any]) -> Path:
    """Write provenance.json: `info`, and under `files` the SHA-256 of every other file of the folder.

    Raises:
        ValueError: `info` holds NaN or infinity, which JSON cannot represent.
    """
    provenance_file = folder / PROVENANCE_FILE
    content = {**info, "files": hash_files(folder)}
    write_text_atomically(
        provenance_file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    )
    return provenance_file
