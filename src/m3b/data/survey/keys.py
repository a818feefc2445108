"""How a path, a name or a table's cell is brought to the key by which two of them are the same."""

from __future__ import annotations

import re
from functools import lru_cache

from m3b.data.survey.kinds import cut
from m3b.data.survey.relations import Rule

PATH_RULES: tuple[Rule, ...] = (
    "path",
    "tail5",
    "tail4",
    "tail3",
    "tail",
    "name",
    "stem",
    "folded",
    "unpadded",
    "number",
)
"""For cells against files, the strictest first."""
TAILS: dict[Rule, int] = {"tail": 2, "tail3": 3, "tail4": 4, "tail5": 5}
"""Parts at the end of a path that must agree."""
VALUE_RULES: tuple[Rule, ...] = ("exact", "prefixed", "number")
"""For cells against parts, levels, tags and other cells."""
ABOVE: dict[Rule, int] = {"up0": 0, "up1": 1, "up2": 2, "up3": 3, "up4": 4, "up5": 5}
"""For cells that are paths against parts, levels and tags: which folder of the cell counts, by its steps above the name."""
_GAPS = re.compile(r"[\s_\-.]+")
_GAPS_IN_NUMBERS = re.compile(r"(?<=\d)[\s_\-.]+(?=\d)")
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")
_WORDS_BESIDE = 24
"""Characters beside its number from which a text is more than a numbered name."""
_ONE_NUMBER = re.compile(r"\D*?0*(\d+)\D*")


@lru_cache(maxsize=2**18)
def key(rule: Rule, text: str) -> str:
    """The key of a text under a rule; empty where the rule gives none.

    `path` and `tail` read Windows separators too. `number` takes texts with exactly one run of digits.
    """
    text = text.strip()
    if rule == "exact":
        return " ".join(text.casefold().split())
    if rule in ABOVE:
        parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        steps = 0 if len(parts) == 1 else ABOVE[rule]
        return key("exact", parts[-1 - steps]) if len(parts) > steps else ""
    if rule == "prefixed":
        return _GAPS.sub("", text.casefold())
    if rule == "number":
        return _number(cut(_last(text))[0])
    text = text.replace("\\", "/").casefold()
    if rule == "path":
        return "/".join(part for part in text.split("/") if part not in ("", "."))
    if rule in TAILS:
        parts = [part for part in text.split("/") if part not in ("", ".", "..")]
        return "/".join(parts[-TAILS[rule] :]) if len(parts) >= TAILS[rule] else ""
    name = _last(text)
    if rule == "name":
        return name if "." in name else ""
    stem = cut(name)[0]
    if rule == "stem":
        return stem
    return _unpadded(stem) if rule == "unpadded" else _GAPS.sub("", stem)


def _last(text: str) -> str:
    return text.replace("\\", "/").rstrip("/").rpartition("/")[2]


def _unpadded(stem: str) -> str:
    """`Scan-007 b` and `scan_7-b` are one; `1-05` and `15` are not."""
    return "/".join(_ZEROS.sub("", _GAPS.sub("", part)) for part in _GAPS_IN_NUMBERS.split(stem))


def _number(text: str) -> str:
    found = _ONE_NUMBER.fullmatch(text)
    return found[1] if found and len(found[1]) < 19 and len(text) - len(found[1]) <= _WORDS_BESIDE else ""
