"""Published results of the paper (M3Builder, arXiv 2502.20301, Tables 1 to 3 and 5 to 18), from resources/bench."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from m3b.bench.statistics import Estimate, wilson_interval
from m3b.resources import get_resources_folder

PAPER_NAMES = {
    "m3b": "M3Builder",
    "m3b-single": "single agent",
    "m3b-no-debug": "no debugging",
    "m3b-no-reflect": "no reflection",
    "m3b-no-examples": "no few-shot examples",
    "aider": "Aider",
}
"""System of the benchmark -> corresponding system of the paper."""

RUNNABLE_SYSTEMS = frozenset({*PAPER_NAMES.values(), "MLAgentBench"})
"""Published systems that can be run without an editor; for the others there are published figures only."""


@dataclass(frozen=True)
class SuccessCount:
    """Number of successes and runs, as printed; the interval is computed here and not published."""

    successes: int
    runs: int

    def __str__(self) -> str:
        return f"{self.successes}/{self.runs}"

    def interval(self) -> Estimate:
        """Return the success rate with its Wilson interval."""
        return wilson_interval(self.successes, self.runs)


@dataclass(frozen=True)
class MeanCosts:
    """Mean actions and iterations of the successful runs of a task family, as printed."""

    actions: float
    iterations: float


@dataclass(frozen=True)
class PublishedSystem:
    """A row of Table 2.

    Args:
        runs: task family -> number of successes and runs.
        mean_costs: task family -> mean costs of a success; missing if there was none.
        average_percent: the average as printed, in percent.
    """

    name: str
    runs: Mapping[str, SuccessCount]
    mean_costs: Mapping[str, MeanCosts]
    average_percent: float

    @property
    def total(self) -> SuccessCount:
        """The sum over all families: 28 runs."""
        return SuccessCount(
            sum(count.successes for count in self.runs.values()), sum(count.runs for count in self.runs.values())
        )


@dataclass(frozen=True)
class Execution:
    """One execution in Tables 5 to 14: the printed success flag, and its costs if it succeeded."""

    success: int
    actions: int | None
    debug_loops: int | None


@dataclass(frozen=True)
class RoleFigures:
    """One role in Table 3, or in one execution of Tables 15 to 18."""

    runs: SuccessCount
    actions: float
    iterations: float
    tokens: int


@cache
def load_paper() -> dict[str, Any]:
    """Return the content of the file with all published results."""
    raw: dict[str, Any] = json.loads((get_resources_folder() / "bench" / "paper.json").read_text(encoding="utf-8"))
    return raw


def load_completion() -> dict[str, dict[str, SuccessCount]]:
    """Return Table 1: model -> task -> completed runs; models in the printed order."""
    cells = load_paper()["table1"]["cells"]
    return {
        model: {task: SuccessCount(*row[model]) for task, row in cells.items()} for model in load_printed_averages()
    }


def load_printed_averages() -> dict[str, float]:
    """Return the last row of Table 1: model -> average in percent, as printed."""
    averages: dict[str, float] = load_paper()["table1"]["printed_average_percent"]
    return averages


def load_systems() -> tuple[PublishedSystem, ...]:
    """Return the rows of Table 2 in their order."""
    return tuple(
        PublishedSystem(
            name,
            {family: SuccessCount(*count) for family, count in row["runs"].items()},
            {family: MeanCosts(**means) for family, means in row["mean"].items() if means},
            float(row["printed_average_percent"]),
        )
        for name, row in load_paper()["table2"]["rows"].items()
    )


def load_executions(name: str) -> tuple[int, dict[str, tuple[Execution, ...]]]:
    """Return the number of the table of a system (5 to 14), and task -> executions."""
    raw = load_paper()["tables5_14"][name]
    rows = {
        task: tuple(Execution(run["printed_success"], run["actions"], run["debug_loops"]) for run in runs)
        for task, runs in raw["rows"].items()
    }
    return int(raw["table"]), rows


def load_roles(family: str) -> dict[str, RoleFigures]:
    """Return Table 3: role -> means over the executions of a task family."""
    return {role: _parse_role(raw) for role, raw in load_paper()["table3"][family].items()}


def load_role_executions(family: str) -> tuple[int, tuple[dict[str, RoleFigures], ...]]:
    """Return the number of the table of a task family (15 to 18), and its executions: role -> figures."""
    raw = load_paper()["tables15_18"][family]
    return int(raw["table"]), tuple(
        {role: _parse_role(raw_role) for role, raw_role in row.items()} for row in raw["rows"]
    )


def _parse_role(raw: Mapping[str, Any]) -> RoleFigures:
    return RoleFigures(SuccessCount(*raw["runs"]), float(raw["actions"]), float(raw["iterations"]), int(raw["tokens"]))


def load_notes(*beginnings: str) -> tuple[str, ...]:
    """Return notes on inconsistent sums in the paper, for tables whose notes start with `beginnings`."""
    all_notes: list[str] = load_paper()["notes"]
    return tuple(f"Published figures disagree: {note}." for note in all_notes if note.startswith(beginnings))
