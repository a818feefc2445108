"""Table 2: systems and ablations by family, and the differences between ours."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.bench import paper
from m3b.bench.statistics import difference
from m3b.bench.tasks import DECLINE

from .base import MAIN, ResultTable, Row, average, counts, groups, mean, pass_k, ratio, successes, tokens, use

FAMILIES = tuple(paper.paper()["table3"])
"""The four kinds of task, in the order of the paper's tables."""


def systems(rows: Sequence[Row]) -> ResultTable:
    """Completion and mean cost by family, ours and then the published rows as printed."""
    asked = [row for row in rows if row["family"] != DECLINE]
    body, bars = [], []
    for (name, model), some in groups(asked, "system", "model").items():
        share = average(some)
        once, every, k = pass_k(counts(some))
        body.append((f"{name} / {model}", *(_family(some, family) for family in FAMILIES), ratio(some),
                     share.percent(), f"{once} / {every} (k={k})", use(some, "actions"), use(some, "iterations"),
                     tokens(some), use(some, "cost_usd", 3), use(some, "wall_s")))  # fmt: skip
        bars.append((f"{name} / {model}", share.value, share.low, share.high))
    for row in paper.systems() if body else ():
        cells = (_published(row, family) for family in FAMILIES)
        interval = row.total.interval()
        printed = f"{row.percent:.2f} % printed; Wilson {interval.percent()}"
        body.append((f"{row.name} (published)", *cells, str(row.total), printed, "", "", "", "", "", ""))
        bars.append((f"{row.name} (published)", interval.value, interval.low, interval.high))
    raw = paper.paper()
    notes = (
        "By family: completed runs, and in brackets mean actions / iterations of the completed ones. Actions, tokens, cost "
        "and time are means over completed runs; of outside systems a request counts as an action.",
        f"Published rows: {raw['table2']['agent_core']}; intervals computed here. M3Builder's completed runs took "
        f"{raw['actions']['low']} to {raw['actions']['high']} actions and {raw['tokens']['low'] // 1000}k to "
        f"{raw['tokens']['high'] // 1000}k tokens.",
    )
    head = ("system / model", *FAMILIES, "completed", "average, by task", "pass@k / pass^k", "actions", "iterations",
            "tokens", "US$", "s")  # fmt: skip
    return ResultTable("table2", "Systems and ablations", head, tuple(body), notes if body else (), tuple(bars))


def _family(rows: Sequence[Row], family: str) -> str:
    some = [row for row in rows if row["family"] == family]
    if not some:
        return ""
    actions = mean(some, lambda row: row["usage"].get("actions"))
    iterations = mean(some, lambda row: row["usage"].get("iterations"))
    cost = "" if actions is None or iterations is None else f" ({actions:.1f} / {iterations:.1f})"
    return ratio(some) + cost


def _published(row: paper.PublishedSystem, family: str) -> str:
    means = row.means.get(family)
    return f"{row.runs[family]}" + (f" ({means.actions:g} / {means.iterations:g})" if means else "")


def differences(rows: Sequence[Row]) -> ResultTable:
    """Every system against m3b with the same model, on common tasks; never without its interval."""
    some_groups = groups(rows, "system", "model")
    body = []
    for (name, model), some in some_groups.items():
        base = some_groups.get((MAIN, model))
        if name == MAIN or base is None:
            continue
        try:
            gap = difference(successes(some), successes(base))
        except ValueError:
            continue
        assert gap.low is not None
        assert gap.high is not None
        sure = "yes" if gap.low > 0 or gap.high < 0 else "no"
        span = f"{100 * gap.low:+.1f} to {100 * gap.high:+.1f}"
        body.append((f"{name} - {MAIN} / {model}", f"{100 * gap.value:+.1f}", span, str(gap.n), sure))
    head = ("difference in completion", "points", "95 % interval", "tasks (runs if one task)", "differs from 0")
    return ResultTable("differences", "Differences from m3b, paired by task", head, tuple(body))
