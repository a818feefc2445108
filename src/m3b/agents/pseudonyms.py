"""Persons' names on their way to a model and back: invented ones go out, the real ones come back.

What a model is shown holds `Anon...` in place of a name in a path, a key or a script's output, and what it says is turned back
before anything runs: its scripts, patterns and calls meet the real files. The journal has the real names; what leaves has not.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from m3b.data.persons import Identified, find
from m3b.data.phi import key

MARK = "anon"
MAX_LEARNT = 20_000
"""Different names of files, and folders, that are looked at beforehand; digits do not count."""
_SIGNS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SHOWN = re.compile(rf"{MARK}(?:[{_SIGNS}][{_VOWELS}]){{4}}", re.I)


class Pseudonyms:
    """The invented names of one run. The same name gets the same one in every run on this machine."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._real: dict[str, str] = {}
        self._base: dict[str, str] = {}
        self._numbers: list[str] = []
        self._sure: set[str] = set()
        self._known: re.Pattern[str] | None = None

    def learn(self, folder: Path) -> None:
        """The names that files and folders below hold, so that one is known wherever it stands alone; of very many the first."""
        seen: set[str] = set()
        for count, (_, folders, files) in enumerate(os.walk(folder)):
            seen.update(re.sub(r"\d+", "0", name) for name in (*folders, *files))
            if len(seen) > MAX_LEARNT or count > MAX_LEARNT:
                break
        for name in sorted(seen)[:MAX_LEARNT]:
            self._take(name, find(name))

    def _take(self, text: str, spans: list[Identified]) -> None:
        words = {text[one.start : one.end] for one in spans if one.kind == "name" and one.sure} - self._sure
        if words:
            self._sure |= words
            self._known = None

    def hide(self, text: str) -> str:
        """The text with an invented one in place of each name that is recognised, or was recognised before."""
        spans = find(text)
        self._take(text, spans)
        parts, at = [], 0
        for one in spans:
            word = text[one.start : one.end]
            made = self._named(word) if one.kind == "name" else self._numbered(word)
            parts += [self._again(text[at : one.start]), made]
            at = one.end
        return "".join([*parts, self._again(text[at:])])

    def show(self, text: str) -> str:
        """The text with the real names put back."""
        if not self._real:
            return text
        text = _SHOWN.sub(lambda found: self._back(found.group()), text)
        if not self._numbers:
            return text
        known = "|".join(map(re.escape, self._numbers))
        return re.sub(rf"(?<!\d)(?:{known})(?!\d)", lambda found: self._real[found.group()], text)

    def _again(self, text: str) -> str:
        """Names that were seen in better company, standing alone here."""
        if not self._sure or not text:
            return text
        if self._known is None:
            words = "|".join(re.escape(one) for one in sorted(self._sure, key=len, reverse=True))
            self._known = re.compile(rf"(?<![^\W\d_])(?:{words})(?![^\W\d_])")
        return self._known.sub(lambda found: self._named(found.group()), text)

    def _named(self, word: str) -> str:
        if word not in self._of:
            shown = self._free(word, lambda turn: _as(word, f"{MARK}{_syllables(word.casefold(), turn)}"))
            self._of[word], self._real[shown] = shown, word
            self._base.setdefault(shown.casefold(), word)
        return self._of[word]

    def _back(self, shown: str) -> str:
        if (known := self._real.get(shown)) is not None:
            return known
        word = self._base.get(shown.casefold())
        return shown if word is None else _as(shown, word)

    def _numbered(self, word: str) -> str:
        if word not in self._of:
            shown = self._free(word, lambda turn: _digits(word, turn))
            self._of[word], self._real[shown] = shown, word
            self._numbers.append(shown)
        return self._of[word]

    def _free(self, word: str, make: Callable[[int], str]) -> str:
        turn = 0
        while (made := make(turn)) in self._real or made in self._of or made == word:
            turn += 1
        return made


def _as(like: str, word: str) -> str:
    """The word in the other's case: all capitals, none, or the first alone."""
    if like.lower() == like.upper():  # a script without case
        return word.capitalize()
    return word.upper() if like.isupper() else word.lower() if like.islower() else word.capitalize()


def _hash(word: str, turn: int) -> int:
    digest = hashlib.blake2b(f"{turn} {word}".encode("utf-8", "replace"), key=key(), digest_size=16).digest()
    return int.from_bytes(digest, "big")


def _syllables(word: str, turn: int) -> str:
    number, made = _hash(word, turn), ""
    for _ in range(4):
        number, sign = divmod(number, len(_SIGNS))
        number, vowel = divmod(number, len(_VOWELS))
        made += _SIGNS[sign] + _VOWELS[vowel]
    return made


def _digits(word: str, turn: int) -> str:
    number, made = _hash(word, turn), ""
    for one in word:
        if one.isdigit():
            number, digit = divmod(number, 10)
            made += str(digit)
        else:
            made += one
    return made
