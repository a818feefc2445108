"""How good the delivered models are on hidden cases, and how the other runs ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from m3b.bench.verdicts import CLASSES

from .base import ResultTable, Row, groups, order

NOTHING = ("provider", "not_installed", "crashed", "cancelled")


def quality(rows: Sequence[Row]) -> ResultTable:
    """How good the delivered models are on hidden cases, and what is left of it with shuffled images."""
    body = []
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
        body.append((f"{task} / {system} / {model}", first["name"], str(len(values)),
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
    return ResultTable("quality", "Models on hidden cases", head, tuple(body))


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
