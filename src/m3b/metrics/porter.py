"""Word stems: the algorithm of M. F. Porter, An algorithm for suffix stripping, Program 14 (1980), as published.

A word is [C](VC)^m[V] with C and V runs of consonants and vowels; `m` is its measure. Each step takes the rule with
the longest suffix that fits and applies it if the measure of what precedes allows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_Rule = tuple[str, str, Callable[[str], bool]]


def _letter_pattern(stem: str) -> str:
    """The word as a string of c and v; a y after a consonant is a vowel."""
    kinds = ""
    for letter in stem:
        vowel = letter in "aeiou" or (letter == "y" and kinds.endswith("c"))
        kinds += "v" if vowel else "c"
    return kinds


def _measure(stem: str) -> int:
    return len(re.findall("v+c+", _letter_pattern(stem)))


def _has_vowel(stem: str) -> bool:
    return "v" in _letter_pattern(stem)


def _has_double_consonant(stem: str) -> bool:
    return len(stem) > 1 and stem[-1] == stem[-2] and _letter_pattern(stem)[-1] == "c"


def _has_cvc_ending(stem: str) -> bool:
    return _letter_pattern(stem)[-3:] == "cvc" and stem[-1] not in "wxy"


def _measure_above(min_measure: int) -> Callable[[str], bool]:
    return lambda stem: _measure(stem) > min_measure


def _parse_rules(text: str, fits: Callable[[str], bool]) -> list[_Rule]:
    pairs = [item.split(">") for item in text.split()]
    return sorted(((old, new, fits) for old, new in pairs), key=lambda rule: -len(rule[0]))


_STEP_1A = _parse_rules("sses>ss ies>i ss>ss s>", lambda stem: True)
_STEP_2 = _parse_rules(
    "ational>ate tional>tion enci>ence anci>ance izer>ize abli>able alli>al entli>ent eli>e ousli>ous ization>ize "
    "ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble",
    _measure_above(0),
)
_STEP_3 = _parse_rules("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>", _measure_above(0))
_STEP_4 = _parse_rules(
    "al> ance> ence> er> ic> able> ible> ant> ement> ment> ent> ou> ism> ate> iti> ous> ive> ize>", _measure_above(1)
)
_STEP_4.append(("ion", "", lambda stem: _measure(stem) > 1 and stem[-1] in "st"))
_STEP_4.sort(key=lambda rule: -len(rule[0]))


def _apply_rules(word: str, rules: list[_Rule]) -> str:
    for old, new, fits in rules:
        if word.endswith(old):
            stem = word[: len(word) - len(old)]
            return stem + new if fits(stem) else word
    return word


def _step_1b(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        stem = word.removesuffix(ending)
        if stem != word and _has_vowel(stem):
            break
    else:
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _has_double_consonant(stem) and stem[-1] not in "lsz":
        return stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _has_cvc_ending(stem) else stem


def _step_5(word: str) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        if _measure(stem) > 1 or (_measure(stem) == 1 and not _has_cvc_ending(stem)):
            word = stem
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The stem of a lower-case English word: effusions -> effus, opacities -> opac."""
    word = _apply_rules(word, _STEP_1A)
    word = _step_1b(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    for rules in (_STEP_2, _STEP_3, _STEP_4):
        word = _apply_rules(word, rules)
    return _step_5(word)
