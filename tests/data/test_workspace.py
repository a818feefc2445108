"""What a workspace offers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from m3b.errors import DataError
from m3b.workspace import Workspace


def test_the_default_offers_the_shipped_cards() -> None:
    cards = Workspace.default().cards
    assert {"CC-CCII", "ADNI"} <= set(cards)
    assert not any(card.own or card.path for card in cards.values())


def test_an_own_card_hides_the_shipped_one_of_the_same_name(tmp_path: Path) -> None:
    shipped = len(Workspace.default().cards)
    cards = Workspace(data=[{"name": "cc ccii", "description": "mine", "path": str(tmp_path)}]).cards
    assert len(cards) == shipped
    assert "CC-CCII" not in cards
    assert cards["cc ccii"].path == tmp_path
    assert next(iter(cards)) == "cc ccii", "the user's own come first"


def test_shipped_cards_can_be_left_out(tmp_path: Path) -> None:
    assert list(Workspace(data=[tmp_path], with_shipped=False).cards) == [tmp_path.name]


def test_a_root_without_its_folders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="prompts"):
        Workspace(tmp_path)
    with pytest.raises(DataError, match="nowhere"):
        Workspace(tmp_path / "nowhere")


def test_a_root_of_ones_own_brings_its_cards(tmp_path: Path) -> None:
    for name in ("prompts", "templates", "indexes", "datacards"):
        (tmp_path / name).mkdir()
    (tmp_path / "datacards" / "a.json").write_text(json.dumps({"name": "A", "description": "x"}), encoding="utf-8")
    cards = Workspace(tmp_path).cards
    assert list(cards) == ["A"]
    assert not cards["A"].own
