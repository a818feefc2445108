"""Statements of a request that one class counts as another."""

import pytest

from m3b.dataset.words.requests import TASK_VERBS
from m3b.dataset.words.unions import take_unions


@pytest.mark.parametrize(
    ("text", "unions"),
    [
        ("Treat suspicious as malignant. Classify benign or malignant.", {"suspicious": "malignant"}),
        ("Classify benign or malignant, with suspicious counted as malignant", {"suspicious": "malignant"}),
        (
            "Naevus or melanoma? Lentigo, blue naevus and keratosis count as naevus",
            dict.fromkeys(("Lentigo", "blue naevus", "keratosis"), "naevus"),
        ),
        ("Tell benign from malignant, where atypical ones are considered as malignant", {"atypical ones": "malignant"}),
        (
            "Unterscheide gutartig von bösartig, unklare und verdächtige sollen als bösartig gelten",
            dict.fromkeys(("unklare", "verdächtige"), "bösartig"),
        ),
        ("Distinguer bénin et malin ; suspect est considéré comme malin", {"suspect": "malin"}),
        ("Distinguir benigno de maligno; sospechoso cuenta como maligno", {"sospechoso": "maligno"}),
        ("区分良性和恶性，可疑视为恶性", {"可疑": "恶性"}),
        ("Classify each image as benign or malignant", {}),
        ("Count cells as round", {}),
        ("Tell images with tumour from those considered as normal", {}),
    ],
)
def test_unions_of_a_request(text: str, unions: dict[str, str]) -> None:
    remaining, detected = take_unions(text, TASK_VERBS)
    assert detected == unions
    assert (remaining == text) == (not unions)
