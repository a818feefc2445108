"""The term list of `resources/terms`: which concepts a text names, in five languages."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Literal

from m3b.resources import get_resources_folder

Language = Literal["en", "de", "fr", "es", "zh"]
_SNOWBALL = {"en": "english", "de": "german", "fr": "french", "es": "spanish"}
_MAX_WINDOW = 6
_MIN_STEMMED = 4
_MIN_COMPOUND = 6
_MAX_COMPOUND = 60
_HAN = re.compile(r"[\u3400-\u9fff]+")
_TOKEN = re.compile(r"[a-z]+[0-9]+[a-z]*|[0-9]+[a-z]{1,2}(?![a-z])|[0-9]+(?:\.[0-9]+)?|[^\W\d_]+", re.IGNORECASE)
_STOP_WORD_LIST = """
a an the of in on at for to from by with as and or is are be it its this that these those all any each every some their his her
der die das des dem den ein eine einer eines einem einen von vom zu zum zur im am auf bei und oder mit aus für ist sind
le la les l un une des du de d au aux et ou en dans sur par pour avec est sont
el los las una unos unas del al y o e en con por para es son
"""
STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
"""Words of sentences that name nothing."""
_NEGATION_LIST = """
no non not without free absent absence never nicht ohne kein keine keinen keiner frei sans aucun aucune pas absence sin ningún
ninguna ausencia libre un
"""
NEGATIONS = frozenset(_NEGATION_LIST.split())
_HAN_NEGATIONS = ("无", "没有", "非", "未", "不")
_LINKS = ("", "n", "en", "s", "es", "e", "er", "o")


@dataclass(frozen=True)
class Concept:
    """A thing with its names.

    Args:
        name: the first English term.
        kind: file of the term list: `anatomy`, `findings`, `modalities`, ...
        terms: language -> terms.
        abbreviations: in any language, lower case.
        part_of: wider concepts: the body part, the wider disease or modality.
    """

    name: str
    kind: str
    terms: Mapping[str, tuple[str, ...]]
    abbreviations: tuple[str, ...] = ()
    part_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unit:
    """One or several words of a text that are one thing.

    Args:
        words: folded.
        concepts: what they may mean; empty if the term list does not have them.
        start, end: place in the tokens of the text.
    """

    words: tuple[str, ...]
    concepts: frozenset[str] = frozenset()
    start: int = 0
    end: int = 0

    @property
    def is_number(self) -> bool:
        """Whether it is a number."""
        return len(self.words) == 1 and self.words[0].replace(".", "").isdigit()


@dataclass
class Lexicon:
    """Concepts, and indices from words to them."""

    concepts: dict[str, Concept]
    _phrases: dict[tuple[str, tuple[str, ...]], set[str]] = field(default_factory=dict)
    _abbreviations: dict[str, set[str]] = field(default_factory=dict)
    _han: dict[str, set[str]] = field(default_factory=dict)
    _vocabulary: set[str] = field(default_factory=set)
    _wider: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for concept in self.concepts.values():
            for language, terms in concept.terms.items():
                for term in terms:
                    self._add_term(concept.name, language, term)
            for abbreviation in concept.abbreviations:
                tokens = split_tokens(abbreviation)
                self._abbreviations.setdefault("".join(tokens), set()).add(concept.name)
        self._wider = {
            concept.name: {*concept.part_of, *self._find_heads(concept)} for concept in self.concepts.values()
        }

    def _find_heads(self, concept: Concept) -> set[str]:
        """Return the concepts of the last words of a term: a brain metastasis is a metastasis."""
        heads: set[str] = set()
        for term in concept.terms.get("en", ()):
            tokens = drop_stop_words(split_tokens(term))
            for start in range(1, len(tokens)):
                for language in ("plain", "singular"):
                    key = (language, tuple(sorted(stem(token, language) for token in tokens[start:])))
                    heads |= self._phrases.get(key, set())
        return {head for head in heads if head != concept.name and self.concepts[head].kind == concept.kind}

    def _add_term(self, name: str, language: str, term: str) -> None:
        if _HAN.search(term):
            self._han.setdefault(term.casefold(), set()).add(name)
            return
        for spelling in {term, _transcribe_umlauts(term)}:
            tokens = drop_stop_words(split_tokens(spelling))
            for stemmer in (language, "plain", "singular"):
                key = (stemmer, tuple(sorted(stem(token, stemmer) for token in tokens)))
                self._phrases.setdefault(key, set()).add(name)
            if len(tokens) == 1:
                self._vocabulary |= {stem(tokens[0], language), tokens[0]}

    def get_wider(self, name: str, depth: int = 3) -> set[str]:
        """Return the concepts that a concept is part of, directly or through others."""
        wider: set[str] = set()
        level = {name}
        for _ in range(depth):
            level = {parent for child in level for parent in self._wider.get(child, ())} - wider - {name}
            wider |= level
        return wider

    def find_units(self, text: str) -> list[Unit]:
        """Return the units of a text: the longest terms that it holds, and the words between them."""
        return list(_find_units(self, text)) if len(text) < 400 else self._find_units(text)

    def _find_units(self, text: str) -> list[Unit]:
        units: list[Unit] = []
        tokens = drop_stop_words(split_tokens(text))
        place = 0
        while place < len(tokens):
            token = tokens[place]
            if _HAN.fullmatch(token):
                units += self._find_han(token, place)
                place += 1
                continue
            for width in range(min(_MAX_WINDOW, len(tokens) - place), 0, -1):
                window = tokens[place : place + width]
                names = self._look_up(window)
                if names:
                    units.append(Unit(tuple(window), frozenset(names), place, place + width))
                    place += width
                    break
            else:
                parts = self._split_compound(token)
                units += [
                    Unit((part,), frozenset(self._look_up([part])), place, place + 1) for part in parts or [token]
                ]
                place += 1
        return units

    def find_concepts(self, text: str, kinds: Collection[str] = ()) -> list[str]:
        """Return the concepts that a text names, in its order, of some kinds or all."""
        names: dict[str, None] = {}
        for unit in self.find_units(text):
            for name in sorted(unit.concepts):
                if not kinds or self.concepts[name].kind in kinds:
                    names.setdefault(name)
        return list(names)

    def _look_up(self, window: Sequence[str]) -> set[str]:
        """Return what words mean: as they are spelled (`colon`), else by their stems, which other words share (`colony`)."""
        names = set(self._phrases.get(("plain", tuple(sorted(window))), ()))
        for language in (*_SNOWBALL, "singular", "latin") if not names else ():
            key = tuple(sorted(stem(token, language) for token in window))
            names |= self._phrases.get((language, key), set())
        if len(window) == 1:
            names |= self._abbreviations.get(window[0], set())
            singular = window[0][:-1]
            if not names and window[0].endswith("s") and len(singular) > 2:
                names |= self._abbreviations.get(singular, set())
        elif len("".join(window)) <= 8:
            names |= self._abbreviations.get("".join(window), set())
        return names

    def _split_compound(self, token: str, depth: int = 0) -> list[str]:
        """Return the parts of a compound word whose parts are all in the term list (`Lungentumor`, `braintumor`); empty if none."""
        if not _MIN_COMPOUND <= len(token) <= _MAX_COMPOUND or depth > 2 or not token.isalpha():
            return []
        for cut in range(len(token) - 3, 2, -1):
            head, tail = token[:cut], token[cut:]
            is_image = depth == 0 and cut > 3 and bool(self._look_up([tail]) & {"image", "photography"})
            if is_image and not self._is_part(head, is_head=True):
                return [head, tail]
            if not self._is_part(head, is_head=True):
                continue
            if self._is_part(tail) or tail in NEGATIONS:
                return [head, tail]
            if rest := self._split_compound(tail, depth + 1):
                return [head, *rest]
        for prefix in ("non", "no"):
            if token.startswith(prefix) and self._is_part(token[len(prefix) :]):
                return [prefix, token[len(prefix) :]]
        return []

    def _is_part(self, part: str, *, is_head: bool = False) -> bool:
        """Return whether a part of a compound is a term, with a linking sound at its end or an ending left out."""
        if len(part) < 3 or (len(part) == 3 and part not in self._vocabulary):
            return False
        candidates = {part, f"{part}e", f"{part}n", *(part.removesuffix(link) for link in _LINKS if link)}
        names: set[str] = set()
        for word in candidates:
            if len(word) > 2:
                for language in ("plain", "de", "en"):
                    names |= self._phrases.get((language, (stem(word, language),)), set())
        return any(not is_head or self.concepts[name].kind != "data_words" for name in names)

    def _find_han(self, text: str, place: int) -> list[Unit]:
        units = []
        start = unknown = 0
        while start < len(text):
            for end in range(min(len(text), start + 12), start, -1):
                names = self._han.get(text[start:end])
                if names:
                    if unknown < start:
                        units.append(Unit((text[unknown:start],), frozenset(), place, place + 1))
                    units.append(Unit((text[start:end],), frozenset(names), place, place + 1))
                    start = unknown = end
                    break
            else:
                start += 1
        if unknown < len(text):
            units.append(Unit((text[unknown:],), frozenset(), place, place + 1))
        return units


@lru_cache(maxsize=32768)
def _find_units(lexicon: Lexicon, text: str) -> tuple[Unit, ...]:
    return tuple(lexicon._find_units(text))


Lexicon.__hash__ = object.__hash__  # type: ignore[method-assign]


@cache
def get_lexicon() -> Lexicon:
    """Return the term list."""
    return make_lexicon()


def make_lexicon(exclude: Collection[str] = ()) -> Lexicon:
    """Return the term list without some concepts."""
    concepts: dict[str, Concept] = {}
    for path in sorted((get_resources_folder() / "terms").glob("*.json")):
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name, entry in content["concepts"].items():
            if name in exclude:
                continue
            terms = {language: tuple(entry[language]) for language in (*_SNOWBALL, "zh") if language in entry}
            concepts[name] = Concept(
                name, path.stem, terms, tuple(entry.get("abbreviations", ())), tuple(entry.get("part_of", ()))
            )
    return Lexicon(concepts)


def fold_text(text: str) -> str:
    """Return a text in lower case, without accents on Latin letters and with plain punctuation."""
    text = text.replace("ß", "ss").replace("œ", "oe").replace("Œ", "oe").replace("æ", "ae").replace("’", "'")
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))


@lru_cache(maxsize=65536)
def _split_tokens(text: str) -> tuple[str, ...]:
    text = re.sub(
        r"(?<=[a-zäöüéè])(?=[A-ZÄÖÜ][a-zäöü])|(?<=[A-Z])(?=[A-Z][a-zäöü]{2})|(?<=[a-z]{3})(?=[A-Z]{2})", " ", text
    )
    text = re.sub(r"['’]s\b", "", fold_text(text))
    text = re.sub(r"\b[ldnjmsc]'(?=\w)", " ", text)
    text = re.sub(r"\bx[-_ ]?rays?\b|x(?:光片?|线片?|射线)", " xray ", text)
    text = text.replace("b超", " ultrasound ")
    text = re.sub(r"\b([a-z])\s?&\s?([a-z])\b", r"\1\2", text)
    text = re.sub(r"(?<=[a-z]{3})(?=\d)|(?<=\d)(?=[a-z]{3})", " ", text)
    text = _HAN.sub(lambda match: f" {match[0]} ", text)
    return tuple(_TOKEN.findall(text.replace("_", " ")))


def split_tokens(text: str) -> list[str]:
    """Return the folded words of a text: `camelCase`, `snake_case` and words beside numbers are cut, runs of Chinese stay whole."""
    return list(_split_tokens(text))


def drop_stop_words(tokens: Sequence[str]) -> list[str]:
    """Leave out words that name nothing, unless there are no others."""
    return [token for token in tokens if token not in STOP_WORDS] or list(tokens)


@lru_cache(maxsize=1 << 18)
def stem(token: str, language: str) -> str:
    """Return the stem of a folded word; `plain` leaves it as it is, `singular` and `latin` take its ending off."""
    if language == "singular":
        return token.removesuffix("s") if len(token) > _MIN_STEMMED else token
    if language == "plain" or len(token) < _MIN_STEMMED or not token.isalpha() or not token.isascii():
        return token
    if language == "latin":
        return re.sub(r"(?:mata|ices|[aou]s|ae|um|is|es|ia|on|[aiexu])$", "", token) if len(token) > 5 else token
    spelled = re.sub(r"(?<=[a-z]{3})our\b", "or", token)
    spelled = (
        re.sub(r"(?<![aeiou])[ao]e(?=[a-z]{2})", "e", spelled) if len(spelled) > 5 and language == "en" else spelled
    )
    stemmed = str(_get_stemmer(language).stemWord(spelled))
    is_too_short = len(stemmed) < _MIN_STEMMED and spelled != f"{stemmed}s"  # `carie` is no `car`, `timo` no `time`
    return spelled if is_too_short else stemmed


@cache
def _get_stemmer(language: str) -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer(_SNOWBALL[language])


def _transcribe_umlauts(term: str) -> str:
    return re.sub("[äöüÄÖÜ]", lambda match: {"ä": "ae", "ö": "oe", "ü": "ue"}[match[0].lower()], term)


def is_negated(tokens: Iterable[str]) -> bool:
    """Return whether words say that something is absent."""
    return any(token in NEGATIONS or token.startswith(_HAN_NEGATIONS) for token in tokens)
