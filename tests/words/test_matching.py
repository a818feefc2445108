"""Names that mean the same thing match; others do not.

Rates are asserted on the concepts whose name has an odd checksum, which nothing was tuned on. For inflection, spelling and
initials the term list is emptied first, so that only the general mechanism can answer.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from m3b.dataset.words import (
    MATCH_SCORE,
    Lexicon,
    are_same_numbers,
    are_same_words,
    get_lexicon,
    is_negative,
    make_lexicon,
    match_classes,
    match_term,
    match_words,
)
from m3b.dataset.words.lexicon import STOP_WORDS, split_tokens

CONCEPTS = get_lexicon().concepts
HELD_OUT = sorted(name for name in CONCEPTS if zlib.crc32(name.encode()) % 2)
NO_TERMS = make_lexicon(exclude=set(CONCEPTS))
PAIRS = [(first, second) for first, second in itertools.combinations(HELD_OUT, 2)
         if first not in get_lexicon().get_wider(second) and second not in get_lexicon().get_wider(first)]  # fmt: skip


def measure_share(pairs: list[tuple[str, str]], lexicon: Lexicon) -> float:
    return sum(match_term(first, second, lexicon) >= MATCH_SCORE for first, second in pairs) / len(pairs)


def make_plural(term: str) -> str:
    if term.endswith("y") and term[-2] not in "aeiou":
        return f"{term[:-1]}ies"
    return f"{term}es" if term.endswith(("s", "x", "ch")) else f"{term}s"


def list_words(term: str) -> list[str]:
    return [word for word in split_tokens(term) if word not in STOP_WORDS]


def test_the_term_list_is_large_enough():
    assert 600 <= len(CONCEPTS) <= 1500
    assert len(HELD_OUT) > 300
    assert all(set(concept.terms) == {"en", "de", "fr", "es", "zh"} for concept in CONCEPTS.values())


def test_inflected_names_match_without_the_term_list():
    terms = [CONCEPTS[name].terms["en"][0] for name in HELD_OUT]
    assert measure_share([(term, make_plural(term)) for term in terms], NO_TERMS) >= 0.95


def test_spellings_match_without_the_term_list():
    terms = [CONCEPTS[name].terms["en"][0] for name in HELD_OUT]
    camel = [(term, term.title().replace(" ", "").replace("-", "")) for term in terms]
    snake = [(term.upper(), term.replace(" ", "_").replace("-", "_")) for term in terms]
    assert measure_share([*camel, *snake], NO_TERMS) >= 0.95


def test_initials_and_shortened_words_match_without_the_term_list():
    words = [list_words(CONCEPTS[name].terms["en"][0]) for name in HELD_OUT]
    initials = [(" ".join(group), "".join(word[0] for word in group)) for group in words if len(group) > 2]
    shortened = [
        (" ".join(group), "_".join([group[0][:4], *group[1:]]))
        for group in words
        if len(group) > 1 and len(group[0]) > 5
    ]
    truncated = [(group[0], group[0][:5]) for group in words if len(group) == 1 and len(group[0]) > 7]
    assert len(initials) > 20
    assert len(shortened) > 50
    assert len(truncated) > 50
    assert measure_share([*initials, *shortened, *truncated], NO_TERMS) >= 0.95


def test_translations_match():
    pairs = []
    for name in HELD_OUT:
        terms = CONCEPTS[name].terms
        english = terms["en"][0]
        pairs += [(make_plural(english), term) for language in ("de", "fr", "es", "zh") for term in terms[language]]
        pairs += [(english, make_plural(terms[language][0])) for language in ("fr", "es")]
    assert len(pairs) > 2000
    assert measure_share(pairs, get_lexicon()) >= 0.95


def test_unrelated_names_do_not_match():
    chance = random.Random(41)
    pairs = []
    for first, second in chance.sample(PAIRS, 3000):
        terms = [
            chance.choice([term for words in CONCEPTS[name].terms.values() for term in words])
            for name in (first, second)
        ]
        pairs.append((terms[0], terms[1]))
    assert measure_share(pairs, get_lexicon()) <= 0.01
    assert measure_share(pairs, NO_TERMS) <= 0.01


def test_unrelated_names_with_common_words_do_not_match():
    pairs = []
    for first, second in itertools.combinations(sorted(CONCEPTS), 2):
        words = set(list_words(first)), set(list_words(second))
        is_part = first in get_lexicon().get_wider(second) or second in get_lexicon().get_wider(first)
        if words[0] & words[1] and not words[0] <= words[1] and not words[1] <= words[0] and not is_part:
            pairs.append((first, second))
    assert len(pairs) > 500
    assert measure_share(pairs, get_lexicon()) <= 0.01
    assert measure_share(pairs, NO_TERMS) <= 0.01


def test_unrelated_abbreviations_do_not_match():
    chance = random.Random(7)
    pairs = [(chance.choice(CONCEPTS[first].abbreviations), CONCEPTS[second].terms["en"][0])
             for first, second in chance.sample(PAIRS, 12_000) if CONCEPTS[first].abbreviations]  # fmt: skip
    assert len(pairs) > 2000
    assert measure_share(pairs, get_lexicon()) <= 0.01


@pytest.mark.parametrize(
    ("phrase", "name", "is_match"),
    [
        ("post myocardial infarction", "post_mi", True),
        ("lung adenocarcinoma", "lung_aca", True),
        ("blue frob cell", "bfc", True),
        ("optic disc", "disc", True),
        ("brain tumors", "Hirntumor", True),
        ("white blood cells", "whitebloodcell", True),
        ("no tumor", "notumor", True),
        ("tumor", "no tumor", False),
        ("covid", "non-covid", False),
        ("grade 2", "grade 3", False),
        ("grade 2", "2", True),
        ("left kidney", "right kidney", False),
        ("red blood cells", "wbc", False),
        ("malaria parasites", "rbc", False),
        ("surgical instruments", "polyp", False),
    ],
)
def test_pairs(phrase, name, is_match):
    assert (match_term(phrase, name) >= MATCH_SCORE) == is_match


@pytest.mark.parametrize(
    "name",
    [
        "normal",
        "no tumor",
        "notumor",
        "ohne Befund",
        "正常",
        "sans anomalie",
        "sin hallazgos",
        "non-covid",
        "nofinding",
    ],
)
def test_negative_names(name):
    assert is_negative(name)


@pytest.mark.parametrize("name", ["tumor", "nodule", "Norwood", "novel finding", "肺炎", "other"])
def test_other_names_are_not_negative(name):
    assert not is_negative(name)


def test_classes_by_abbreviation_and_shared_words():
    assignment = match_classes(
        ["adenocarcinoma", "squamous cell carcinoma", "normal"], ["lung_aca", "lung_scc", "lung_n"]
    )
    assert assignment.pairs == {
        "adenocarcinoma": ("lung_aca",),
        "squamous cell carcinoma": ("lung_scc",),
        "normal": ("lung_n",),
    }
    assert assignment.is_complete


def test_numbers_of_a_list_are_no_part_of_the_names():
    list_items = ["1. Microaneurysms", "2. Haemorrhages", "3. Hard Exudates"]
    pairs = match_classes(["haemorrhages", "hard exudates"], list_items).pairs
    assert pairs == {"haemorrhages": (list_items[1],), "hard exudates": (list_items[2],)}


def test_the_folders_legend_comes_first():
    assignment = match_classes(["pneumonia", "healthy"], ["1", "0"], {"0": "normal", "1": "pneumonia"})
    assert assignment.pairs == {"pneumonia": ("1",), "healthy": ("0",)}
    assignment = match_classes(["foo type", "bar type"], ["A", "B"], notes="A: foo type\nB: bar type")
    assert assignment.pairs == {"foo type": ("A",), "bar type": ("B",)}
    assert min(assignment.scores.values()) == 1


def test_other_takes_what_is_left():
    assignment = match_classes(["melanoma", "other lesions"], ["mel", "nv", "bcc"])
    assert assignment.pairs == {"melanoma": ("mel",), "other lesions": ("nv", "bcc")}
    assert (assignment.remainder, assignment.unassigned) == ("other lesions", ())


def test_narrower_classes_stand_for_a_wider_one():
    assignment = match_classes(["tumor", "normal"], ["glioma", "meningioma", "healthy"])
    assert assignment.pairs == {"tumor": ("glioma", "meningioma"), "normal": ("healthy",)}


def test_classes_without_a_match_are_named():
    assignment = match_classes(["polyp", "ulcer"], ["polyps", "kidney"])
    assert assignment.unmatched == ("ulcer",)
    assert assignment.unassigned == ("kidney",)


def test_words_in_a_sentence():
    scores = match_words("Find red blood cells and platelets in blood smears", ["rbc", "wbc", "Platelets"])
    assert sorted(scores) == ["Platelets", "rbc"]


@pytest.mark.parametrize(
    ("requested", "available", "pairs"),
    [
        (("息肉", "溃疡"), ("PO", "UL"), {"息肉": "PO", "溃疡": "UL"}),
        (("Lungenentzündung", "Normalbefund"), ("LE", "NB"), {"Lungenentzündung": "LE", "Normalbefund": "NB"}),
        (("gutartig", "bösartig"), ("ga", "ba"), {"gutartig": "ga", "bösartig": "ba"}),
        (("bénin", "malin"), ("bn", "ml"), {"bénin": "bn", "malin": "ml"}),
        (("liver", "spleen"), ("LI", "SP", "KI"), {"liver": "LI", "spleen": "SP"}),
        (("cyst", "tumour"), ("PO", "UL"), {}),
        (("cyst", "tumour", "stone"), ("PO", "UL"), {}),
        (("liver",), ("KI", "SP"), {}),
    ],
)
def test_letters_stand_for_words_if_there_is_one_way(requested, available, pairs):
    assert {name: matches[0] for name, matches in match_classes(requested, available).pairs.items() if matches} == pairs


def test_the_last_name_of_each_side_is_the_other_if_they_are_related() -> None:
    pairs = match_classes(["pancreatic tumours", "pancreas"], ["pancreas", "cancer"]).pairs
    assert pairs == {"pancreas": ("pancreas",), "pancreatic tumours": ("cancer",)}
    assert match_classes(["pancreatic tumours", "pancreas"], ["pancreas", "duodenum"]).unmatched == (
        "pancreatic tumours",
    )


@pytest.mark.parametrize(("word", "concept"), [("colon", "colon"), ("sangre", "blood"), ("hombro", "shoulder")])
def test_a_word_as_it_is_spelled_comes_before_others_with_its_stem(word: str, concept: str) -> None:
    assert get_lexicon().find_concepts(word) == [concept]


@pytest.mark.parametrize("plural", [make_plural, str.upper, str.title])
def test_a_name_is_the_same_in_another_inflection(plural: Callable[[str], str]) -> None:
    names = [term for name in HELD_OUT for term in CONCEPTS[name].terms.get("en", ())[:1] if term.isascii()]
    assert np.mean([are_same_words(name, plural(name)) for name in names]) > 0.95


def test_names_of_other_words_or_numbers_are_not_the_same() -> None:
    for first, second in (("grade 1", "grade 2"), ("left kidney", "kidney"), ("nodule", "no nodule"), ("", "")):
        assert not are_same_words(first, second)


WORDS = ("grade", "KL", "Kellgren-Lawrence grade", "stage", "BI-RADS", "Stufe", "级")
MEANINGS = ("none", "doubtful", "mild", "moderate", "severe", "end-stage", "healed")


@pytest.mark.parametrize("seed", range(20))
def test_numbered_names_are_the_same_by_their_numbers(seed: int) -> None:
    draw = np.random.default_rng(seed)
    start, count = int(draw.integers(0, 3)), int(draw.integers(2, 6))
    numbers = list(range(start, start + count))
    word, other_word = draw.choice(WORDS, 2, replace=False)
    forms = [
        [f"{number}" for number in numbers],
        [f"{word} {number}" for number in numbers],
        [f"{other_word}{number:02d}" for number in numbers],
    ]
    with_meaning = [f"{number} ({meaning})" for number, meaning in zip(numbers, MEANINGS, strict=False)]
    shuffled = draw.permutation(with_meaning).tolist()
    for form in forms:
        assert all(are_same_numbers(form, other) for other in (*forms, with_meaning, shuffled))
        assert not are_same_numbers(form, [f"{word} {number + 1}" for number in numbers]), "counted from another number"
        assert not are_same_numbers(form, form[:-1])
        assert not are_same_numbers(form, list(MEANINGS[:count]))
        assert not are_same_numbers(form, [f"{number}-{number + 1} points" for number in numbers])
    mirrored = [f"{number} {meaning}" for number, meaning in zip(numbers, reversed(MEANINGS), strict=False)]
    assert not are_same_numbers(with_meaning, mirrored), "two lists of words may contradict each other"


def test_a_single_number_or_a_decimal_names_no_class() -> None:
    assert not are_same_numbers(["1"], ["lesion 1"])
    assert not are_same_numbers(["1.5", "2.5"], ["1.5 mm", "2.5 mm"])
    assert not are_same_numbers(["1", "1"], ["1", "2"])
    assert not are_same_numbers([], [])


@pytest.mark.parametrize("phrase", ["estructuras anotadas", "structures annotées"])
def test_initials_of_a_word_in_another_language_do_not_stand_for_a_word_that_says_little(phrase: str) -> None:
    assert match_term(phrase, "CA") < MATCH_SCORE
