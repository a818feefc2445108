"""The tables of the paper, from the rows of a sweep, each figure with its interval and beside it what was published."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from m3b.agents.roles import STAGES

from .statistics import Estimate, by_task, difference, pass_all_k, pass_at_k, wilson
from .tasks import DECLINE, all_tasks
from .verdicts import CLASSES

Row = Mapping[str, Any]
MAIN = "m3b"
NOTHING = ("provider", "not_installed", "crashed", "cancelled")


@dataclass(frozen=True)
class Table:
    """A table ready to be shown.

    Args:
        name: for files: `table1` and so on.
        rows: texts; the first of each names the row.
        bars: label, share, low, high of what a chart shows.
    """

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    bars: tuple[tuple[str, float, float | None, float | None], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "head": list(self.head),
                "rows": [list(row) for row in self.rows], "notes": list(self.notes)}  # fmt: skip


def tables(rows: Sequence[Row]) -> list[Table]:
    """Everything that can be said of a sweep."""
    made = [completion(rows), systems(rows), differences(rows), *roles(rows), quality(rows), failures(rows)]
    return [table for table in made if table.rows]


def _groups(rows: Iterable[Row], *keys: str) -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(str(row[key]) for key in keys)].append(row)
    return dict(found)


def _successes(rows: Iterable[Row]) -> dict[str, list[float]]:
    """Task -> 1 or 0 a run; a run that never took place for the world's fault counts as a failure, and is told so."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        found[row["task"]].append(float(row["ok"]))
    return dict(found)


def _order(tasks: Iterable[str]) -> list[str]:
    known = {task.id: place for place, task in enumerate(all_tasks())}
    return sorted(set(tasks), key=lambda name: (known.get(name, len(known)), name))


def _k(rows: Sequence[Row]) -> tuple[str, str, int]:
    """pass@k and pass^k over tasks, for the largest k that every task has runs for."""
    done = [(len(runs), round(sum(runs))) for runs in _successes(rows).values()]
    k = min(n for n, _ in done)
    once = sum(pass_at_k(n, c, k) for n, c in done) / len(done)
    every = sum(pass_all_k(n, c, k) for n, c in done) / len(done)
    return f"{100 * once:.1f} %", f"{100 * every:.1f} %", k


def completion(rows: Sequence[Row]) -> Table:
    """Table 1: a/b completed per task, a column a model, for m3b itself; the published average beside it."""
    from .systems.registry import published

    whole = [row for row in rows if row["system"] == MAIN]
    own = [row for row in whole if row["family"] != DECLINE]
    models = list(dict.fromkeys(str(row["model"]) for row in own))
    cells = _groups(own, "task", "model")
    body = []
    for task in _order(row["task"] for row in own):
        counts = [_ratio(cells.get((task, model), [])) for model in models]
        body.append((task, *counts))
    averages = [_average([row for row in own if row["model"] == model]) for model in models]
    bars = tuple((model, one.value, one.low, one.high) for model, one in zip(models, averages, strict=True))
    if body:
        body.append(("all runs: average, by task", *(one.percent() for one in averages)))
        body.append(("all runs: Wilson", *(_wilson([r for r in own if r["model"] == model]) for model in models)))
        ks = [_k([row for row in own if row["model"] == model]) for model in models]
        body.append(("pass@k", *(f"{once} (k={k})" for once, _, k in ks)))
        body.append(("pass^k", *(f"{every} (k={k})" for _, every, k in ks)))
    refused = [row for row in whole if row["family"] == DECLINE]
    models = models or list(dict.fromkeys(str(row["model"]) for row in refused))
    if refused:
        counts = [_ratio([row for row in refused if row["model"] == model]) for model in models]
        body.append(("requests to be declined", *counts))
    notes = tuple(
        f"Published: {row['system']} with {row['model']} {row['successes']}/{row['runs']}, "
        f"{wilson(row['successes'], row['runs']).percent()} (real data; Wilson interval added here)."
        for row in published() if row.get("runs")
    )  # fmt: skip
    return Table("table1", "Completed runs per task and model", ("task", *models), tuple(body), notes, bars)


def _ratio(rows: Sequence[Row]) -> str:
    return f"{sum(bool(row['ok']) for row in rows)}/{len(rows)}" if rows else ""


def _average(rows: Sequence[Row]) -> Estimate:
    return by_task(_successes(rows))


def _wilson(rows: Sequence[Row]) -> str:
    return wilson(sum(bool(row["ok"]) for row in rows), len(rows)).percent()


