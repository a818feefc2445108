"""What a name is made of: words, numbers, sides, dates, identifiers; and its shape, with what varies taken out."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

_UID = re.compile(r"\d+(?:\.\d+){4,}")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.I)
_RUN = re.compile(r"[0-9]+|[^\W\d_]+|[\W_]|\d+")
_TOKEN = re.compile(r"[^\W_]+|[\W_]")
_DATE = re.compile(r"(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])(?!\d)")
SIDES = frozenset({"l", "r", "left", "right", "od", "os", "lt", "rt", "links", "rechts", "gauche", "droite"})
_HASH_FROM = 12

MARKS = {"number": "#", "side": "{side}", "date": "{date}", "uid": "{uid}", "hash": "{hash}"}


def is_hash(token: str) -> bool:
    """Whether one alphanumeric token is made by a machine: digits and letters mixed, or long hexadecimal."""
    if len(token) < 8 or not token.isascii():
        return False
    digits = sum(ch.isdigit() for ch in token)
    if not 0 < digits < len(token):
        return False
    turns = sum(one.isdigit() != other.isdigit() for one, other in itertools.pairwise(token))
    if len(token) >= _HASH_FROM:
        return turns >= 4
    return turns >= 3 and all(ch in "0123456789abcdef" for ch in token.lower())


@lru_cache(maxsize=65536)
def pieces(text: str) -> tuple[tuple[str, str], ...]:
    """A name (without suffix) as (kind, text) pieces; their texts joined are the name.

    Kinds: word, number, side, date, uid, hash, and "gap" for what stands between.
    """
    if _UID.fullmatch(text):
        return (("uid", text),)
    if _UUID.fullmatch(text):
        return (("hash", text),)
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        if (date := _DATE.match(text, at)) and (at == 0 or not text[at - 1].isdigit()):
            found.append(("date", date[0]))
            at = date.end()
            continue
        token = _TOKEN.match(text, at)
        assert token is not None
        found += _token(token[0], found)
        at = token.end()
    return tuple(found)


def _token(token: str, before: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if not token[0].isalnum():
        return [("gap", token)]
    if is_hash(token):
        return [("hash", token)]
    if token.lower() in SIDES and before:
        return [("side", token)]
    runs = _RUN.findall(token)
    found = []
    for index, run in enumerate(runs):
        last_letter = index == len(runs) - 1 and index > 0 and run in ("L", "R", "l", "r")
        kind = "number" if "0" <= run[0] <= "9" else "side" if last_letter else "word"
        found.append((kind, run))
    return found


@lru_cache(maxsize=65536)
def shape(text: str) -> str:
    """The name with numbers as `#` and sides, dates, uids and hashes as `{side}`, ...; other text as it stands."""
    return "".join(MARKS.get(kind, piece.replace("#", "?").replace("{", "(")) for kind, piece in pieces(text))


def like_hashes(names: list[str]) -> bool:
    """Whether names that stand beside each other are made by a machine, though one of them alone may not look so."""
    if len(names) < 2:
        return False
    some = names[:: max(len(names) // 64, 1)]
    if 2 * sum(1 for name in some if is_hash(name)) < len(some):
        return False
    return len({len(name) for name in names}) <= 2 and all(name.isalnum() for name in names)
