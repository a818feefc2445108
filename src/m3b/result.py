"""What a run comes to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from m3b.notebook import as_html, figure, short

STATUSES = ("completed", "below_range", "no_dataset", "rejected_data", "out_of_budget", "failed", "cancelled")
FINAL = ("completed", "below_range", "no_dataset", "rejected_data")
"""How a run has ended that is not taken up again."""

FINAL = ("completed", "below_range", "no_dataset", "rejected_data")
"""Statuses that `resume` gives back as they are: going on would not change them. It takes the others up again."""


@dataclass(frozen=True, repr=False)
class Result:
    """The end of a run; `status` is one of `STATUSES`, and never `completed` on an agent's word.

    Args:
        reason: one or two sentences on how the run came to this status.
        primary: `{"name", "value", "low", "high", "n", "baseline", "gain", "patients", "acceptable"}` of m3b's own test
            figure; see `metrics.Measure`.
        metrics: every metric by name, likewise.
        usage: actions, iterations, tokens, cost (US dollars) and wall time (seconds).
        roles: the same a role, with its status.
        integrity: `clean`, or what was found.
    """

    status: str
    reason: str
    request: str
    task: str = ""
    data_card: str = ""
    primary: dict[str, Any] | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, dict[str, Any]] = field(default_factory=dict)
    integrity: str = ""
    run_dir: str = ""
    model_dir: str | None = None
    report: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == "completed"

    def __repr__(self) -> str:
        told = figure(self.primary) or short(self.reason, 120)
        place = f", model: {self.model_dir}" if self.model_dir else f", run: {self.run_dir}" if self.run_dir else ""
        return f"<Result {self.status}: {told}{place}>"

    def _repr_html_(self) -> str:
        rows = [
            ("reason", self.reason), ("request", self.request), ("data", self.data_card), ("task", self.task),
            ("test figure", figure(self.primary)), ("integrity", self.integrity), ("model", self.model_dir),
            ("report", self.report), ("run", self.run_dir),
        ]  # fmt: skip
        return as_html(self.status, rows)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Result:
        """A result as run.json holds it; keys of other versions are left out."""
        return cls(**{key: value for key, value in raw.items() if key in cls.__dataclass_fields__})
