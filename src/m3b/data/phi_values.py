"""Values that identify a person whatever their column is called: names, dates of birth, and numbers with check digits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from m3b.data.person_lists import known_names, normalize_word
from m3b.data.person_words import EPONYMS, PARTICLES, TITLES, VOCABULARY, WEAK

MIN_NUMBERS = 3
"""Different numbers from which on check digits tell: of one in eleven any number has the right one."""
MAX_SAMPLED = 20
"""Different values of a column of which names and numbers are looked at."""
MIN_DATES = 5
MIN_YEARS_OF_BIRTH = 45
"""Years that dates of birth span, and recordings of one data set do not."""
MAX_NAME_WORDS = 5
_NAME_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|['’.-])*")
_NUMBER = re.compile(r"[A-Z]{0,2}\d[A-Z\d]{7,32}|[A-Z]{6}\d\d[A-Z\d]{8}")
_DATE = re.compile(
    r"(?:(\d{4})([-./])(\d{1,2})\2(\d{1,2})|(\d{1,2})([-./])(\d{1,2})\6(\d{4})|((?:19|20)\d\d)(\d\d)(\d\d))"
    r"(?:[T ]00:00(?::00(?:\.0+)?)?)?"
)


def identify_persons(values: Sequence[str]) -> bool:
    """Return whether most of the different values of a column identify a person."""
    distinct = list(dict.fromkeys(values))
    sample = distinct[:MAX_SAMPLED]
    return bool(sample) and (
        _most(sample, is_full_name) or _are_checked_numbers(sample) or _are_dates_of_birth(distinct)
    )


def is_full_name(text: str) -> bool:
    """Return whether a text is a given and a family name and nothing else, with title and particles or not."""
    names = known_names()
    return has_given_name(text) and all(word in names.given or word in names.family for word in _name_words(text))


def has_given_name(text: str) -> bool:
    """Return whether a text is a few words, one of them a given name that is no common word."""
    words = _name_words(text)
    if not 2 <= len(words) <= MAX_NAME_WORDS or (words[0], words[-1]) in EPONYMS:
        return False
    return any(word in known_names().given and word not in WEAK for word in words)


def is_name(text: str) -> bool:
    """Return whether a text consists of names of persons: one may do below a header that says `Nom`."""
    words = _name_words(text)
    names = known_names()
    are_names = 0 < len(words) <= MAX_NAME_WORDS and all(word in names.given or word in names.family for word in words)
    return are_names and not WEAK.issuperset(words)


def _name_words(text: str) -> list[str]:
    """Return the names in a text in plain letters, without titles and particles; none if it holds another kind of word."""
    if len(text) > 60 or any(sign.isdigit() for sign in text):
        return []
    parts = re.split(r"[\s,]+", text.strip(" ,"))
    if not all(_NAME_WORD.fullmatch(part) for part in parts):
        return []
    if any(len(part) == 1 or (part[0].islower() and normalize_word(part) not in PARTICLES) for part in parts):
        return []
    words = [word for part in parts for word in normalize_word(part.strip(".")).split("-") if len(word) > 1]
    words = [word for word in words if word not in PARTICLES and word not in TITLES]
    return [] if any(word in VOCABULARY for word in words) else words


def _are_checked_numbers(values: Sequence[str]) -> bool:
    compact = [re.sub(r"[\s.-]", "", value).upper() for value in values]
    if sum(_NUMBER.fullmatch(value) is not None for value in compact) <= 0.9 * len(compact):
        return False
    return any(
        sum(map(check, compact)) > 0.9 * len(compact) and len(compact) >= (MIN_NUMBERS if is_weak else 1)
        for check, is_weak in _CHECKS
    )


def _are_dates_of_birth(values: Sequence[str]) -> bool:
    if len(values) < MIN_DATES:
        return False
    years = []
    for value in values:
        if not (match := _DATE.fullmatch(value)):
            return False
        years.append(int(match[1] or match[8] or match[9]))
    return max(years) - min(years) >= MIN_YEARS_OF_BIRTH and min(years) > 1890 and max(years) < 2100


def _digits(value: str, count: int) -> list[int]:
    return [int(sign) for sign in value] if len(value) == count and value.isascii() and value.isdigit() else []


def _weighted(value: str, weights: Sequence[int]) -> int | None:
    digits = _digits(value, len(weights) + 1)
    return sum(map(int.__mul__, digits, weights)) if digits else None


def _is_nhs_number(value: str) -> bool:  # United Kingdom
    total = _weighted(value, range(10, 1, -1))
    return total is not None and (11 - total % 11) % 11 == int(value[-1]) and len(set(value)) > 1


def _is_pesel(value: str) -> bool:  # Poland
    total = _weighted(value, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3))
    return total is not None and (10 - total % 10) % 10 == int(value[-1]) and 1 <= int(value[2:4]) % 20 <= 12


def _is_cpf(value: str) -> bool:  # Brazil
    def check(count: int) -> bool:
        total = sum(int(sign) * (count + 1 - at) for at, sign in enumerate(value[:count]))
        return int(value[count]) == (total * 10 % 11) % 10

    return bool(_digits(value, 11)) and len(set(value)) > 1 and check(9) and check(10)


def _is_bsn(value: str) -> bool:  # The Netherlands
    total = _weighted(value, range(9, 1, -1))
    return total is not None and (total - int(value[-1])) % 11 == 0 and len(set(value)) > 1


def _is_nir(value: str) -> bool:  # France
    return bool(re.fullmatch(r"[12]\d{2}(?:0[1-9]|1[0-2])\d{10}", value)) and 97 - int(value[:13]) % 97 == int(
        value[13:]
    )


def _is_kvnr(value: str) -> bool:  # Germany, on the card of the health insurance
    if not re.fullmatch(r"[A-Z]\d{9}", value):
        return False
    digits = [int(sign) for sign in f"{ord(value[0]) - 64:02d}{value[1:]}"]
    products = [digit * (1 + at % 2) for at, digit in enumerate(digits[:-1])]
    return sum(product // 10 + product % 10 for product in products) % 10 == digits[-1]


def _is_dni(value: str) -> bool:  # Spain
    match = re.fullmatch(r"([XYZ]?)(\d{7,8})([A-Z])", value)
    if not match or len(match[1]) + len(match[2]) != 8:
        return False
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(f"{'XYZ'.find(match[1]) if match[1] else ''}{match[2]}") % 23] == match[3]


def _is_chinese_id(value: str) -> bool:
    if not re.fullmatch(r"[1-9]\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])\d{2}\d{3}[\dX]", value):
        return False
    return "10X98765432"[sum(int(sign) * (2 ** (17 - at) % 11) for at, sign in enumerate(value[:17])) % 11] == value[17]


def _is_codice_fiscale(value: str) -> bool:  # Italy
    return bool(re.fullmatch(r"[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]", value))


def _is_iban(value: str) -> bool:
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", value):
        return False
    return int("".join(str(int(sign, 36)) for sign in value[4:] + value[:4])) % 97 == 1


_CHECKS: tuple[tuple[Callable[[str], bool], bool], ...] = (
    (_is_nhs_number, True), (_is_pesel, True), (_is_cpf, True), (_is_bsn, True), (_is_kvnr, True), (_is_dni, True),
    (_is_nir, False), (_is_chinese_id, False), (_is_codice_fiscale, False), (_is_iban, False),
)  # fmt: skip
"""Checks of numbers, and whether a number can pass them by chance."""


def _most(values: Sequence[str], fits: Callable[[str], bool]) -> bool:
    return sum(map(fits, values)) * 2 > len(values)