def systems(rows: Sequence[Row]) -> Table:
    """Table 2: systems and ablations; what completed runs cost. Published rows stand below."""
    from .systems.registry import paper, published

    body, bars = [], []
    asked = [row for row in rows if row["family"] != DECLINE]
    for (name, model), some in _groups(asked, "system", "model").items():
        average = _average(some)
        once, every, k = _k(some)
        body.append((f"{name} / {model}", _ratio(some), average.percent(), f"{once} / {every} (k={k})",
                     *(_use(some, key) for key in ("actions", "iterations")), _tokens(some), _use(some, "cost_usd", 3),
                     _use(some, "wall_s")))  # fmt: skip
        bars.append((f"{name} / {model}", average.value, average.low, average.high))
    listed = {str(row["system"]) for row in rows}
    for row in published():
        share = wilson(row["successes"], row["runs"]).percent() if row.get("runs") else "figures not at hand"
        ratio = f"{row['successes']}/{row['runs']}" if row.get("runs") else ""
        name = f"{row['system']} / {row['model']}" if row.get("model") else str(row["system"])
        body.append((f"{name} (published)", ratio, share, "", "", "", "", "", ""))
    raw = paper()
    notes = [f"Published for M3Builder: {raw['actions']['low']} to {raw['actions']['high']} actions and "
             f"{raw['tokens']['low'] // 1000}k to {raw['tokens']['high'] // 1000}k tokens a completed run.",
             "Actions, tokens, cost and time are means over completed runs; of outside systems a request counts as an action.",
             raw["published_note"]]  # fmt: skip
    head = (
        "system / model",
        "completed",
        "average, by task",
        "pass@k / pass^k",
        "actions",
        "iterations",
        "tokens",
        "US$",
        "s",
    )
    return Table("table2", "Systems and ablations", head, tuple(body) if listed else (), tuple(notes), tuple(bars))


def _mean(rows: Sequence[Row], take: Callable[[Row], float | None]) -> float | None:
    found = [value for row in rows if row["ok"] and (value := take(row)) is not None]
    return sum(found) / len(found) if found else None


def _use(rows: Sequence[Row], key: str, digits: int = 1) -> str:
    value = _mean(rows, lambda row: row["usage"].get(key))
    return "" if value is None else f"{value:.{digits}f}"


def _tokens(rows: Sequence[Row]) -> str:
    value = _mean(rows, lambda row: row["usage"].get("input_tokens", 0) + row["usage"].get("output_tokens", 0))
    return "" if value is None else f"{value:,.0f}"


def differences(rows: Sequence[Row]) -> Table:
    """Every system against m3b with the same model, on common tasks; never without its interval."""
    groups = _groups(rows, "system", "model")
    body = []
    for (name, model), some in groups.items():
        base = groups.get((MAIN, model))
        if name == MAIN or base is None:
            continue
        try:
            gap = difference(_successes(some), _successes(base))
        except ValueError:
            continue
        assert gap.low is not None
        assert gap.high is not None
        sure = "yes" if gap.low > 0 or gap.high < 0 else "no"
        span = f"{100 * gap.low:+.1f} to {100 * gap.high:+.1f}"
        body.append((f"{name} - {MAIN} / {model}", f"{100 * gap.value:+.1f}", span, str(gap.n), sure))
    head = ("difference in completion", "points", "95 % interval", "tasks (runs if one task)", "differs from 0")
    return Table("differences", "Differences from m3b, paired by task", head, tuple(body))


def roles(rows: Sequence[Row]) -> list[Table]:
    """Table 3 over all tasks, and Tables 15 to 18, one a family: each role's success, actions, iterations, tokens."""
    whole = [_roles("table3", "Roles", rows)]
    families = (("table15", "diagnosis"), ("table16", "segmentation"), ("table17", "detection"), ("table18", "report"))
    return whole + [_roles(name, f"Roles: {one}", [r for r in rows if r["family"] == one]) for name, one in families]


def _roles(name: str, title: str, rows: Sequence[Row]) -> Table:
    body = []
    for (system, model), some in _groups([row for row in rows if row["roles"]], "system", "model").items():
        for role in STAGES:
            told = [row["roles"][role.name] for row in some if role.name in row["roles"]]
            if not told:
                continue
            done = sum(one["status"] == "done" for one in told)
            means = [sum(one[key] for one in told) / len(told) for key in ("actions", "iterations")]
            tokens = sum(one["input_tokens"] + one["output_tokens"] for one in told) / len(told)
            share = wilson(done, len(told)).percent()
            body.append((f"{role.title} ({system} / {model})", f"{done}/{len(told)}", share,
                         *(f"{mean:.1f}" for mean in means), f"{tokens:,.0f}"))  # fmt: skip
    head = ("role", "handed over", "share (Wilson)", "actions", "iterations", "tokens")
    return Table(
        name, title, head, tuple(body), ("Of the runs in which the role was reached; an accepted hand-over counts.",)
    )


def quality(rows: Sequence[Row]) -> Table:
    """How good the delivered models are on hidden cases, and what is left of it with shuffled images."""
    body = []
    measured = [row for row in rows if row.get("score") and row["score"].get("primary")]
    for (task, system, model), some in sorted(_groups(measured, "task", "system", "model").items()):
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
    return Table("quality", "Models on hidden cases", head, tuple(body))


def failures(rows: Sequence[Row]) -> Table:
    """How runs ended that did not succeed."""
    body = []
    for (system, model), some in _groups(rows, "system", "model").items():
        counts = Counter(row["kind"] for row in some)
        for kind, count in counts.most_common():
            if kind == "success":
                continue
            of = [row for row in some if row["kind"] == kind]
            tasks = ", ".join(_order(row["task"] for row in of)[:6])
            labels = Counter(label for row in of for label in row["labels"])
            told = "; ".join(f"{label} ({n})" for label, n in labels.most_common())
            body.append((f"{system} / {model}", kind, f"{count}/{len(some)}", tasks, told or CLASSES.get(kind, "")))
    world = sum(row["kind"] in NOTHING for row in rows)
    notes = (
        (f"{world} runs ended for reasons that say nothing of the task; they count as failures until --retry.",)
        if world
        else ()
    )
    return Table(
        "failures", "Failure classes", ("system / model", "class", "runs", "tasks", "what"), tuple(body), notes
    )
