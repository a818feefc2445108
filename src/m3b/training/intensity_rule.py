"""How the values of images become the network's input, as far as all tasks agree; a task says what its window on CT is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from m3b.training.intensity_scales import by_itself, joined
from m3b.training.laterality import coloured
from m3b.training.named_channels import dropout_of, intensity_of

Facts = dict[str, Any]
Rule = dict[str, Any]


def choose_rule(facts: Facts, hounsfield: bool, window: Callable[[Facts], Rule]) -> Rule:
    """Hounsfield units: the task's window. Quantities such as SUV: one window for all. 8-bit pictures, and those of several bits
    that agree in brightness: 0..1. MR, other mixtures, sets of dark and of bright images: each by itself.

    Args:
        facts: of a fingerprint; `window` and `uneven` may be absent.
        hounsfield: whether values are Hounsfield units.
        window: the rule for those.
    """
    if facts.get("window"):
        return joined(facts["window"])
    if is_quantitative(facts) and facts["high"] > facts["low"] and not hounsfield:
        return _absolute_window(facts)
    if len(facts["scales"]) > 1:
        return by_itself(facts) if facts.get("grey_mean") is None else unit(facts["grey_mean"], facts["grey_std"])
    if hounsfield:
        return window(facts)
    if facts["eight_bit"] and not facts.get("uneven"):
        return unit(facts["mean"], facts["std"])
    return by_itself(facts)


def unit(mean: float, std: float) -> Rule:
    """The rule of pictures from black to white; mean and deviation on the scale of 0 to 255."""
    return {"mode": "unit", "mean": round(mean / 255, 4), "std": max(round(std / 255, 4), 0.02)}


COLOUR = {"contrast": 0.15, "brightness": 0.1, "gamma": 0.2}
"""Intensity augmentation of colour images and of volumes: contrast and gamma as shares, brightness in standard deviations."""
GREYSCALE = {"contrast": 0.3, "brightness": 0.5, "gamma": 0.3}
"""The same of greyscale images, whose exposure or gain is no finding. Compared with `COLOUR`, one training each, AUROC on held-out
cases: 3,746 chest X-rays of 28 pixels, 3,480 steps, 0.997 against 0.996 (without gamma), and 0.995 against 0.988 on average over ten
corruptions (brightness, contrast, gamma, zoom, blur, noise); 370 knee radiographs in five folds, five minutes, 0.693 against 0.663.
For 511 colour images of skin, 0.794 against 0.795, and on their test part 0.860 against 0.886: colour keeps the weaker one."""


# --- models that see an image whole: classifiers and writers of reports ----------------------------------------------


def in_hounsfield(facts: Facts) -> bool:
    """Whether values are Hounsfield units: the file says so, or the reader recognised them by a peak of air."""
    return bool(facts["modality"] == "ct")


ABSOLUTE = re.compile(
    r"densit|densidad|dichte|密度|attenuat|concentrat|konzentration|hounsfield|\bhu\b|\bsuv|\badc\b|\bt[12]\*?(?:\b|$)"
    r"|\b[kmµu]?g\s*/\s*(?:[cdm]?m(?:\^?[23²³])|ml\b|cc\b)",
    re.IGNORECASE,
)
"""Names and units of numbers that the grey values themselves carry: densities, concentrations, times of relaxation."""
MARGIN = 0.5
"""Share of the usual range of an image by which a window of absolute values is wider on either side."""


QUANTITIES = frozenset({
    "GML", "MGML", "UMOLML", "CM2ML", "MLMING", "MLMINML", "MGMINML", "UMOLMINML", "MLG", "1CM", "GY", "OD", "Z_EFF", "ED", "EDW",
    "ADC",
})  # fmt: skip
"""Units of DICOM in which values of different patients can be compared (`Image.unit`): SUV (GML), concentrations, flows, dose and
diffusion maps; counts and activities (CNTS, BQML) depend on the dose that was given."""
QUANTITY = re.compile(r"(?:^|[\W_])(?:suv|adc|t[12]\*?[\W_]?map(?:ping)?|density)(?:$|[\W_])|^suv|^adc", re.IGNORECASE)
"""Names of channels that hold such a quantity."""


def is_quantitative(facts: Facts) -> bool:
    """Whether the files say a unit, or the channel has a name, of values that mean the same in every image."""
    units = facts.get("units") or []
    is_unit = len(units) == 1 and units[0] in QUANTITIES
    return not facts.get("eight_bit") and (is_unit or bool(QUANTITY.search(str(facts.get("channel", "")))))


def is_absolute(facts: Facts) -> bool:
    """Whether the number to be estimated is told by how bright the images are, so that none may be scaled by itself."""
    return bool(facts.get("number")) and any(ABSOLUTE.search(str(name)) for name in facts.get("classes", ()))


def _absolute_window(facts: Facts) -> Rule:
    """One window for all images, around the range that is usual for one."""
    if facts["eight_bit"]:
        return unit(facts["mean"], facts["std"])
    low = min(facts["low"], facts.get("inside_low", facts["low"]))
    high = max(facts["high"], facts.get("inside_high", facts["high"]))
    margin = MARGIN * (high - low)
    low, high = low - margin, high + margin
    mean, std = (facts["mean"] - low) / (high - low), facts["std"] / (high - low)
    return {"mode": "window", "low": low, "high": high, "mean": round(mean, 4), "std": max(round(std, 4), 0.02)}


WINDOWS = ((0, 80), (-160, 240), (-1000, 1000))
"""Hounsfield units of brain, of soft tissue, and from air to bone, for networks that see a CT whole. Fresh blood and brain differ
by 25 Hounsfield units, 0.01 of the last window alone. The first two are those that radiologists read by (level 40, width 80 and
400: https://radiopaedia.org/articles/windowing-ct)."""


def whole_input(facts: Facts) -> dict[str, Any]:
    """`intensity` of a model that sees an image whole, and `channels` where it gives their number: a CT is shown in several windows.
    How bright a picture is can tell, so 8-bit ones keep it."""
    if facts["by_channel"]:
        return {"intensity": intensity_of(facts, lambda own: choose_rule(own, in_hounsfield(own), _air_to_bone))}
    if is_absolute(facts) and len(facts["scales"]) == 1 and facts["high"] > facts["low"] and not in_hounsfield(facts):
        return {"intensity": _absolute_window(facts)}
    rule = choose_rule(facts, in_hounsfield(facts), _several_windows)
    return {"intensity": rule, **({"channels": len(rule["windows"])} if rule["mode"] == "windows" else {})}


def _several_windows(facts: Facts) -> Rule:
    return {"mode": "windows", "windows": [list(window) for window in WINDOWS], "mean": 0.4, "std": 0.3}


def _air_to_bone(facts: Facts) -> Rule:
    low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
    low, high = (low, high) if high - low > 100 else (-1000.0, 1000.0)
    return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}


def whole_changes(facts: Facts, small: bool, most: Mapping[str, float], flip: list[str]) -> dict[str, Any]:
    """Augmentation of such a model's images; half as much again for a `small` set.

    Args:
        most: rotate in degrees; zoom and shift as shares; erase as a share of the side.
        flip: axes that may be mirrored.
    """
    more = 1.5 if small else 1.0
    light = (
        0.0 if in_hounsfield(facts) or is_absolute(facts) or is_quantitative(facts) else more
    )  # how bright something is may be what is looked for
    strength = COLOUR if facts["dims"] == 3 or coloured(facts["channels"]) else GREYSCALE
    return {
        "flip": flip,
        "rotate": round(most["rotate"] * more),
        "zoom": round(most["zoom"] * more, 3),
        "shift": round(most["shift"] * more, 3),
        "contrast": round(strength["contrast"] * light, 3),
        "brightness": round(strength["brightness"] * light, 3),
        "gamma": strength["gamma"] if light else 0.0,
        "noise": 0.05,
        "erase": most["erase"],
        **dropout_of(facts),
    }
