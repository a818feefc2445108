"""Texts of cells that say yes, no or uncertain, in five languages and in lower case."""

from __future__ import annotations

_PAIRS_TEXT = """
1|1.0/0|0.0 true/false t/f yes/no y/n ja/nein j/n oui/non o/n sí|si/no s/n 是/否 有/无 positive/negative pos/neg
positiv/negativ positif/négatif positivo/negativo 阳性/阴性 +/- present/absent vorhanden/fehlend x/ checked/unchecked
"""
YES_NO_PAIRS = tuple(
    (frozenset(yes.split("|")), frozenset(no.split("|")) - {""})
    for yes, no in (pair.split("/") for pair in _PAIRS_TEXT.split())
)
"""Words for yes and words for no that are used together."""
YES = frozenset[str]().union(*(yes for yes, _ in YES_NO_PAIRS))
NO = frozenset[str]().union(*(no for _, no in YES_NO_PAIRS))
UNCERTAIN = frozenset({"-1", "-1.0", "u", "uncertain", "?"})
_CLEAR_SIGNS = frozenset("1x是有")
"""Single characters that say yes without another value beside them."""


def are_yes_no(texts: frozenset[str]) -> bool:
    """Return whether the values of a column, in lower case, are words for yes with or without those for no that go with them."""
    words = texts - UNCERTAIN
    return any(
        words <= yes | no and bool(words & no or any(len(word) > 1 or word in _CLEAR_SIGNS for word in words))
        for yes, no in YES_NO_PAIRS
        if words & yes
    )
