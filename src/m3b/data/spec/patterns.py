"""File patterns with slots, compiled once and matched against paths below the data folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from m3b.errors import DataError

KINDS = {"number": r"\d+", "word": r"[^\W\d_]+", "text": r"[^/]+?", "folders": r".+?"}
"""What a typed slot matches."""

_TOKEN = re.compile(
    r"(?P<slot>\{(?P<name>[A-Za-z_]\w*)(?::(?P<kind>\w+))?\})|(?P<choice>\{[^{}/]*,[^{}/]*\})|(?P<deep>\*\*/?)|(?P<star>\*)"
)
_SUFFIX = re.compile(r"(\.[A-Za-z][A-Za-z0-9]{0,7})+$")
_FIELD = re.compile(r"\{([^{}]+)\}")


class PatternError(DataError):
    """A pattern or key that cannot be used; says which and why."""


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern; `slots` are the names that its matches fill."""

    text: str
    regex: re.Pattern[str]

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(self.regex.groupindex)

    def match(self, path: str) -> dict[str, str] | None:
        """The slots of a path relative to the data folder, built-in ones included; None where it does not match."""
        found = self.regex.fullmatch(path)
        if found is None:
            return None
        return {**built_in(path), **{name: value or "" for name, value in found.groupdict().items()}}


def built_in(path: str) -> dict[str, str]:
    """The slots that every file has."""
    folder, _, name = path.rpartition("/")
    stem = _SUFFIX.sub("", name)
    digits = "".join(re.findall(r"\d+", stem)[-1:])
    parts = folder.split("/") if folder else []
    levels = {f"{name}{place}": part for place, part in enumerate(parts) for name in ("folder", "level")}
    return {"path": path, "folder": folder, "name": name, "stem": stem, "number": digits.lstrip("0") or digits[:1],
            **levels}  # fmt: skip


@lru_cache(maxsize=1024)
def compiled(text: str) -> Pattern:
    """The pattern of a template, or of `re:` and a regular expression.

    Raises:
        PatternError: it is empty, no valid expression, names a slot twice, or leads out of the folder.
    """
    if not text.strip() or text.startswith("/") or ".." in text.split("/"):
        raise PatternError(f"The pattern {text!r} must be a path below the data folder, such as images/{{case}}.png.")
    source = text[3:] if text.startswith("re:") else _template(text)
    try:
        return Pattern(text, re.compile(source, 0 if text.startswith("re:") else re.NOFLAG))
    except re.error as error:
        raise PatternError(f"The pattern {text!r} cannot be used: {error}.") from None


def _template(text: str) -> str:
    """The regular expression of a template; letters of the last suffix match in either case."""
    suffix = _SUFFIX.search(text)
    cut = suffix.start() if suffix else len(text)
    return _pieces(text[:cut]) + (f"(?i:{_pieces(text[cut:])})" if suffix else "")


def _pieces(text: str) -> str:
    made, at, seen = "", 0, set[str]()
    for token in _TOKEN.finditer(text):
        made += re.escape(text[at : token.start()])
        at = token.end()
        if token["slot"]:
            made += _slot(text, token["name"], token["kind"] or "text", token["name"] in seen)
            seen.add(token["name"])
        elif token["choice"]:
            made += "(?:" + "|".join(re.escape(one) for one in token["choice"][1:-1].split(",")) + ")"
        elif token["deep"]:
            made += r"(?:[^/]+/)*" if token["deep"].endswith("/") else r".*"
        else:
            made += r"[^/]*"
    return made + re.escape(text[at:])


def _slot(text: str, name: str, kind: str, again: bool) -> str:
    """A slot's expression; named twice it must hold the same text twice."""
    if kind not in KINDS:
        raise PatternError(f"The pattern {text!r}: {{{name}:{kind}}} is of no known kind; use {', '.join(KINDS)}.")
    return f"(?P={name})" if again else f"(?P<{name}>{KINDS[kind]})"


def fields(key: str) -> tuple[str, ...]:
    """The slots that a key names."""
    return tuple(_FIELD.findall(key))


def filled(key: str, slots: dict[str, str]) -> str:
    """A key with its slots filled in; a slot that is not there gives an empty text.

    A slot may be written `{name}` for all of it; dots in survey slots (`level1.0`) stand as `_` in patterns.
    """
    return _FIELD.sub(lambda found: slots.get(found[1], slots.get(found[1].replace(".", "_"), "")), key)


def checked(key: str, known: tuple[str, ...], what: str) -> str:
    """The key, if every slot in it exists.

    Raises:
        PatternError: it names a slot that is not there; the message lists those that are.
    """
    every = {*known, "path", "folder", "name", "stem", "number"}
    unknown = [
        name
        for name in fields(key)
        if name.replace(".", "_") not in every and not name.startswith(("level", "folder", "tag."))
    ]
    if unknown:
        raise PatternError(f"{what}: {{{unknown[0]}}} is no slot of the pattern. Slots: {', '.join(sorted(every))}.")
    return key
