"""What a manifest gets wrong about a folder: codes with values, each with what was found, where, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal

from pydantic import BaseModel, ConfigDict

MAX_LISTED = 12
"""Names that a message lists."""


class Problem(BaseModel):
    """One thing that is wrong, or that a reader of the figures must know.

    Args:
        code: for programs, such as `unknown_column`.
        part: of the manifest (`tables.labels.key`).
        finding: what there is, as a sentence.
        remedy: what to do next, as a sentence.
        severity: `error`: the manifest cannot be executed; `warning`: it can, and somebody should look at it.
        values: what the sentences say, for programs.
    """

    model_config = ConfigDict(frozen=True)

    code: str
    part: str
    finding: str
    remedy: str = ""
    severity: Literal["error", "warning"] = "error"
    values: dict[str, str | int | float | list[str]] = {}

    @property
    def message(self) -> str:
        """One line for people and agents."""
        return " ".join(text for text in (f"{self.part}: {self.finding}", self.remedy) if text)


class PatternError(ValueError):
    """A pattern, template or expression that cannot be used; holds the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def list_names(names: Iterable[str], limit: int = MAX_LISTED) -> str:
    """Names as a list in a sentence, the rest as a number."""
    distinct = list(dict.fromkeys(names))
    remainder = f" and {len(distinct) - limit} more" if len(distinct) > limit else ""
    return (", ".join(distinct[:limit]) + remainder) if distinct else "none"


def unknown_column(part: str, name: str, columns: Sequence[str]) -> Problem:
    """A template names a column that there is not."""
    folded = {column.casefold(): column for column in columns}
    close = [folded[column] for column in get_close_matches(name.casefold(), list(folded), n=3, cutoff=0.6)]
    return Problem(
        code="unknown_column",
        part=part,
        finding=f"there is no column {{{name}}}; there are {list_names(columns, 30)}.",
        remedy=f"Did you mean {' or '.join(f'{{{column}}}' for column in close)}?"
        if close
        else "Use one of these columns.",
        values={"column": name, "did_you_mean": close, "columns": list(columns)[:60]},
    )
