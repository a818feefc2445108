"""What the paper published (M3Builder, arXiv 2502.20301, Tables 1 to 3 and 5 to 18), as it ships in resources/bench."""

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
"""System of the benchmark -> its counterpart in the paper."""

RUNNABLE_SYSTEMS = frozenset({*PAPER_NAMES.values(), "MLAgentBench"})
"""Published systems that can be run without an editor; the others are known by their figures alone."""


@dataclass(frozen=True)
class SuccessCount:
    """Successes out of runs, as printed; the interval is computed here and no figure of the paper."""

    successes: int
    runs: int

    def __str__(self) -> str:
        return f"{self.successes}/{self.runs}"

    def interval(self) -> Estimate:
        """The share with its Wilson interval."""
        return wilson_interval(self.successes, self.runs)


@dataclass(frozen=True)
class MeanCosts:
    """Mean actions and iterations of the successful runs of a family, as printed."""

    actions: float
    iterations: float


@dataclass(frozen=True)
class PublishedSystem:
    """A row of Table 2.

    Args:
        runs: family -> successes of runs.
        mean_costs: family -> mean cost of a success; absent where there was none.
        average_percent: the average as printed.
    """

    name: str
    runs: Mapping[str, SuccessCount]
    mean_costs: Mapping[str, MeanCosts]
    average_percent: float

    @property
    def total(self) -> SuccessCount:
        """All families together: 28 runs."""
        return SuccessCount(
            sum(count.successes for count in self.runs.values()), sum(count.runs for count in self.runs.values())
        )


@dataclass(frozen=True)
class Execution:
    """One execution of Tables 5 to 14: the printed success flag, and what it cost where it succeeded."""

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
    """The file as it is."""
    raw: dict[str, Any] = json.loads((get_resources_folder() / "bench" / "paper.json").read_text(encoding="utf-8"))
    return raw


def load_completion() -> dict[str, dict[str, SuccessCount]]:
    """Table 1: model -> task -> completed runs; models in the printed order."""
    cells = load_paper()["table1"]["cells"]
    return {
        model: {task: SuccessCount(*row[model]) for task, row in cells.items()} for model in load_printed_averages()
    }


def load_printed_averages() -> dict[str, float]:
    """Table 1's last row: model -> per cent, as printed."""
    averages: dict[str, float] = load_paper()["table1"]["printed_average_percent"]
    return averages


def load_systems() -> tuple[PublishedSystem, ...]:
    """Table 2 in its order."""
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
    """The number of a system's table (5 to 14), and task -> its executions."""
    raw = load_paper()["tables5_14"][name]
    rows = {
        task: tuple(Execution(run["printed_success"], run["actions"], run["debug_loops"]) for run in runs)
        for task, runs in raw["rows"].items()
    }
    return int(raw["table"]), rows


def load_roles(family: str) -> dict[str, RoleFigures]:
    """Table 3: role -> its means over the executions of a family."""
    return {role: _parse_role(raw) for role, raw in load_paper()["table3"][family].items()}


def load_role_executions(family: str) -> tuple[int, tuple[dict[str, RoleFigures], ...]]:
    """The number of a family's table (15 to 18), and its executions: role -> figures."""
    raw = load_paper()["tables15_18"][family]
    return int(raw["table"]), tuple(
        {role: _parse_role(raw_role) for role, raw_role in row.items()} for row in raw["rows"]
    )


def _parse_role(raw: Mapping[str, Any]) -> RoleFigures:
    return RoleFigures(SuccessCount(*raw["runs"]), float(raw["actions"]), float(raw["iterations"]), int(raw["tokens"]))


def load_notes(*beginnings: str) -> tuple[str, ...]:
    """Where the paper's own sums disagree, of the tables that are named."""
    all_notes: list[str] = load_paper()["notes"]
    return tuple(f"Published figures disagree: {note}." for note in all_notes if note.startswith(beginnings))
