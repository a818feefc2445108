"""Interface of a benchmark system: it gets a job and returns a delivered model, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class CellJob:
    """The job of one cell.

    Args:
        folder: the new folder of the cell; the system may write nowhere else.
        cards: data cards with paths, or folders without a card, in addition to all shipped cards.
        model: `provider:model`, or `rules`.
        options: keyword options of `m3b.Options`.
    """

    folder: Path
    request: str
    cards: Sequence[Mapping[str, Any] | str]
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class CellOutcome:
    """The outcome of a system.

    Args:
        status: a `Result.status`; `completed` means only that a model was delivered.
        model: the folder of the deliverable.
        work: the working directory.
        run: the run folder of m3b, if there is one.
        claimed: `name` and `value` of the metric that m3b measured on the run's test split, or that an external system
            expects on new cases (its `CLAIM.json`); never the score.
        integrity: `clean`, or the violation that was found.
        kind: kind of a failure that does not depend on the task: `not_installed`, `crashed`, `timeout`, `provider`.
    """

    status: str
    reason: str
    model: str = ""
    work: str = ""
    run: str = ""
    claimed: dict[str, Any] | None = None
    integrity: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, dict[str, Any]] = field(default_factory=dict)
    kind: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> CellOutcome:
        return cls(**{key: value for key, value in raw.items() if key in cls.__dataclass_fields__})


class System(Protocol):
    """A system that turns a job into a model."""

    @property
    def name(self) -> str: ...

    @property
    def is_resumable(self) -> bool | None:
        """Whether a killed run goes on without sending an answered request again; None if nobody tried."""
        ...

    def explain_missing(self) -> str:
        """Return why the system cannot run on this machine, and what to install; empty if it can run."""
        ...

    def run(self, job: CellJob) -> CellOutcome:
        """Run the job. Failures of the system are outcomes, not exceptions."""
        ...
