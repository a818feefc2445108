"""Words of requests and of data: folded, compared, and put into classes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from m3b.data.spec.proposals.vocabulary import EVERY, FINDINGS, NEGATIVE, STOP, SYNONYMS

_WORD = re.compile(r"[^\W_]+")


def plain(text: str) -> str:
    """Lower case, without accents on Latin letters."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A word without its plural, in American spelling: `tumours` and `Tumor` are one."""
    word = re.sub(r"(?<=[a-z]{3})our(s?)$", r"or\1", plain(word))
    word = re.sub(r"(?<![aeiou])[ao]e(?=[a-z]{2})", "e", word) if len(word) > 5 else word
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies") and len(word) > 5:
        return word[:-3] + "y"
    if re.search(r"[^su]s$", word) and len(word) > 3:
        return word[:-1]
    return {"nuclei": "nucleus", "polypi": "polyp", "vertebrae": "vertebra"}.get(word, word)


@lru_cache(maxsize=1)
def _groups() -> tuple[frozenset[str], ...]:
    return tuple(frozenset(stem(word) for word in line.split()) for line in SYNONYMS)


@lru_cache(maxsize=4096)
def synonyms(word: str) -> frozenset[str]:
    """Other words for a folded word."""
    return frozenset().union(*(group for group in _groups() if word in group)) - {word}


def initials(text: str) -> str:
    """The first letters of a text's words, `mci` of "mild cognitive impairment"; possessive `s` is none."""
    low = re.sub(r"['’]s\b", "", plain(text))
    return "".join(word[0] for word in _WORD.findall(low) if word not in ("of", "the", "and", "with", "a", "an", "in"))


def initialled(name: str, request: str) -> float:
    """Share of a name's words that are the initials of words that follow each other in a request (`acl`)."""
    low = _WORD.findall(re.sub(r"['’]s\b", "", plain(request)))
    runs = {"".join(word[0] for word in low[at : at + size]) for size in (3, 4, 5) for at in range(len(low) - size + 1)}
    mine = [word for word in words(name) if len(word) > 2]
    return float(any(word in runs for word in mine))


@lru_cache(maxsize=65536)
def words(text: str) -> tuple[str, ...]:
    """The folded words of a text; `camelCase`, `snake_case` and letters beside digits are taken apart."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z]{3})(?=\d)|(?<=\d)(?=[A-Za-z]{2})", " ", text)
    return tuple(stem(word) for word in _WORD.findall(plain(apart)))


def telling(text: str) -> frozenset[str]:
    """The words of a text that say something of its subject."""
    return frozenset(word for word in words(text) if word not in STOP and not (word.isdigit() or len(word) < 2))


def shared(asked: frozenset[str], text: str) -> float:
    """Share of a text's telling words that a request has too, also where one begins the other (five letters and more)."""
    mine = telling(text)
    if not mine:
        return 0.0
    return sum(1 for word in mine if _in(word, asked)) / len(mine)


def _in(word: str, asked: frozenset[str]) -> bool:
    if word in asked:
        return True
    least = 2 if any(letter.isdigit() for letter in word) else 4  # t1 and t1c, l5
    return len(word) >= least and any(len(a) >= least and (a.startswith(word) or word.startswith(a)) for a in asked)


def named(values: Sequence[str], request: str) -> list[str]:
    """The values that a request names: all their telling words stand in it, or its words begin with a short value."""
    asked = telling(request)
    low = f" {' '.join(words(request))} "
    found = []
    for value in values:
        whole = " ".join(words(value))
        mine = telling(value)
        if not whole or whole.isdigit():
            continue
        if (len(whole) > 1 and f" {whole} " in low) or (mine and all(_in(word, asked) for word in mine)):
            found.append(value)
    return [v for v in found if not any(v != o and set(words(v)) < set(words(o)) for o in found)]


