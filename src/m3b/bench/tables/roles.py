"""Tables 3 and 15 to 18: what each role handed over and what it cost, ours beside the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from m3b.agents.roles import STAGES
from m3b.bench import paper
from m3b.bench.statistics import wilson

from .base import ResultTable, Row, groups
from .systems import FAMILIES

HEAD = ("role", "handed over", "share (Wilson)", "actions", "iterations", "tokens")
REACHED = (
    "Of the runs in which the role was reached; an accepted hand-over counts. Published shares: interval computed here."
)
TITLES = {role.name: role.title for role in STAGES}


def roles(rows: Sequence[Row]) -> list[ResultTable]:
    """Table 3, family by family, and the single executions of Tables 15 to 18."""
    rows_with_roles = [row for row in rows if row["roles"]]
    if not rows_with_roles:
        return []
    return [
        _make_family_table(rows_with_roles),
        *(_make_role_execution_table(rows_with_roles, family) for family in FAMILIES),
    ]


def _make_family_table(rows: Sequence[Row]) -> ResultTable:
    table_rows = []
    for family in FAMILIES:
        family_rows = [row for row in rows if row["family"] == family]
        for (system, model), group in groups(family_rows, "system", "model").items():
            table_rows += [_means(f"{family}: {role.title} ({system} / {model})", role.name, group) for role in STAGES]
        if family_rows:
            table_rows += [_published(family, name, figures) for name, figures in paper.roles(family).items()]
    other_rows = [row for row in rows if row["family"] not in FAMILIES]
    for (system, model), group in groups(other_rows, "system", "model").items():
        table_rows += [_means(f"other: {role.title} ({system} / {model})", role.name, group) for role in STAGES]
    notes = (REACHED, *paper.notes("Table 3"))
    return ResultTable("table3", "Roles by family", HEAD, tuple(row for row in table_rows if row), notes)


def _means(name: str, role: str, rows: Sequence[Row]) -> tuple[str, ...]:
    role_results = [row["roles"][role] for row in rows if role in row["roles"]]
    if not role_results:
        return ()
    accepted = sum(result["status"] == "done" for result in role_results)
    actions, iterations = (
        sum(result[key] for result in role_results) / len(role_results) for key in ("actions", "iterations")
    )
    tokens = sum(map(_tokens, role_results)) / len(role_results)
    share = wilson(accepted, len(role_results)).percent()
    return (name, f"{accepted}/{len(role_results)}", share, f"{actions:.1f}", f"{iterations:.1f}", f"{tokens:,.0f}")


def _published(family: str, role: str, one: paper.RoleFigures) -> tuple[str, ...]:
    return (f"{family}: {TITLES[role]} (M3Builder, published)", str(one.runs), one.runs.interval().percent(),
            f"{one.actions:g}", f"{one.iterations:g}", f"{one.tokens:,}")  # fmt: skip


def _make_role_execution_table(rows: Sequence[Row], family: str) -> ResultTable:
    number, published_runs = paper.role_executions(family)
    family_rows = [row for row in rows if row["family"] == family]
    table_rows = [(f"{row['task']} {row['run']} ({row['system']} / {row['model']})",
             *(_ours(row["roles"].get(role.name)) for role in STAGES)) for row in family_rows]  # fmt: skip
    if family_rows:
        table_rows += [(f"M3Builder, published, execution "
                        f"{number}", *(_format_published_role(published_run.get(role.name)) for role in STAGES))
                 for number, published_run in enumerate(published_runs, start=1)]  # fmt: skip
    header = ("execution", *(role.title for role in STAGES))
    note = "Handed over (1) or not (0): actions / iterations / tokens."
    return ResultTable(f"table{number}", f"Roles, single executions: {family}", header, tuple(table_rows), (note,))


def _ours(told: Mapping[str, Any] | None) -> str:
    if told is None:
        return ""
    return f"{int(told['status'] == 'done')}: {told['actions']} / {told['iterations']} / {_tokens(told):,}"


def _format_published_role(figures: paper.RoleFigures | None) -> str:
    return (
        ""
        if figures is None
        else f"{figures.runs.successes}: {figures.actions:g} / {figures.iterations:g} / {figures.tokens:,}"
    )


def _tokens(told: Mapping[str, Any]) -> int:
    return int(told["input_tokens"]) + int(told["output_tokens"])
