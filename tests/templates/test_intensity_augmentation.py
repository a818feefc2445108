"""Intensity augmentation of images that are seen whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from template_kit import load

MAX_AUGMENTATION = {"rotate": 10, "zoom": 0.1, "shift": 0.05, "erase": 0.25}
XRAY = {"request": "Detect pneumonia on chest X-rays"}
SKIN = {"request": "Classify skin lesions"}


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Datapath").mkdir()

    def make(about: dict[str, str], small: bool = False, **facts: Any) -> dict[str, Any]:
        (tmp_path / "Datapath/about.json").write_text(json.dumps(about))
        every = {"modality": "", "dims": 2, "channels": 1, "low": 0.0, "shapes": [(224, 224)], **facts}
        return dict(load("intensity_rule").choose_whole_image_augmentation(every, small, MAX_AUGMENTATION, []))

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
    augmentation = changes({}, modality="ct", dims=3, shapes=[(64, 64, 64)], low=-1000.0)
    assert (augmentation["contrast"], augmentation["brightness"], augmentation["gamma"]) == (0.0, 0.0, 0.0)


DENSITY = {"number": {"centre": 0.8, "scale": 0.1}, "modality": "", "scales": {"beyond 8 bit": 9}, "eight_bit": False,
           "low": 1000.0, "high": 3000.0, "mean": 1800.0, "std": 400.0, "by_channel": {}}  # fmt: skip


@pytest.mark.parametrize("name", ["bone density (g/cm2)", "Knochendichte", "iron [mg/cm³]", "ADC"])
def test_a_number_that_grey_values_carry_keeps_them(changes: Any, name: str) -> None:
    """Each image was scaled by its own percentiles, and brightness was changed, where brightness is the density."""
    augmentation = changes(XRAY, **DENSITY, classes=[name])
    assert (augmentation["contrast"], augmentation["brightness"], augmentation["gamma"]) == (0.0, 0.0, 0.0)
    rule = load("intensity_rule").choose_whole_image_input({**DENSITY, "dims": 2, "channels": 1, "classes": [name]})[
        "intensity"
    ]
    assert (rule["mode"], rule["low"], rule["high"]) == ("window", 0.0, 4000.0)
    values = np.array([[[0.0, 1800.0, 4000.0]]], np.float32)
    assert load("normalization").scale_intensity(values, rule)[0, 0, 1] == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("name", "number"), [("age (years)", True), ("ejection fraction (%)", True), ("dense", False)])
def test_other_targets_are_scaled_and_augmented_as_before(changes: Any, name: str, number: bool) -> None:
    facts = {**DENSITY, "number": DENSITY["number"] if number else None, "dims": 2, "channels": 1, "classes": [name]}
    assert changes(XRAY, **facts)["brightness"] == 0.5
    assert load("intensity_rule").choose_whole_image_input(facts)["intensity"]["mode"] == "percentile"


QUANTITY = {**DENSITY, "number": None, "classes": ["benign", "malignant"], "dims": 3, "channels": 1, "grey_mean": None}


@pytest.mark.parametrize(
    ("units", "mode"),
    [
        (["GML"], "window"),
        (["ADC"], "window"),
        (["BQML"], "foreground"),
        (["", "GML"], "foreground"),
        ([""], "foreground"),
    ],
)
def test_a_quantity_keeps_one_scale_for_all_images(changes: Any, units: list[str], mode: str) -> None:
    """SUV of a dim and of a bright patient: each was scaled by itself, and the difference was lost."""
    facts = {
        **QUANTITY,
        "units": units,
        "scales": {"up to 255": 5, "fractions": 4},
        "low": 0.0,
        "high": 8.0,
        "mean": 1.0,
        "std": 1.0,
    }
    rule = load("intensity_rule").choose_whole_image_input(facts)["intensity"]
    assert rule["mode"] == mode
    scale = load("normalization").scale_intensity
    dim = np.random.default_rng(0).uniform(0, 3, (1, 8, 8, 8)).astype(np.float32)
    difference = scale(2 * dim, rule).mean() - scale(dim, rule).mean()
    assert (abs(difference) > 0.5) == (mode == "window")
    assert (changes(XRAY, **facts)["brightness"] == 0) == (mode == "window")


@pytest.mark.parametrize(
    ("name", "mode"), [("ADC", "window"), ("t1_map", "window"), ("suv", "window"), ("t1", "foreground")]
)
def test_a_channel_named_after_a_quantity_keeps_its_scale(name: str, mode: str) -> None:
    channel_facts = {**QUANTITY, "low": 0.0, "high": 8.0, "mean": 1.0, "std": 1.0, "window": None}
    facts = {**channel_facts, "units": [""], "by_channel": {name: channel_facts, "flair": channel_facts}}
    rule = load("intensity_rule").choose_whole_image_input(facts)["intensity"]
    assert rule.get("channels", {name: rule})[name]["mode"] == mode
    assert rule.get("channels", {"flair": rule})["flair"]["mode"] == "foreground"


def test_small_sets_get_more(changes: Any) -> None:
    assert changes(XRAY, small=True)["brightness"] == pytest.approx(1.5 * changes(XRAY)["brightness"])
