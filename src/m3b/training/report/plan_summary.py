"""Summary of the studies and of the plan that plan.py prints."""

from __future__ import annotations

import math
from typing import Any

from m3b.training.case_storage import describe_planned_storage
from m3b.training.intensity_scales import describe_applied_conversion, describe_mixed_scales, describe_notes
from m3b.training.named_channels import describe_channel_names
from m3b.training.pretrained.plan_start import summarise_network
from m3b.training.voxel_spacing import describe_grid


def format_summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return the findings and decisions in a few lines."""
    shapes, findings = facts["shapes"], plan["findings"]
    lines = [
        f"{facts['cases']} studies of {facts['people']}, {facts['different']} different texts; findings in "
        f"{facts['present']['findings']}, impression in {facts['present']['impression']}; views a study {facts['views']}",
        f"{facts['dims']}D, {plan['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}",
        f"input {plan['views']} view(s) of {plan['size']} ({describe_grid(plan) or plan['fit']}), intensity {plan['intensity']}",
        f"{plan['vocabulary']} tokens; median length {facts['lengths']}, at most {plan['max_tokens']}; "
        f"writes {' and '.join(plan['sections'])}",
        f"{len(findings)} findings mined from {facts['training']} training reports"
        + (f", {len(plan['classes'])} given" if plan["classes"] else "")
        + f": {', '.join(findings[:12])}{', ...' if len(findings) > 12 else ''}",
        describe_planned_storage(
            plan,
            int(facts["cases"]) * int(plan["views"]),
            4 * int(plan["channels"]) * math.prod(plan["size"]),
        ),
        facts["start"],
        f"network {summarise_network(plan['network'])}, batch {plan['batch']}, lr {plan['lr']}"
        + (" (few studies: image tokens hidden often, small image gradient)" if facts["cases"] < 500 else ""),
        f"{plan['minutes']} min, {plan['warm_share']:.0%} of them for the image encoder on the findings alone, "
        f"{plan['words_share']:.0%} for the writer on reports with their findings",
    ]
    lines += [
        *describe_channel_names(plan),
        *describe_mixed_scales(facts),
        *describe_applied_conversion(plan, facts),
        *describe_notes(facts),
    ]
    if facts["unseen"]:
        lines.append(f"in no training report, so they cannot be learnt: {', '.join(facts['unseen'])}")
    if facts["without_text"]:
        lines.append(f"{facts['without_text']} records have no text in either section and are excluded")
    if facts["cut"]:
        lines.append(f"{facts['cut']} sections are longer than the limit and are cut (max_tokens)")
    if max(facts["views"]) > plan["views"]:
        lines.append(f"some studies have up to {max(facts['views'])} views; the first {plan['views']} are used")
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled images cannot be read: {facts['unreadable'][0]}")
    if not plan["shares"]:
        lines.append(
            "all reports say nearly the same: there is no finding to learn, so the texts can hardly follow the images"
        )
    return "\n".join([*lines, "wrote plan.json (every run of plan.py makes a new one; --set changes single values)"])
