"""What reports state, mined from the training reports themselves: no list of diseases, no fixed language.

A finding is one word, or two words of one clause ("effusion + left"), that stands undenied in some reports and not in
most. Of findings that occur together nearly always one is kept. The words that deny (`statements`) come from several languages; where
none of them fits, "no + effusion" becomes a finding of its own, which serves as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from m3b.training.report.statements import stated_parts

MAX_REPORTS = 4000
"""Of more reports a sample is mined."""
WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|[^\W\d_]+")
_PLAIN = """a an the of in on at to is are was were be been with and or as by for from this that these those there it its
has have had than then which may can could also seen noted xxxx well both overall again now very some such given likely
show shows showing shown demonstrate demonstrates demonstrating demonstrated reveal reveals revealed revealing appear appears
appearing appeared identify identified note notes visualize visualized visualise visualised consistent compatible suggest
suggests suggesting suggestive represent represents representing compared comparison prior previous study exam examination
image images view views history patient year old zeigt zeigen muestra montre mostra"""
PLAIN = frozenset(_PLAIN.split())
"""Words of every report, whatever it finds."""
_ALONE = """left right both bilateral bilaterally side sided normal clear unremarkable intact stable unchanged within limits
links rechts beidseits unauffällig izquierdo izquierda derecho derecha gauche droit droite normaux normale sinistra destra"""
EMPTY = frozenset(_ALONE.split())
"""A side, or that nothing was found: no finding when it stands alone, part of one beside another word."""


def clauses(text: str) -> list[tuple[str, ...]]:
    """The words that stand undenied, part by part."""
    found = []
    for part in stated_parts(text):
        words = [word for word in WORD.findall(part) if word not in PLAIN and (len(word) > 1 or not word.isascii())]
        if words:
            found.append(tuple(dict.fromkeys(words)))
    return found


def _items(text: str, known: frozenset[str]) -> set[str]:
    items: set[str] = set()
    for clause in clauses(text):
        chosen = sorted(word for word in clause if word in known)
        items.update(chosen)
        items.update(f"{one} + {other}" for one, other in combinations(chosen, 2))
    return items


def _empty(item: str) -> bool:
    return set(item.split(" + ")) <= EMPTY


def mine(reports: Sequence[str], most: int = 40, alike: float = 0.8) -> list[str]:
    """At most `most` findings, those first that split the reports most evenly. Empty where all reports say the same."""
    rng = np.random.default_rng(0)
    texts = [reports[int(k)] for k in np.sort(rng.permutation(len(reports))[:MAX_REPORTS])]
    least, limit = max(3, round(0.03 * len(texts))), 0.8 * len(texts)
    single = Counter(word for text in texts for word in {word for clause in clauses(text) for word in clause})
    known = frozenset(word for word, count in single.most_common(400) if least <= count)
    stated = [_items(text, known) for text in texts]
    counts = Counter(item for items in stated for item in items)
    named = sorted((i for i, count in counts.items() if least <= count <= limit and not _empty(i)), key=lambda item: (
        -counts[item] * (len(texts) - counts[item]), item
    ))  # fmt: skip
    chosen: list[str] = []
    columns: list[np.ndarray] = []
    for item in named[:3000]:
        column = np.array([item in items for items in stated], dtype=np.float64)
        column = (column - column.mean()) / column.std()
        if all(abs(float(column @ other)) / len(texts) < alike for other in columns):
            chosen.append(item)
            columns.append(column)
        if len(chosen) == most:
            break
    return chosen


def stated(reports: Sequence[str], findings: Sequence[str]) -> np.ndarray:
    """(N, K) bool: which mined findings each report states."""
    known = frozenset(word for item in findings for word in item.split(" + "))
    table = np.zeros((len(reports), len(findings)), dtype=bool)
    for row, text in enumerate(reports):
        items = _items(text, known)
        table[row] = [item in items for item in findings]
    return table
