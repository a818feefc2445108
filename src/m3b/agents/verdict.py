"""What a check says of a hand-over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from m3b.errors import RunEnd


@dataclass(frozen=True)
class Verdict:
    """Accepted when nothing in `faults`.

    Args:
        faults: what must change, each with what was found and what to do.
        warnings: what may be improved; shown in the reflection turn.
        end: how the run ends if the role cannot mend the faults; None is an ordinary failure.
        fatal: True when trying again cannot help, so that the run ends at once.
        artifact: what was handed over, when accepted.
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    end: type[RunEnd] | None = None
    fatal: bool = False
    artifact: Any = field(default=None, compare=False)

    @property
    def accepted(self) -> bool:
        return not self.faults


def rejected(*faults: str, end: type[RunEnd] | None = None, fatal: bool = False) -> Verdict:
    """A verdict that names faults."""
    return Verdict(tuple(faults), end=end, fatal=fatal)


def accepted(artifact: Any, *warnings: str) -> Verdict:
    """A verdict that carries the artifact."""
    return Verdict(warnings=tuple(warnings), artifact=artifact)
