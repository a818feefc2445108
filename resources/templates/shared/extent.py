"""Files whose header holds no true spacing: none at all, or the 1 x 1 x 1 mm that converters write where they know none.

Resampled as if it were true, a placeholder shrinks a chest to a few voxels. Such a volume is taken to show as much of the
body as usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FAR = 2.0
"""So many times larger or smaller than usual along an axis, and a spacing of 1 mm everywhere is not believed."""

Spacing = Sequence[float] | None


def usual_extent(images: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """Median mm an axis of the volumes of which the spacing is known; None where too few are.

    Args:
        images: each with `shape` and `spacing` (or None).
    """
    known = [one for one in images if one["spacing"] and len(one["shape"]) == 3]
    sure = [one for one in known if not _ones(one["spacing"])]
    if not sure or len(sure) < len(images) / 4:
        return None
    extents = [np.array(one["shape"], float) * np.array(one["spacing"]) for one in sure]
    return [round(float(side), 1) for side in np.median(extents, axis=0)]


def true_spacing(shape: Sequence[int], spacing: Spacing, extent: Sequence[float] | None) -> Spacing:
    """The spacing to work with: the file's own, or, where that is missing or a placeholder, what the usual extent implies."""
    if extent is None or len(shape) != len(extent):
        return spacing
    if spacing and not (_ones(spacing) and _far(shape, extent)):
        return spacing
    return [float(side) / count for side, count in zip(extent, shape, strict=True)]


def believe(images: Sequence[dict[str, Any]]) -> tuple[list[float] | None, list[str]]:
    """Puts the spacing to work with into each of `images`; the usual extent, and the paths of those that were not believed."""
    extent, changed = usual_extent(images), []
    for one in images:
        found = true_spacing(one["shape"], one["spacing"], extent)
        if found is not one["spacing"]:
            changed.append(str(one["path"]))
        one["spacing"] = found
    return extent, changed


def disbelieved(facts: Mapping[str, Any]) -> list[str]:
    """A line where spacings were not believed, or none."""
    files = facts["placeholders"]
    if not files:
        return []
    return [
        f"{len(files)} volumes looked at have no spacing, or 1 x 1 x 1 mm as a placeholder (such as {files[0]}): each is taken "
        f"to show as much as the others, {facts['extent']} mm"
    ]


def _ones(spacing: Sequence[float]) -> bool:
    return all(abs(step - 1.0) < 1e-3 for step in spacing)


def _far(shape: Sequence[int], extent: Sequence[float]) -> bool:
    share = np.array(shape, float) / np.array(extent)
    return bool((share > FAR).any() or (share < 1 / FAR).any())
