"""Similarity of two texts: BLEU (sacrebleu), ROUGE-L (rouge-score), CIDEr-D, and METEOR with the stems of NLTK.

Every function takes lists of words, usually those of `tokenize`; there is one reference for each text. The libraries
are imported when they are first used.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from m3b.metrics.cases import Floats, divide

if TYPE_CHECKING:
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

Words = Sequence[str]

MAX_NGRAM_ORDER = 4
"""BLEU and CIDEr use runs of one to four words."""

_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+|\.")


def tokenize(text: str) -> list[str]:
    """Return lower-case words, numbers (2.5 is one) and full stops; all other punctuation and hyphens only separate.

    Published tables use different tokenisers (most reduce reports to words and full stops), so values are only
    comparable within one tokeniser.
    """
    return _TOKEN.findall(text.lower())


@cache
def _make_bleu_scorer() -> BLEU:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize="none", smooth_method="none", max_ngram_order=MAX_NGRAM_ORDER, force=True)


def bleu_counts(candidate: Words, reference: Words) -> list[int]:
    """Return the ten counts that corpus BLEU sums: clipped matches of order 1-4, n-grams of order 1-4, both lengths."""
    score = _make_bleu_scorer().corpus_score([" ".join(candidate)], [[" ".join(reference)]])
    return [*score.counts, *score.totals, score.sys_len, score.ref_len]


@cache
def _make_stemmer() -> PorterStemmer:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer(mode=PorterStemmer.ORIGINAL_ALGORITHM)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the Porter stem of a lower-case English word: effusions -> effus, opacities -> opac."""
    return str(_make_stemmer().stem(word))


_BEAM_WIDTH = 20

_State = tuple[int, int, int, tuple[int, ...]]
"""Number of chunks, reference position of the previous word (-2: none), used positions as bits, the choices."""


def _align(candidate_keys: list[str], reference_keys: list[str], fixed: dict[int, int]) -> dict[int, int]:
    """Match as many equal keys as possible, and among such alignments choose one with few chunks (beam search).

    Args:
        candidate_keys: one key for each word of the candidate; equal keys match.
        reference_keys: likewise for the reference.
        fixed: candidate position -> reference position, already matched.
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
            if is_free and seen_keys[key] - (used & masks.get(key, 0)).bit_count() < surplus[key]:  # can stay unmatched
                _keep_fewest_chunks(next_states, (chunks, -2, used, (*choices, -1)))
        seen_keys[key] += position not in fixed
        beam = sorted(next_states.values(), key=lambda state: state[:2])[:_BEAM_WIDTH]
    best = min(beam, key=lambda state: state[0])[3]
    return {position: reference_position for position, reference_position in enumerate(best) if reference_position >= 0}


def _keep_fewest_chunks(next_states: dict[tuple[int, int], _State], state: _State) -> None:
    """Keep, among states with the same continuations, the one with the fewest chunks."""
    key = (state[1], state[2])
    if key not in next_states or state[0] < next_states[key][0]:
        next_states[key] = state


def meteor(candidate: Words, reference: Words, alpha: float = 0.9, beta: float = 3.0, gamma: float = 0.5) -> float:
    """Return METEOR (Banerjee & Lavie, ACL workshop 2005): word matches, with a penalty for broken word order.

    Recall weighs more than precision.

    Equal words are matched first, then words with equal Porter stems. With m matches,
    P = m / words of the candidate, R = m / words of the reference, F = P R / (alpha P + (1 - alpha) R), and
    METEOR = F x (1 - gamma x (chunks / m) ^ beta); a chunk is a run of matches that is contiguous in both texts.
    Among the alignments with the most matches, one with the fewest chunks counts, found by a beam search of width 20.
    NLTK's METEOR matches greedily, so its values differ if words repeat, as they do in reports; only its stemmer is used.

    The third stage of the original, WordNet synonyms, is omitted, so values are a little lower than those of tools that
    have it.
    """
    exact = _align(list(candidate), list(reference), {})
    matched_candidate, matched_reference = set(exact), set(exact.values())
    # already matched words get a unique key, so that their stems are not used twice
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


def bleu(totals: Floats) -> Floats:
    """Return corpus BLEU-1 to BLEU-4 (Papineni et al., ACL 2002), without smoothing.

    BLEU-N = BP x (p_1 ... p_N) ^ (1 / N); p_n = clipped matches / n-grams of the candidates, over the whole corpus;
    BP = 1 if the candidates together are longer than the references, else exp(1 - references / candidates).

    Args:
        totals: (..., 10) sums of `bleu_counts`.

    Returns:
        (..., 4); 0 if nothing of some order matches.
    """
    matches, n_candidate_ngrams, candidate_length, reference_length = (
        totals[..., :4],
        totals[..., 4:8],
        totals[..., 8],
        totals[..., 9],
    )
    precision = np.nan_to_num(divide(matches, n_candidate_ngrams))
    with np.errstate(divide="ignore"):
        logs = np.cumsum(np.log(precision), axis=-1) / np.arange(1, MAX_NGRAM_ORDER + 1)
    ratio = divide(reference_length, candidate_length)
    penalty = np.where(candidate_length > 0, np.minimum(0.0, 1 - np.nan_to_num(ratio)), -np.inf)
    return np.asarray(np.exp(logs + penalty[..., None]))


class _WordList:
    """A tokenizer for texts that are words joined by spaces."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


