"""How good the delivered models are on hidden cases, and how the other runs ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from m3b.bench.datasets.registry import dataset
from m3b.bench.verdicts import CLASSES
from m3b.errors import WrongUse

from .base import ResultTable, Row, groups, order

UNKNOWN = " *"
"""Behind the name of a row whose data set records no patients."""
TOLD = (
    "* nobody recorded the patients of this data set: pictures of one person may be both hidden and learnt from, and intervals are "
    "over cases."
)
NOTHING = ("provider", "not_installed", "crashed", "cancelled")


def quality(rows: Sequence[Row]) -> ResultTable:
    """How good the delivered models are on hidden cases, and what is left of it with shuffled images."""
    body = []
    marked = False
    measured = [row for row in rows if row.get("score") and row["score"].get("primary")]
    for (task, system, model), some in sorted(groups(measured, "task", "system", "model").items()):
        first = some[0]["score"]["primary"]
        values = [row["score"]["primary"]["value"] for row in some if row["score"]["primary"]["value"] is not None]
        if not values:
            continue
        shuffled = [v for row in some if (v := (row["score"].get("control") or {}).get("value")) is not None]
        low, high = some[0]["score"]["acceptable"]
        span = f"{low:g}-{high:g}" if high is not None else f">= {low:g}"
        one = f" ({first['low']:.3f}-{first['high']:.3f})" if len(some) == 1 and first.get("low") is not None else ""
        floor = f"{first['baseline']:.3f}" if first.get("baseline") is not None else ""
        mark = "" if _patients_known(str(some[0].get("dataset") or "")) else UNKNOWN
        marked = marked or bool(mark)
        body.append((f"{task} / {system} / {model}{mark}", first["name"], str(len(values)),
                     f"{sum(values) / len(values):.3f}{one}", f"{min(values):.3f}-{max(values):.3f}", span, floor,
                     f"{sum(shuffled) / len(shuffled):.3f}" if shuffled else ""))  # fmt: skip
    head = (
        "task / system / model",
        "metric",
        "models",
        "mean",
        "least-most",
        "acceptable",
        "trivial",
        "images shuffled",
    )
    return ResultTable("quality", "Models on hidden cases", head, tuple(body), (TOLD,) if marked else ())


def _patients_known(name: str) -> bool:
    """Whether the raw data of a set says whose a case is; sets of somebody else's are believed to."""
    try:
        return bool(dataset(name).patient_key)
    except WrongUse:
        return True


def failures(rows: Sequence[Row]) -> ResultTable:
    """How runs ended that did not succeed."""
    body = []
    for (system, model), some in groups(rows, "system", "model").items():
        counts = Counter(row["kind"] for row in some)
        for kind, count in counts.most_common():
            if kind == "success":
                continue
            of = [row for row in some if row["kind"] == kind]
            tasks = ", ".join(order(row["task"] for row in of)[:6])
            labels = Counter(label for row in of for label in row["labels"])
            told = "; ".join(f"{label} ({n})" for label, n in labels.most_common())
            body.append((f"{system} / {model}", kind, f"{count}/{len(some)}", tasks, told or CLASSES.get(kind, "")))
    world = sum(row["kind"] in NOTHING for row in rows)
    notes = (
        (f"{world} runs ended for reasons that say nothing of the task; they count as failures until --retry.",)
        if world
        else ()
    )
    return ResultTable(
        "failures", "Failure classes", ("system / model", "class", "runs", "tasks", "what"), tuple(body), notes
    )
