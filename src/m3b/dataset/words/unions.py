"""Classes that a request unites: "benign without callback counts as benign"."""

from __future__ import annotations

import re

_STOP = r".;:!?()\n。；：！？（）"
_NAMES = rf"(?P<names>[^{_STOP}]{{1,160}}?)"
_CLASS = rf"(?P<united>[^{_STOP},，]{{1,60}}?)"
_END = rf"(?=\s*(?:[{_STOP},，]|$|\s(?:and|but|und|aber|et|mais|y|pero)\s))"
_START = rf"(?:^|(?<=[{_STOP}]))\s*"
_AUXILIARY_LIST = """
should shall must can may will is are be to also soll sollen wird werden ist sind auch ebenfalls doit doivent est sont être aussi
debe deben se es son también
"""
_AUXILIARIES = rf"(?:(?:{'|'.join(_AUXILIARY_LIST.split())})\s+)*"
_EN_DONE = (
    r"(?:counts?|counted|treated|(?:is|are|be)\s+(?:considered|regarded|handled))\s+as"
    r"|(?:is|are|be)\s+(?:merged|pooled|united)\s+(?:with|into)"
)
_FR_DONE = r"(?:compt(?:e|ent|ée?s?)|considérée?s?|traitée?s?)\s+comme"
_ES_DONE = r"(?:cuentan?|contad[oa]s?|considerad[oa]s?|tratad[oa]s?|consideran?|tratan?)\s+como"
_PASSIVE = (
    rf"(?:{_EN_DONE}|(?:zähl(?:t|en)|gilt|gelten)\s+(?:auch\s+|ebenfalls\s+)?(?:als|zu[mr]?)|{_FR_DONE}|{_ES_DONE})"
)
_DE_DONE = r"(?:gezählt|gewertet|behandelt|betrachtet|gerechnet|zählen|gelten|werten|behandeln|betrachten|rechnen)(?:\s+werden)?"
_HAN_DONE = "(?:视为|算作|归为|归入|当作|计为|看作|并入)"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"\b(?:treat|count|consider|regard|handle)\s+{_NAMES}\s+as\s+{_CLASS}{_END}",
        rf"\b(?:merge|pool|unite|combine)\s+{_NAMES}\s+(?:with|into)\s+{_CLASS}{_END}",
        rf"\b(?:zähle|werte|behandle|betrachte|rechne)n?\s+(?:Sie\s+)?{_NAMES}\s+(?:als|wie|zu[mr]?)\s+{_CLASS}{_END}",
        rf"\b(?:compte|considère|considére|traite)[rz]?\s+{_NAMES}\s+comme\s+{_CLASS}{_END}",
        rf"\b(?:cuent[ae]|contar|consider[ae]r?|trat[ae]r?)\s+{_NAMES}\s+como\s+{_CLASS}{_END}",
        rf"{_START}{_NAMES}\s+{_AUXILIARIES}{_PASSIVE}\s+{_CLASS}{_END}",
        rf"{_START}{_NAMES}\s+{_AUXILIARIES}(?:bitte\s+)?(?:als|wie|zu[mr]?)\s+{_CLASS}\s+{_DE_DONE}{_END}",
        rf"(?:[将把]|{_START}){_NAMES}(?:也|都|均)?{_HAN_DONE}{_CLASS}{_END}",
    )
)
"""Statements that one name counts as another, in five languages."""
_JOINTS = (
    re.compile(
        r"[,，]\s*(?:(?:and|und|et|y)\s)?|\b(?:where|whereby|while|with|wobei|mit|où|avec|donde|con)\s|其中",
        re.IGNORECASE,
    ),
    re.compile(r"\b(?:and|und|et|y)\s", re.IGNORECASE),
)
"""Where a statement starts behind the wish, the likelier places first."""
_LIST = re.compile(r"[,，、/]|\b(?:and|or|as well as|und|oder|sowie|et|ou|y|o)\b|和|与|及|或", re.IGNORECASE)
_LEADING = re.compile(r"^(?:please|bitte|also|all|the|any|der|die|das|les?|la|los|las|el|请|所有)\s+", re.IGNORECASE)


def take_unions(text: str, verbs: re.Pattern[str]) -> tuple[str, dict[str, str]]:
    """Return a request without its statements that a class counts as another one, and name -> class of these.

    Args:
        verbs: of tasks; names before which one stands belong to another clause.
    """
    remaining_text, unions = text, dict[str, str]()
    for form in _FORMS:
        place = 0
        while match := form.search(text, place):
            names, start = match["names"], match.start()
            if match.start() < match.start("names") + 2 and verbs.search(names):
                joints = next((matches for pattern in _JOINTS if (matches := list(pattern.finditer(names)))), [])
                if not joints:
                    place = match.end()
                    continue
                start = match.start("names") + joints[-1].start()
                names = names[joints[-1].end() :]
            united = _clean(match["united"])
            if not united or len(_LIST.split(united)) > 1:
                place = match.end()
                continue
            unions |= {name: united for part in _LIST.split(names) if (name := _clean(part)) and name != united}
            text, place = f"{text[:start]} {text[match.end() :]}", start
    return (text, unions) if re.search(r"\w", text) else (remaining_text, {})


def _clean(name: str) -> str:
    name = name.strip(" \t\"'“”‘’„«»,，")
    return _LEADING.sub("", name).strip(" \t\"'“”‘’„«»")
