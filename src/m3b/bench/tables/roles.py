"""Tables 3 and 15 to 18: what each role handed over and what it cost, ours beside the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from m3b.agents.roles import BUILTIN_ROLES
from m3b.bench import paper
from m3b.bench.statistics import wilson_interval

from .base import ResultTable, Row, group_rows
from .systems import TASK_FAMILIES

ROLE_HEADER = ("role", "handed over", "share (Wilson)", "actions", "iterations", "tokens")
REACHED_NOTE = (
    "Of the runs in which the role was reached; an accepted hand-over counts. Published shares: interval computed here."
)
ROLE_TITLES = {role.name: role.title for role in BUILTIN_ROLES}


def make_role_tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Table 3, family by family, and the single executions of Tables 15 to 18."""
    rows_with_roles = [row for row in rows if row["roles"]]
    if not rows_with_roles:
        return []
    return [
        _make_family_table(rows_with_roles),
        *(_make_role_execution_table(rows_with_roles, family) for family in TASK_FAMILIES),
    ]


def _make_family_table(rows: Sequence[Row]) -> ResultTable:
    table_rows = []
    for family in TASK_FAMILIES:
        family_rows = [row for row in rows if row["family"] == family]
        for (system, model), group in group_rows(family_rows, "system", "model").items():
            table_rows += [
                _make_role_row(f"{family}: {role.title} ({system} / {model})", role.name, group)
                for role in BUILTIN_ROLES
            ]
        if family_rows:
            table_rows += [
                _make_published_role_row(family, name, figures) for name, figures in paper.load_roles(family).items()
            ]
    other_rows = [row for row in rows if row["family"] not in TASK_FAMILIES]
    for (system, model), group in group_rows(other_rows, "system", "model").items():
        table_rows += [
            _make_role_row(f"other: {role.title} ({system} / {model})", role.name, group) for role in BUILTIN_ROLES
        ]
    notes = (REACHED_NOTE, *paper.load_notes("Table 3"))
    return ResultTable("table3", "Roles by family", ROLE_HEADER, tuple(row for row in table_rows if row), notes)


def _make_role_row(name: str, role: str, rows: Sequence[Row]) -> tuple[str, ...]:
    role_results = [row["roles"][role] for row in rows if role in row["roles"]]
    if not role_results:
        return ()
    accepted = sum(result["status"] == "done" for result in role_results)
    actions, iterations = (
        sum(result[key] for result in role_results) / len(role_results) for key in ("actions", "iterations")
    )
    tokens = sum(map(_count_tokens, role_results)) / len(role_results)
    share = wilson_interval(accepted, len(role_results)).percent()
    return (name, f"{accepted}/{len(role_results)}", share, f"{actions:.1f}", f"{iterations:.1f}", f"{tokens:,.0f}")


def _make_published_role_row(family: str, role: str, figures: paper.RoleFigures) -> tuple[str, ...]:
    return (f"{family}: {ROLE_TITLES[role]} (M3Builder, published)", str(figures.runs), figures.runs.interval().percent(),
            f"{figures.actions:g}", f"{figures.iterations:g}", f"{figures.tokens:,}")  # fmt: skip


def _make_role_execution_table(rows: Sequence[Row], family: str) -> ResultTable:
    number, published_runs = paper.load_role_executions(family)
    family_rows = [row for row in rows if row["family"] == family]
    table_rows = [(f"{row['task']} {row['run']} ({row['system']} / {row['model']})",
             *(_format_own_role(row["roles"].get(role.name)) for role in BUILTIN_ROLES)) for row in family_rows]  # fmt: skip
    if family_rows:
        table_rows += [(f"M3Builder, published, execution "
                        f"{number}", *(_format_published_role(published_run.get(role.name)) for role in BUILTIN_ROLES))
                 for number, published_run in enumerate(published_runs, start=1)]  # fmt: skip
    header = ("execution", *(role.title for role in BUILTIN_ROLES))
    note = "Handed over (1) or not (0): actions / iterations / tokens."
    return ResultTable(f"table{number}", f"Roles, single executions: {family}", header, tuple(table_rows), (note,))


def _format_own_role(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    return (
        f"{int(result['status'] == 'done')}: {result['actions']} / {result['iterations']} / {_count_tokens(result):,}"
    )


def _format_published_role(figures: paper.RoleFigures | None) -> str:
    return (
        ""
        if figures is None
        else f"{figures.runs.successes}: {figures.actions:g} / {figures.iterations:g} / {figures.tokens:,}"
    )


def _count_tokens(result: Mapping[str, Any]) -> int:
    return int(result["input_tokens"]) + int(result["output_tokens"])
