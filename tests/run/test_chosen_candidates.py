"""The model card of a run names what validation chose among candidates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from m3b.models import write_model_card
from m3b.run.packaging import describe_choices

MODEL_CONFIG: dict[str, Any] = {
    "start": {"told": "start: from scratch, after a short training of each"},
    "plan": {
        "linear_probe": None,
        "encoders": {"description": "the 2D network on slices alone; validation auroc 0.700 of the 3D network"},
    },
}


def test_the_card_names_the_chosen_candidates(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL_CONFIG))
    texts = describe_choices(tmp_path)
    assert len(texts) == 2
    card = write_model_card(tmp_path, {"network": texts}).read_text()
    assert "2D network on slices alone; validation auroc 0.700" in card


@pytest.mark.parametrize("content", ["", "[]", '{"start": [], "plan": {"encoders": {"description": 3}}}'])
def test_a_config_without_choices_adds_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    assert describe_choices(tmp_path) == []
