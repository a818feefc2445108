"""A pytest plug-in that writes down which attack was stopped under which backend, and the table made of it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from attacks.around import title_of

BACKENDS = ("bubblewrap", "landlock")
STOPPED, OPEN, SKIPPED = "stopped", "NOT STOPPED", "not run"
HARMLESS = "without effect"
"""The call answers, and changes or shows nothing but the sandbox's own: what the test looks at."""
Row = tuple[str, str, str, str]
"""Attack, backend (empty: m3b itself, whatever the backend), `nobody` or empty for the user of the tests, outcome."""


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
    if attack := title_of(node):
        title = f"{attack}: {title}"
    how = {"passed": STOPPED, "failed": OPEN}.get(
        outcome, f"{SKIPPED}: {' '.join(skip_reason.removeprefix('Skipped: ').split())[:120]}"
    )
    went = HARMLESS if outcome == "passed" else OPEN
    return [(title, backend, user, how)] + [
        (f"{title}: {way}", backend, user, STOPPED if end == "stopped" else went)
        for way, end in dict.fromkeys(re.findall(r"(?m)^tried\t(.+)\t(stopped|open)$", output))
    ]


def table(rows: list[tuple[str, Row]]) -> str:
    """Markdown: an attack a line, a backend and user a column. `rows`: the user of the tests, and a row."""
    outcomes: dict[str, dict[str, str]] = defaultdict(dict)
    for default_user, (title, backend, user, how) in rows:
        column = f"{backend or 'm3b itself'}, {user or default_user}"
        if how == OPEN or column not in outcomes[title]:
            outcomes[title][column] = how
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
