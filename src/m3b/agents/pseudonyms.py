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
        names: set[str] = set()
        for count, (_, folders, files) in enumerate(os.walk(folder)):
            names.update(re.sub(r"\d+", "0", name) for name in (*folders, *files))
            if len(names) > MAX_LEARNT or count > MAX_LEARNT:
                break
        for name in sorted(names)[:MAX_LEARNT]:
            self._take(name, find(name))

    def _take(self, text: str, spans: list[Identified]) -> None:
        words = {text[span.start : span.end] for span in spans if span.kind == "name" and span.sure} - self._sure
        if words:
            self._sure |= words
            self._known = None

    def hide(self, text: str) -> str:
        """The text with an invented one in place of each name that is recognised, or was recognised before."""
        spans = find(text)
        self._take(text, spans)
        parts, position = [], 0
        for span in spans:
            word = text[span.start : span.end]
            replacement = self._named(word) if span.kind == "name" else self._numbered(word)
            parts += [self._again(text[position : span.start]), replacement]
            position = span.end
        return "".join([*parts, self._again(text[position:])])

    def show(self, text: str) -> str:
        """The text with the real names put back."""
        if not self._real:
            return text
        text = _SHOWN.sub(lambda match: self._back(match.group()), text)
        if not self._numbers:
            return text
        alternatives = "|".join(map(re.escape, self._numbers))
        return re.sub(rf"(?<!\d)(?:{alternatives})(?!\d)", lambda match: self._real[match.group()], text)

    def _again(self, text: str) -> str:
        """Names that were seen in better company, standing alone here."""
        if not self._sure or not text:
            return text
        if self._known is None:
            alternatives = "|".join(re.escape(name) for name in sorted(self._sure, key=len, reverse=True))
            self._known = re.compile(rf"(?<![^\W\d_])(?:{alternatives})(?![^\W\d_])")
        return self._known.sub(lambda match: self._named(match.group()), text)

    def _named(self, word: str) -> str:
        if word not in self._of:
            pseudonym = self._free(
                word, lambda attempt: _match_case(word, f"{MARK}{_make_syllables(word.casefold(), attempt)}")
            )
            self._of[word], self._real[pseudonym] = pseudonym, word
            self._base.setdefault(pseudonym.casefold(), word)
        return self._of[word]

    def _back(self, pseudonym: str) -> str:
        if (original := self._real.get(pseudonym)) is not None:
            return original
        word = self._base.get(pseudonym.casefold())
        return pseudonym if word is None else _match_case(pseudonym, word)

    def _numbered(self, word: str) -> str:
        if word not in self._of:
            pseudonym = self._free(word, lambda attempt: _digits(word, attempt))
            self._of[word], self._real[pseudonym] = pseudonym, word
            self._numbers.append(pseudonym)
        return self._of[word]

    def _free(self, word: str, make: Callable[[int], str]) -> str:
        attempt = 0
        while (candidate := make(attempt)) in self._real or candidate in self._of or candidate == word:
            attempt += 1
        return candidate


def _match_case(reference: str, word: str) -> str:
    """The word in the other's case: all capitals, none, or the first alone."""
    if reference.lower() == reference.upper():  # a script without case
        return word.capitalize()
    return word.upper() if reference.isupper() else word.lower() if reference.islower() else word.capitalize()


def _hash(word: str, turn: int) -> int:
    digest = hashlib.blake2b(f"{turn} {word}".encode("utf-8", "replace"), key=key(), digest_size=16).digest()
    return int.from_bytes(digest, "big")


def _make_syllables(word: str, attempt: int) -> str:
    number, syllables = _hash(word, attempt), ""
    for _ in range(4):
        number, consonant = divmod(number, len(_SIGNS))
        number, vowel = divmod(number, len(_VOWELS))
        syllables += _SIGNS[consonant] + _VOWELS[vowel]
    return syllables


def _digits(word: str, turn: int) -> str:
    number, replaced = _hash(word, turn), ""
    for character in word:
        if character.isdigit():
            number, digit = divmod(number, 10)
            replaced += str(digit)
        else:
            replaced += character
    return replaced
