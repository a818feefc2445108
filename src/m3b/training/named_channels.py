"""What plan.py makes of named channels: their number and order, and a rule of intensity for each where one does not fit all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import Image
from m3b.training.intensity_scales import border_of, count_scales, padding_value, scale_of, values_inside
from m3b.training.normalization import MISSING, scale_intensity

Facts = Mapping[str, Any]
Rule = dict[str, Any]


def measured(image: Image, masks: np.ndarray | None = None) -> list[dict[str, Any]]:
    """Values of each named channel; empty where the image has none. `masks` (K, ...) says what is marked."""
    if not image.channels:
        return []
    rows = []
    for part, (modality, eight_bit) in zip(image.array, image.channels, strict=True):
        one = np.rint(part[None]).astype(np.uint8) if eight_bit else part[None]
        low, high = (float(v) for v in np.percentile(one, (0.5, 99.5)))
        inside = values_inside(one, masks) if masks is not None and len(masks) else np.zeros(0, np.float32)
        ends = np.percentile(inside, (0.5, 99.5)) if len(inside) else (low, high)
        border = border_of(scale_intensity(one, {"mode": "foreground"})[0]) if image.dims == 3 else 0.0
        rows.append({
            "modality": modality, "eight_bit": eight_bit, "scale": scale_of(one, modality, high),
            "low": low, "high": high, "mean": float(one.mean(dtype=np.float64)), "std": float(one.std(dtype=np.float64)),
            "inside": inside, "inside_low": float(ends[0]), "inside_high": float(ends[1]), "border": border,
        })  # fmt: skip
    return rows


def by_channel(images: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> dict[str, Facts]:
    """Channel -> what its images have in common, with the keys by which the rules of intensity are chosen."""
    return {name: _pooled([item["by_channel"][place] for item in images]) for place, name in enumerate(names or ())}


def _pooled(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [row for row in rows if row["modality"] != MISSING] or rows
    middle = {key: float(np.median([row[key] for row in rows])) for key in ("low", "high", "inside_low", "inside_high")}
    return {
        "modality": Counter(row["modality"] for row in rows).most_common(1)[0][0],
        "eight_bit": all(row["eight_bit"] for row in rows),
        "scales": count_scales(rows),
        "window": None,
        "inside": np.concatenate([row["inside"] for row in rows]),
        **middle,
        "border": float(np.median([row["border"] for row in rows])),
        **{key: float(np.mean([row[key] for row in rows])) for key in ("mean", "std")},
    }


def intensity_of(facts: Facts, choose: Callable[[dict[str, Any]], Rule]) -> Rule:
    """The rule that `choose` finds; of channels of different kinds one each, as `{"mode": "each", "channels": {name: rule}}`."""
    rules = {name: choose({**facts, **own, "units": [], "channel": name}) for name, own in facts["by_channel"].items()}
    if not rules:
        return choose(dict(facts))
    first, *others = rules.values()
    return first if all(rule == first for rule in others) else {"mode": "each", "channels": rules}


def padding_of(facts: Facts, rule: Mapping[str, Any]) -> float | list[float]:
    """Padding around an image (`padding_value`): one value, or of named channels that differ in it one each."""
    own = facts["by_channel"]
    rules = rule.get("channels") or dict.fromkeys(own, rule)
    found = [padding_value({**facts, **own[name]}, rules[name]) for name in own]
    if not found:
        return padding_value(facts, rule)
    return found[0] if len(set(found)) == 1 else found


def channels_of(facts: Facts, most: int) -> dict[str, Any]:
    """`channels`, `channel_names` and `bits` of the plan. Without names at most `most`, and of 8-bit pictures with transparency
    one."""
    names = facts["channel_names"]
    if names:
        return {"channels": len(names), "channel_names": list(names), "bits": None}
    number = 1 if most <= 4 and facts["channels"] in (2, 4) and facts["eight_bit"] else min(facts["channels"], most)
    return {"channels": number, "channel_names": None, "bits": facts.get("bits")}


def told_names(plan: Mapping[str, Any]) -> list[str]:
    """A line about named channels, or none."""
    names = plan.get("channel_names")
    dropout = float((plan.get("augment") or {}).get("channel_dropout") or 0)
    some = (
        f"; each is left out of a share of {dropout:g} of the training cases, as some cases lack channels"
        if dropout
        else ""
    )
    return [f"channels by name, in this order: {', '.join(names)}{some}"] if names else []


CHANNEL_DROPOUT = 0.2
"""Share of the training cases in which a channel is left out, of sets of which some cases lack channels."""


def dropout_of(facts: Facts) -> dict[str, float]:
    """`channel_dropout` of the plan's augmentation, if cases lack channels."""
    return {"channel_dropout": CHANNEL_DROPOUT} if facts.get("lacking") else {}


def takes(plan: Mapping[str, Any]) -> str:
    """What a model takes, for its README."""
    files = "files, slice folders, DICOM series, `archive.npz#key[index]`"
    names = plan.get("channel_names")
    if plan.get("frames"):
        one = "the middle frame of each" if plan["frames"] == 1 else f"{plan['frames']} evenly spaced frames of each"
        return f"clips (videos, animations, DICOM files of several frames; {one}) or {plan['dims']}D images ({files})"
    if not names:
        return f"{plan['dims']}D images ({files})"
    call = " ".join(f"{name}=PATH" for name in names)
    return (
        f"{len(names)} {plan['dims']}D images a case ({files}), given by name as `{call}` (in a list: an object name -> path; "
        f"other images than the first are put on the grid of {names[0]})"
    )
