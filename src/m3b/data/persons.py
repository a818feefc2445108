"""Names of persons in file names, keys and short texts: where they stand.

A given name beside a family name, as the person providers of Faker list them for some fifteen countries; DICOM's caret form; a
title or `patient` before a name; and in a file name that holds one, dates and record numbers. Lone names without such company are
not told from other words.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from m3b.data.person_lists import known_names, plain
from m3b.data.person_words import EPONYMS, PARTICLES, TITLES, VOCABULARY, WEAK

_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f]|['’](?=[^\W\d_]))*")
_CAMEL = re.compile(r"[^\W\d_a-zß-öø-ÿ](?:[a-zß-öø-ÿ]|[\u0300-\u036f])+")
_TIGHT = re.compile(r"(?:[_.^-]|,_?|__)\Z")
_LOOSE = re.compile(r",? \Z")
_HAN = re.compile(r"[\u4e00-\u9fff々]{2,6}")
_PINYIN = re.compile(
    r"(?:(?:[bpmfdtnlgkhjqxrzcsyw]|zh|ch|sh)?(?:iang|uang|iong|ang|eng|ing|ong|ian|iao|uai|uan|ai|an|ao|ei|en|er|ia|ie|in"
    r"|iu|ou|ua|ue|ui|un|uo|a|e|i|o|u)){1,2}"
)
_PART = re.compile(r"[^/\s\"'|;:()\[\]{}<>]+")
_DATE = re.compile(r"(?<!\d)(?:\d{4}([-_.]?)\d{2}\1\d{2}|\d{2}([-_.])\d{2}\2\d{4}|\d{6,10})(?!\d)")
_LABELLED = re.compile(
    r"(?:mrn|nhc|nhs|ssn|ipp|dob|geb|born|birth|nac|dni|病历号|住院号|身份证|生年月日|出生日期)[ _.:=-]{0,2}"
    r"(?P<number>\d[\d_.-]{3,16}\d)",
    re.I,
)
_MEDICAL = re.compile(r"itis$|oma$|osis$|graphy$|scopy$|pathy$|ology$|emia$|tion$|ment$")
Kind = Literal["name", "number"]


@dataclass(frozen=True)
class Identified:
    """A part of a text that identifies a person; `sure` where the word is hardly anything else."""

    start: int
    end: int
    kind: Kind
    sure: bool = True


def find(text: str) -> list[Identified]:
    """Every part that identifies a person, in order, none within another."""
    found = [*_latin(text), *_han(text)]
    starts = sorted(one.start for one in found)
    found += [Identified(one.start("number"), one.end("number"), "number") for one in _LABELLED.finditer(text)]
    for part in _PART.finditer(text) if starts else ():
        if bisect_left(starts, part.start()) < bisect_left(starts, part.end()):
            found += [Identified(part.start() + one.start(), part.start() + one.end(), "number")
                      for one in _DATE.finditer(part.group())]  # fmt: skip
    found.sort(key=lambda one: (one.start, -one.end))
    kept: list[Identified] = []
    for one in found:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept


@dataclass(frozen=True)
class _Word:
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def style(self) -> str:
        return "lower" if self.text.islower() else "upper" if self.text.isupper() else "title"


def _words(text: str) -> Iterator[_Word]:
    """Words, those in camel case taken apart (`WeberAnna`)."""
    for one in _WORD.finditer(text):
        if one.group()[1:].islower():
            yield _Word(one.group(), one.start())
            continue
        pieces = list(_CAMEL.finditer(one.group()))
        if len(pieces) > 1 and sum(len(piece.group()) for piece in pieces) == len(one.group()):
            yield from (_Word(piece.group(), one.start() + piece.start()) for piece in pieces)
        else:
            yield _Word(one.group(), one.start())


def _latin(text: str) -> Iterator[Identified]:
    words = list(_words(text))
    taken = 0
    for at, one in enumerate(words[:-1]):
        to = _beside(words, at)
        between = text[one.end : words[at + 1].start]
        tight = not between or _TIGHT.match(between) is not None
        if one.start < taken or not (tight or _LOOSE.match(between)):
            continue
        two = words[to]
        if plain(one.text) in TITLES:
            first = last = at + 1
            named = _titled(one, words[first], tight)
        else:
            caret = between == "^" and min(len(one.text), len(two.text)) > 1
            named = caret or _pair(one, two, tight=tight)
            first, last = _grown(text, words, at, to, taken) if named else (at, at)
        if named:
            taken = words[last].end
            yield from (Identified(word.start, word.end, "name", _sure(word)) for word in words[first : last + 1])


def _beside(words: list[_Word], at: int) -> int:
    """The next word; behind particles (`van der`), the one after them."""
    to = at + 1
    while to + 1 < len(words) and to < at + 3 and plain(words[to].text) in PARTICLES and words[to].text.islower():
        to += 1
    return to


def _pair(one: _Word, two: _Word, *, tight: bool) -> bool:
    """Whether two words beside each other are a given and a family name, in either order."""
    if one.style != two.style or (not tight and one.style != "title"):
        return False
    names, a, b = known_names(), plain(one.text), plain(two.text)
    if a in VOCABULARY or b in VOCABULARY or (a, b) in EPONYMS:
        return False
    strong = [word for word in (a, b) if word in names.given and word not in WEAK]
    if strong and all(word in names.given or word in names.family for word in (a, b)):
        return True
    if not tight:
        return False
    if one.style == "title" and a in names.pinyin and _PINYIN.fullmatch(b):
        return True
    other = b if strong == [a] else a
    listed = one.style != "lower" and bool(strong) and len(strong[0]) > 3
    return listed and len(other) > 3 and other not in WEAK and not _MEDICAL.search(other)


def _titled(title: _Word, word: _Word, tight: bool) -> bool:
    names, one = known_names(), plain(word.text)
    if len(one) < 4 or one in VOCABULARY or one in TITLES or (word.style == "lower" and title.style != "lower"):
        return False
    return (tight or word.style == "title") and (one in names.given or one in names.family) and one not in WEAK


def _grown(text: str, words: list[_Word], at: int, to: int, taken: int) -> tuple[int, int]:
    """The pair of `at` and `to` with the further names and particles beside it, as far as nothing before `taken`."""
    between = text[words[at].end : words[at + 1].start]

    def more(word: _Word, gap: str) -> bool:
        one = plain(word.text)
        if gap not in (between, "_", "^", "-") or one in VOCABULARY:
            return False
        if one in PARTICLES or between == "^":
            return True
        return (one in known_names().given or one in known_names().family) and word.style == words[at].style

    first, last = at, to
    while last + 1 < len(words) and more(words[last + 1], text[words[last].end : words[last + 1].start]):
        last += 1
    while (
        first
        and words[first - 1].start >= taken
        and more(words[first - 1], text[words[first - 1].end : words[first].start])
    ):
        first -= 1
    while plain(words[last].text) in PARTICLES and last > to:
        last -= 1
    return first, last


def _sure(word: _Word) -> bool:
    one = plain(word.text)
    return len(one) > 3 and one not in WEAK and one not in VOCABULARY


def _han(text: str) -> Iterator[Identified]:
    if text.isascii():
        return
    names = known_names()
    for one in _HAN.finditer(text):
        word = one.group()
        size = 2 if word[:2] in names.han_family else 1
        chinese = word[:size] in names.han_family and 1 <= len(word) - size <= 2
        japanese = any(word.startswith(family) and 1 <= len(word) - len(family) <= 3 for family in names.kanji_family)
        if (chinese and all(sign in names.han_given for sign in word[size:])) or japanese:
            yield Identified(one.start(), one.end(), "name")
