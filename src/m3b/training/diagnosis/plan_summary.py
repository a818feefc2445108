"""Summary of the cases and of the plan that plan.py prints."""

from __future__ import annotations

import math
from typing import Any

from m3b.training.case_storage import describe_planned_storage
from m3b.training.diagnosis.covariates import describe_covariates
from m3b.training.diagnosis.encoder_choice import describe_encoder
from m3b.training.diagnosis.tiles import describe_tiles
from m3b.training.folds import describe_folds
from m3b.training.intensity_scales import describe_applied_conversion, describe_mixed_scales, describe_notes
from m3b.training.named_channels import describe_channel_names
from m3b.training.voxel_spacing import describe_grid

LABEL_KINDS = {
    "grading": "one grade a case, from low to high",
    "regression": "a number a case",
    "survival": "a time a case, and whether the event occurred",
}
"""Task -> target of a case, if it is not labels."""


def format_summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return the findings and decisions in a few lines."""
    shapes = facts["shapes"]
    label_kind = LABEL_KINDS.get(plan["task"]) or (
        "several labels a case" if plan["multi_label"] else "one label a case"
    )
    counts = f"{facts['number'] or facts['survival'] or facts['counts']}"
    network = {key: value for key, value in plan["network"].items() if key != "config"}
    lines = [
        f"{facts['cases']} cases of {facts['people']}, {label_kind}: {counts}",
        f"{facts['dims']}D, {plan['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {facts['spacing'] or 'unknown'}",
        f"input {plan['size']} ({describe_grid(plan) or 'resized: the full field of view is kept'}), intensity {plan['intensity']}",
        f"network {network}, batch {plan['batch']}, lr {plan['lr']}, weight decay {plan['weight_decay']}"
        + (" (few cases: strongly regularised)" if facts["cases"] < 500 else ""),
        facts["pretrained"],
        f"augmentation {plan['augment']}{_explain_flips(plan)}, class weights {plan['class_weights']}",
        f"{plan['minutes']} min, {describe_folds(plan)}",
        describe_planned_storage(plan, _count_images(facts, plan), 4 * int(plan["channels"]) * math.prod(plan["size"])),
    ]
    lines += describe_encoder(facts, plan)
    if plan.get("tiles"):
        lines.append(f"slides: the network sees up to {describe_tiles(plan)}, and weights them by gated attention")
    if plan.get("views"):
        lines.append(f"up to {plan['views']} views a case, each seen by the same network, which pools them")
    if plan.get("frames"):
        lines.append(
            f"clips: {plan['frames']} evenly spaced frames of each"
            if plan["frames"] > 1
            else "clips: the middle frame of each"
        )
    lines += [*describe_channel_names(plan), *describe_covariates(facts["covariates"]), *_warnings(facts, plan)]
    return "\n".join([*lines, "wrote plan.json (every run of plan.py makes a new one; --set changes single values)"])


def _count_images(facts: dict[str, Any], plan: dict[str, Any]) -> int:
    """Return the images or tiles of all cases."""
    tiles = int(plan["tiles"]["count"]) if plan.get("tiles") else 1
    return int(facts["cases"]) * int(plan.get("views") or 1) * tiles


def _explain_flips(plan: dict[str, Any]) -> str:
    """Return why images are not flipped, and how to allow it."""
    reason = ' (no flips: the body\'s sides differ; augment.flip=["w"] where they look alike)'
    return reason if plan["augment"].get("flip") == [] else ""


def _warnings(facts: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    lines = []
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled images cannot be read: {facts['unreadable'][0]}")
    if facts["other_dims"]:
        lines.append(f"{facts['other_dims']} sampled images are not {facts['dims']}D; they are converted")
    lines += [*describe_mixed_scales(facts), *describe_applied_conversion(plan, facts), *describe_notes(facts)]
    if facts["scale_tells"]:
        lines.append(
            f"WARNING: the unit of the values reveals the class: {facts['scale_tells']}. The network may learn the source of an image "
            "instead of its content; use more data, or state this in the report"
        )
    empty = [name for name, count in facts["counts"].items() if not count]
    return [*lines, f"no training case for: {', '.join(empty)}"] if empty else lines
