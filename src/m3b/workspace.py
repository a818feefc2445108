"""A workspace: the data cards, prompts, templates and index schemas that agents are offered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from m3b.data.cards import Card, gather, load_cards
from m3b.errors import DataError
from m3b.resources import resources_dir

Source = str | Path | Card | Mapping[str, Any]
"""A folder, a JSON file with cards, a card, or the keys of one."""


class Workspace:
    """What a run may draw on.

    Args:
        root: a folder laid out like m3b's own `resources/`; None is m3b's own.
        data: the user's data sets. A card of the user's hides a shipped one of the same name.
        shipped: whether the cards under `root` are offered beside the user's.

    Raises:
        DataError: a source cannot be read, a card names a task or metric that does not exist, or `root` lacks one of its folders.
    """

    def __init__(self, root: Path | None = None, data: Iterable[Source] = (), *, shipped: bool = True) -> None:
        self.root = root or resources_dir()
        for name in ("prompts", "templates", "indexes"):
            if not (self.root / name).is_dir():
                raise DataError(f"The workspace {self.root} has no folder {name}/.")
        from m3b.precheck import checked_card  # brings the rules' words along

        own = [checked_card(card) for card in gather(data)]
        names = {card.root for card in own}
        cards = [card for card in self._shipped() if card.root not in names] if shipped else []
        self.cards = {card.name: card for card in (*own, *cards)}

    @classmethod
    def default(cls) -> Workspace:
        """m3b's own resources, and no data of the user's."""
        return cls()

    def _shipped(self) -> list[Card]:
        folder = self.root / "datacards"
        return [card for file in sorted(folder.glob("*.json")) for card in load_cards(file, own=False)]
