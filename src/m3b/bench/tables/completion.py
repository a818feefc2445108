"""Table 1: completed runs a task and model, ours beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from m3b.bench import paper
from m3b.bench.statistics import wilson
from m3b.bench.tasks import DECLINE

from .base import MAIN, ResultTable, Row, average, counts, groups, order, pass_k, ratio, ratio_with_interval

COMPUTED = (
    "Published columns stand as printed; their Wilson intervals and pass@k are computed here from the printed counts."
)
REAL = "The published runs are of the real data sets; ours are of what the sweep was given (drawn stand-ins unless --data)."


def completion(rows: Sequence[Row]) -> ResultTable:
    """A row a task and a column a model, for m3b itself and then for M3Builder as published."""
    whole = [row for row in rows if row["system"] == MAIN]
    own = [row for row in whole if row["family"] != DECLINE]
    refused = [row for row in whole if row["family"] == DECLINE]
    models = list(dict.fromkeys(str(row["model"]) for row in own or refused))
    theirs = paper.completion() if own else {}
    body = _tasks(own, models, theirs)
    averages = {model: average([row for row in own if row["model"] == model]) for model in models} if own else {}
    if own:
        body += _summary(own, models, theirs)
    if refused:
        declined = (ratio([row for row in refused if row["model"] == model]) for model in models)
        body.append(("requests to be declined", *declined, *("" for _ in theirs)))
    bars = [(model, one.value, one.low, one.high) for model, one in averages.items()]
    for model, cells in theirs.items():
        share = wilson(sum(one.successes for one in cells.values()), sum(one.runs for one in cells.values()))
        bars.append((f"{model} (published)", share.value, share.low, share.high))
    notes = (COMPUTED, REAL, *paper.notes("Table 1")) if theirs else ()
    head = ("task", *models, *(f"{model} (published)" for model in theirs))
    return ResultTable("table1", "Completed runs per task and model", head, tuple(body), notes, tuple(bars))


def _tasks(
    own: Sequence[Row], models: Sequence[str], theirs: Mapping[str, Mapping[str, paper.Count]]
) -> list[tuple[str, ...]]:
    cells = groups(own, "task", "model")
    named = [task for one in theirs.values() for task in one]
    body = []
    for task in order([*(str(row["task"]) for row in own), *named]):
        ours = (ratio_with_interval(cells.get((task, model), [])) for model in models)
        body.append((task, *ours, *(str(one.get(task, "")) for one in theirs.values())))
    return body


def _summary(
    own: Sequence[Row], models: Sequence[str], theirs: Mapping[str, Mapping[str, paper.Count]]
) -> list[tuple[str, ...]]:
    by_model = [[row for row in own if row["model"] == model] for model in models]
    printed = paper.printed_averages()
    published = [paper.Count(sum(c.successes for c in one.values()), sum(c.runs for c in one.values()))
                 for one in theirs.values()]  # fmt: skip
    totals = [paper.Count(sum(bool(row["ok"]) for row in some), len(some)) for some in by_model]
    ks = [pass_k(counts(some)) for some in by_model]
    ks += [pass_k([(c.runs, c.successes) for c in one.values()]) for one in theirs.values()]
    return [
        ("average, by task", *(average(some).percent() for some in by_model),
         *(f"{printed[model]:.2f} % (printed)" for model in theirs)),
        ("all runs", *map(str, totals), *map(str, published)),
        ("all runs: Wilson", *(one.interval().percent() for one in (*totals, *published))),
        ("pass@k", *(f"{once} (k={k})" for once, _, k in ks)),
        ("pass^k", *(f"{every} (k={k})" for _, every, k in ks)),
    ]  # fmt: skip
