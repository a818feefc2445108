"""Whose an image is, where names and tables leave it open and the data card says it in words: measured before it is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from m3b.data.spec.expected import countable, drafted
from m3b.data.spec.grouping import readable
from m3b.data.spec.model import FromPath, FromTable, IndexSpec, Value
from m3b.data.spec.proposals import Proposal
from m3b.data.spec.proposals.surroundings import UNKNOWN
from m3b.data.spec.readers import Readers
from m3b.errors import DataError

NAMED = 0.99
"""Share of the cases that must have the piece of a name, or the cell, that a card speaks of."""

_QUOTED = re.compile(r"`([^`]+)`")
_TEMPLATE = re.compile(r"<[^<>]*>")
_LEVEL = re.compile(r"\b(first|second|third|fourth)[ -]level\b", re.IGNORECASE)
_BEFORE = re.compile(r"\bbefore the (?:first )?(underscore|dash|hyphen)\b", re.IGNORECASE)
_LEADING = re.compile(
    r"\bfirst (\d|two|three|four|five|six|seven|eight|nine) (digits|characters|letters)\b", re.IGNORECASE
)
_NUMBER = re.compile(r"\bnumber\b.*\bname\b|\bname\b.*\bnumber\b", re.IGNORECASE)
_OTHER_NUMBER = re.compile(r"\b(?:after|between|last|second|third|folder)\b", re.IGNORECASE)
_LEVELS = ("first", "second", "third", "fourth")
_COUNTS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def with_patients(proposals: Sequence[Proposal], key: str, root: Path, readers: Readers) -> list[Proposal]:
    """The readings, those of unknown patients with what a card names as the patient, where nearly every case has it.

    Args:
        key: the card's words, such as "CSV column `Subject`", "number in the file name" or "`sub-<id>` in the file name".
    """
    return [_with_patient(one, key, root, readers) for one in proposals] if key else list(proposals)


def _with_patient(proposal: Proposal, key: str, root: Path, readers: Readers) -> Proposal:
    spec = proposal.spec
    if spec.patient is not None or spec.images.files.member or not countable(spec, files := readers.files()):
        return proposal
    for value in _meant(key, spec):
        try:
            _, sources, cases = drafted(spec.model_copy(update={"patient": value}), root, readers, files)
            texts = [text for case in cases if (text := sources.text(value, case))]
        except DataError:
            continue
        if len(texts) < NAMED * len(cases) or len(set(texts)) < 2:
            continue
        kept = tuple(one for one in spec.together if one != value)
        told = f"patients: {len(set(texts)):,} by {_told(value)} (the data card says so)"
        return replace(
            proposal,
            spec=spec.model_copy(update={"patient": value, "together": kept}),
            evidence=(*proposal.evidence, told),
            doubts=tuple(one for one in proposal.doubts if one != UNKNOWN),
        )
    return proposal


def _meant(key: str, spec: IndexSpec) -> Iterator[Value]:
    """What a card's words may mean in a reading, the most certain first."""
    quoted: list[str] = _QUOTED.findall(key)
    for table in _tables(spec):
        yield from (table.model_copy(update={"column": name}) for name in quoted)
    if pieces := [
        _TEMPLATE.split(one if "<" in one else f"{one}<>") for one in quoted if "<" in one or one[-1] in "-_"
    ]:
        yield FromPath(value="{path}", find="|".join(r"[^\W_]+".join(map(_escaped, one)) for one in pieces))
    if level := _LEVEL.search(key):
        yield FromPath(value=f"{{folder{_LEVELS.index(level[1].lower())}}}")
    if spec.images.unit != "file":
        return  # names are those of slices
    if before := _BEFORE.search(key):
        mark = "_" if before[1].lower() == "underscore" else "-"
        yield FromPath(value="{stem}", find=f"^([^{mark}]+){mark}")
    elif leading := _LEADING.search(key):
        count = leading[1] if leading[1].isdigit() else str(_COUNTS.index(leading[1].lower()))
        yield FromPath(value="{stem}", find=(r"^\D*(\d{%s})" if leading[2].lower() == "digits" else "^.{%s}") % count)
    elif _NUMBER.search(key) and not _OTHER_NUMBER.search(key):
        yield FromPath(value="{stem}", find=r"\d+")


def _escaped(text: str) -> str:
    return re.escape(text).replace(r"\-", "-")


def _told(value: Value) -> str:
    if isinstance(value, FromTable):
        return f"the column {value.column!r} of {readable(value.file)}"
    place = value.value if isinstance(value, FromPath) else ""
    return f"what {value.find} finds in {place}" if isinstance(value, FromPath) and value.find else place


def _tables(part: BaseModel) -> list[FromTable]:
    """The cells that a spec names, one a table."""
    found: dict[tuple[str, str, str], FromTable] = {}
    todo: list[object] = [part]
    while todo:
        one = todo.pop(0)
        if isinstance(one, FromTable):
            found.setdefault((one.file, one.sheet, one.records), one)
        elif isinstance(one, BaseModel):
            todo += [getattr(one, name) for name in type(one).model_fields]
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, tuple):
            todo += one
    return list(found.values())
