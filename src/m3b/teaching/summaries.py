"""Figures and pictures of trajectories, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

GAP_PX = 6


def summarize_progress(lines: Sequence[Mapping[str, Any]], kept_outcome: str) -> dict[str, Any]:
    """Counts and means of what became of every target.

    Args:
        lines: of the progress file: `outcome`, `way`, `target`, `iou` after each turn.
        kept_outcome: the outcome of what was kept.
    """
    kept_lines = [line for line in lines if line["outcome"] == kept_outcome]
    reasons = Counter(str(line["outcome"]) for line in lines if line["outcome"] != kept_outcome)
    summary: dict[str, Any] = {"tried": len(lines), "kept": len(kept_lines), "left_out": dict(reasons.most_common())}
    for key in ("way", "target"):
        names = dict.fromkeys(str(line[key]) for line in lines)
        summary[f"by_{key}"] = {
            name: _summarize_kept([line for line in kept_lines if line[key] == name]) for name in names
        }
    return summary | _summarize_kept(kept_lines)


def _summarize_kept(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not lines:
        return {"kept": 0}
    turns = Counter(len(line["iou"]) for line in lines)
    return {
        "kept": len(lines),
        "turns": {str(number): turns[number] for number in sorted(turns)},
        "mean_turns": round(float(np.mean([len(line["iou"]) for line in lines])), 4),
        "first_iou": round(float(np.mean([line["iou"][0] for line in lines])), 4),
        "final_iou": round(float(np.mean([line["iou"][-1] for line in lines])), 4),
    }


def make_contact_sheet(files: Sequence[Path]) -> Any:
    """The pictures of one trajectory side by side, as an image of Pillow."""
    from PIL import Image

    images = []
    for file in files:
        with Image.open(file) as source_image:
            images.append(source_image.convert("RGB"))
    width = sum(image.width + GAP_PX for image in images) - GAP_PX
    canvas = Image.new("RGB", (width, max(image.height for image in images)), (255, 255, 255))
    x_offset = 0
    for image in images:
        canvas.paste(image, (x_offset, 0))
        x_offset += image.width + GAP_PX
    return canvas