@cache
def _make_rouge_scorer() -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], tokenizer=_WordList())


def rouge_l(candidate: Words, reference: Words, beta: float = 1.2) -> float:
    """Return ROUGE-L (Lin, ACL workshop 2004): the F-measure of the longest common subsequence.

    P = LCS / words of the candidate, R = LCS / words of the reference, F = (1 + beta^2) P R / (R + beta^2 P). beta is
    1.2, as in the COCO caption evaluation that report papers use; beta = 1 is the plain F1.
    """
    score = _make_rouge_scorer().score(" ".join(reference), " ".join(candidate))["rougeL"]
    precision, recall = float(score.precision), float(score.recall)
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision) if recall else 0.0


def _count_ngrams(words: Words, order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def cider(candidates: Sequence[Words], references: Sequence[Words], sigma: float = 6.0) -> Floats:
    """Return CIDEr-D (Vedantam et al., CVPR 2015) of each text, with the usual factor 10.

    For n = 1..4, n-grams are weighted by count x log(N / number of references that have it); the similarity is sum of
    min(candidate, reference) x reference / (norm x norm), times exp(-(difference of lengths)^2 / (2 sigma^2)); the
    result is 10 x the mean over n. N counts the given references: an n-gram that all of them have weighs nothing, so
    identical references give 0, and the same text has another score in another test set.

    Returns:
        (cases,), each from 0 to 10.
    """
    total = np.zeros(len(references))
    for order in range(1, MAX_NGRAM_ORDER + 1):
        counts = [_count_ngrams(words, order) for words in references]
        frequency = Counter(gram for count in counts for gram in count)
        for number, (words, count) in enumerate(zip(candidates, counts, strict=True)):
            candidate_weights, reference_weights = (
                _tfidf_weights(c, frequency, len(references)) for c in (_count_ngrams(words, order), count)
            )
            norms = float(
                np.sqrt(sum(v * v for v in candidate_weights.values()) * sum(v * v for v in reference_weights.values()))
            )
            if norms > 0:
                shared = sum(
                    min(weight, reference_weights[gram]) * reference_weights[gram]
                    for gram, weight in candidate_weights.items()
                    if gram in reference_weights
                )
                gap = len(words) - len(references[number])
                total[number] += shared / norms * np.exp(-(gap**2) / (2 * sigma**2))
    return total * 10 / MAX_NGRAM_ORDER


def _tfidf_weights(
    count: Counter[tuple[str, ...]], frequency: Counter[tuple[str, ...]], documents: int
) -> dict[tuple[str, ...], float]:
    return {gram: times * float(np.log(documents / max(1, frequency[gram]))) for gram, times in count.items()}
