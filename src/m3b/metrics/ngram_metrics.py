"""How alike two texts are: BLEU, ROUGE-L and CIDEr-D on words; `meteor.py` has METEOR.

Every function takes lists of words, usually those of `tokenize`; there is one reference for each text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from .arithmetic import divide
from .cases import Floats

Words = Sequence[str]

MAX_NGRAM_ORDER = 4
"""BLEU and CIDEr look at runs of one to four words."""

_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+|\.")


def tokenize(text: str) -> list[str]:
    """Lower-case words, numbers (2.5 is one) and full stops; all other punctuation and hyphens only separate.

    Published tables differ by their tokenisers (report lines are cleaned to words and full stops in most of them), so
    figures compare only within one.
    """
    return _TOKEN.findall(text.lower())


def ngrams(words: Words, order: int) -> Counter[tuple[str, ...]]:
    """Each run of `order` words with its count."""
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def bleu_counts(candidate: Words, reference: Words) -> list[int]:
    """What corpus BLEU adds up: clipped matches of order 1-4, n-grams of order 1-4, both lengths; ten numbers."""
    pairs = [(ngrams(candidate, order), ngrams(reference, order)) for order in range(1, MAX_NGRAM_ORDER + 1)]
    matches = [sum((candidate_ngrams & reference_ngrams).values()) for candidate_ngrams, reference_ngrams in pairs]
    return [
        *matches,
        *(sum(candidate_ngrams.values()) for candidate_ngrams, _ in pairs),
        len(candidate),
        len(reference),
    ]


def bleu(totals: Floats) -> Floats:
    """Corpus BLEU-1 to BLEU-4 (Papineni et al., ACL 2002), without smoothing.

    BLEU-N = BP x (p_1 ... p_N) ^ (1 / N); p_n = clipped matches / n-grams of the candidates, over the whole corpus;
    BP = 1 where the candidates are longer than the references together, else exp(1 - references / candidates).

    Args:
        totals: (..., 10) sums of `bleu_counts`.

    Returns:
        (..., 4); 0 where nothing of some order matches.
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


def longest_common_subsequence(first: Words, second: Words) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for word in first:
        corner = 0
        for column, second_word in enumerate(second, start=1):
            above = row[column]
            row[column] = corner + 1 if word == second_word else max(above, row[column - 1])
            corner = above
    return row[-1]


def rouge_l(candidate: Words, reference: Words, beta: float = 1.2) -> float:
    """ROUGE-L (Lin, ACL workshop 2004): the F-measure of the longest common subsequence.

    P = LCS / words of the candidate, R = LCS / words of the reference, F = (1 + beta^2) P R / (R + beta^2 P). beta is
    1.2, as in the COCO caption evaluation that report papers use; beta = 1 is the plain F1.
    """
    common = longest_common_subsequence(candidate, reference)
    if not common:
        return 0.0
    precision, recall = common / len(candidate), common / len(reference)
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision)


def cider(candidates: Sequence[Words], references: Sequence[Words], sigma: float = 6.0) -> Floats:
    """CIDEr-D (Vedantam et al., CVPR 2015) of each text, with the usual factor 10.

    For n = 1..4, n-grams are weighted by count x log(N / number of references that have it); the similarity is
    sum of min(candidate, reference) x reference / (norm x norm), times exp(-(difference of lengths)^2 / (2 sigma^2));
    the figure is 10 x the mean over n. N counts the given references: an n-gram that all of them have weighs nothing,
    so identical references give 0, and the same text scores otherwise in another test set.

    Returns:
        (cases,), each from 0 to 10.
    """
    total = np.zeros(len(references))
    for order in range(1, MAX_NGRAM_ORDER + 1):
        counts = [ngrams(words, order) for words in references]
        frequency = Counter(gram for count in counts for gram in count)
        for number, (words, count) in enumerate(zip(candidates, counts, strict=True)):
            candidate_weights, reference_weights = (
                _tfidf_weights(c, frequency, len(references)) for c in (ngrams(words, order), count)
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
