"""Pseudonymization of persons' names on their way to a model and back.

A model is shown `Anon...` in place of a name in a path, a key or a script's output, and in its replies the real names
are restored before anything runs, so that its scripts, patterns and calls work on the real files. The journal has the
real names; what is sent to the model has not.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.data.persons import Identified, find
from m3b.isolation.user_secret import purpose_key
from m3b.llm.base import LLM, LLMRequest, LLMWrapper
from m3b.messages import Message, Reply

PSEUDONYM_NOTE = (
    "[Words with Anon... stand for names of persons, and digits beside them for dates: m3b puts the real ones back into whatever you "
    "write before it runs. Use them as they are shown, never parts of them; in patterns, match names by their place.]"
)


class PseudonymizingModel(LLMWrapper):
    """A language model that is shown pseudonyms, and whose replies have the real names restored."""

    def __init__(self, llm: LLM, pseudonyms: Pseudonyms) -> None:
        super().__init__(llm)
        self.pseudonyms = pseudonyms
        self._pseudonymized_texts: dict[str, str] = {}
        self._first_text = ""

    def ask(self, request: LLMRequest) -> Reply:
        """See `LLM.ask`; text that is streamed holds the pseudonyms."""
        reply = self.llm.ask(replace(request, messages=list(map(self._pseudonymize_message, request.messages))))
        calls = tuple(
            replace(item, arguments=self._map_strings(item.arguments, self._restore_text)) for item in reply.calls
        )
        return replace(reply, text=self._restore_text(reply.text), calls=calls)

    def _restore_text(self, text: str) -> str:
        real = self.pseudonyms.restore(text)
        self._pseudonymized_texts.setdefault(real, text)  # so that the model sees its own text unchanged
        return real

    def _pseudonymize_message(self, message: Message) -> Message:
        if message.role == "system":
            return message
        calls = tuple(
            replace(call, arguments=self._map_strings(call.arguments, self._pseudonymize_text))
            for call in message.calls
        )
        text = self._pseudonymize_text(message.text)
        if text != message.text and message.role != "assistant":
            self._first_text = self._first_text or message.text
            text = f"{text}\n{PSEUDONYM_NOTE}" if message.text == self._first_text else text
        return replace(message, text=text, calls=calls)

    def _pseudonymize_text(self, text: str) -> str:
        if text not in self._pseudonymized_texts:
            self._pseudonymized_texts[text] = self.pseudonyms.pseudonymize(text)
        return self._pseudonymized_texts[text]

    def _map_strings(self, value: Any, transform: Callable[[str], str]) -> Any:
        if isinstance(value, str):
            return transform(value)
        if isinstance(value, dict):
            return {
                transform(name) if isinstance(name, str) else name: self._map_strings(item, transform)
                for name, item in value.items()
            }
        return [self._map_strings(item, transform) for item in value] if isinstance(value, list) else value


PREFIX = "anon"
MAX_LEARNED_NAMES = 20_000
"""Maximum number of different file and folder names, digits disregarded, that are searched for persons' names."""
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_PSEUDONYM_PATTERN = re.compile(rf"{PREFIX}(?:[{_CONSONANTS}][{_VOWELS}]){{4}}", re.I)


