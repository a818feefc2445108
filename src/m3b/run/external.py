"""Named external test sets as a caller gives them: a folder each, and perhaps a reading of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import WrongUse

if TYPE_CHECKING:
    from m3b.data.cards import Card
    from m3b.data.spec.model import IndexSpec

Place = str | Path
ExternalData = Mapping[str, Place | Sequence[Any]]
"""Name -> the folder, or (the folder, a reading of it: an `IndexSpec`, its values, or a JSON file)."""

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,39}", re.ASCII)


@dataclass(frozen=True)
class ExternalSource:
    """A folder with a test set of its own, which no agent and no training ever sees.

    Args:
        index: how it is read; None takes what the survey proposes.
    """

    name: str
    folder: Path
    index: IndexSpec | None = None


def external_of(given: ExternalData | None) -> tuple[ExternalSource, ...]:
    """What a caller gave, in shape.

    Raises:
        WrongUse: a name that cannot be one, or a reading that is none.
    """
    found = []
    for name, value in (given or {}).items():
        if not NAME.fullmatch(name):
            raise WrongUse(
                f"{name[:60]!r} cannot name an external set: letters, digits, `.`, `-` and `_` only, at most 40."
            )
        place, reading = (value, None) if isinstance(value, str | Path) else [*value, None][:2]
        folder = Path(place).expanduser().absolute()
        found.append(ExternalSource(name, folder.resolve(), _spec(reading) if reading is not None else None))
    return tuple(found)


def _spec(reading: Any) -> IndexSpec | None:
    from m3b.run.given import given_from  # pydantic, numpy: what an import of m3b does not need

    given = given_from(reading, None)
    return given.index if given is not None else None


def told_apart(named: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """`NAME=DIR` and `NAME=spec.json` of the command line as `external_of` takes them.

    Raises:
        WrongUse: no name, no folder for a reading, or a name given twice.
    """
    folders: dict[str, str] = {}
    readings: dict[str, str] = {}
    for one in named:
        name, sign, place = one.partition("=")
        if not sign or not name or not place:
            raise WrongUse(f"--external takes NAME=DIR, and NAME=spec.json for its reading; found {one!r}.")
        into = readings if Path(place).expanduser().is_file() else folders
        if name in into:
            raise WrongUse(f"--external names {name} twice.")
        into[name] = place
    if bare := sorted(set(readings) - set(folders)):
        raise WrongUse(f"--external {bare[0]}={readings[bare[0]]} is a reading; give the folder too: {bare[0]}=DIR.")
    return {name: (folder, readings.get(name)) for name, folder in folders.items()}


def check_external(sets: Iterable[ExternalSource], cards: Iterable[Card], out: Path | None) -> None:
    """Raises WrongUse where an external set is no folder, or lies in data for training or in the run folder, or holds them."""
    roots = [card.path.resolve() for card in cards if card.path]
    place = out.expanduser().absolute().resolve() if out is not None else None
    for one in sets:
        if not one.folder.is_dir():
            raise WrongUse(f"The external set {one.name} names {one.folder}, which is no folder.")
        for root in roots:
            if one.folder.is_relative_to(root) or root.is_relative_to(one.folder):
                raise WrongUse(
                    f"The external set {one.name} ({one.folder}) and the data {root} lie in each other; training would see it. "
                    "Give a folder of its own."
                )
        if place is not None and (place.is_relative_to(one.folder) or one.folder.is_relative_to(place)):
            raise WrongUse(f"The external set {one.name} ({one.folder}) and the run folder {out} lie in each other.")


def recorded(sets: Iterable[ExternalSource]) -> dict[str, list[Any]]:
    """As run.json holds them, which `external_of` reads again."""
    return {
        one.name: [str(one.folder), one.index.model_dump(mode="json", exclude_defaults=True) if one.index else None]
        for one in sets
    }
