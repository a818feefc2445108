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

from m3b.data.person_lists import known_names, normalize_word
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
    matches = [*_latin(text), *_han(text)]
    starts = sorted(match.start for match in matches)
    matches += [Identified(match.start("number"), match.end("number"), "number") for match in _LABELLED.finditer(text)]
    for part in _PART.finditer(text) if starts else ():
        if bisect_left(starts, part.start()) < bisect_left(starts, part.end()):
            matches += [Identified(part.start() + date.start(), part.start() + date.end(), "number")
                      for date in _DATE.finditer(part.group())]  # fmt: skip
    matches.sort(key=lambda match: (match.start, -match.end))
    separate: list[Identified] = []
    for match in matches:
        if not separate or match.start >= separate[-1].end:
            separate.append(match)
    return separate


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
    for match in _WORD.finditer(text):
        if match.group()[1:].islower():
            yield _Word(match.group(), match.start())
            continue
        pieces = list(_CAMEL.finditer(match.group()))
        if len(pieces) > 1 and sum(len(piece.group()) for piece in pieces) == len(match.group()):
            yield from (_Word(piece.group(), match.start() + piece.start()) for piece in pieces)
        else:
            yield _Word(match.group(), match.start())


def _latin(text: str) -> Iterator[Identified]:
    words = list(_words(text))
    end_of_names = 0
    for at, word in enumerate(words[:-1]):
        to = _find_next_name(words, at)
        between = text[word.end : words[at + 1].start]
        tight = not between or _TIGHT.match(between) is not None
        if word.start < end_of_names or not (tight or _LOOSE.match(between)):
            continue
        next_word = words[to]
        if normalize_word(word.text) in TITLES:
            first = last = at + 1
            is_name = _titled(word, words[first], tight)
        else:
            caret = between == "^" and min(len(word.text), len(next_word.text)) > 1
            is_name = caret or _pair(word, next_word, tight=tight)
            first, last = _grown(text, words, at, to, end_of_names) if is_name else (at, at)
        if is_name:
            end_of_names = words[last].end
            yield from (Identified(part.start, part.end, "name", _sure(part)) for part in words[first : last + 1])


def _find_next_name(words: list[_Word], at: int) -> int:
    """The next word; behind particles (`van der`), the one after them."""
    to = at + 1
    while (
        to + 1 < len(words) and to < at + 3 and normalize_word(words[to].text) in PARTICLES and words[to].text.islower()
    ):
        to += 1
    return to


def _pair(first: _Word, second: _Word, *, tight: bool) -> bool:
    """Whether two words beside each other are a given and a family name, in either order."""
    if first.style != second.style or (not tight and first.style != "title"):
        return False
    names, a, b = known_names(), normalize_word(first.text), normalize_word(second.text)
    if a in VOCABULARY or b in VOCABULARY or (a, b) in EPONYMS:
        return False
    strong = [word for word in (a, b) if word in names.given and word not in WEAK]
    if strong and all(word in names.given or word in names.family for word in (a, b)):
        return True
    if not tight:
        return False
    if first.style == "title" and a in names.pinyin and _PINYIN.fullmatch(b):
        return True
    unlisted = b if strong == [a] else a
    is_listed = first.style != "lower" and bool(strong) and len(strong[0]) > 3
    return is_listed and len(unlisted) > 3 and unlisted not in WEAK and not _MEDICAL.search(unlisted)


def _titled(title: _Word, word: _Word, tight: bool) -> bool:
    names, normalized = known_names(), normalize_word(word.text)
    if (
        len(normalized) < 4
        or normalized in VOCABULARY
        or normalized in TITLES
        or (word.style == "lower" and title.style != "lower")
    ):
        return False
    return (
        (tight or word.style == "title")
        and (normalized in names.given or normalized in names.family)
        and normalized not in WEAK
    )


def _grown(text: str, words: list[_Word], at: int, to: int, end_of_names: int) -> tuple[int, int]:
    """The pair of `at` and `to` with the further names and particles beside it, as far as nothing before `end_of_names`."""
    between = text[words[at].end : words[at + 1].start]

    def belongs(word: _Word, gap: str) -> bool:
        normalized = normalize_word(word.text)
        if gap not in (between, "_", "^", "-") or normalized in VOCABULARY:
            return False
        if normalized in PARTICLES or between == "^":
            return True
        names = known_names()
        return (normalized in names.given or normalized in names.family) and word.style == words[at].style

    first, last = at, to
    while last + 1 < len(words) and belongs(words[last + 1], text[words[last].end : words[last + 1].start]):
        last += 1
    while (
        first
        and words[first - 1].start >= end_of_names
        and belongs(words[first - 1], text[words[first - 1].end : words[first].start])
    ):
        first -= 1
    while normalize_word(words[last].text) in PARTICLES and last > to:
        last -= 1
    return first, last


def _sure(word: _Word) -> bool:
    normalized = normalize_word(word.text)
    return len(normalized) > 3 and normalized not in WEAK and normalized not in VOCABULARY


def _han(text: str) -> Iterator[Identified]:
    if text.isascii():
        return
    names = known_names()
    for match in _HAN.finditer(text):
        word = match.group()
        size = 2 if word[:2] in names.han_family else 1
        chinese = word[:size] in names.han_family and 1 <= len(word) - size <= 2
        japanese = any(word.startswith(family) and 1 <= len(word) - len(family) <= 3 for family in names.kanji_family)
        if (chinese and all(sign in names.han_given for sign in word[size:])) or japanese:
            yield Identified(match.start(), match.end(), "name")
