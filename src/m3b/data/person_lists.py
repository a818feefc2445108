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
def normalize_word(word: str) -> str:
    """A word without case and accents; `ü` and `ue` are the same, and so are their kin."""
    text = unicodedata.normalize("NFC", word).casefold()
    for letter, spelling in (
        ("ä", "ae"),
        ("ö", "oe"),
        ("ü", "ue"),
        ("ø", "oe"),
        ("å", "aa"),
        ("ß", "ss"),
        ("ł", "l"),
        ("ı", "i"),
    ):
        text = text.replace(letter, spelling)
    text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return text.replace("'", "").replace("’", "")


@functools.cache
def known_names() -> Names:
    given_names: set[str] = set()
    family_names: set[str] = set()
    providers = {locale: importlib.import_module(f"faker.providers.person.{locale}").Provider for locale in LOCALES}
    for locale, provider in providers.items():
        if locale not in ("zh_CN", "ja_JP"):
            given_names |= {normalize_word(name) for name in provider.first_names}
            family_names |= {normalize_word(name) for kind in ("last_names", "unisex_last_names", "male_last_names")
                       for name in getattr(provider, kind, ())}  # fmt: skip
    chinese, japanese = providers["zh_CN"], providers["ja_JP"]
    given_names |= {normalize_word(name) for name in japanese.first_romanized_names}
    family_names |= {normalize_word(name) for name in japanese.last_romanized_names}
    pinyin = {normalize_word(name) for name in chinese.last_romanized_names}
    return Names(
        frozenset(name for name in given_names if len(name) > 2 and " " not in name),
        frozenset(name for name in family_names if len(name) > 2 and " " not in name),
        frozenset(pinyin),
        frozenset(chinese.last_names),
        frozenset("".join(chinese.first_names)),
        tuple(japanese.last_names),
    )
