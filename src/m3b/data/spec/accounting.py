"""What became of every file below the data folder: used, or left out for a stated reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_EXAMPLES = 5
_DOCUMENTS = (".md", ".txt", ".pdf", ".rst", "")


@dataclass
class Accounting:
    """Files by what they are used for, or by the reason for which they are not.

    A file that serves twice (a table of labels and of the split) is counted by its first use.
    """

    total: int = 0
    used: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def use(self, paths: Iterable[str], what: str) -> None:
        """Files that the index rests on."""
        for path in paths:
            self.left.pop(path, None)
            self.used.setdefault(path, what)

    def leave(self, paths: Iterable[str], reason: str) -> None:
        """Files that it does not use; the first reason that is given stands."""
        for path in paths:
            if path not in self.used:
                self.left.setdefault(path, reason)

    def leave_rest(self, paths: Iterable[str], reason: str) -> None:
        """Every file that nothing has named yet; of those, documents are called so, others by what their names end in."""
        for path in paths:
            suffix = Path(path).suffix.lower()
            self.leave([path], "a document" if suffix in _DOCUMENTS else f"{reason} ({suffix})")

    def counts(self) -> dict[str, int]:
        """What -> how many files are used for it."""
        return dict(Counter(self.used.values()))

    def reasons(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """Reason -> how many files, and the first few of them; the most frequent first."""
        by: dict[str, list[str]] = {}
        for path, reason in self.left.items():
            by.setdefault(reason, []).append(path)
        ranked = sorted(by.items(), key=lambda item: (-len(item[1]), item[0]))
        return {reason: (len(paths), tuple(sorted(paths)[:_EXAMPLES])) for reason, paths in ranked}

    @property
    def whole(self) -> bool:
        """Whether every file is accounted for."""
        return len(self.used) + len(self.left) == self.total

    def lines(self) -> list[str]:
        """For people: `176 of 180 files used: 88 image, 88 mask`, then a line a reason."""
        counts = ", ".join(f"{count:,} {what}" for what, count in self.counts().items())
        told = [f"{len(self.used):,} of {self.total:,} files used" + (f": {counts}" if counts else "")]
        for reason, (count, examples) in self.reasons().items():
            told.append(f"{count:,} left out: {reason} (e.g. {examples[0]})")
        return told

    def to_json(self) -> dict[str, Any]:
        reasons = [{"reason": reason, "files": count, "examples": list(examples)}
                   for reason, (count, examples) in self.reasons().items()]  # fmt: skip
        return {"files": self.total, "used": self.counts(), "left_out": reasons}
