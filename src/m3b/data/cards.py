"""Data cards: what a data set is, in words, and where it lies."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.errors import DataError
from m3b.isolation import untrusted
from m3b.remote.addresses import is_remote, suggest_address
from m3b.remote.origin import MirroredFolder, Origin

ALIASES = {
    "name": ("name", "dataset name", "dataset_name"),
    "description": ("description", "dataset description", "dataset_description"),
    "path": ("path", "dataset path", "dataset_path"),
}
"""Keys that are read; the spellings with a blank or an underscore are those of the M3Builder cards."""

FACTS = ("task", "modality", "anatomy", "dimension", "metric", "acceptable", "patient_key", "classes")
BESIDE = ("expects", "url", "terms", "real", "source", "license", "licence", "citation", "doi", "version", "homepage")
"""Keys that say where a data set comes from; kept in the file for people."""
OTHER_NAMES = {
    "labels": "classes",
    "class_names": "classes",
    "range": "acceptable",
    "folder": "path",
    "dims": "dimension",
}

NOTES = ("SOURCE.md", "README.md", "README.txt", "README", "readme.md", "readme.txt", "dataset_description.json")
NOTE_LIMIT = 4000
MAX_CARD_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Card:
    """One data set.

    Args:
        name: unique among the cards of a workspace.
        description: free text: origin, layout, labels, traps.
        path: absolute folder, or None when the user has not said where the data lies.
        task: one of `diagnosis`, `segmentation`, `detection`, `report`, `grading`, `regression`, or empty when unknown.
        acceptable: lowest and highest plausible value of `metric`; None where nobody has said.
        patient_key: the column or rule that names the patient.
        address: where the data lies if `path` is still to be mirrored from another machine.
        origin: where `path` was mirrored from; None for local data.
    """

    name: str
    description: str
    path: Path | None = None
    task: str = ""
    modality: str = ""
    anatomy: str = ""
    dimension: int | None = None
    metric: str = ""
    acceptable: tuple[float, float | None] | None = None
    patient_key: str = ""
    classes: tuple[str, ...] = ()
    own: bool = False
    """True for a card that the user gave, rather than one shipped with m3b."""
    address: str = ""
    origin: Origin | None = None

    @property
    def root(self) -> str:
        """The name under `data/` by which agents reach the folder, e.g. `chest-xray`."""
        return slug(self.name)

    def line(self) -> str:
        """The card in one line: name, facts, whether its data is here."""
        facts = [self.task, self.modality, self.anatomy, f"{self.dimension}D" if self.dimension else ""]
        where = f"data at data/{self.root}" if self.path else "data not on this machine"
        return f"{self.name} ({', '.join(fact for fact in facts if fact) or 'no facts given'}; {where})"

    def text(self) -> str:
        """The whole card as an agent reads it."""
        lines = [f"# {self.line()}", self.description.strip()]
        if self.metric:
            lines.append(f"Usual metric: {self.metric}{_range(self.acceptable)}.")
        if self.patient_key:
            lines.append(f"Patient key: {self.patient_key}.")
        if self.classes:
            lines.append(f"Classes: {', '.join(self.classes)}.")
        return "\n".join(line for line in lines if line)


def _range(acceptable: tuple[float, float | None] | None) -> str:
    if acceptable is None:
        return ""
    low, high = acceptable
    return f", acceptable from {low:g}" + (f" to {high:g}" if high is not None else "")


ABSENT = "datacards.md"
"""In the resources of a run: a line for each data card whose data is not on this machine."""


def absent_lines(cards: Iterable[Card]) -> list[str]:
    """A line for each card whose data is not on this machine."""
    return [f"- {card.line()}".replace("; data not on this machine", "") for card in cards if not card.path]


def absent_told(cards: Iterable[Card]) -> str:
    """What a briefing says of cards whose data is not here: those that the user gave, and a count of the rest; empty for none."""
    away = [card for card in cards if not card.path]
    own = absent_lines(card for card in away if card.own)
    if not away:
        return ""
    rest = len(away) - len(own)
    told = [f"{rest} further data cards are listed in resources/{ABSENT}."] if rest else []
    return "\n".join(
        ["## Other data cards (their data is not on this machine, so that none can be chosen)", *own, *told]
    )


def slug(name: str) -> str:
    """Lower-case letters, digits and dashes; at most 48 characters; never empty."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48].strip("-")
    return plain or "data"


