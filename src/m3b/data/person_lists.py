"""Given and family names of persons, as the person providers of Faker list them for thirteen countries."""

from __future__ import annotations

import functools
import importlib
import unicodedata
from dataclasses import dataclass

LOCALES = (
    "en_US",
    "en_GB",
    "de_DE",
    "fr_FR",
    "es_ES",
    "zh_CN",
    "ja_JP",
    "it_IT",
    "pt_BR",
    "nl_NL",
    "pl_PL",
    "tr_TR",
    "sv_SE",
)


@dataclass(frozen=True)
class Names:
    """Plain words of each kind; Chinese characters and Japanese family names as they are written."""

    given: frozenset[str]
    family: frozenset[str]
    pinyin: frozenset[str]
    han_family: frozenset[str]
    han_given: frozenset[str]
    kanji_family: tuple[str, ...]


@functools.lru_cache(maxsize=1 << 16)
def plain(word: str) -> str:
    """A word without case and accents; `ü` and `ue` are the same, and so are their kin."""
    text = unicodedata.normalize("NFC", word).casefold()
    for one, two in (
        ("ä", "ae"),
        ("ö", "oe"),
        ("ü", "ue"),
        ("ø", "oe"),
        ("å", "aa"),
        ("ß", "ss"),
        ("ł", "l"),
        ("ı", "i"),
    ):
        text = text.replace(one, two)
    text = "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))
    return text.replace("'", "").replace("’", "")


@functools.cache
def known_names() -> Names:
    given: set[str] = set()
    family: set[str] = set()
    found = {locale: importlib.import_module(f"faker.providers.person.{locale}").Provider for locale in LOCALES}
    for locale, provider in found.items():
        if locale not in ("zh_CN", "ja_JP"):
            given |= {plain(one) for one in provider.first_names}
            family |= {plain(one) for name in ("last_names", "unisex_last_names", "male_last_names")
                       for one in getattr(provider, name, ())}  # fmt: skip
    chinese, japanese = found["zh_CN"], found["ja_JP"]
    given |= {plain(one) for one in japanese.first_romanized_names}
    family |= {plain(one) for one in japanese.last_romanized_names}
    pinyin = {plain(one) for one in chinese.last_romanized_names}
    return Names(
        frozenset(one for one in given if len(one) > 2 and " " not in one),
        frozenset(one for one in family if len(one) > 2 and " " not in one),
        frozenset(pinyin),
        frozenset(chinese.last_names),
        frozenset("".join(chinese.first_names)),
        tuple(japanese.last_names),
    )
