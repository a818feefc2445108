"""Metrics of generated reports: BLEU and the F1 of stated findings, for the validation part only."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+|\.")


def split_words(text: str) -> list[str]:
    """Return lower-case words, numbers and full stops."""
    return _TOKEN.findall(text.lower())


def _count_ngrams(text: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(text[start : start + order]) for start in range(len(text) - order + 1))


def bleu(references: Sequence[str], generated: Sequence[str], order: int = 4) -> float:
    """Return the corpus BLEU (Papineni et al., 2002): geometric mean of the clipped n-gram precisions x brevity penalty."""
    pairs = [
        (split_words(reference), split_words(candidate))
        for reference, candidate in zip(references, generated, strict=True)
    ]
    logs = 0.0
    for n in range(1, order + 1):
        hits = sum(
            (_count_ngrams(candidate, n) & _count_ngrams(reference, n)).total() for reference, candidate in pairs
        )
        total = sum(max(0, len(candidate) - n + 1) for _, candidate in pairs)
        if not hits:
            return 0.0
        logs += math.log(hits / total) / order
    reference_length, generated_length = (
        sum(len(reference) for reference, _ in pairs),
        sum(len(candidate) for _, candidate in pairs),
    )
    return math.exp(logs + min(0.0, 1 - reference_length / generated_length))


def best_constant(training: Sequence[str], max_tried: int = 60) -> str:
    """Return the training report with the best BLEU-4 as the answer for all others; of many, a sample is tried."""
    rng = np.random.default_rng(0)
    distinct_texts = list(dict.fromkeys(training))
    tried_texts = [distinct_texts[int(k)] for k in rng.permutation(len(distinct_texts))[:max_tried]]
    reference_texts = [training[int(k)] for k in rng.permutation(len(training))[: 4 * max_tried]]
    return max(tried_texts, key=lambda text: bleu(reference_texts, [text] * len(reference_texts)))


def label_f1(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean F1 over the findings that either side states; (N, K) bool each. NaN if nothing is stated."""
    hits, stated = (truth & predicted).sum(axis=0), truth.sum(axis=0) + predicted.sum(axis=0)
    is_stated = stated > 0
    return float((2 * hits[is_stated] / stated[is_stated]).mean()) if is_stated.any() else math.nan


def count_distinct(texts: Sequence[str]) -> int:
    """Count the different texts; case, spaces and punctuation are ignored."""
    return len({tuple(split_words(text)) for text in texts})


def shuffle_between_patients(patients: Sequence[str], seed: int = 0) -> np.ndarray | None:
    """Return (N,) the case whose text each case gets, never one of its own patient; None if one patient has over half of the cases."""
    numbers = np.unique(np.array(patients, dtype=str), return_inverse=True)[1]
    max_tried = int(np.bincount(numbers).max())
    if 2 * max_tried > len(numbers):
        return None
    places = np.random.default_rng(seed).permutation(int(numbers.max()) + 1)
    order = np.argsort(places[numbers], kind="stable")
    donors = np.empty(len(order), np.int64)
    donors[order] = np.roll(order, max_tried)
    return donors