def parse_card(raw: Mapping[str, Any], *, base: Path, own: bool) -> Card:
    """A card from the keys of its JSON object; relative paths count from `base`.

    Raises:
        DataError: a key is missing, unknown or of the wrong type; the message names it.
    """
    from m3b.data.card_fields import fields_of  # brings pydantic along, which `import m3b` does without

    if own:
        _known_keys(raw)
    given = fields_of(raw)
    fields = given.model_dump(exclude={"path"})
    if is_remote(given.path):
        return Card(**fields, address=given.path, own=own)
    return Card(**fields, path=_folder(given.path, base, given.name) if given.path else None, own=own)


def _known_keys(raw: Mapping[str, Any]) -> None:
    """Refuse keys that nothing reads: what a misspelt one was to say would be lost without a word."""
    known = (*(name for names in ALIASES.values() for name in names), *FACTS)
    unread = [str(key) for key in raw if key not in known and key not in BESIDE and not str(key).startswith("_")]
    if not unread:
        return
    told = []
    for key in unread:
        folded = key.strip().lower().replace("-", "_")
        close = [OTHER_NAMES[folded]] if folded in OTHER_NAMES else difflib.get_close_matches(folded, known, 1, 0.7)
        told.append(f"{key!r} (did you mean {close[0]!r}?)" if close else repr(key))
    raise DataError(
        f"A data card has no key {', '.join(told)}. Keys: {', '.join((*ALIASES, *FACTS))}; what else there is to say "
        "belongs into `description`, and keys of your own begin with _."
    )


def _folder(path: str, base: Path, name: str) -> Path:
    try:
        return (base / Path(path).expanduser()).resolve()
    except (ValueError, RuntimeError, OSError) as error:
        raise DataError(f"`path` of the data card {name!r} cannot be used: {path!r} ({error}).") from error


def load_cards(file: Path, *, own: bool = True) -> list[Card]:
    """The cards in one JSON file: an object, or a list of objects.

    Raises:
        DataError: the file is not JSON or a card in it is incomplete.
    """
    if not file.exists():
        raise DataError(f"There is no data card {file}. `m3b data card FOLDER -o {file.name}` writes one to fill in.")
    try:
        raw = untrusted.read_json(file.parent, file.name, MAX_CARD_BYTES)
    except (OSError, ValueError) as error:
        raise DataError(f"The data card {file} cannot be read as JSON: {error}.") from error
    items = raw if isinstance(raw, list) else [raw]
    if not all(isinstance(item, dict) for item in items):
        raise DataError(f"The data card {file} must hold a JSON object or a list of objects.")
    return [parse_card(item, base=file.parent, own=own) for item in items]


def card_for_folder(folder: Path) -> Card:
    """A card for a folder that comes without one: its name, and the notes that lie in it.

    Raises:
        DataError: there is no such folder. Whether it can be read and holds images is for the run to check.
    """
    path, folder = folder, folder.expanduser().resolve()
    if folder.is_file():
        raise DataError(f"{folder} is a file. {_instead(folder)}")
    if not folder.is_dir():
        raise DataError(
            f"There is no folder {folder}.{suggest_address(str(path))} Give --data an existing folder, the address of a remote one "
            "(s3://, gs://, ssh://), or a data card in JSON."
        )
    notes = own_notes(folder)
    about = notes or "A folder of data that came without a card; look inside to learn what it holds."
    return Card(name=folder.name, description=about, path=folder, own=True)


