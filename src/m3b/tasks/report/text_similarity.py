"""Similarity of two texts: BLEU, ROUGE-L, CIDEr-D and METEOR on words, with a Porter stemmer.

Every function takes lists of words, usually those of `tokenize`; there is one reference for each text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from m3b.metrics.cases import Floats, divide

_Rule = tuple[str, str, Callable[[str], bool]]


def _letter_pattern(stem: str) -> str:
    """Return the word as a string of c and v; a y after a consonant is a vowel."""
    kinds = ""
    for letter in stem:
        vowel = letter in "aeiou" or (letter == "y" and kinds.endswith("c"))
        kinds += "v" if vowel else "c"
    return kinds


def _measure(stem: str) -> int:
    """Return Porter's measure m: the number of vowel-consonant sequences."""
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
    """Return the stem of a lower-case English word: effusions -> effus, opacities -> opac."""
    word = _apply_rules(word, _STEP_1A)
    word = _step_1b(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    for rules in (_STEP_2, _STEP_3, _STEP_4):
        word = _apply_rules(word, rules)
    return _step_5(word)


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


def ngrams(words: Words, order: int) -> Counter[tuple[str, ...]]:
    """Return each run of `order` words with its count."""
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def bleu_counts(candidate: Words, reference: Words) -> list[int]:
    """Return the ten counts that corpus BLEU sums: clipped matches of order 1-4, n-grams of order 1-4, both lengths."""
    pairs = [(ngrams(candidate, order), ngrams(reference, order)) for order in range(1, MAX_NGRAM_ORDER + 1)]
    matches = [sum((candidate_ngrams & reference_ngrams).values()) for candidate_ngrams, reference_ngrams in pairs]
    return [
        *matches,
        *(sum(candidate_ngrams.values()) for candidate_ngrams, _ in pairs),
        len(candidate),
        len(reference),
    ]


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


def longest_common_subsequence(first: Words, second: Words) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for word in first:
        corner = 0
        for column, second_word in enumerate(second, start=1):
            above = row[column]
            row[column] = corner + 1 if word == second_word else max(above, row[column - 1])
            corner = above
    return row[-1]


def rouge_l(candidate: Words, reference: Words, beta: float = 1.2) -> float:
    """Return ROUGE-L (Lin, ACL workshop 2004): the F-measure of the longest common subsequence.

    P = LCS / words of the candidate, R = LCS / words of the reference, F = (1 + beta^2) P R / (R + beta^2 P). beta is
    1.2, as in the COCO caption evaluation that report papers use; beta = 1 is the plain F1.
    """
    common = longest_common_subsequence(candidate, reference)
    if not common:
        return 0.0
    precision, recall = common / len(candidate), common / len(reference)
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision)


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
