"""Words of requests and of data: folded, compared, and put into classes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_STOP = frozenset(
    [
        "a",
        "all",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "between",
        "build",
        "by",
        "can",
        "classification",
        "classifier",
        "classify",
        "could",
        "create",
        "ct",
        "data",
        "detect",
        "detects",
        "develop",
        "diagnose",
        "different",
        "disease",
        "distinguish",
        "do",
        "each",
        "else",
        "find",
        "for",
        "from",
        "give",
        "have",
        "i",
        "if",
        "image",
        "images",
        "in",
        "into",
        "is",
        "it",
        "make",
        "me",
        "medical",
        "model",
        "models",
        "mri",
        "my",
        "need",
        "no",
        "not",
        "of",
        "on",
        "or",
        "other",
        "others",
        "patient",
        "patients",
        "picture",
        "pictures",
        "please",
        "predict",
        "rest",
        "scan",
        "scans",
        "segment",
        "segmentation",
        "tell",
        "tells",
        "that",
        "the",
        "them",
        "this",
        "to",
        "train",
        "trained",
        "using",
        "want",
        "was",
        "we",
        "were",
        "whether",
        "which",
        "with",
        "without",
        "write",
        "x",
        "ray",
        "rays",
        "xray",
        "xrays",
        "on",
    ]
)
REST = frozenset(
    [
        "rest",
        "other",
        "others",
        "else",
        "versus",
        "vs",
        "against",
        "andere",
        "anderen",
        "autres",
        "otros",
        "resto",
        "übrige",
    ]
)
"""Words by which a request sets one class against all others."""
NEGATIVE = frozenset(
    [
        "no",
        "non",
        "not",
        "without",
        "healthy",
        "normal",
        "negative",
        "none",
        "absent",
        "control",
        "controls",
        "clear",
        "benign",
    ]
)
UNCLEAR = frozenset(["todo", "unknown", "tbd", "unclear", "unsure", "indeterminate", "uncertain", "na", "nan"])


def plain(text: str) -> str:
    """Lower case, without accents on Latin letters."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A word without its plural, in American spelling: `tumours` and `Tumor` are one."""
    word = re.sub(r"(?<=[a-z]{3})our(s?)$", r"or\1", plain(word))
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies") and len(word) > 5:
        return word[:-3] + "y"
    if re.search(r"[^su]s$", word) and len(word) > 3:
        return word[:-1]
    return {"nuclei": "nucleus", "polypi": "polyp", "vertebrae": "vertebra"}.get(word, word)


@lru_cache(maxsize=65536)
def words(text: str) -> tuple[str, ...]:
    """The folded words of a text; `camelCase`, `snake_case` and letters beside digits are taken apart."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z]{3})(?=\d)|(?<=\d)(?=[A-Za-z]{2})", " ", text)
    return tuple(stem(word) for word in _WORD.findall(plain(apart)))


def telling(text: str) -> frozenset[str]:
    """The words of a text that say something of its subject."""
    return frozenset(word for word in words(text) if word not in _STOP and not (word.isdigit() or len(word) < 2))


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
    text = re.sub(r"\bapart\b.*$", "", text, flags=re.IGNORECASE | re.DOTALL)
    if found := _ON_IMAGES.match(text):
        text = found[1] if _VERB.sub("", found[1]).strip() else text
    text = re.split(r"\binto\b", _VERB.sub("", text), flags=re.IGNORECASE)[-1]
    cleaned = [
        re.sub(r"^(?:the|a|an|as|between)\s+", "", item.strip(" .:?!"), flags=re.IGNORECASE)
        for item in _BETWEEN.split(text)
    ]
    return [item for item in cleaned if item and (telling(item) or negative(item)) and len(words(item)) <= 5]


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