class Pseudonyms:
    """The pseudonyms of one run. A name has the same pseudonym in every run on this machine."""

    def __init__(self) -> None:
        self._pseudonyms: dict[str, str] = {}
        self._originals: dict[str, str] = {}
        self._originals_casefolded: dict[str, str] = {}
        self._number_pseudonyms: list[str] = []
        self._confident_names: set[str] = set()
        self._name_pattern: re.Pattern[str] | None = None

    def learn_names(self, folder: Path) -> None:
        """Learn the names of persons in file and folder names, so that they are recognised on their own.

        At most `MAX_LEARNED_NAMES` file and folder names are searched.
        """
        names: set[str] = set()
        for count, (_, folders, files) in enumerate(os.walk(folder)):
            names.update(re.sub(r"\d+", "0", name) for name in (*folders, *files))
            if len(names) > MAX_LEARNED_NAMES or count > MAX_LEARNED_NAMES:
                break
        for name in sorted(names)[:MAX_LEARNED_NAMES]:
            self._add_confident_names(name, find(name))

    def _add_confident_names(self, text: str, spans: list[Identified]) -> None:
        words = {
            text[span.start : span.end] for span in spans if span.kind == "name" and span.sure
        } - self._confident_names
        if words:
            self._confident_names |= words
            self._name_pattern = None

    def pseudonymize(self, text: str) -> str:
        """Return the text with a pseudonym for each name that is recognised, or was recognised before."""
        spans = find(text)
        self._add_confident_names(text, spans)
        parts, position = [], 0
        for span in spans:
            word = text[span.start : span.end]
            replacement = self._pseudonym_of_name(word) if span.kind == "name" else self._pseudonym_of_number(word)
            parts += [self._replace_known_names(text[position : span.start]), replacement]
            position = span.end
        return "".join([*parts, self._replace_known_names(text[position:])])

    def restore(self, text: str) -> str:
        """Return the text with the real names restored."""
        if not self._originals:
            return text
        text = _PSEUDONYM_PATTERN.sub(lambda match: self._restore_word(match.group()), text)
        if not self._number_pseudonyms:
            return text
        alternatives = "|".join(map(re.escape, self._number_pseudonyms))
        return re.sub(rf"(?<!\d)(?:{alternatives})(?!\d)", lambda match: self._originals[match.group()], text)

    def _replace_known_names(self, text: str) -> str:
        """Replace names that were recognised elsewhere and stand here without a context that identifies them."""
        if not self._confident_names or not text:
            return text
        if self._name_pattern is None:
            alternatives = "|".join(re.escape(name) for name in sorted(self._confident_names, key=len, reverse=True))
            self._name_pattern = re.compile(rf"(?<![^\W\d_])(?:{alternatives})(?![^\W\d_])")
        return self._name_pattern.sub(lambda match: self._pseudonym_of_name(match.group()), text)

    def _pseudonym_of_name(self, word: str) -> str:
        if word not in self._pseudonyms:
            pseudonym = self._make_unused_pseudonym(
                word, lambda attempt: _match_case(word, f"{PREFIX}{_make_syllables(word.casefold(), attempt)}")
            )
            self._pseudonyms[word], self._originals[pseudonym] = pseudonym, word
            self._originals_casefolded.setdefault(pseudonym.casefold(), word)
        return self._pseudonyms[word]

    def _restore_word(self, pseudonym: str) -> str:
        if (original := self._originals.get(pseudonym)) is not None:
            return original
        word = self._originals_casefolded.get(pseudonym.casefold())
        return pseudonym if word is None else _match_case(pseudonym, word)

    def _pseudonym_of_number(self, word: str) -> str:
        if word not in self._pseudonyms:
            pseudonym = self._make_unused_pseudonym(word, lambda attempt: _replace_digits(word, attempt))
            self._pseudonyms[word], self._originals[pseudonym] = pseudonym, word
            self._number_pseudonyms.append(pseudonym)
        return self._pseudonyms[word]

    def _make_unused_pseudonym(self, word: str, make: Callable[[int], str]) -> str:
        attempt = 0
        while (candidate := make(attempt)) in self._originals or candidate in self._pseudonyms or candidate == word:
            attempt += 1
        return candidate


def _match_case(reference: str, word: str) -> str:
    """Return the word in the case of the reference: upper, lower, or capitalised."""
    if reference.lower() == reference.upper():  # a writing system without case
        return word.capitalize()
    return word.upper() if reference.isupper() else word.lower() if reference.islower() else word.capitalize()


def _keyed_hash(word: str, attempt: int) -> int:
    digest = hashlib.blake2b(
        f"{attempt} {word}".encode("utf-8", "replace"), key=purpose_key("pseudonyms"), digest_size=16
    ).digest()
    return int.from_bytes(digest, "big")


def _make_syllables(word: str, attempt: int) -> str:
    number, syllables = _keyed_hash(word, attempt), ""
    for _ in range(4):
        number, consonant = divmod(number, len(_CONSONANTS))
        number, vowel = divmod(number, len(_VOWELS))
        syllables += _CONSONANTS[consonant] + _VOWELS[vowel]
    return syllables


def _replace_digits(word: str, attempt: int) -> str:
    number, replaced = _keyed_hash(word, attempt), ""
    for character in word:
        if character.isdigit():
            number, digit = divmod(number, 10)
            replaced += str(digit)
        else:
            replaced += character
    return replaced
