"""Number of frames that a model takes from a clip: `cine.mp4#frames=4` is four evenly spaced frames as the slices of a volume;
`cine.mp4#frames=1` and `cine.mp4` are the middle frame as a 2D image.

A clip with fewer frames repeats some. plan.json keeps the number (`frames`), so a model takes clips without a reference in the same
way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_FRAMES = re.compile(r".+#frames=([1-9]\d{0,3})", re.DOTALL)


def find_frame_count(records: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of frames in an index of clips; None if its images are no clips.

    Raises:
        SystemExit: the cases have different numbers of frames.
    """
    examples: dict[int | None, Any] = {}
    for record in records:
        path = record["image_path"]
        match = _FRAMES.fullmatch(path) if isinstance(path, str) else None
        examples.setdefault(int(match[1]) if match else None, path)
    if len(examples) > 1:
        examples_text = "; ".join(
            f"{number or 'no number of'} frames ({path})" for number, path in list(examples.items())[:3]
        )
        raise SystemExit(f"train.json: every image_path must name the same number of frames; found {examples_text}")
    return next(iter(examples), None)


def add_frame_count(path: str, frames: int | None) -> str:
    """Return the path with the model's number of frames; unchanged if the model takes no clips or the path has a reference."""
    return f"{path}#frames={frames}" if frames and "#" not in Path(path).name else path
