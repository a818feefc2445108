"""METEOR with exact and stem matches. Synonyms are not used: WordNet is not part of this package."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from .ngram_metrics import Words
from .porter import stem

_BEAM = 20

_State = tuple[int, int, int, tuple[int, ...]]
"""Chunks so far, reference position of the previous word (-2: none), used positions as bits, the choices."""


def _align(ours: list[str], theirs: list[str], fixed: dict[int, int]) -> dict[int, int]:
    """Match as many equal keys as possible, and among such alignments one with few chunks (beam search).

    Args:
        ours: one key for each word of the candidate; equal keys match.
        theirs: likewise for the reference.
        fixed: candidate position -> reference position, kept.
    """
    taken = set(fixed.values())
    places: dict[str, list[int]] = defaultdict(list)
    for position, key in enumerate(theirs):
        if position not in taken:
            places[key].append(position)
    masks = {key: sum(1 << place for place in where) for key, where in places.items()}
    free = Counter(key for position, key in enumerate(ours) if position not in fixed)
    spare = {key: max(0, count - len(places[key])) for key, count in free.items()}
    met: Counter[str] = Counter()
    beam: list[_State] = [(0, -2, 0, ())]
    for position, key in enumerate(ours):
        grown: dict[tuple[int, int], _State] = {}
        for chunks, last, used, choices in beam:
            loose = position not in fixed
            options = [p for p in places[key] if not used >> p & 1] if loose else [fixed[position]]
            for place in options:
                _keep(grown, (chunks + (place != last + 1), place, used | 1 << place, (*choices, place)))
            if loose and met[key] - (used & masks.get(key, 0)).bit_count() < spare[key]:  # may stay unmatched
                _keep(grown, (chunks, -2, used, (*choices, -1)))
        met[key] += position not in fixed
        beam = sorted(grown.values(), key=lambda state: state[:2])[:_BEAM]
    best = min(beam, key=lambda state: state[0])[3]
    return {position: place for position, place in enumerate(best) if place >= 0}


def _keep(grown: dict[tuple[int, int], _State], state: _State) -> None:
    """Of states that can go on in the same ways, the one with the fewest chunks."""
    key = (state[1], state[2])
    if key not in grown or state[0] < grown[key][0]:
        grown[key] = state


def meteor(candidate: Words, reference: Words, alpha: float = 0.9, beta: float = 3.0, gamma: float = 0.5) -> float:
    """METEOR (Banerjee & Lavie, ACL workshop 2005): word matches, recall before precision, less for broken order.

    Words are matched first where they are equal, then where their Porter stems are. With m matches,
    P = m / words of the candidate, R = m / words of the reference, F = P R / (alpha P + (1 - alpha) R), and
    METEOR = F x (1 - gamma x (chunks / m) ^ beta); a chunk is a run of matches that is contiguous in both texts.
    Among the alignments with the most matches one with the fewest chunks counts, found by a beam of 20.

    The original's third stage, WordNet synonyms, is left out, so figures are a little lower than those of tools that
    have it.
    """
    exact = _align(list(candidate), list(reference), {})
    matched, taken = set(exact), set(exact.values())
    # a word that is matched already gets a key of its own, so that its stem is not used twice
    ours = [f"{n} matched" if n in matched else stem(word) for n, word in enumerate(candidate)]
    theirs = [f"{n} taken" if n in taken else stem(word) for n, word in enumerate(reference)]
    pairs = sorted(_align(ours, theirs, exact).items())
    if not pairs:
        return 0.0
    breaks = sum(b != (a[0] + 1, a[1] + 1) for a, b in pairwise(pairs))
    precision, recall = len(pairs) / len(candidate), len(pairs) / len(reference)
    mean = precision * recall / (alpha * precision + (1 - alpha) * recall)
    penalty: float = gamma * ((breaks + 1) / len(pairs)) ** beta
    return mean * (1 - penalty)
