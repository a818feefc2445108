"""What a request lists, brought together with the values of the data: by words, meaning, initials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from m3b.data.spec.proposals.language import initials, negative, synonyms, telling, words
from m3b.data.spec.proposals.vocabulary import NEGATIVE

LEAST_OF_WORD = 3
"""Letters of a word that was cut short."""


@dataclass(frozen=True)
class Said:
    """What values are called: `names` of numbers, `glosses` of short names, in the words of notes and documents."""

    names: Mapping[str, str]
    glosses: Mapping[str, str]


def assigned(clear: list[str], items: list[str], said: Said) -> dict[str, list[str]]:
    """Item -> values: those that are called so, then by meaning, then by initials; a value that one way has given
    away is not asked again."""
    found: dict[str, list[str]] = {item: [] for item in items}
    ways = (
        lambda value, item: words(value) == words(item),
        lambda value, item: bool(said.glosses.get(value)) and _alike(said.glosses[value], item),
        lambda value, item: initials(item) == value.casefold(),
        lambda value, item: means(value, item, said),
        lambda value, item: abbreviates(value, item),
        cut_short,
    )
    for way in ways:
        free = [value for value in clear if not any(value in some for some in found.values())]
        fresh = {item: [value for value in free if way(value, item)] for item in items if not found[item]}
        for item, some in fresh.items():
            found[item] = some
    return found


def abbreviates(value: str, item: str) -> bool:
    """Whether a short value has the initials of an item, in whatever order (`CN` for normal cognition)."""
    own = initials(item)
    return short(value) and len(own) > 1 and sorted(value.casefold()) == sorted(own)


def cut_short(value: str, item: str) -> bool:
    """Whether a value is how a word of an item begins (`Pneu`, `Cov`), or one that means the same (`Reg` for healthy)."""
    own = value.casefold()
    if len(own) < LEAST_OF_WORD or not own.isalpha():
        return False
    spoken = NEGATIVE if negative(item) else telling(item) | {one for word in telling(item) for one in synonyms(word)}
    return any(word != own and word.startswith(own) for word in spoken)


def short(value: str) -> bool:
    return value.isalpha() and value.isupper() and 2 <= len(value) <= 5


def means(value: str, item: str, said: Said) -> bool:
    """Whether a value says what is listed: all the words of one stand in the other, or both say that nothing is there."""
    return _alike(value, item) or (value in said.glosses and _alike(said.glosses[value], item))


def _alike(value: str, item: str) -> bool:
    mine, asked = telling(value) or frozenset(words(value)), telling(item)
    if negative(value) and negative(item):
        return True
    if negative(value) != negative(item):
        return False
    if not telling(value) and mine and mine <= frozenset(words(item)):
        return True  # `Other` and `other planes`
    if not mine or not asked:
        return False
    if mine <= asked or asked <= mine or _glued(value) == _glued(item):
        return True
    if all(any(_inflected(word, other) for other in asked) for word in mine):
        return True
    broad = [asked | {one for word in asked for one in synonyms(word)}, mine | {o for w in mine for o in synonyms(w)}]
    return mine <= broad[0] or asked <= broad[1]


def _inflected(one: str, other: str) -> bool:
    """Whether two words are one but for an ending of two letters: `gutartig`, `gutartigen`."""
    short_one, long_one = sorted((one, other), key=len)
    return one == other or (
        len(short_one) >= 6 and long_one.startswith(short_one) and len(long_one) - len(short_one) <= 2
    )


def _glued(text: str) -> str:
    return "".join(words(text))
