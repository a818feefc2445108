"""Tables of the quality of delivered models on hidden cases, and of how the other runs ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from m3b.bench.cell_verdict import KIND_DESCRIPTIONS
from m3b.bench.datasets.registry import get_dataset
from m3b.bench.tables.base import (
    ResultTable,
    Row,
    format_ratio,
    format_ratio_with_interval,
    group_rows,
    order_tasks,
)
from m3b.errors import UsageError

UNKNOWN_PATIENTS_MARK = " *"
"""Appended to the name of a row whose data set does not record patients."""
UNKNOWN_PATIENTS_NOTE = (
    "* this data set does not record patients: images of one person may be both hidden and used for training, and "
    "intervals are over cases."
)
UNINFORMATIVE_KINDS = ("provider", "not_installed", "crashed", "cancelled")


def make_quality_table(rows: Sequence[Row]) -> ResultTable:
    """Return the table of metrics of the delivered models on hidden cases, and with shuffled images."""
    table_rows = []
    has_unknown_patients = False
    scored_rows = [row for row in rows if row.get("score") and row["score"].get("primary")]
    for (task, system, model), group in sorted(group_rows(scored_rows, "task", "system", "model").items()):
        first_score = group[0]["score"]["primary"]
        values = [row["score"]["primary"]["value"] for row in group if row["score"]["primary"]["value"] is not None]
        if not values:
            continue
        shuffled_values = [v for row in group if (v := (row["score"].get("control") or {}).get("value")) is not None]
        low, high = group[0]["score"]["acceptable"] or (None, None)
        range_text = "" if low is None else f"{low:g}-{high:g}" if high is not None else f">= {low:g}"
        interval_text = (
            f" ({first_score['low']:.3f}-{first_score['high']:.3f})"
            if len(group) == 1 and first_score.get("low") is not None
            else ""
        )
        baseline_text = f"{first_score['baseline']:.3f}" if first_score.get("baseline") is not None else ""
        patients_mark = "" if _has_known_patients(str(group[0].get("dataset") or "")) else UNKNOWN_PATIENTS_MARK
        has_unknown_patients = has_unknown_patients or bool(patients_mark)
        table_rows.append((f"{task} / {system} / {model}{patients_mark}", first_score["name"], str(len(values)),
                     f"{sum(values) / len(values):.3f}{interval_text}", f"{min(values):.3f}-{max(values):.3f}", range_text,
                     baseline_text,
                     f"{sum(shuffled_values) / len(shuffled_values):.3f}" if shuffled_values else ""))  # fmt: skip
    header = (
        "task / system / model",
        "metric",
        "models",
        "mean",
        "min-max",
        "acceptable",
        "baseline",
        "images shuffled",
    )
    return ResultTable(
        "quality",
        "Models on hidden cases",
        header,
        tuple(table_rows),
        (UNKNOWN_PATIENTS_NOTE,) if has_unknown_patients else (),
    )


FIELD_NOTES = (
    "Reading: right; refused, wrong, or wrong_passed if a model was delivered from a wrong reading. Completed: the reading is right, "
    "and the whole interval on hidden patients is above the baseline.",
    "Hidden patients: mean over models, with the interval of a single one. Empty: no model, or no hidden patient; the last column "
    "says which.",
)


def make_field_table(rows: Sequence[Row]) -> ResultTable:
    """Return the table of field sets, with one row for each set, system and model, and a sum for each system and model."""
    table_rows = []
    for (task, system, model), group in sorted(group_rows(rows, "task", "system", "model").items()):
        scores = [row["score"]["primary"] for row in group if (row.get("score") or {}).get("primary")]
        values = [score["value"] for score in scores if score["value"] is not None]
        baselines = [score["baseline"] for score in scores if score.get("baseline") is not None]
        shuffled = [
            v for row in group if (v := ((row.get("score") or {}).get("control") or {}).get("value")) is not None
        ]
        metric = str(scores[0]["name"]) if scores else ""
        has_interval = len(values) == 1 and scores[0].get("low") is not None
        interval = f" ({scores[0]['low']:.3f}-{scores[0]['high']:.3f})" if has_interval else ""
        figure = f"{metric} {sum(values) / len(values):.3f}{interval}" if values else ""
        readings = Counter(str((row.get("reading") or {}).get("verdict", "none")) for row in group)
        kinds = Counter(str(row["kind"]) for row in group if not row["ok"])
        table_rows.append((f"{task.removeprefix('field:')} / {system} / {model}", _format_counts(readings, len(group)),
                     format_ratio(group), figure, f"{baselines[0]:.3f}" if baselines else "",
                     f"{sum(shuffled) / len(shuffled):.3f}" if shuffled else "", _format_counts(kinds, len(group))))  # fmt: skip
    for (system, model), group in group_rows(rows, "system", "model").items():
        right = [row for row in group if (row.get("reading") or {}).get("verdict") == "right"]
        table_rows.append((f"all sets / {system} / {model}", f"right {len(right)}/{len(group)}",
                     format_ratio_with_interval(group), "", "", "", ""))  # fmt: skip
    header = (
        "field set / system / model",
        "reading",
        "completed",
        "hidden patients",
        "baseline",
        "images shuffled",
        "otherwise",
    )
    return ResultTable("field", "Field sets", header, tuple(table_rows), FIELD_NOTES if table_rows else ())


def _format_counts(counts: Counter[str], total: int) -> str:
    """Return words with their counts, without a count if there is one run alone."""
    return ", ".join(word if total == 1 else f"{word} {count}/{total}" for word, count in counts.most_common())


def _has_known_patients(name: str) -> bool:
    """Return whether the raw data of a data set records patients; assumed for unknown data sets."""
    try:
        return bool(get_dataset(name).patient_key)
    except UsageError:
        return True


def make_failure_table(rows: Sequence[Row]) -> ResultTable:
    """Return the table of how unsuccessful runs ended."""
    table_rows = []
    for (system, model), group in group_rows(rows, "system", "model").items():
        counts = Counter(row["kind"] for row in group)
        for kind, count in counts.most_common():
            if kind == "success":
                continue
            kind_rows = [row for row in group if row["kind"] == kind]
            tasks = ", ".join(order_tasks(row["task"] for row in kind_rows)[:6])
            labels = Counter(label for row in kind_rows for label in row["labels"])
            label_text = "; ".join(f"{label} ({n})" for label, n in labels.most_common())
            table_rows.append(
                (
                    f"{system} / {model}",
                    kind,
                    f"{count}/{len(group)}",
                    tasks,
                    label_text or KIND_DESCRIPTIONS.get(kind, ""),
                )
            )
    uninformative_count = sum(row["kind"] in UNINFORMATIVE_KINDS for row in rows)
    notes = (
        (f"{uninformative_count} runs ended for reasons independent of the task; they are failures until --retry.",)
        if uninformative_count
        else ()
    )
    return ResultTable(
        "failures", "Failure classes", ("system / model", "class", "runs", "tasks", "what"), tuple(table_rows), notes
    )
