"""What words of names (columns, folders, slots) say about the role of what they name: label, patient, split, ..."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from m3b.dataset.survey.words import SIDE_WORDS, unspaced_words
from m3b.dataset.tables.yes_no import NO, YES

WORDS_FILE = Path(__file__).with_name("roles.json")
_WORDS = json.loads(WORDS_FILE.read_text(encoding="utf-8"))
ROLE_WORDS: dict[str, frozenset[str]] = {role: frozenset(words) for role, words in _WORDS["roles"].items()} | {
    "yes_no": YES | NO,
    **{str(side): words for side, words in SIDE_WORDS.items()},
}
"""Role -> words of names in five languages."""
_ROLE_WORDS = frozenset().union(*ROLE_WORDS.values())
MIN_COMPOUND_PART = 4
"""Letters of the first part of a compound."""
SEVERITY: tuple[frozenset[str], ...] = tuple(frozenset(words) for words in _WORDS["severity"])
"""Words of severity, from the lowest to the highest."""


def split_words(text: str) -> list[str]:
    """Return the words of a name: camelCase, `_`, `-`, digits and spaces divide; letters of any script."""
    text = re.sub(r"(?<=[a-zà-ÿ])(?=[A-Z])", " ", text)
    return [word.casefold() for word in re.findall(r"[^\W\d_]+|\d+", text)]


def _compound_words(word: str) -> set[str]:
    """Both parts of a word that is two words of roles: `patientennummer`, `imageid`; empty if it is none."""
    for end in range(MIN_COMPOUND_PART, len(word) - 1):
        first, second = word[:end], word[end:]
        stem = next(
            (form for form in (first, first.removesuffix("n"), first.removesuffix("s")) if form in _ROLE_WORDS), ""
        )
        if stem and second in _ROLE_WORDS:
            return {stem, second}
    return set()


@lru_cache(maxsize=65536)
def roles_of(text: str) -> frozenset[str]:
    """Return the roles that a name's words stand for."""
    words = {text.strip().casefold(), *split_words(text)}
    words |= {part for word in words - _ROLE_WORDS for part in _compound_words(word)}
    words |= {word.rstrip("s") for word in words if len(word) > 3} | unspaced_words(text)
    return frozenset(role for role, vocabulary in ROLE_WORDS.items() if words & vocabulary)


_SIDES: dict[str, frozenset[str]] = {side: frozenset(words) for side, words in _WORDS["sides"].items()}
"""Words and abbreviations for the sides of a body and of its eyes."""


def laterality_of(word: str) -> str:
    """Return left or right if a word as a whole means it; else an empty text."""
    return next((side for side, words in _SIDES.items() if word.strip().casefold() in words), "")


VIEW_WORDS = frozenset(_WORDS["views"])
"""Words and abbreviations for projections and planes of images."""


def is_view(word: str) -> bool:
    """Return whether a word as a whole means a projection or a plane."""
    return word.strip().casefold() in VIEW_WORDS


def is_view_or_side(word: str) -> bool:
    """Return whether a word as a whole means a projection, a plane or a side of the body."""
    return is_view(word) or bool(laterality_of(word))


def severity_rank(name: str) -> int | None:
    """Return the rank of a single word of severity; None of any other name."""
    return next((rank for rank, words in enumerate(SEVERITY) if name.strip().casefold() in words), None)


def severity_ranks(names: Sequence[str]) -> dict[str, int] | None:
    """Return the rank of each name by its word of severity; None if a name has none or two have the same."""
    ranks = {}
    for name in names:
        words = {name.strip().casefold(), *split_words(name)}
        result = [rank for rank, vocabulary in enumerate(SEVERITY) if words & vocabulary]
        if len(result) != 1:
            return None
        ranks[name] = result[0]
    return ranks if len(set(ranks.values())) == len(ranks) > 1 else None
