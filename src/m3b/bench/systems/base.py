"""What a system is to the benchmark: it gets a job and leaves a delivered model, or a reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class CellJob:
    """One cell's work.

    Args:
        folder: the cell's own, new; nothing else may be written.
        cards: data cards with paths; every shipped card stands beside them.
        model: `provider:model`, or `rules`.
        options: keyword options of `m3b.Options`.
    """

    folder: Path
    request: str
    cards: Sequence[Mapping[str, Any]]
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class CellOutcome:
    """How a system ended.

    Args:
        status: a `Result.status`; `completed` means only that a model was handed over.
        model: the delivered folder.
        work: the working directory.
        run: the run folder of m3b, where there is one.
        claimed: m3b's own test figure of the run, or what the system says of itself; never the score.
        integrity: `clean`, or what was found.
        kind: of a failure that is no matter of the task: `not_installed`, `crashed`, `timeout`, `provider`.
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
    """A way to turn a job into a model."""

    @property
    def name(self) -> str: ...

    def explain_missing(self) -> str:
        """Why it cannot run on this machine, and what to install; empty where it can."""
        ...

    def run(self, job: CellJob) -> CellOutcome:
        """Work on the job. Failures of the system are outcomes, not exceptions."""
        ...
