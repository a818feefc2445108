"""Named channels in a plan: their number and order, and an intensity rule for each if one does not suit all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import Image
from m3b.training.intensity_scales import border_value, count_scales, name_scale, padding_value, sample_values
from m3b.training.normalization import MISSING, scale_intensity

Facts = Mapping[str, Any]
Rule = dict[str, Any]


def measure_channels(image: Image, masks: np.ndarray | None = None) -> list[dict[str, Any]]:
    """Measure the values of each named channel; [] without named channels. `masks` (K, ...) are annotated regions."""
    if not image.channels:
        return []
    rows = []
    for plane, (modality, eight_bit) in zip(image.array, image.channels, strict=True):
        channel = np.rint(plane[None]).astype(np.uint8) if eight_bit else plane[None]
        low, high = (float(v) for v in np.percentile(channel, (0.5, 99.5)))
        marked = sample_values(channel, masks) if masks is not None and len(masks) else np.zeros(0, np.float32)
        limits = np.percentile(marked, (0.5, 99.5)) if len(marked) else (low, high)
        border = border_value(scale_intensity(channel, {"mode": "foreground"})[0]) if image.dims == 3 else 0.0
        rows.append({
            "modality": modality, "eight_bit": eight_bit, "scale": name_scale(channel, modality, high),
            "low": low, "high": high, "mean": float(channel.mean(dtype=np.float64)), "std": float(channel.std(dtype=np.float64)),
            "inside": marked, "inside_low": float(limits[0]), "inside_high": float(limits[1]), "border": border,
        })  # fmt: skip
    return rows


def summarise_channels(images: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> dict[str, Facts]:
    """Return channel -> summary of its images, with the keys by which intensity rules are chosen."""
    return {name: _summarise([item["by_channel"][index] for item in images]) for index, name in enumerate(names or ())}


def _summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [row for row in rows if row["modality"] != MISSING] or rows
    medians = {
        key: float(np.median([row[key] for row in rows])) for key in ("low", "high", "inside_low", "inside_high")
    }
    return {
        "modality": Counter(row["modality"] for row in rows).most_common(1)[0][0],
        "eight_bit": all(row["eight_bit"] for row in rows),
        "scales": count_scales(rows),
        "window": None,
        "inside": np.concatenate([row["inside"] for row in rows]),
        **medians,
        "border": float(np.median([row["border"] for row in rows])),
        **{key: float(np.mean([row[key] for row in rows])) for key in ("mean", "std")},
    }


def choose_channel_intensities(facts: Facts, choose: Callable[[dict[str, Any]], Rule]) -> Rule:
    """Return the intensity rule from `choose`; if rules of channels differ, `{"mode": "each", "channels": {name: rule}}`."""
    rules = {
        name: choose({**facts, **channel_facts, "units": [], "channel": name})
        for name, channel_facts in facts["by_channel"].items()
    }
    if not rules:
        return choose(dict(facts))
    first_rule, *other_rules = rules.values()
    return first_rule if all(rule == first_rule for rule in other_rules) else {"mode": "each", "channels": rules}


def choose_padding(facts: Facts, rule: Mapping[str, Any]) -> float | list[float]:
    """Return the padding value around an image (`padding_value`), or one for each named channel if they differ."""
    channel_facts = facts["by_channel"]
    rules = rule.get("channels") or dict.fromkeys(channel_facts, rule)
    paddings = [padding_value({**facts, **channel_facts[name]}, rules[name]) for name in channel_facts]
    if not paddings:
        return padding_value(facts, rule)
    return paddings[0] if len(set(paddings)) == 1 else paddings


def choose_channels(facts: Facts, max_channels: int) -> dict[str, Any]:
    """Return `channels`, `channel_names` and `bits` of the plan: without names at most `max_channels`, and one channel for 8-bit
    images with transparency."""
    names = facts["channel_names"]
    if names:
        return {"channels": len(names), "channel_names": list(names), "bits": None}
    count = (
        1
        if max_channels <= 4 and facts["channels"] in (2, 4) and facts["eight_bit"]
        else min(facts["channels"], max_channels)
    )
    return {"channels": count, "channel_names": None, "bits": facts.get("bits")}


def describe_channel_names(plan: Mapping[str, Any]) -> list[str]:
    """Return a line on named channels, if there are any."""
    names = plan.get("channel_names")
    dropout = float((plan.get("augment") or {}).get("channel_dropout") or 0)
    dropout_text = (
        f"; each is dropped in a share of {dropout:g} of the training cases, since some cases lack channels"
        if dropout
        else ""
    )
    return [f"named channels, in this order: {', '.join(names)}{dropout_text}"] if names else []


CHANNEL_DROPOUT = 0.2
"""Share of the training cases in which a channel is dropped, if some cases lack channels."""


def choose_channel_dropout(facts: Facts) -> dict[str, float]:
    """Return `channel_dropout` of the plan's augmentation, if cases lack channels."""
    return {"channel_dropout": CHANNEL_DROPOUT} if facts.get("lacking") else {}


def describe_input(plan: Mapping[str, Any]) -> str:
    """Return the description of a model's input for its README."""
    files = "files, slice folders, DICOM series, `archive.npz#key[index]`"
    names = plan.get("channel_names")
    if plan.get("frames"):
        frames_text = (
            "the middle frame of each" if plan["frames"] == 1 else f"{plan['frames']} evenly spaced frames of each"
        )
        return f"clips (videos, animations, DICOM files of several frames; {frames_text}) or {plan['dims']}D images ({files})"
    if rule := plan.get("tiles"):
        return f"slides (TIFF files, .svs too), of which it reads up to {rule['count']} tiles with tissue,"
    if not names:
        return f"{plan['dims']}D images ({files})"
    call = " ".join(f"{name}=PATH" for name in names)
    return (
        f"{len(names)} {plan['dims']}D images a case ({files}), given by name as `{call}` (in a list: an object name -> path; "
        f"other images than the first are put on the grid of {names[0]})"
    )
