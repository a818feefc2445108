"""What plan.py tells of the cases and of its choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.folds import told_members
from m3b.training.intensity_scales import mixed, told_averaged, told_notes, told_uneven
from m3b.training.named_channels import told_names
from m3b.training.pretrained.plan_start import shown
from m3b.training.segmentation import structure_rows as chain
from m3b.training.segmentation.plan_cost import median_there
from m3b.training.segmentation.thin_structures import thin_classes
from m3b.training.voxel_spacing import disbelieved


def summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """What was found and decided, in a few lines."""
    shapes, spacings = facts["shapes"], facts["spacings"]
    sizes = {name: int(np.median([n for n in found if n] or [0])) for name, found in facts["sizes"].items()}
    known = np.round(np.median(spacings, axis=0), 3).tolist() if spacings is not None else "unknown"
    pixels = " (in pixels)" if plan["pixels"] else ""
    grid = f"a longest side of {plan['side']}" if plan["side"] else f"spacing {plan['spacing']}{pixels}"
    lines = [
        f"{facts['cases']} cases of {facts['people']}; voxels marked in a case (median): {sizes}"
        + (f"; {facts['empty']} of {facts['sampled']} looked at have an empty mask" if facts["empty"] else ""),
        f"{facts['dims']}D, {plan['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {known}",
        f"engine {plan['engine']}: {plan['why_engine']}"
        + (f", planner {plan['planner']}" if plan["engine"] == "nnunet" else ""),
        f"works at {grid}, patches {plan['patch']} "
        f"(median image there: {median_there(facts, plan)}), intensity {plan['intensity']}",
        f"network {shown(plan['network'])}, batch {plan['batch']}, lr {plan['lr']}, {plan['foreground']:.0%} of patches on "
        "marked voxels",
        f"augmentation {plan['augment']}; {facts['start']}",
        f"{plan['minutes']} minutes, {told_members(plan)}",
    ]
    if facts["patients"] < 4:
        lines.append(f"only {facts['patients']} patients: validation rests on one of them, and its figure says little")
    if plan["labels"] is None and not plan["overlap"]:
        lines.append(
            f"the mask files of the classes share no voxel in {facts['sampled']} cases: ids, one class a voxel (softmax); "
            "overlap=true keeps a channel a class"
        )
    lines += [
        *told_names(plan),
        *mixed(facts),
        *told_uneven(facts),
        *told_averaged(plan, facts),
        *told_notes(facts),
        *disbelieved(facts),
    ]
    lines += [*thin_classes(facts, plan), *chain.told(plan["chains"])]
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled cases cannot be used: {facts['unreadable'][0]}")
    rare = [name for name, found in facts["sizes"].items() if not any(found)]
    if rare:
        lines.append(f"in no sampled mask: {', '.join(rare)} (does label_dict.json fit the masks?)")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])
