"""A pytest plug-in that writes down which attack was stopped under which backend, and the table made of it."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from attacks.around import ATTACKS, title_of

BACKENDS = ("bubblewrap", "landlock")
STOPPED, OPEN, SKIPPED = "stopped", "NOT STOPPED", "not run"
HARMLESS = "without effect"
"""The call answers, and changes or shows nothing but the sandbox's own: what the test looks at."""
ROOT = Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    """One attack under one backend as one user.

    Args:
        kind: an attack of `around.ATTACKS`, or what the test's file says of itself.
        backend: empty for m3b itself, whatever the backend.
        user: `nobody`, or empty for the user of the tests.
    """

    kind: str
    attack: str
    backend: str
    user: str
    outcome: str


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attacks", help="file that gets a row a tried attack, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--attacks"):
        config.pluginmanager.register(Recorder(Path(file)))


class Recorder:
    """Collects rows while tests run."""

    def __init__(self, file: Path) -> None:
        self.file, self.rows = file, list[Row]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A failed test is an attack that was not stopped, or one that could not be tried: both are to be looked at."""
        if report.when == "call" or report.outcome == "skipped" or (report.when == "setup" and report.failed):
            self.rows += rows_of(report.nodeid, report.outcome, report.capstdout, _reason(report))

    def pytest_sessionfinish(self) -> None:
        self.file.write_text(json.dumps(self.rows))


def _reason(report: Any) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""


def rows_of(node: str, outcome: str, output: str, skip_reason: str) -> list[Row]:
    """The rows of one test: itself, and every way out that its script tried by name."""
    name, _, ids = node.rpartition("::")[2].partition("[")
    parts = ids.rstrip("]").split("-") if ids else []
    backend = next((part for part in parts if part in BACKENDS), "")
    user = "nobody" if "nobody" in parts else ""
    other_ids = "-".join(part for part in parts if part not in (*BACKENDS, "own", "nobody"))
    title = name.removeprefix("test_").replace("_", " ") + (f" ({other_ids})" if other_ids else "")
    kind = title_of(node)
    if kind:
        title = f"{kind}: {title}"
    else:
        kind = _describe_file(node.partition("::")[0])
    how = {"passed": STOPPED, "failed": OPEN}.get(
        outcome, f"{SKIPPED}: {' '.join(skip_reason.removeprefix('Skipped: ').split())[:120]}"
    )
    went = HARMLESS if outcome == "passed" else OPEN
    return [Row(kind, title, backend, user, how)] + [
        Row(kind, f"{title}: {way}", backend, user, STOPPED if end == "stopped" else went)
        for way, end in dict.fromkeys(re.findall(r"(?m)^tried\t(.+)\t(stopped|open)$", output))
    ]


@lru_cache
def _describe_file(path: str) -> str:
    """Return the first words of a test file's docstring."""
    file = ROOT / path
    text = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "") if file.is_file() else ""
    return re.split(r"[:.](?=\s|$)", text, maxsplit=1)[0] or path


def _name_column(default_user: str, row: Row) -> str:
    return f"{row.backend or 'm3b itself'}, {row.user or default_user}"


def summary_table(rows: list[tuple[str, Row]]) -> str:
    """Markdown: a kind of attack a line, a backend and user a column, and how many attacks were stopped."""
    counts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for default_user, row in rows:
        counts[row.kind][_name_column(default_user, row)].append(row.outcome)
    columns = sorted({column for cells in counts.values() for column in cells})
    lines = ["| attack | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    around_names = [attack.name for attack in ATTACKS]
    for kind in sorted(counts, key=lambda kind: (kind in around_names, kind.lower())):
        cells = [_count_outcomes(counts[kind][column]) for column in columns]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _count_outcomes(outcomes: list[str]) -> str:
    stopped, failed = sum(end in (STOPPED, HARMLESS) for end in outcomes), outcomes.count(OPEN)
    skipped = len(outcomes) - stopped - failed
    counts = {str(stopped): stopped, f"**{failed} not stopped**": failed, f"{skipped} not run": skipped}
    return ", ".join(text for text, count in counts.items() if count)


def table(rows: list[tuple[str, Row]]) -> str:
    """Markdown: an attack a line, a backend and user a column. `rows`: the user of the tests, and a row."""
    outcomes: dict[str, dict[str, str]] = defaultdict(dict)
    for default_user, row in rows:
        column = _name_column(default_user, row)
        if row.outcome == OPEN or column not in outcomes[row.attack]:
            outcomes[row.attack][column] = row.outcome
    columns = sorted({column for cells in outcomes.values() for column in cells})
    lines = ["| attack | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {title} | " + " | ".join(cells.get(c, "") for c in columns) + " |" for title, cells in outcomes.items()
    ]
    counts = defaultdict[str, list[int]](lambda: [0, 0, 0])
    for cells in outcomes.values():
        for column, how in cells.items():
            counts[column][0 if how in (STOPPED, HARMLESS) else 1 if how == OPEN else 2] += 1
    total = [f"{c}: {a} stopped, {b} not stopped, {n} not run" for c, (a, b, n) in sorted(counts.items())]
    return "\n".join([*lines, "", *total])