def card_for_mirror(mirrored: MirroredFolder, card: Card | None = None) -> Card:
    """A card for a folder that was mirrored, or the card of the user with this folder.

    Raises:
        DataError: a file was mirrored, and no folder.
    """
    if mirrored.path.is_file():
        raise DataError(f"{mirrored.origin.url} is a file. {_instead(mirrored.path)}")
    if card is None:
        return replace(card_for_folder(mirrored.path), origin=mirrored.origin)
    return replace(card, path=mirrored.path.resolve(), address="", origin=mirrored.origin)


ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")


def _instead(file: Path) -> str:
    """What to give instead of a file that is neither a folder of data nor a card."""
    write = f"`m3b data card FOLDER -o {file.stem}.json` writes one to fill in"
    if file.suffix.lower() in (".toml", ".yaml", ".yml", ".ini", ".xml", ".txt", ".md", ""):
        return f"A data card is JSON, in a file that is called *.json: {write}."
    if file.suffix.lower() in ARCHIVES:
        return "Unpack it and give --data the folder."
    return f"Give --data the folder that holds it, or a data card in JSON: {write}."


def own_notes(folder: Path) -> str:
    """Return what a data folder says of itself in its README and the like, tidied and cut; empty if it says nothing.

    A note that is a link, a pipe or a device is not read.
    """
    names = [name for name in NOTES if untrusted.is_file(folder, name)][:2]
    parts = []
    for name in names:
        text = tidy(untrusted.read_start(folder, name, 4 * NOTE_LIMIT))
        room = NOTE_LIMIT // len(names)
        more = " [...]" if len(text) > room else ""
        parts.append(f"From {name}:\n{text[:room]}{more}")
    return "\n\n".join(parts)


HTML = re.compile(
    r"<>|</?(?:a|abbr|b|blockquote|br|center|code|dd|del|details|div|dl|dt|em|figcaption|figure|font|h[1-6]|hr|i|iframe|img|input"
    r"|kbd|li|ol|p|picture|pre|section|small|source|span|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|tt|ul"
    r"|video)(?:\s[^<>\n]{0,300})?/?>",
    re.IGNORECASE,
)
"""Tags that READMEs are laid out with, and what is left of a link in brackets; `<patient>_<side>.png` is no tag."""


def tidy(markdown: str) -> str:
    """Markdown without images, link targets, badges, HTML tags and blank runs: what is worth a token."""
    # Behind the last end of a comment none is searched for: that takes quadratic time.
    before, end, rest = markdown.rpartition("-->")
    text = re.sub(r"<!--.*?-->", "", before + end, flags=re.DOTALL) + rest
    text = re.sub(r"!\[[^\[\]]*\]\([^)]{0,2000}\)", "", text)
    text = re.sub(r"\[([^\[\]]*)\]\([^)]{0,2000}\)", r"\1", text)
    text = HTML.sub("", re.sub(r"https?://[^\s>)]+", "", text))
    return re.sub(r"\n\s*\n+", "\n", text).strip()


def gather(sources: Iterable[str | Path | Card | MirroredFolder | Mapping[str, Any]]) -> list[Card]:
    """The user's own cards from whatever was given: folders, JSON files, cards or plain mappings.

    Nothing is mirrored here: a card with a remote path has an `address` and no `path`.

    Raises:
        DataError: a source cannot be used, or two cards share a name.
    """
    cards: list[Card] = []
    for source in sources:
        if isinstance(source, Card):
            cards.append(source)
        elif isinstance(source, MirroredFolder):
            cards.append(card_for_mirror(source))
        elif isinstance(source, Mapping):
            cards.append(parse_card(source, base=Path.cwd(), own=True))
        elif Path(source).suffix.lower() == ".json" and not Path(source).expanduser().is_dir():
            cards.extend(load_cards(Path(source).expanduser()))
        else:
            cards.append(card_for_folder(Path(source)))
    return _distinct(cards)


def _distinct(cards: list[Card]) -> list[Card]:
    seen: dict[str, Card] = {}
    for card in cards:
        if card.root in seen:
            raise DataError(
                f"Two data sets are both called {card.name!r} ({seen[card.root].path} and {card.path}). "
                "Give one of them a card with another name."
            )
        seen[card.root] = card
    return cards
