"""What plan.py found and decided, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.folds import count, told_members
from m3b.training.intensity_scales import mixed, told_averaged, told_notes, told_uneven
from m3b.training.named_channels import told_names
from m3b.training.patients import worth
from m3b.training.pretrained.plan_start import shown
from m3b.training.voxel_spacing import disbelieved


def counted(facts: dict[str, Any]) -> str:
    """The cases in a line."""
    return (
        f"{facts['cases']} cases of {facts['people']}, {facts['ill_share']:.0%} with a finding; {facts['dims']}D, "
        f"{facts['channels']} channel(s), sizes {facts['shapes'].min(0).tolist()} to {facts['shapes'].max(0).tolist()}"
    )


def summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """What was found and decided, in a few lines."""
    shapes, sides = facts["shapes"], facts["sides"]
    what = "boxes" if plan["target"] == "boxes" else "regions in the masks looked at"
    lines = [
        f"{facts['cases']} cases of {facts['people']}, {facts['ill_share']:.0%} with a finding; {what}: "
        f"{facts['counts']}",
        f"{facts['dims']}D, {plan['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {[round(step, 3) for step in facts['spacing']] if facts['spacing'] else 'unknown'}",
        (f"sides of {what}: median {_sides(sides, 50)} pixels, the smallest tenth {_sides(sides, 10)} or less")
        if len(sides)
        else "nothing marked in the sample",
        f"working grid: spacing {plan['spacing']}, longest side {plan['longest']}; patches {plan['patch']}, batch "
        f"{plan['batch']}, {plan['foreground']:.0%} of them on what is marked; intensity {plan['intensity']}",
        f"network {shown(plan['network'])}",
        f"lr {plan['lr']}, augmentation {plan['augment']}; {facts.get('start', 'weights start at random')}",
        told_members(plan),
        told_worth(facts, plan),
    ]
    lines += [
        *told_names(plan),
        *mixed(facts),
        *told_uneven(facts),
        *told_averaged(plan, facts),
        *told_notes(facts),
        *disbelieved(facts),
    ]
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled cases cannot be used: {facts['unreadable'][0]}")
    if facts["odd"]:
        lines.append(f"{len(facts['odd'])} boxes in the sample reach over the border: {facts['odd'][0]}")
    empty = [name for name, count in facts["counts"].items() if not count]
    if empty:
        lines.append(f"nothing marked in the sample for: {', '.join(empty)}")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])


def told_worth(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """What figures of the held-out cases are worth; with folds every case is held out once."""
    known = not str(facts["people"]).startswith("unknown")
    return worth(facts["patients"], 1.0 if count(plan) > 1 else float(plan["validation_share"]), known)


def _sides(sides: np.ndarray, share: float) -> str:
    return " x ".join(f"{v:.0f}" for v in np.percentile(sides, share, axis=0))
