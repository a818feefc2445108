"""What the documentation shows, taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"<!-- generated: (\w+) -->\n(.*?)<!-- /generated -->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line on which it begins, its language and its text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def location(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(language: str, *, generated: bool = False) -> Iterator[Block]:
    """Blocks of one language, with or without those that `docs/refresh.py` makes."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if not generated:  # blanked out, so that lines keep their numbers
            text = GENERATED.sub(lambda match: "\n" * match.group(0).count("\n"), text)
        for match in FENCE.finditer(text):
            if match.group(1) == language:
                yield Block(page, text.count("\n", 0, match.start()) + 1, language, match.group(2))
