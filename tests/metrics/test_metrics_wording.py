"""BLEU, METEOR and stems against sacrebleu and NLTK; ROUGE-L, METEOR and CIDEr-D against definitions written out."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from nltk.translate.meteor_score import single_meteor_score
from sacrebleu.metrics import BLEU

from m3b.tasks.report.text_similarity import (
    bleu,
    bleu_counts,
    cider,
    meteor,
    rouge_l,
    stem,
    tokenize,
)

logging.getLogger("sacrebleu").setLevel(logging.ERROR)
WORDS = [
    "the",
    "heart",
    "lung",
    "lungs",
    "is",
    "are",
    "normal",
    "normally",
    "effusion",
    "effusions",
    "enlarged",
    "enlarging",
    "no",
    ".",
    "size",
]
text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=14)
corpora = st.lists(st.tuples(text, text), min_size=1, max_size=8)
NLTK_STEMS = PorterStemmer(mode=PorterStemmer.ORIGINAL_ALGORITHM)


def test_tokens() -> None:
    assert tokenize("Heart size: NORMAL; no T2-weighted 2.5 cm mass.") == [
        "heart", "size", "normal", "no", "t2", "weighted", "2.5", "cm", "mass", ".",
    ]  # fmt: skip
    assert tokenize("Größe 1,200 _ (…)") == ["größe", "1,200"]
    assert tokenize(" \n,") == []


@given(corpora)
def test_bleu_as_sacrebleu(corpus: list[tuple[list[str], list[str]]]) -> None:
    got = bleu(
        np.array([bleu_counts(prediction, reference) for prediction, reference in corpus], dtype=float).sum(axis=0)
    )
    prediction, reference = ([" ".join(pair[k]) for pair in corpus] for k in (0, 1))
    for order in range(1, 5):
        scorer = BLEU(tokenize="none", smooth_method="none", max_ngram_order=order, effective_order=False)
        expected = scorer.corpus_score(prediction, [reference]).score / 100
        assert got[order - 1] == pytest.approx(expected, abs=1e-9)


def test_empty_candidates() -> None:
    assert bleu(np.array(bleu_counts([], ["a"]), dtype=float)).tolist() == [0, 0, 0, 0]
    assert rouge_l([], ["a"]) == meteor([], ["a"]) == cider([[]], [["a"]])[0] == 0
    both = np.array([bleu_counts([], ["a"] * 5), bleu_counts(["a"] * 5, ["a"] * 5)], dtype=float).sum(axis=0)
    assert bleu(both) == pytest.approx(np.exp([-1.0] * 4))  # an empty report costs brevity


def longest_common_subsequence(first: list[str], second: list[str]) -> int:
    """Return the length of the longest list of words that is in both texts in this order."""
    lengths = {0: 0}  # number of words of `second` that are used -> most common words
    for word in first:
        for used, length in sorted(lengths.items(), reverse=True):
            if word in second[used:]:
                end = second.index(word, used) + 1
                lengths[end] = max(lengths.get(end, 0), length + 1)
    return max(lengths.values())


@given(text, text)
def test_rouge_l_by_its_definition(prediction: list[str], reference: list[str]) -> None:
    common = longest_common_subsequence(prediction, reference)
    precision, recall = common / len(prediction), common / len(reference)
    for beta in (1.0, 1.2, 1000.0):
        weighted = recall + beta**2 * precision
        expected = (1 + beta**2) * precision * recall / weighted if common else 0.0
        assert rouge_l(prediction, reference, beta=beta) == pytest.approx(expected)


def test_stems_of_report_words() -> None:
    words = ["effusions", "opacities", "enlarged", "enlarging", "consolidation", "cardiac", "atelectasis", "stability"]
    assert [stem(word) for word in words] == [
        "effus", "opac", "enlarg", "enlarg", "consolid", "cardiac", "atelectasi", "stabil",
    ]  # fmt: skip


class NoSynonyms:
    """WordNet with nothing in it."""

    def synsets(self, word: str) -> list[object]:
        return []


def nltk_meteor(prediction: list[str], reference: list[str], gamma: float = 0.5) -> float:
    return float(single_meteor_score(reference, prediction, stemmer=NLTK_STEMS, wordnet=NoSynonyms(), gamma=gamma))


@given(text, text)
def test_meteor_matches_as_many_words_as_nltk(prediction: list[str], reference: list[str]) -> None:
    """Without the penalty for broken order it does not matter which of equal words is matched."""
    assert meteor(prediction, reference, gamma=0.0) == pytest.approx(nltk_meteor(prediction, reference, gamma=0.0))


@given(st.permutations(range(8)), st.permutations(range(8)), st.integers(1, 8), st.integers(1, 8))
def test_meteor_as_nltk_where_words_are_unique(a: list[int], b: list[int], m: int, n: int) -> None:
    words = ["heart", "lung", "effusion", "no", "normal", "large", "left", "seen"]
    plural = [word + "s" for word in words]
    prediction, reference = [words[k] for k in a[:m]], [(plural if k % 3 == 0 else words)[k] for k in b[:n]]
    assert meteor(prediction, reference) == pytest.approx(nltk_meteor(prediction, reference))


def alignments(prediction: list[str], reference: list[str]) -> Iterator[list[tuple[int, int]]]:
    for size in range(min(len(prediction), len(reference)), -1, -1):
        has_match = False
        for prediction_places in combinations(range(len(prediction)), size):
            for reference_places in permutations(range(len(reference)), size):
                if all(prediction[i] == reference[j] for i, j in zip(prediction_places, reference_places, strict=True)):
                    has_match = True
                    yield list(zip(prediction_places, reference_places, strict=True))
        if has_match:
            return


@given(*[st.lists(st.sampled_from("abc"), min_size=1, max_size=5)] * 2)
def test_meteor_has_the_fewest_chunks(prediction: list[str], reference: list[str]) -> None:
    every = list(alignments(prediction, reference))
    matched = len(every[0])
    if not matched:
        assert meteor(prediction, reference) == 0
        return
    chunks = min(1 + sum((c, d) != (a + 1, b + 1) for (a, b), (c, d) in pairwise(pairs)) for pairs in every)
    precision, recall = matched / len(prediction), matched / len(reference)
    mean = 10 * precision * recall / (recall + 9 * precision)
    assert meteor(prediction, reference) == pytest.approx(mean * (1 - 0.5 * (chunks / matched) ** 3))


def vectors(words: list[str], references: list[list[str]], order: int) -> dict[tuple[str, ...], float]:
    everywhere = [
        {tuple(reference[start : start + order]) for start in range(len(reference) - order + 1)}
        for reference in references
    ]
    weights: dict[tuple[str, ...], float] = {}
    for start in range(len(words) - order + 1):
        gram = tuple(words[start : start + order])
        having = sum(gram in grams for grams in everywhere)
        weights[gram] = weights.get(gram, 0.0) + math.log(len(references)) - math.log(max(1, having))
    return weights


@given(corpora)
def test_cider_by_its_definition(corpus: list[tuple[list[str], list[str]]]) -> None:
    predictions, references = [pair[0] for pair in corpus], [pair[1] for pair in corpus]
    got = cider(predictions, references)
    for number, (prediction, reference) in enumerate(corpus):
        total = 0.0
        for order in (1, 2, 3, 4):
            a, b = vectors(prediction, references, order), vectors(reference, references, order)
            lengths = math.hypot(*a.values()) * math.hypot(*b.values())
            if lengths:
                total += sum(min(a.get(gram, 0.0), b[gram]) * b[gram] for gram in b) / lengths
        expected = 10 / 4 * total * math.exp(-((len(prediction) - len(reference)) ** 2) / 72)
        assert got[number] == pytest.approx(expected, abs=1e-9)


def test_figures_of_the_coco_caption_evaluation() -> None:
    """What pycocoevalcap 1.2 gives for these three texts (the package itself is 100 MB)."""
    predictions = [
        "the heart is normal in size .",
        "no pleural effusion or pneumothorax .",
        "there is a large left effusion .",
    ]
    references = [
        "heart size is normal .",
        "no effusion or pneumothorax is seen .",
        "large left pleural effusion is seen .",
    ]
    split = [text.split() for text in predictions], [text.split() for text in references]
    assert cider(*split) == pytest.approx([2.31457555, 3.77475798, 1.94537688], abs=1e-7)
    rouge = [rouge_l(a, b) for a, b in zip(*split, strict=True)]
    assert rouge == pytest.approx([0.6873239436619719, 0.7587064676616916, 0.5714285714285714])


@given(text)
def test_the_same_text(words: list[str]) -> None:
    counts = np.array(bleu_counts(words, words), dtype=float)
    assert bleu(counts)[: min(4, len(words))] == pytest.approx(np.ones(min(4, len(words))))
    assert rouge_l(words, words) == pytest.approx(1)
    assert meteor(words, words) == pytest.approx(1 - 0.5 / len(words) ** 3)
    texts = [[f"x{k}" for k in range(9)], words]
    if len(words) >= 4:
        assert cider(texts, texts) == pytest.approx([10, 10])
