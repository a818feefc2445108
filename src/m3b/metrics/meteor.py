"""METEOR with exact and stem matches. Synonyms are not used: WordNet is not part of this package."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from .ngram_metrics import Words
from .porter import stem

_BEAM_WIDTH = 20

_State = tuple[int, int, int, tuple[int, ...]]
"""Chunks so far, reference position of the previous word (-2: none), used positions as bits, the choices."""


def _align(candidate_keys: list[str], reference_keys: list[str], fixed: dict[int, int]) -> dict[int, int]:
    """Match as many equal keys as possible, and among such alignments one with few chunks (beam search).

    Args:
        candidate_keys: one key for each word of the candidate; equal keys match.
        reference_keys: likewise for the reference.
        fixed: candidate position -> reference position, kept.
    """
    fixed_references = set(fixed.values())
    reference_positions: dict[str, list[int]] = defaultdict(list)
    for position, key in enumerate(reference_keys):
        if position not in fixed_references:
            reference_positions[key].append(position)
    masks = {
        key: sum(1 << reference_position for reference_position in positions)
        for key, positions in reference_positions.items()
    }
    free_counts = Counter(key for position, key in enumerate(candidate_keys) if position not in fixed)
    surplus = {key: max(0, count - len(reference_positions[key])) for key, count in free_counts.items()}
    seen_keys: Counter[str] = Counter()
    beam: list[_State] = [(0, -2, 0, ())]
    for position, key in enumerate(candidate_keys):
        next_states: dict[tuple[int, int], _State] = {}
        for chunks, last, used, choices in beam:
            is_free = position not in fixed
            options = [p for p in reference_positions[key] if not used >> p & 1] if is_free else [fixed[position]]
            for reference_position in options:
                _keep_fewest_chunks(
                    next_states,
                    (
                        chunks + (reference_position != last + 1),
                        reference_position,
                        used | 1 << reference_position,
                        (*choices, reference_position),
                    ),
                )
            if is_free and seen_keys[key] - (used & masks.get(key, 0)).bit_count() < surplus[key]:  # may stay unmatched
                _keep_fewest_chunks(next_states, (chunks, -2, used, (*choices, -1)))
        seen_keys[key] += position not in fixed
        beam = sorted(next_states.values(), key=lambda state: state[:2])[:_BEAM_WIDTH]
    best = min(beam, key=lambda state: state[0])[3]
    return {position: reference_position for position, reference_position in enumerate(best) if reference_position >= 0}


def _keep_fewest_chunks(next_states: dict[tuple[int, int], _State], state: _State) -> None:
    """Of states that can go on in the same ways, the one with the fewest chunks."""
    key = (state[1], state[2])
    if key not in next_states or state[0] < next_states[key][0]:
        next_states[key] = state


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
    matched_candidate, matched_reference = set(exact), set(exact.values())
    # a word that is matched already gets a key of its own, so that its stem is not used twice
    candidate_keys = [f"{n} matched" if n in matched_candidate else stem(word) for n, word in enumerate(candidate)]
    reference_keys = [f"{n} taken" if n in matched_reference else stem(word) for n, word in enumerate(reference)]
    pairs = sorted(_align(candidate_keys, reference_keys, exact).items())
    if not pairs:
        return 0.0
    n_breaks = sum(b != (a[0] + 1, a[1] + 1) for a, b in pairwise(pairs))
    precision, recall = len(pairs) / len(candidate), len(pairs) / len(reference)
    mean = precision * recall / (alpha * precision + (1 - alpha) * recall)
    penalty: float = gamma * ((n_breaks + 1) / len(pairs)) ** beta
    return mean * (1 - penalty)
