"""Notes of a survey while it is made: codes, counts and the first few places."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from m3b.data.survey.facts import Note

_EXAMPLES = 5


@dataclass
class Notes:
    """Notes by code, with a count and the first few places in the order of their names."""

    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)

    def add(self, code: str, place: str, count: int = 1, detail: str = "") -> None:
        """Count something seen."""
        self.counts[code] += count
        if place:
            kept = self.places.setdefault(code, [])
            kept.append(place)
            if len(kept) > 64:
                kept.sort()
                del kept[_EXAMPLES:]
        if detail:
            self.details.setdefault(code, detail)

    def facts(self) -> tuple[Note, ...]:
        """As facts, in the order of their codes."""
        return tuple(
            Note(
                code=code, count=count, examples=tuple(sorted(self.places.get(code, []))[:_EXAMPLES]),
                detail=self.details.get(code, ""),
            )
            for code, count in sorted(self.counts.items())
        )  # fmt: skip
