"""A workspace: the data cards, prompts, templates and index schemas of the agents."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.data.cards import Card, card_for_mirror, gather, load_cards
from m3b.errors import DataError, UsageError
from m3b.llm.offline import is_offline
from m3b.remote.addresses import is_remote
from m3b.remote.origin import MirroredFolder, Origin
from m3b.resources import get_resources_folder

Source = str | Path | Card | MirroredFolder | Mapping[str, Any]
"""A data source: a folder, the address of a remote one, a JSON file with cards, a card, or the keys of a card."""


def to_source_list(data: Iterable[Source] | Source) -> list[Source]:
    """Return one source or several as a list.

    Raises:
        UsageError: it is none.
    """
    if isinstance(data, str | Path | Mapping | Card | MirroredFolder):
        return [data]
    if not isinstance(data, Iterable):
        raise UsageError(f"`data` takes folders, JSON files with data cards, or cards; it is {data!r}.")
    return list(data)


class Workspace:
    """The resources of a run: data cards, prompts, templates and index schemas.

    Args:
        root: a folder laid out like m3b's own `resources/`; None is m3b's own.
        data: the user's data sets. A card of the user replaces a shipped one with the same name.
        with_shipped: whether to include the cards below `root`.
        templates: training projects of the user: a folder with some, or a single one. Each has the name of its task, or
            a `template.json` that names the task.
        offline: whether remote folders are taken as they were mirrored last, without asking a server.
        prompts: a folder of Markdown files that are added to the prompts: `common.md`, or the name of a role such as
            `data_engineer.md`.

    Raises:
        UsageError: a remote folder cannot be mirrored.
        DataError: a source cannot be read, a card names an unknown task or metric, `root` lacks a folder, a template is
            incomplete, or the folder of prompts is empty.
    """

    def __init__(
        self,
        root: Path | None = None,
        data: Iterable[Source] | Source = (),
        *,
        with_shipped: bool = True,
        templates: str | Path | None = None,
        prompts: str | Path | None = None,
        offline: bool = False,
    ) -> None:
        self.root = root or get_resources_folder()
        for name in ("prompts", "templates", "indexes"):
            if not (self.root / name).is_dir():
                raise DataError(f"The workspace {self.root} has no folder {name}/.")
        sources, self.data_notes = _mirror_sources(to_source_list(data), offline)
        user_cards = [_validate_card(card) for card in self._mirror_cards(gather(sources), offline)]
        user_roots = {card.root for card in user_cards}
        shipped_cards = (
            [card for card in self._load_shipped_cards() if card.root not in user_roots] if with_shipped else []
        )
        self.cards = {card.name: card for card in (*user_cards, *shipped_cards)}
        self.prompts = _resolve_prompt_folder(prompts)
        self._user_templates = _find_user_templates(templates)
        self._source_paths = {"root": root, "templates": templates, "prompts": prompts}
        self._with_shipped = with_shipped

    @property
    def templates(self) -> dict[str, Path]:
        """Templates in addition to those below `root`, by name: of task families and of the user."""
        from m3b.tasks import list_families
        from m3b.tasks.templates import collect_family_templates

        return {
            **collect_family_templates({task_family.name: task_family for task_family in list_families()}),
            **self._user_templates,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the arguments that it was made from, except its data, to make it again."""
        paths = {
            name: str(Path(path).expanduser().absolute()) if path else None for name, path in self._source_paths.items()
        }
        return {**paths, "shipped": self._with_shipped}

    def with_cards(self, cards: Mapping[str, Card]) -> Workspace:
        """Return the same workspace with other data cards."""
        changed = copy.copy(self)
        changed.cards = dict(cards)
        return changed

    @classmethod
    def default(cls) -> Workspace:
        """Return a workspace with m3b's own resources and no data of the user."""
        return cls()

    def check_prompts(self, role_names: Sequence[str]) -> None:
        """Check that each additional prompt has the name of a prompt it adds to.

        Raises:
            DataError: a file has another name; the message lists the roles.
        """
        known_names = ("common", *role_names)
        files = sorted(self.prompts.glob("*.md")) if self.prompts else []
        if unknown := [file.name for file in files if file.stem not in known_names]:
            raise DataError(
                f"{self.prompts} holds {', '.join(unknown)}; prompts are added to {', '.join(sorted(known_names))} (.md)."
            )

    def _mirror_cards(self, cards: Iterable[Card], offline: bool) -> Iterator[Card]:
        """Yield the cards; those with the address of a remote folder with the local folder that it was mirrored to."""
        for card in cards:
            if card.address and card.path is None:
                mirrored = mirror_source(card.address, offline)
                self.data_notes += describe_mirrored(mirrored)
                card = card_for_mirror(mirrored, card)
            yield card

    def _load_shipped_cards(self) -> list[Card]:
        folder = self.root / "datacards"
        return [card for file in sorted(folder.glob("*.json")) for card in load_cards(file, own=False)]


def mirror_source(url: str, offline: bool = False) -> MirroredFolder:
    """Return the local folder of a remote one, from the store of the environment.

    Raises:
        UsageError: see `m3b.remote.mirror.mirror`.
    """
    from m3b.remote.mirror import mirror

    return mirror(url, offline=is_offline(offline))


def describe_mirrored(mirrored: MirroredFolder) -> list[str]:
    """Return what a user should know of a mirrored folder: where it comes from, and what differs from the remote one."""
    return [f"Data mirrored from {mirrored.origin.describe()}.", *mirrored.notes]


def _mirror_sources(sources: Iterable[Source], offline: bool) -> tuple[list[Source], list[str]]:
    """Return the sources, with a mirrored folder instead of each address, and notes on these."""
    local_sources, notes = list[Source](), list[str]()
    for source in sources:
        if isinstance(source, str) and is_remote(source):
            source = mirror_source(source, offline)
        if isinstance(source, MirroredFolder):
            notes += describe_mirrored(source)
        local_sources.append(source)
    return local_sources, notes


def restore_origins(workspace: Workspace, origins: Mapping[str, Origin]) -> Workspace:
    """Return a workspace whose cards have the origins that a run has recorded, by name of the card."""
    cards = {
        name: replace(card, origin=origins[name]) if name in origins and card.own else card
        for name, card in workspace.cards.items()
    }
    return workspace.with_cards(cards)


def _find_user_templates(folder: str | Path | None) -> dict[str, Path]:
    if folder is None:
        return {}
    from m3b.tasks.templates import find_user_templates

    return find_user_templates(Path(folder))


def _resolve_prompt_folder(path: str | Path | None) -> Path | None:
    """Return the folder of additional prompts."""
    if path is None:
        return None
    folder = Path(path).expanduser().resolve()
    if not any(folder.glob("*.md")):
        raise DataError(f"The folder of prompts {folder} holds no Markdown file; give common.md, or a role's.")
    return folder


def _validate_card(card: Card) -> Card:
    if not card.task and not card.metric:
        return card
    from m3b.tasks.card_validation import validate_card  # imports the task families, which most cards do not need

    return validate_card(card)
