"""Intensity augmentation of images that are seen whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from template_kit import load

MOST = {"rotate": 10, "zoom": 0.1, "shift": 0.05, "erase": 0.25}
XRAY = {"request": "Detect pneumonia on chest X-rays"}
SKIN = {"request": "Classify skin lesions"}


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Datapath").mkdir()

    def make(said: dict[str, str], small: bool = False, **facts: Any) -> dict[str, Any]:
        (tmp_path / "Datapath/about.json").write_text(json.dumps(said))
        every = {"modality": "", "dims": 2, "channels": 1, "low": 0.0, "shapes": [(224, 224)], **facts}
        return dict(load("intensity_rule").whole_changes(every, small, MOST, []))

    return make


def test_greyscale_images_of_any_size_get_all_of_it(changes: Any) -> None:
    """Images of 28 pixels had no gamma, and brightness varied by 0.1 standard deviations: a shifted test part lost by it."""
    tiny, large = changes(XRAY, shapes=[(28, 28)]), changes(XRAY)
    assert tiny == large
    assert (tiny["contrast"], tiny["brightness"], tiny["gamma"], tiny["erase"]) == (0.3, 0.5, 0.3, 0.25)


def test_colour_images_get_less_but_not_radiographs_stored_as_rgb(changes: Any) -> None:
    skin, film = changes(SKIN, channels=3), changes(XRAY, channels=3)
    assert skin["brightness"] < film["brightness"] == changes(XRAY)["brightness"]
    assert skin["gamma"] < film["gamma"]


def test_hounsfield_units_are_not_augmented(changes: Any) -> None:
    found = changes({}, modality="ct", dims=3, shapes=[(64, 64, 64)], low=-1000.0)
    assert (found["contrast"], found["brightness"], found["gamma"]) == (0.0, 0.0, 0.0)


def test_small_sets_get_more(changes: Any) -> None:
    assert changes(XRAY, small=True)["brightness"] == pytest.approx(1.5 * changes(XRAY)["brightness"])