_IMAGES = (
    r"(?:images?|scans?|x-?rays?|radiographs?|photographs?|slices?|clips?|cts?|mris?|volumes?|pictures?|smears?|microscopy|"
    r"histology|ultrasounds?|oct)"
)
_ON_IMAGES = re.compile(
    rf"^(.*)\b(?:on|in|from|using|with|of)\s+(?:[\w-]+\s+){{0,3}}{_IMAGES}\b.*$", re.IGNORECASE | re.DOTALL
)
_VERB = re.compile(
    r"^.*?\b(?:tells?|distinguish(?:es)?|differentiates?|separates?|discriminates?|classif(?:y|ies)|sorts?|diagnoses?|detects?|grades?|recogni[sz]es?|identif(?:y|ies)|predicts?|spots?|finds?|says?|labels?)\s+"
    r"(?:between\s+|whether\s+)?",
    re.IGNORECASE | re.DOTALL,
)
_BETWEEN = re.compile(
    r",|;|/|\band\b|\bor\b|\bfrom\b|\bvs\.?|\bversus\b|\bagainst\b|\bund\b|\bvon\b|\bet\b|\by\b", re.IGNORECASE
)


def listed(request: str) -> list[str]:
    """What a request lists as the classes: `tell A, B and C apart`, `distinguish A from B`, `A vs B`, `... into A or B`."""
    text = re.sub(r"\([^)]*\)", " ", request)
    if ":" in text and _BETWEEN.search(text.split(":", 1)[1]):
        text = text.split(":", 1)[1]  # `grade the ligament: healthy, partial tear, complete rupture`
    text = re.sub(r"\bapart\b.*$", "", text, flags=re.IGNORECASE | re.DOTALL)
    if found := _ON_IMAGES.match(text):
        text = found[1] if _VERB.sub("", found[1]).strip() else text
    text = re.split(r"\binto\b", _VERB.sub("", text), flags=re.IGNORECASE)[-1]
    cleaned = [
        re.sub(r"^(?:the|a|an|as|between)\s+", "", item.strip(" .:?!"), flags=re.IGNORECASE)
        for item in _BETWEEN.split(text)
    ]
    return [item for item in cleaned if item and (telling(item) or negative(item)) and len(words(item)) <= 5]


_COUNTS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_COUNTED = re.compile(
    rf"(?<![\w-])(?<!\bto )(?<!\band )(\d+|{'|'.join(_COUNTS)})[\s-]+(?:[a-z-]+\s+){{0,2}}?"
    r"(?:class(?:es)?|categor(?:y|ies)|(?:sub)?types?|kinds?|grades?|stages?)\b",
    re.IGNORECASE,
)


def how_many_classes(request: str) -> int | None:
    """How many classes a request speaks of (`into nine classes`, `four tumour types`); None where it says no number."""
    found = _COUNTED.search(request)
    if found is None:
        return None
    told = found[1].casefold()
    number = int(told) if told.isdigit() else _COUNTS.index(told) + 2
    return number if 2 <= number <= 100 else None


def wants_all(request: str) -> bool:
    """Whether a request wants every finding that is labelled."""
    said = set(words(request))
    return bool(said & EVERY and said & FINDINGS)


def negative(value: str) -> bool:
    """Whether a value says that nothing was found: `no tumor`, `notumor`, `NORMAL`, `non-covid`."""
    some = words(value)
    if any(word in NEGATIVE for word in some):
        return True
    return bool(some) and len(some) == 1 and bool(re.match(r"(no|non|not)(?=[a-z]{4,})", some[0])) and not some[0].startswith(
        ("node", "nodul", "nose", "nosed", "norm", "noct", "notch", "nova", "novel")
    )  # fmt: skip


def ranked(values: Iterable[str]) -> list[str]:
    """Classes in the order of a model's outputs: those of absence first, numbers by size, else by name."""

    def place(value: str) -> tuple[bool, float, str]:
        number = re.fullmatch(r"-?\d+(\.\d+)?", value.strip())
        return (not negative(value), float(value) if number else 0.0, plain(value))

    return sorted(values, key=place)
