"""How many frames a model takes of a clip: `cine.mp4#frames=4` is four evenly spaced frames as the slices of a volume,
`cine.mp4#frames=1`, and `cine.mp4` alone, the middle one as a picture.

A clip of fewer frames repeats some, so that every case has as many. A model keeps the number in plan.json (`frames`), and then
takes clips without a reference in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_FRAMES = re.compile(r".+#frames=([1-9]\d{0,3})", re.DOTALL)


def frames_of(records: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the frames a case of an index of clips; None if its images are none. Ends the program for a mixture."""
    examples: dict[int | None, Any] = {}
    for record in records:
        path = record["image_path"]
        match = _FRAMES.fullmatch(path) if isinstance(path, str) else None
        examples.setdefault(int(match[1]) if match else None, path)
    if len(examples) > 1:
        listed = "; ".join(f"{number or 'no number of'} frames ({path})" for number, path in list(examples.items())[:3])
        raise SystemExit(f"train.json: every image_path must name as many frames of its clip; found {listed}")
    return next(iter(examples), None)


def with_frames(path: str, frames: int | None) -> str:
    """Return a path as a model takes it that was trained on so many frames of a clip; for other models as it is."""
    return f"{path}#frames={frames}" if frames and "#" not in Path(path).name else path
