"""Findings that reports state, mined from the training reports: no list of diseases, no fixed language.

A finding is one word, or two words of one clause ("effusion + left"), that some reports state, and not most. Of findings that nearly
always occur together one is used. Words of negation (`statements`) cover several languages; in others, "no + effusion" becomes a
finding of its own, which serves as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from m3b.training.report.statements import list_stated_parts

MAX_REPORTS = 4000
"""Maximum reports that are mined; of more, a sample."""
WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|[^\W\d_]+")
_STOP_WORDS = """a an the of in on at to is are was were be been with and or as by for from this that these those there it its
has have had than then which may can could also seen noted xxxx well both overall again now very some such given likely
show shows showing shown demonstrate demonstrates demonstrating demonstrated reveal reveals revealed revealing appear appears
appearing appeared identify identified note notes visualize visualized visualise visualised consistent compatible suggest
suggests suggesting suggestive represent represents representing compared comparison prior previous study exam examination
image images view views history patient year old zeigt zeigen muestra montre mostra"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that are independent of the findings."""
_DEPENDENT_WORDS = """left right both bilateral bilaterally side sided normal clear unremarkable intact stable unchanged within limits
links rechts beidseits unauffällig izquierdo izquierda derecho derecha gauche droit droite normaux normale sinistra destra"""
DEPENDENT_WORDS = frozenset(_DEPENDENT_WORDS.split())
"""Sides and normality: no finding when alone, part of one with another word."""


def list_clauses(text: str) -> list[tuple[str, ...]]:
    """Return the words of each stated clause."""
    clauses = []
    for part in list_stated_parts(text):
        words = [
            word for word in WORD.findall(part) if word not in STOP_WORDS and (len(word) > 1 or not word.isascii())
        ]
        if words:
            clauses.append(tuple(dict.fromkeys(words)))
    return clauses


def _list_items(text: str, known: frozenset[str]) -> set[str]:
    items: set[str] = set()
    for clause in list_clauses(text):
        known_words = sorted(word for word in clause if word in known)
        items.update(known_words)
        items.update(f"{first} + {second}" for first, second in combinations(known_words, 2))
    return items


def _is_dependent(item: str) -> bool:
    return set(item.split(" + ")) <= DEPENDENT_WORDS


def mine_findings(reports: Sequence[str], max_findings: int = 40, alike: float = 0.8) -> list[str]:
    """Return at most `max_findings` findings, those first that split the reports most evenly; [] if all reports say the same."""
    rng = np.random.default_rng(0)
    texts = [reports[int(k)] for k in np.sort(rng.permutation(len(reports))[:MAX_REPORTS])]
    min_count, limit = max(3, round(0.03 * len(texts))), 0.8 * len(texts)
    single = Counter(word for text in texts for word in {word for clause in list_clauses(text) for word in clause})
    known = frozenset(word for word, count in single.most_common(400) if min_count <= count)
    stated = [_list_items(text, known) for text in texts]
    counts = Counter(item for items in stated for item in items)
    candidates = sorted((i for i, count in counts.items() if min_count <= count <= limit and not _is_dependent(i)), key=lambda item: (
        -counts[item] * (len(texts) - counts[item]), item
    ))  # fmt: skip
    selected: list[str] = []
    columns: list[np.ndarray] = []
    for item in candidates[:3000]:
        column = np.array([item in items for items in stated], dtype=np.float64)
        column = (column - column.mean()) / column.std()
        if all(abs(float(column @ column_of_selected)) / len(texts) < alike for column_of_selected in columns):
            selected.append(item)
            columns.append(column)
        if len(selected) == max_findings:
            break
    return selected


def label_reports(reports: Sequence[str], findings: Sequence[str]) -> np.ndarray:
    """Return (N, K) bool: the mined findings that each report states."""
    known = frozenset(word for item in findings for word in item.split(" + "))
    table = np.zeros((len(reports), len(findings)), dtype=bool)
    for row, text in enumerate(reports):
        items = _list_items(text, known)
        table[row] = [item in items for item in findings]
    return table
