"""Words that hold sentences together are no terms, in whatever language a folder's notes are."""

from __future__ import annotations

import pytest

from m3b.dataset.words.lexicon import get_lexicon

FUNCTION_WORDS = [
    "after",
    "before",
    "under",
    "over",
    "with",
    "from",
    "into",
    "about",
    "since",
    "while",
    "where",
    "which",
    "that",
    "this",
    "these",
    "those",
    "some",
    "any",
    "other",
    "than",
    "then",
    "also",
    "only",
    "nach",
    "vor",
    "unter",
    "mit",
    "von",
    "aus",
    "bei",
    "seit",
    "ohne",
    "oder",
    "aber",
    "auch",
    "nur",
    "dans",
    "avec",
    "sans",
    "pour",
    "sur",
    "sous",
    "entre",
    "mais",
    "ainsi",
    "con",
    "sin",
    "time",
    "cars",
    "case",
    "date",
    "para",
    "sobre",
    "entre",
    "pero",
]


@pytest.mark.parametrize("word", FUNCTION_WORDS)
def test_a_function_word_names_no_part_of_the_body(word: str) -> None:
    assert get_lexicon().find_concepts(word, ("anatomy", "modalities", "findings", "cells_tissues")) == []
