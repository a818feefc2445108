"""Which findings a report states, by keywords: plain enough to check by eye, and the same for truth and prediction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .ngram_metrics import tokenize

Findings = Mapping[str, Sequence[str]]
"""Finding -> the phrases that state it; a phrase that ends in * also matches longer words: "effusion*"."""

PRE_NEGATIONS = (
    "no",
    "not",
    "without",
    "free of",
    "clear of",
    "negative for",
    "absence of",
    "rather than",
    "ruled out",
    "resolved",
    "resolution of",
)
"""What denies a phrase that follows in the same clause, after NegEx (Chapman et al., J. Biomed. Inform. 34, 2001)."""

POST_NEGATIONS = (
    "is absent",
    "are absent",
    "not seen",
    "not present",
    "not identified",
    "has resolved",
    "have resolved",
    "is excluded",
    "was excluded",
    "is ruled out",
    "was ruled out",
)
"""What denies a phrase that comes before it in the same clause."""

_CLAUSES = re.compile(r"[.;:\n]+(?!\d)|\bbut\b|\bhowever\b|\balthough\b|\bexcept\b|\bthere (?:is|are)\b")


def _compile_phrases(phrases: Sequence[str]) -> re.Pattern[str]:
    alternatives = []
    for phrase in phrases:
        words = tokenize(phrase)
        if not words:
            raise ValueError(f"the phrase {phrase!r} has no words to look for")
        ending = r"\w*" if phrase.rstrip().endswith("*") else ""
        alternatives.append(r"\b" + r" ".join(map(re.escape, words)) + ending + r"\b")
    return re.compile("|".join(alternatives))


_PRE_NEGATION_PATTERN = _compile_phrases(PRE_NEGATIONS)
_POST_NEGATION_PATTERN = _compile_phrases(POST_NEGATIONS)


def _split_clauses(text: str) -> list[str]:
    """Clauses as words joined by single spaces."""
    return [" ".join(tokenize(part)) for part in _CLAUSES.split(text.lower())]


def extract_findings(text: str, findings: Findings) -> frozenset[str]:
    """The findings that a report states and does not deny.

    A finding counts where one of its phrases occurs, on word borders, in a clause in which no negation stands before
    it and no denial behind it. Clauses end at full stops, colons, semicolons, line ends and words such as "but", not at
    commas ("no effusion, fracture or mass" denies all three). This is a keyword rule, not a clinical labeller: doubt
    ("cannot exclude") counts as a statement.

    Raises:
        ValueError: a phrase without words.
    """
    patterns = {name: _compile_phrases(phrases) for name, phrases in findings.items() if phrases}
    clauses = _split_clauses(text)
    return frozenset(name for name, pattern in patterns.items() if any(_is_affirmed(c, pattern) for c in clauses))


def _is_affirmed(clause: str, pattern: re.Pattern[str]) -> bool:
    for match in pattern.finditer(clause):
        if not _PRE_NEGATION_PATTERN.search(clause, 0, match.start()) and not _POST_NEGATION_PATTERN.search(
            clause, match.end()
        ):
            return True
    return False
