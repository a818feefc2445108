"""The shipped data cards: complete, consistent, and hard enough to choose from."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from m3b.data.cards import load_cards, slug

FOLDER = Path(__file__).resolve().parents[2] / "resources" / "datacards"
REAL = {
    "ADNI", "KneeMRI", "CC-CCII", "CT-Kidney", "BTCV", "VerSe", "OASIS", "COVID19", "INSTANCE22", "MSD-Pancreas",
    "ChestX-Det10", "CT-RATE", "RadGenome-BrainMRI", "IU-Xray",
}  # fmt: skip
METRIC = {"diagnosis": "auroc", "segmentation": "dice", "detection": "dice", "report": "bleu_1"}
KEYS = {
    "name", "description", "path", "expects", "task", "modality", "anatomy", "dimension", "metric", "acceptable",
    "patient_key", "classes", "url", "terms", "real", "source",
}  # fmt: skip
FILES = sorted(FOLDER.glob("*.json"))
CARDS: dict[str, dict[str, Any]] = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FILES}

each_card = pytest.mark.parametrize("card", CARDS.values(), ids=CARDS.keys())


@each_card
def test_keys_and_types(card: dict[str, Any]) -> None:
    assert set(card) == KEYS
    for key in ("name", "description", "path", "task", "modality", "anatomy", "metric", "url", "terms", "source"):
        assert isinstance(card[key], str), key
    for key in ("name", "description", "modality", "anatomy", "source"):
        assert card[key].strip() == card[key] != "", key
    assert card["path"] == "", "only the user knows where the data lies"
    assert card["dimension"] in (2, 3)
    assert isinstance(card["real"], bool)
    assert card["patient_key"] is None or card["patient_key"].strip()
    assert card["expects"], "at least one name has to tell the folder"
    assert all(isinstance(name, str) and name and "/" not in name for name in card["expects"])


@each_card
def test_the_metric_fits_the_task_and_the_range_is_sane(card: dict[str, Any]) -> None:
    assert card["metric"] == METRIC[card["task"]]
    low, high = card["acceptable"]
    assert 0 < low < 1
    assert high is None or low < high <= 1
    if card["metric"] == "auroc":
        assert low > 0.5, "an AUROC of 0.5 is chance"


@each_card
def test_diagnosis_names_its_classes_and_nothing_else_does(card: dict[str, Any]) -> None:
    if card["task"] == "diagnosis":
        assert len(card["classes"]) >= 2
        assert len(set(card["classes"])) == len(card["classes"])
    else:
        assert card["classes"] == []


@each_card
def test_the_description_is_a_paragraph(card: dict[str, Any]) -> None:
    assert 60 <= len(card["description"].split()) <= 150
    assert not re.search(r"\b(distractor|synthetic|invented|fictitious|fake)\b", card["description"], re.IGNORECASE)


@each_card
def test_a_real_card_says_where_it_comes_from_and_an_invented_one_claims_nothing(card: dict[str, Any]) -> None:
    if card["real"]:
        assert card["url"].startswith(("http://", "https://"))
        assert card["terms"]
        assert "nverified" in card["source"], "what was not checked is said"
    else:
        assert card["url"] == card["terms"] == ""
        assert "nvented" in card["source"]
        assert not re.search(r"https?://|www\.|\bdoi\b|@", card["description"])


def test_all_fourteen_and_enough_others() -> None:
    real = {card["name"] for card in CARDS.values() if card["real"]}
    assert real == REAL
    assert len(CARDS) - len(real) >= 36


def test_file_names_are_the_slugs_of_unique_names() -> None:
    assert [file.stem for file in FILES] == [slug(CARDS[file.stem]["name"]) for file in FILES]
    names = [card["name"].casefold() for card in CARDS.values()]
    assert len(set(names)) == len(names)


def test_no_other_card_borrows_a_real_name() -> None:
    for card in CARDS.values():
        if not card["real"]:
            text = f"{card['name']} {card['description']}".casefold()
            assert not [name for name in REAL if re.search(rf"\b{re.escape(name.casefold())}\b", text)], card["name"]


def test_no_two_descriptions_are_copies() -> None:
    words = {name: set(re.findall(r"[a-z]{4,}", card["description"].lower())) for name, card in CARDS.items()}
    for (first_name, first_words), (second_name, second_words) in combinations(words.items(), 2):
        assert len(first_words & second_words) / len(first_words | second_words) < 0.4, (
            f"{first_name} and {second_name}"
        )


def test_the_choice_is_wide_and_has_near_misses() -> None:
    invented_cards = [card for card in CARDS.values() if not card["real"]]
    assert {card["task"] for card in invented_cards} == set(METRIC)
    assert len({card["modality"].split()[0] for card in invented_cards}) >= 8
    assert len({card["anatomy"] for card in invented_cards}) >= 15
    kinds = {_kind(card) for card in invented_cards}
    for card in CARDS.values():
        if card["real"]:
            modality, anatomy = _kind(card)
            assert any(
                modality == other_modality or anatomy == other_anatomy for other_modality, other_anatomy in kinds
            ), f"{card['name']}: no near miss"


def _kind(card: dict[str, Any]) -> tuple[str, str]:
    return card["modality"].split()[0], card["anatomy"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_library_reads_it_and_agents_cannot_tell_the_real_ones(file: Path) -> None:
    (card,) = load_cards(file, own=False)
    raw = CARDS[file.stem]
    assert card.root == file.stem
    assert card.path is None
    assert card.acceptable == (raw["acceptable"][0], raw["acceptable"][1])
    assert raw["source"] not in card.text()
    assert not raw["url"] or raw["url"] not in card.text()
