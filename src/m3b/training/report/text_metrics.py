"""How good written reports are, by plain counting: BLEU and the F1 of stated findings. For the validation part only."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+|\.")


def words(text: str) -> list[str]:
    """Lower-case words, numbers and full stops."""
    return _TOKEN.findall(text.lower())


def _grams(text: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(text[start : start + order]) for start in range(len(text) - order + 1))


def bleu(references: Sequence[str], written: Sequence[str], order: int = 4) -> float:
    """Corpus BLEU (Papineni et al., 2002): geometric mean of the clipped n-gram precisions x brevity penalty."""
    pairs = [(words(theirs), words(ours)) for theirs, ours in zip(references, written, strict=True)]
    logs = 0.0
    for n in range(1, order + 1):
        hits = sum((_grams(ours, n) & _grams(theirs, n)).total() for theirs, ours in pairs)
        seen = sum(max(0, len(ours) - n + 1) for _, ours in pairs)
        if not hits:
            return 0.0
        logs += math.log(hits / seen) / order
    wanted, said = sum(len(theirs) for theirs, _ in pairs), sum(len(ours) for _, ours in pairs)
    return math.exp(logs + min(0.0, 1 - wanted / said))


def best_constant(training: Sequence[str], most: int = 60) -> str:
    """The training report that does best (BLEU-4) as the answer to all the others; of many, a sample is tried."""
    rng = np.random.default_rng(0)
    different = list(dict.fromkeys(training))
    tried = [different[int(k)] for k in rng.permutation(len(different))[:most]]
    against = [training[int(k)] for k in rng.permutation(len(training))[: 4 * most]]
    return max(tried, key=lambda text: bleu(against, [text] * len(against)))


def label_f1(truth: np.ndarray, found: np.ndarray) -> float:
    """Mean F1 over the findings that either side states; (N, K) bool each. NaN where nothing is stated."""
    hits, stated = (truth & found).sum(axis=0), truth.sum(axis=0) + found.sum(axis=0)
    known = stated > 0
    return float((2 * hits[known] / stated[known]).mean()) if known.any() else math.nan


def distinct(texts: Sequence[str]) -> int:
    """How many different texts; case, spaces and punctuation make no difference."""
    return len({tuple(words(text)) for text in texts})


def shuffle_order(patients: Sequence[str], seed: int = 0) -> np.ndarray | None:
    """(N,) whose case each case gets, never one of its own patient; None where one patient has over half of the cases."""
    numbers = np.unique(np.array(patients, dtype=str), return_inverse=True)[1]
    most = int(np.bincount(numbers).max())
    if 2 * most > len(numbers):
        return None
    places = np.random.default_rng(seed).permutation(int(numbers.max()) + 1)
    order = np.argsort(places[numbers], kind="stable")
    donors = np.empty(len(order), np.int64)
    donors[order] = np.roll(order, most)
    return donors
